"""An address at which pods, and only they, reach an API server that listens on loopback alone.

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
from ipaddress import IPv4Network, IPv6Network, ip_interface
from pathlib import Path
from typing import Final

from kvstack.component.logger import Logger

_RANGES: Final[dict[int, IPv4Network | IPv6Network]] = {
    4: IPv4Network("198.18.0.0/15"),
    6: IPv6Network("2001:2::/48"),
}
"""Ranges for benchmarks of network devices (RFC 2544, RFC 5180), which no real network uses."""
_LOOPBACK: Final = "lo"
_IP: Final = {4: "ip", 6: "ip6"}


@contextlib.contextmanager
def address_for_pods(directory: Path, port: int, logger: Logger, family: int = 4) -> Iterator[str]:
    """Give an address that pods reach, until the end; empty: this machine lets none be made.

    family: of the Service `kubernetes`.
    """
    from kvstack.component.net.iptables import IptablesError
    from kvstack.component.net.netlink import Netlink
    from kvstack.component.net.nft import NftError

    if os.geteuid() != 0:
        yield ""
        return
    digest = hashlib.sha256(str(directory.absolute()).encode()).digest()
    ip = address_of(digest, family)
    own = ip_interface(ip)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_guarded(f"kvstack-api-{digest.hex()[:8]}", ip, port, family))
            with Netlink() as links, contextlib.suppress(FileExistsError):
                links.add_address(_LOOPBACK, own)  # or a process that was killed left it
            stack.callback(_remove_address, str(own))
        except (NftError, IptablesError, OSError) as error:
            logger.warning("pods cannot reach the API server at its cluster IP", reason=str(error))
            ip = ""
        yield ip


def address_of(digest: bytes, family: int = 4) -> str:
    """Return the address of a data directory, by the digest of its name."""
    whole = _RANGES[family]
    last = whole.num_addresses - 2
    return str(whole[1 + int.from_bytes(digest[: 4 if family == 4 else 16], "big") % last])


@contextlib.contextmanager
def _guarded(name: str, ip: str, port: int, family: int) -> Iterator[None]:
    """Block an address for all but the machine and its pods; NftError, IptablesError."""
    from kvstack.component.net import iptables, nft

    if nft.is_installed() or not iptables.is_installed(family):
        table = f"{_IP[family]} {name}"
        nft.apply(_nft_rules(table, ip, port, family))
        try:
            yield
        finally:
            with contextlib.suppress(nft.NftError):  # the rules have no effect without the address
                nft.apply(f"add table {table}\ndelete table {table}\n")
        return
    jump = f"-d {ip} -j {name}"
    iptables.restore(family, _iptables_rules(name, port))
    if not iptables.has_rule(family, "filter", "INPUT", jump):
        iptables.restore(family, f"*filter\n-I INPUT {jump}\nCOMMIT\n")
    try:
        yield
    finally:
        with contextlib.suppress(iptables.IptablesError):  # no effect without the address
            gone = f":{name} - [0:0]\n-D INPUT {jump}\n-X {name}\n"
            iptables.restore(family, f"*filter\n{gone}COMMIT\n")


def _nft_rules(table: str, ip: str, port: int, family: int) -> str:
    from kvstack.agents.kubelet.runtime.process.network.pod_network import PAIR

    to = f"{_IP[family]} daddr {ip}"
    return (
        f"add table {table}\ndelete table {table}\nadd table {table}\n"
        f"add chain {table} input {{ type filter hook input priority -5 ; }}\n"
        f'add rule {table} input {to} iifname != "lo" iifname != "{PAIR}*" drop\n'
        f"add rule {table} input {to} tcp dport {port} accept\n"
        f'add rule {table} input {to} iifname != "lo" reject\n'
    )


def _iptables_rules(chain: str, port: int) -> str:
    from kvstack.agents.kubelet.runtime.process.network.pod_network import PAIR

    return (
        f"*filter\n:{chain} - [0:0]\n"
        f"-A {chain} -i lo -j RETURN\n"
        f"-A {chain} -i {PAIR}+ -p tcp -m tcp --dport {port} -j ACCEPT\n"
        f"-A {chain} -i {PAIR}+ -j REJECT\n"
        f"-A {chain} -j DROP\n"
        "COMMIT\n"
    )


def _remove_address(own: str) -> None:
    from kvstack.component.net.netlink import Netlink

    with Netlink() as links, contextlib.suppress(OSError):  # already removed
        links.delete_address(_LOOPBACK, ip_interface(own))
