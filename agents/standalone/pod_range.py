"""The ranges of pod addresses of `kvstack up`, if this machine allows networks of pods.

One of IPv4, one of IPv6, or both: as the flag says, else one of each family that Services have.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final, TypeAlias

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.hosts import has_ipv6, of_families

Network: TypeAlias = IPv4Network | IPv6Network

NONE: Final = "none"
PREFIXES: Final = {4: 24, 6: 64}
"""The prefix length of a node's range, by family."""
_BLOCK_BITS_MAX: Final = 16
"""The maximum that node IPAM accepts: 65,536 nodes."""
_UNIQUE_LOCAL_BITS: Final = 40
_UNIQUE_LOCAL_PREFIX: Final = 48


def parse(text: str) -> tuple[Network, ...]:
    """Return the ranges that a flag asks for (`none`: none); ValueError."""
    if text == NONE:
        return ()
    ranges = of_families(text, ip_network)
    for each in ranges:
        prefix = PREFIXES[each.version]
        if each.prefixlen > prefix:
            raise ValueError(f"{each}: each node gets a /{prefix} of it")
        if prefix - each.prefixlen > _BLOCK_BITS_MAX:
            raise ValueError(f"{each}: /{prefix - _BLOCK_BITS_MAX} is the largest")
    return ranges


@contextlib.contextmanager
def reserve_ranges(
    text: str, families: Sequence[int], directory: Path, logger: Logger
) -> Iterator[tuple[Network, ...]]:
    """Hold ranges; none: pods share the node's address.

    text: as a flag says it; empty: those that are free, one of each of the families. directory:
    where that of IPv4 is remembered.
    """
    if text == NONE or os.geteuid() != 0:
        yield parse(text) if text else ()  # of nodes elsewhere: none is made here
        return
    from kvstack.agents.kubelet.runtime.process.sandboxes import probe_network

    problem = probe_network()
    if problem:
        logger.warning("pods share the node's address: no networks can be made", reason=problem)
        yield ()
    elif text:
        yield _possible(parse(text), logger)
    else:
        with _free(families, directory, logger) as found:
            yield _possible(found, logger)


@contextlib.contextmanager
def _free(
    families: Sequence[int], directory: Path, logger: Logger
) -> Iterator[tuple[Network, ...]]:
    """Reserve a range of each family that is unused on this machine."""
    from kvstack.agents.kubelet.runtime.process.network import cluster_range

    with contextlib.ExitStack() as stack:
        ranges: list[Network] = []
        for family in families:
            if family == 6:
                ranges.append(unique_local(directory))
                continue
            try:
                held = cluster_range.take(directory)
            except (ConfigError, OSError) as error:
                logger.warning("pods share the node's address", reason=str(error))
                continue
            stack.callback(held.give_back)
            ranges.append(held.network)
        yield tuple(ranges)


def unique_local(directory: Path) -> IPv6Network:
    """Return the range of IPv6 of a data directory: unique local addresses (RFC 4193)."""
    digest = hashlib.sha256(str(directory.absolute()).encode()).digest()
    number = 0xFD << _UNIQUE_LOCAL_BITS | int.from_bytes(digest[: _UNIQUE_LOCAL_BITS // 8], "big")
    return IPv6Network((number << (128 - _UNIQUE_LOCAL_PREFIX), _UNIQUE_LOCAL_PREFIX))


def _possible(ranges: tuple[Network, ...], logger: Logger) -> tuple[Network, ...]:
    """Return those of families that this machine has."""
    found = tuple(each for each in ranges if each.version == 4 or has_ipv6())
    if len(found) < len(ranges):
        logger.warning("pods have no addresses of IPv6: this machine has none")
    return found
