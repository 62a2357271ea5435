"""The program `nft`: whole tables in, names of chains and sets out.

    apply(text)              all of it or nothing; raises NftError
    read(4)                  what the table has
    problem()                why it cannot be used here; empty: it can

It reads all chains and sets before it carries anything out, which takes longer than a change of
one Service is worth: those go straight to the kernel (`messages`). Calls wait for the program, and
are made in threads.
"""

import json
from typing import Final

from kvstack.agents.proxy.nftables.expressions import FAMILIES
from kvstack.agents.proxy.nftables.names import TABLE
from kvstack.agents.proxy.nftables.rules import Rule, Target, ToOneOf, endpoint_maps, ip, text_of
from kvstack.agents.proxy.nftables.ruleset import TableContents
from kvstack.agents.proxy.services import Family
from kvstack.component.net import nft_batch
from kvstack.component.net.nft import NftError, apply, is_installed, run
from kvstack.component.net.nft import problem as nft_problem

__all__ = [
    "NOTHING",
    "NftError",
    "apply",
    "has_rules",
    "is_installed",
    "problem",
    "read",
    "remove",
]

_PROBE: Final = "kvstack-probe"
NOTHING: Final = TableContents()
"""Of a table that is not there."""


def problem() -> str:
    """Return why a table like the proxy's cannot be made; empty: it can. Nothing is left behind."""
    if why := nft_problem():
        return why
    name, declaration = next(iter(endpoint_maps(4).items()))
    targets = (Target("192.0.2.1", 1), Target("192.0.2.2", 2))
    rule = text_of(Rule((ToOneOf("tcp", targets, name),)), 4)
    table = f"ip {_PROBE}"
    lines = (
        f"add table {table}",
        f"add {declaration.replace('map', f'map {table} {name}', 1)}",
        f"add chain {table} probe {{ type nat hook prerouting priority -100 ; }}",
        f"add rule {table} probe {rule}",
    )
    try:
        run("--check", "-f", "-", stdin="".join(f"{line}\n" for line in lines))
    except NftError as error:
        return str(error)
    return ""


def read(family: Family) -> TableContents:
    """Return what the table has; raises NftError."""
    chains = _names(family, "chain")
    sets = {kind: _names(family, kind) for kind in ("set", "map")}
    return TableContents(chains, {name: kind for kind, names in sets.items() for name in names})


def has_rules(family: Family, chain: str) -> bool:
    """Whether a chain of the table is there, with rules."""
    try:
        return nft_batch.has_rules(FAMILIES[family], TABLE, chain)
    except OSError:
        return False


def remove(family: Family) -> bool:
    """Take the table away; return whether there was one; raises NftError."""
    if not read(family).chains:
        return False
    apply(f"delete table {ip(family)} {TABLE}\n")
    return True


def _names(family: Family, kind: str) -> frozenset[str]:
    # Without -t the elements would be read as well.
    told = json.loads(run("-t", "-j", "list", f"{kind}s", ip(family)))
    every = [each[kind] for each in told["nftables"] if kind in each]
    wanted = (TABLE, ip(family))
    return frozenset(one["name"] for one in every if (one["table"], one["family"]) == wanted)
