"""Addresses of this machine, and those of them on which node ports are served.

node_port_ips(["primary"], "192.0.2.5", 4)       ("192.0.2.5",)
node_port_ips(["10.0.0.0/8"], …)                 those of the machine in the range
node_port_ips(["all"], …)                        None: all but loopback
"""

from collections.abc import Sequence
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final

from kvstack.agents.proxy.services import Family

_FOUR: Final = Path("/proc/net/fib_trie")
_SIX: Final = Path("/proc/net/if_inet6")


def node_port_ips(addresses: Sequence[str], node_ip: str, family: Family) -> tuple[str, ...] | None:
    """Return the addresses of a family that serve node ports; None: all but loopback."""
    given = list(addresses) or ["primary"]
    if "all" in given:
        return None
    found = []
    if "primary" in given and node_ip and not ip_address(node_ip).is_loopback:
        found.append(node_ip)
    ranges = [ip_network(each, strict=False) for each in given if "/" in each]
    for text in own_addresses(family) if ranges else ():
        ip = ip_address(text)
        if not ip.is_loopback and any(ip.version == n.version and ip in n for n in ranges):
            found.append(text)
    return tuple(sorted({each for each in found if ip_address(each).version == family}))


def has_loopback(addresses: Sequence[str]) -> bool:
    """Whether loopback addresses of IPv4 are among those that may serve node ports."""
    ranges = [ip_network(each, strict=False) for each in addresses if "/" in each]
    loopback = ip_network("127.0.0.0/8")
    is_named = any(each.version == 4 and each.overlaps(loopback) for each in ranges)
    return is_named or not {"all", "localhost"}.isdisjoint(addresses)


def own_addresses(family: Family) -> list[str]:
    """Return all addresses of this network namespace; raises OSError."""
    if family == 4:
        return _local_of(_FOUR.read_text())
    if not _SIX.exists():
        return []
    numbers = (line.split()[0] for line in _SIX.read_text().splitlines())
    return [str(IPv6Address(int(each, 16))) for each in numbers]


def _local_of(trie: str) -> list[str]:
    """Return what the kernel's table of routes has as local: an address, then how it is."""
    found, last = [], ""
    for line in trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[1]
        elif words[:2] == ["/32", "host"] and words[2:3] == ["LOCAL"]:
            found.append(last)
    return list(dict.fromkeys(found))
