"""How pods reach an API server that listens on loopback alone: an address that only they can use.

    with address_for_pods(directory, 6443, log) as address:     "198.18.x.y", or empty: none

The address is the machine's own (on `lo`), of a range that no network routes, and always the same
for a data directory. It is what the Service `kubernetes` leads to. A rule lets nothing but the API
server's port be reached there, and that only by this machine and its pods: the machine's networks
see as little of the API server as before. Who asks is authenticated as anywhere.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Final

from kvstack.component.logger import Logger

_RANGE: Final = IPv4Network("198.18.0.0/15")
"""For measuring devices of networks (RFC 2544): no network's own."""
_LOOPBACK: Final = "lo"


@contextlib.contextmanager
def address_for_pods(directory: Path, port: int, logger: Logger) -> Iterator[str]:
    """Give an address that pods reach, until the end; empty: this machine lets none be made."""
    from kvstack.agents.kubelet.runtime.process.network.netlink import Netlink
    from kvstack.agents.proxy.nftables import program

    if os.geteuid() != 0:
        yield ""
        return
    digest = hashlib.sha256(str(directory.absolute()).encode()).digest()
    ip = address_of(digest)
    table = f"ip kvstack-api-{digest.hex()[:8]}"
    own = IPv4Interface(f"{ip}/32")
    with contextlib.ExitStack() as stack:
        try:
            program.apply(_rules(table, ip, port))
            stack.callback(_remove_rules, table)
            with Netlink() as links, contextlib.suppress(FileExistsError):
                links.add_address(_LOOPBACK, own)  # or a process that was killed left it
            stack.callback(_remove_address, own)
        except (program.NftError, OSError) as error:
            logger.warning("pods cannot reach the API server at its cluster IP", reason=str(error))
            ip = ""
        yield ip


def address_of(digest: bytes) -> str:
    """Return the address of a data directory, by the digest of its name."""
    last = _RANGE.num_addresses - 2
    return str(IPv4Address(int(_RANGE[0]) + 1 + int.from_bytes(digest[:4], "big") % last))


def _rules(table: str, ip: str, port: int) -> str:
    from kvstack.agents.kubelet.runtime.process.network.pod_network import PAIR

    return (
        f"add table {table}\ndelete table {table}\nadd table {table}\n"
        f"add chain {table} input {{ type filter hook input priority -5 ; }}\n"
        f'add rule {table} input ip daddr {ip} iifname != "lo" iifname != "{PAIR}*" drop\n'
        f"add rule {table} input ip daddr {ip} tcp dport {port} accept\n"
        f'add rule {table} input ip daddr {ip} iifname != "lo" reject\n'
    )


def _remove_rules(table: str) -> None:
    from kvstack.agents.proxy.nftables import program

    with contextlib.suppress(program.NftError):  # they lead nowhere any more
        program.apply(f"add table {table}\ndelete table {table}\n")


def _remove_address(own: IPv4Interface) -> None:
    from kvstack.agents.kubelet.runtime.process.network.netlink import Netlink

    with Netlink() as links, contextlib.suppress(OSError):  # somebody else took it away
        links.delete_address(_LOOPBACK, own)
