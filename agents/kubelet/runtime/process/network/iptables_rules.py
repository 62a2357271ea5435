"""Address translation as chains of iptables, for machines without nft; each is written as a whole.

    raw     kv-…-guard     from PREROUTING
    filter  kv-…-advice    from OUTPUT
    nat     kv-…-ports     from PREROUTING and OUTPUT
            kv-…-leave     from POSTROUTING

Rules and their order are those of `nft_rules`.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kvstack.agents.kubelet.runtime.process.network.translation import (
    LINKS,
    LOOPBACK,
    Translation,
    target,
)
from kvstack.agents.kubelet.runtime.runtime import Port

_NEIGHBOURS: Final = ("neighbour-solicitation", "neighbour-advertisement")
_REDIRECT: Final = {
    4: "-p icmp -m icmp --icmp-type redirect",
    6: "-p icmpv6 -m icmp6 --icmpv6-type redirect",
}


class Jump(NamedTuple):
    """A rule of a chain of the system that leads to one of ours."""

    table: str
    chain: str
    rule: str


def jumps(name: str) -> tuple[Jump, ...]:
    """Return the rules that lead to the chains of a node."""
    return (
        Jump("raw", "PREROUTING", f"-j {name}-guard"),
        Jump("filter", "OUTPUT", f"-j {name}-advice"),
        Jump("nat", "PREROUTING", f"-j {name}-ports"),
        Jump("nat", "OUTPUT", f"-j {name}-ports"),
        Jump("nat", "POSTROUTING", f"-j {name}-leave"),
    )


def rules(translation: Translation) -> str:
    """Return the chains as text for iptables-restore; nothing leads to them by that alone."""
    return "".join(
        f"*{table}\n"
        + "".join(f":{chain} - [0:0]\n" for chain in chains)
        + "".join(f"-A {chain} {rule}\n" for chain, lines in chains.items() for rule in lines)
        + "COMMIT\n"
        for table, chains in _chains(translation).items()
    )


def joined(missing: tuple[Jump, ...]) -> str:
    """Return what puts jumps before all other rules of their chains."""
    return "".join(f"*{each.table}\n-I {each.chain} {each.rule}\nCOMMIT\n" for each in missing)


def removal(name: str, there: tuple[Jump, ...]) -> str:
    """Return what leaves nothing of the chains of a node; there: its jumps that are there."""
    tables: dict[str, list[Jump]] = {}
    for each in jumps(name):
        tables.setdefault(each.table, []).append(each)
    parts = []
    for table, rows in tables.items():
        chains = dict.fromkeys(each.rule.removeprefix("-j ") for each in rows)
        parts += [
            f"*{table}",
            *(f":{chain} - [0:0]" for chain in chains),
            *(f"-D {each.chain} {each.rule}" for each in rows if each in there),
            *(f"-X {chain}" for chain in chains),
            "COMMIT",
        ]
    return "".join(f"{line}\n" for line in parts)


def _chains(translation: Translation) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    pods, loopback, name = f"{translation.pods}+", LOOPBACK[translation.family], translation.name
    guard = [
        f"-i {pods} -d {loopback} -j DROP",
        f"-i {pods} -m rpfilter --invert -j DROP",
    ]
    if translation.family == 6:  # link-local addresses only serve to find the node
        link = f"-i {pods} -s {LINKS}"
        guard += (
            *(f"{link} -p icmpv6 -m icmp6 --icmpv6-type {each} -j RETURN" for each in _NEIGHBOURS),
            f"{link} -j DROP",
        )
    return {
        "raw": {f"{name}-guard": tuple(guard)},
        "filter": {f"{name}-advice": (f"-o {pods} {_REDIRECT[translation.family]} -j DROP",)},
        "nat": {
            f"{name}-ports": tuple(
                f"{_matches(translation, port)} -j DNAT --to-destination {target(address, port)}"
                for address, port in translation.ports()
            ),
            f"{name}-leave": tuple(_leaving(translation, pods, loopback)),
        },
    }


def _leaving(given: Translation, pods: str, loopback: str) -> Iterator[str]:
    own, whole = given.network, given.cluster_range
    yield f"-s {own} ! -d {whole} ! -o {pods} -j MASQUERADE"
    yield f"-s {loopback} -d {own} -j MASQUERADE"
    for address in given.shown:
        yield f"-s {address} -d {address} -m conntrack --ctstate DNAT -j MASQUERADE"


def _matches(given: Translation, port: Port) -> str:
    where = "-m addrtype --dst-type LOCAL" if given.is_anywhere(port) else f"-d {port.host_ip}"
    protocol = port.protocol.lower()
    return f"{where} -p {protocol} -m {protocol} --dport {port.host_port}"
