"""What the machine translates for pods: where they send to, and ports of the node (nftables).

    out of the cluster        from the node's address
    to a port of the node     to the pod that has it (hostPort)
    from a pod to loopback    nowhere
    from another's address    nowhere

`rules` is the whole table, which is put in place at once; `apply` needs the program `nft`. Where a
firewall passes on only what it was told to, as Docker's does, `let_through` tells it.
"""

import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Final

from kvstack.agents.kubelet.runtime.runtime import Port

_PROTOCOLS: Final = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}


class TranslationError(Exception):
    """The rules cannot be put in place."""


def host_ports(ports: Iterable[Port]) -> list[Port]:
    """Return those that the node shows."""
    return [each for each in ports if each.host_port]


def rules(
    table: str,
    pods: str,
    network: IPv4Network,
    shown: Mapping[str, Sequence[Port]],
    cluster_range: IPv4Network,
) -> str:
    """Return a table; shown: ports of the node, by the address of their pod.

    pods: how names of pods' interfaces on the node begin.
    network: of the pods of this node; cluster_range: of those of all nodes, to which pods send from
    their own address.
    """
    lines = [
        f"{_matches(port)} dnat to {address}:{port.number}"
        for address, ports in shown.items()
        for port in ports
    ]
    body = "".join(f"    {line}\n" for line in lines)
    # A pod that reaches itself by a port of the node would answer itself, and not the node.
    own = "".join(
        f"    ip saddr {address} ip daddr {address} ct status dnat masquerade\n"
        for address in shown
    )
    return (
        f"table ip {table}\n"
        f"delete table ip {table}\n"
        f"table ip {table} {{\n"
        "  chain guarding {\n"  # pods' interfaces route loopback's, for ports of the node
        "    type filter hook prerouting priority -300;\n"
        f'    iifname "{pods}*" ip daddr 127.0.0.0/8 drop\n'
        f'    iifname "{pods}*" fib saddr . iif oif missing drop\n'
        "  }\n"
        "  chain advising {\n"  # no way that a pod could take is shorter than its node
        "    type filter hook output priority 0;\n"
        f'    oifname "{pods}*" icmp type redirect drop\n'
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
        f'    ip saddr {network} ip daddr != {cluster_range} oifname != "{pods}*" masquerade\n'
        f"    ip saddr 127.0.0.0/8 ip daddr {network} masquerade\n"
        f"{own}"
        "  }\n"
        "}\n"
    )


def _matches(port: Port) -> str:
    is_any = port.host_ip in ("", "0.0.0.0")
    where = "fib daddr type local" if is_any else f"ip daddr {port.host_ip}"
    return f"{where} {_PROTOCOLS[port.protocol]} dport {port.host_port}"


def let_through(pods: str, network: IPv4Network) -> None:
    """Let the machine's firewall pass on what comes from the pods of a range, and goes to them.

    pods: how names of their interfaces begin.
    """
    _tell_firewall("-I", pods, network)


def let_through_no_more(pods: str, network: IPv4Network) -> None:
    """Take back what `let_through` said."""
    _tell_firewall("-D", pods, network)


def _tell_firewall(action: str, pods: str, network: IPv4Network) -> None:
    if shutil.which("iptables") is None:
        return  # nothing was told to hold anything back
    for interface, side in (("-i", "-s"), ("-o", "-d")):
        rule = ("FORWARD", interface, f"{pods}+", side, str(network), "-j", "ACCEPT")
        there = _runs("iptables", "-w", "-C", *rule)
        if there is (action == "-D") and not _runs("iptables", "-w", action, *rule):
            raise TranslationError(f"iptables {action} {' '.join(rule)} failed")


def _runs(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def is_available() -> bool:
    """Whether this machine has the program."""
    return shutil.which("nft") is not None


def apply(text: str) -> None:
    """Put a table in place; raises TranslationError."""
    _run("-f", "-", given=text)


def remove(bridge: str) -> None:
    """Take the table of a bridge away; raises TranslationError."""
    _run("-f", "-", given=f"table ip {bridge}\ndelete table ip {bridge}\n")


def _run(*arguments: str, given: str) -> None:
    try:
        found = subprocess.run(
            ["nft", *arguments],  # noqa: S607 - of the node's PATH
            input=given,
            check=False,
            capture_output=True,
            text=True,
        )
    except OSError as error:
        raise TranslationError(f"nft: {error.strerror}") from error
    if found.returncode != 0:
        raise TranslationError(f"nft: {found.stderr.strip().partition(chr(10))[0]}")
