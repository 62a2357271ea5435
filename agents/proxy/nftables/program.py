"""The program `nft`: transactions in, names of chains and sets out.

    apply(text)              all of it or nothing; raises NftError
    found(4)                 what the table has
    problem()                why it cannot be used here; empty: it can

Calls wait for the program, and are made in threads.
"""

import json
from typing import Final

from kvstack.agents.proxy.nftables.layout import ip
from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.ruleset import TableContents
from kvstack.agents.proxy.services import Family
from kvstack.component.net.nft import NftError, apply, is_installed, problem, run

__all__ = [
    "NOTHING",
    "NftError",
    "apply",
    "found",
    "has_rules",
    "is_installed",
    "problem",
    "remove",
]

NOTHING: Final = TableContents()
"""Of a table that is not there."""


def found(family: Family) -> TableContents:
    """Return what the table has; raises NftError."""
    chains = _names(family, "chain")
    sets = {kind: _names(family, kind) for kind in ("set", "map")}
    return TableContents(chains, {name: kind for kind, names in sets.items() for name in names})


def has_rules(family: Family, chain: str) -> bool:
    """Whether a chain of the table is there, with rules."""
    try:
        told = run("-t", "-j", "list", "chain", ip(family), TABLE, chain)
    except NftError:
        return False
    return any("rule" in each for each in json.loads(told)["nftables"])


def remove(family: Family) -> bool:
    """Take the table away; return whether there was one; raises NftError."""
    if not found(family).chains:
        return False
    apply(f"delete table {ip(family)} {TABLE}\n")
    return True


def _names(family: Family, kind: str) -> frozenset[str]:
    # Without -t the elements would be read as well.
    told = json.loads(run("-t", "-j", "list", f"{kind}s", ip(family)))
    every = [each[kind] for each in told["nftables"] if kind in each]
    wanted = (TABLE, ip(family))
    return frozenset(one["name"] for one in every if (one["table"], one["family"]) == wanted)
