"""The programs of iptables, as the proxy uses them; calls wait for them, and are made in threads.

problem(4)     why the rules cannot be written here; empty: they can
"""

from typing import Final

from kvstack.agents.proxy.iptables.layout import (
    FILTER,
    FORWARD,
    MANGLE,
    NAT,
    POSTROUTING,
    SERVICES,
    Layout,
)
from kvstack.agents.proxy.iptables.removal import found_in, removal_of
from kvstack.agents.proxy.iptables.ruleset import Ruleset, TableContents
from kvstack.agents.proxy.rule_settings import RuleSettings
from kvstack.agents.proxy.services import Family
from kvstack.component.net import iptables
from kvstack.component.net.iptables import IptablesError, is_installed

__all__ = ["IptablesError", "has_rules", "is_installed", "problem", "read", "remove", "restore"]

_PROBED: Final = (
    "-m recent --name kvstack-probe --rcheck --seconds 1 --reap -j KUBE-MARK-MASQ",
    "-m statistic --mode random --probability 0.5000000000 -j KUBE-MARK-MASQ",
    "-m tcp -p tcp --dport 1 -j DNAT --to-destination {}:1",
)
"""What rules of ports need of the kernel besides the fixed ones."""


_WATCHED: Final = ((NAT, POSTROUTING), (FILTER, FORWARD))


def problem(family: Family) -> str:
    """Return why rules of a family cannot be written; empty: they can. Nothing is left behind."""
    layout = Layout(RuleSettings(family, node_ips=None, serves_loopback=True))
    address = "192.0.2.1" if family == 4 else "[2001:db8::1]"
    ports = "".join(f"-A KUBE-NODEPORTS {each.format(address)}\n" for each in _PROBED)
    reject = "*filter\n-A KUBE-SERVICES -j REJECT\nCOMMIT\n"
    whole = Ruleset(layout).whole({})
    return iptables.problem(family, f"{whole}{reject}*nat\n{ports}COMMIT\n")


def restore(family: Family, text: str) -> None:
    """Carry changes out; raises IptablesError."""
    iptables.restore(family, text)


def read(family: Family, *, creates: bool = True) -> dict[str, TableContents]:
    """Return what the tables have; raises IptablesError.

    creates: whether tables that the kernel has not yet are made for it.
    """
    tables = (FILTER, NAT, MANGLE) if creates else ("",)
    return found_in("".join(iptables.saved(family, each) for each in tables))


def has_rules(layout: Layout) -> bool:
    """Whether the rules are there, as far as one jump and one chain of each table tell."""
    jumps = [
        each
        for each in layout.jumps
        if (each.chain, each.target) in (("PREROUTING", SERVICES), ("FORWARD", SERVICES))
    ]
    last = ((table, c, layout.chains[table][c][-1]) for table, c in _WATCHED)
    rules = [(each.table, each.chain, each.rule) for each in jumps]
    return all(iptables.has_rule(layout.family, *each) for each in (*rules, *last))


def remove(family: Family) -> bool:
    """Take the rules of a proxy away; return whether there were any; raises IptablesError.

    Tables that the kernel has not yet are not made for it.
    """
    text = removal_of(iptables.saved(family))
    if text:
        iptables.restore(family, text)
    return bool(text)
