"""From which range the pods of `kvstack up` have their addresses, if this machine lets them."""

import contextlib
import os
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

NONE: Final = "none"
PREFIX: Final = 24
"""Of the part that a node is given."""


def parse(text: str) -> IPv4Network | None:
    """Return a range that a flag asks for (`none`: None); ValueError."""
    if text == NONE:
        return None
    found = IPv4Network(text)
    if found.prefixlen > PREFIX:
        raise ValueError(f"{text}: a node is given a /{PREFIX} of it")
    return found


@contextlib.contextmanager
def taken(wanted: str, directory: Path, logger: Logger) -> Iterator[IPv4Network | None]:
    """Hold a range; None: pods share the node's address.

    wanted: as a flag says it; empty: one that is free. directory: where it is remembered.
    """
    if wanted == NONE or os.geteuid() != 0:
        yield parse(wanted) if wanted else None  # of nodes elsewhere: none is made here
        return
    from kvstack.agents.kubelet.runtime.process.network import cluster_range
    from kvstack.agents.kubelet.runtime.process.sandboxes import probe_network

    problem = probe_network()
    if problem:
        logger.warning("pods share the node's address: no networks can be made", reason=problem)
        yield None
    elif wanted:
        yield parse(wanted)
    else:
        try:
            found = cluster_range.take(directory)
        except (ConfigError, OSError) as error:
            logger.warning("pods share the node's address", reason=str(error))
            yield None
            return
        try:
            yield found.network
        finally:
            found.give_back()
