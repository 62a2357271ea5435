"""The traffic of a machine's interfaces, and of its pods that are processes.

They are read from /proc/net/dev. A pod's interface is one side of a pair: what the node's side has
received the pod has sent.
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvstack.agents.kubelet.runtime.process.network.pod_network import (
    INTERFACE,
    is_pair_name,
    pair_name,
)


class Traffic(NamedTuple):
    """The counters of an interface since it was created."""

    name: str
    received_bytes: int
    received_errors: int
    sent_bytes: int
    sent_errors: int
    received_packets: int = 0
    received_dropped: int = 0
    sent_packets: int = 0
    sent_dropped: int = 0


def read(text: str) -> list[Traffic]:
    """Return what /proc/net/dev says, but for the loopback."""
    interfaces = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.partition(":")
        numbers = [int(each) for each in rest.split()]
        if name.strip() != "lo":
            received, sent = numbers[:4], numbers[8:12]
            interfaces.append(
                Traffic(
                    name.strip(),
                    *(received[0], received[2], sent[0], sent[2]),
                    *(received[1], received[3], sent[1], sent[3]),
                )
            )
    return interfaces


def of_node(all_: Sequence[Traffic]) -> list[Traffic]:
    """Return those that do not belong to pods."""
    return [each for each in all_ if not is_pair_name(each.name)]


def of_pod(all_: Sequence[Traffic], uid: str) -> Traffic | None:
    """Return a pod's, as it sees it; None: it has none of its own."""
    wanted = pair_name(uid)
    for each in all_:
        if each.name == wanted:
            _, *amounts = each
            received, sent, more_received, more_sent = (
                amounts[at : at + 2] for at in range(0, 8, 2)
            )
            return Traffic(INTERFACE, *sent, *received, *more_sent, *more_received)
    return None
