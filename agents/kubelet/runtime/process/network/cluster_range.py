"""The range of the pods of a cluster of one machine: the first that is unused there.

    taken = take(directory, state)      10.244.0.0/16, or the next; the same again at a later start

Two clusters on one machine do not take the same: a range is locked while its cluster runs.
"""

import fcntl
import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.network.pod_network import (
    PREFIX,
    STATE,
    is_used,
)
from kvstack.component.errors import ConfigError
from kvstack.component.net.netlink import Netlink

_RANGES: Final = tuple(IPv4Network(f"10.{number}.0.0/16") for number in range(244, 255))
_FILE: Final = "pod-range"


class ClusterRange:
    """A range that is taken until it is given back, or its process ends."""

    def __init__(self, network: IPv4Network, lock: int) -> None:
        """lock: a descriptor."""
        self.network: Final = network
        self._lock = lock

    def give_back(self) -> None:
        """Others may take it."""
        os.close(self._lock)


def take(directory: Path, state: Path = STATE) -> ClusterRange:
    """Reserve the range of a cluster; directory: where it is stored. ConfigError, OSError."""
    file = directory / _FILE
    if file.exists():
        network = IPv4Network(file.read_text().strip())
        lock = _locked(network, state)
        if lock is None:
            raise ConfigError(f"the range {network} of the pods is in use by another cluster")
        return ClusterRange(network, lock)
    with Netlink() as links:
        known, found = links.links(), links.routes()
        # A bridge without pods was left behind.
        idle = {
            each.number
            for each in known
            if each.name.startswith(PREFIX) and not is_used(each, known, found)
        }
        routes = [
            each.network for each in found if each.network.prefixlen and each.link not in idle
        ]
    for network in _RANGES:
        if not any(each.overlaps(network) for each in routes):
            lock = _locked(network, state)
            if lock is not None:
                directory.mkdir(mode=0o750, parents=True, exist_ok=True)
                file.write_text(f"{network}\n")
                return ClusterRange(network, lock)
    raise ConfigError(f"no range from {_RANGES[0]} to {_RANGES[-1]} is free for pods")


def _locked(network: IPv4Network, state: Path) -> int | None:
    """Return a descriptor that holds a range; None: another process does."""
    state.mkdir(mode=0o755, parents=True, exist_ok=True)
    name = str(network).replace("/", "_")
    descriptor = os.open(state / f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
