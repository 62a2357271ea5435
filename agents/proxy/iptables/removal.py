"""What takes the rules of a proxy away, ours or kube-proxy's; and what a table has of them.

    removal_of(saved)     text for iptables-restore, from that of iptables-save; empty: nothing
    found_in(saved)       {"nat": TableContents(chains, jumps)}

A chain that others lead to stays as it is, and so does kubelet's.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kvstack.agents.proxy.iptables.layout import (
    CANARY,
    EXTERNAL_SERVICES,
    FORWARD,
    MARK,
    NODE_PORTS,
    POSTROUTING,
    PROXY_FIREWALL,
    SERVICES,
)
from kvstack.agents.proxy.iptables.names import PREFIXES
from kvstack.agents.proxy.iptables.ruleset import TableContents

_FIXED: Final = frozenset(
    (
        *(SERVICES, EXTERNAL_SERVICES, NODE_PORTS, PROXY_FIREWALL),
        *(FORWARD, POSTROUTING, MARK, CANARY),
    )
)
_OLD_PREFIX: Final = "KUBE-XLB-"
"""Of kube-proxy before 1.24."""


class _Table(NamedTuple):
    """A table, read."""

    system: set[str]
    """Chains that the kernel has by itself."""
    chains: set[str]
    """All others."""
    rules: list[tuple[str, str, str]]
    """Chain, the rule after it, and the chain or target to which it leads."""


def found_in(saved: str) -> dict[str, TableContents]:
    """Return what each table has."""
    return {
        name: TableContents(
            frozenset(table.chains),
            frozenset((chain, target) for chain, _, target in table.rules if chain in table.system),
        )
        for name, table in _tables(saved)
    }


def removal_of(saved: str) -> str:
    """Return what leaves nothing of a proxy in the tables; empty: there is nothing."""
    parts: list[str] = []
    for name, table in _tables(saved):
        ours = {each for each in table.chains if _is_ours(each)}
        others = table.chains - ours
        ours -= {target for chain, _, target in table.rules if chain in others}
        if not ours:
            continue
        leads = (rule for rule in table.rules if rule[2] in ours and rule[0] in table.system)
        parts += [
            f"*{name}",
            *(f":{each} - [0:0]" for each in sorted(ours)),
            *(f"-D {chain} {rule}" for chain, rule, _ in leads),
            *(f"-X {each}" for each in sorted(ours)),
            "COMMIT",
        ]
    return "".join(f"{line}\n" for line in parts)


def _is_ours(chain: str) -> bool:
    return chain in _FIXED or chain.startswith((*PREFIXES, _OLD_PREFIX))


def _tables(saved: str) -> Iterator[tuple[str, _Table]]:
    name, table = "", _Table(set(), set(), [])
    for line in saved.splitlines():
        if line.startswith("*"):
            name, table = line[1:], _Table(set(), set(), [])
        elif line.startswith(":"):
            chain, policy = line[1:].split()[:2]
            (table.chains if policy == "-" else table.system).add(chain)
        elif line.startswith("-A "):
            _, chain, rule = line.split(" ", 2)
            table.rules.append((chain, rule, _target(rule)))
        elif line == "COMMIT":
            yield name, table


def _target(rule: str) -> str:
    words = rule.split()
    leads = [at for at, word in enumerate(words[:-1]) if word in ("-j", "-g")]
    return words[leads[-1] + 1] if leads else ""
