"""Address translation as a table of nftables: `ip kv-…` or `ip6 kv-…`, written as a whole."""

from typing import Final

from kvstack.agents.kubelet.runtime.process.network.translation import (
    LINKS,
    LOOPBACK,
    Translation,
    target,
)
from kvstack.agents.kubelet.runtime.runtime import Port

_IP: Final = {4: "ip", 6: "ip6"}
_REDIRECT: Final = {4: "icmp type redirect", 6: "icmpv6 type nd-redirect"}


def rules(translation: Translation) -> str:
    """Return the table."""
    x, pods, loopback = _IP[translation.family], translation.pods, LOOPBACK[translation.family]
    table = f"{x} {translation.name}"
    lines = [
        f"{_matches(translation, port)} dnat to {target(address, port)}"
        for address, port in translation.ports()
    ]
    body = "".join(f"    {line}\n" for line in lines)
    # A pod that reaches itself by a port of the node would answer itself, and not the node.
    own = "".join(
        f"    {x} saddr {address} {x} daddr {address} ct status dnat masquerade\n"
        for address in translation.shown
    )
    return (
        f"table {table}\n"
        f"delete table {table}\n"
        f"table {table} {{\n"
        "  chain guarding {\n"  # pods' interfaces route loopback's, for ports of the node
        "    type filter hook prerouting priority -300;\n"
        f'    iifname "{pods}*" {x} daddr {loopback} drop\n'
        f'    iifname "{pods}*" fib saddr . iif oif missing drop\n'
        f"{_of_links(translation)}"
        "  }\n"
        "  chain advising {\n"  # no way that a pod could take is shorter than its node
        "    type filter hook output priority 0;\n"
        f'    oifname "{pods}*" {_REDIRECT[translation.family]} drop\n'
        "  }\n"
        "  chain arriving {\n"
        "    type nat hook prerouting priority -100;\n"
        f"{body}"
        "  }\n"
        "  chain own {\n"
        "    type nat hook output priority -100;\n"
        f"{body}"
        "  }\n"
        "  chain leaving {\n"
        "    type nat hook postrouting priority 100;\n"
        f"    {x} saddr {translation.network} {x} daddr != {translation.cluster_range}"
        f' oifname != "{pods}*" masquerade\n'
        f"    {x} saddr {loopback} {x} daddr {translation.network} masquerade\n"
        f"{own}"
        "  }\n"
        "}\n"
    )


def _of_links(given: Translation) -> str:
    """Return the rules for link-local addresses: they only serve to find the node."""
    if given.family == 4:
        return ""
    match = f'    iifname "{given.pods}*" ip6 saddr {LINKS}'
    return (
        f"{match} icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert }} accept\n{match} drop\n"
    )


def removal(name: str, family: int) -> str:
    """Return what leaves nothing of the table."""
    return f"table {_IP[family]} {name}\ndelete table {_IP[family]} {name}\n"


def _matches(given: Translation, port: Port) -> str:
    where = f"{_IP[given.family]} daddr {port.host_ip}"
    if given.is_anywhere(port):
        where = "fib daddr type local"
    return f"{where} {port.protocol.lower()} dport {port.host_port}"
