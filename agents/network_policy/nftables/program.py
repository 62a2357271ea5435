"""Puts the table of a node in place; calls wait for the program `nft`, and are made in threads."""

import json
from typing import Final, Protocol

from kvstack.agents.network_policy.nftables.table import CANARY
from kvstack.component.net import nft

TABLE_PREFIX: Final = "kvstack-network-policy-"


class Writer(Protocol):
    """What changes a table."""

    def apply(self, text: str) -> None:
        """Carry a transaction out; raises nft.NftError."""
        ...

    def is_there(self) -> bool:
        """Whether the table has its rules."""
        ...


class NftWriter:
    """Changes a table of this network namespace."""

    def __init__(self, table: str) -> None:
        """Change nothing yet."""
        self._table = table

    def apply(self, text: str) -> None:
        """Carry a transaction out; raises nft.NftError."""
        nft.apply(text)

    def is_there(self) -> bool:
        """Whether the table has its rules, as far as a cheap look shows."""
        try:
            found = nft.run("-t", "-j", "list", "chain", "inet", self._table, CANARY)
        except nft.NftError:
            return False
        return any("rule" in each for each in json.loads(found)["nftables"])


def table_of(bridge: str) -> str:
    """Return the name of the table of a node, by that of its bridge (`kv-1a2b3c4d`)."""
    return TABLE_PREFIX + bridge.rpartition("-")[2]


def remove(bridge: str) -> None:
    """Take away the table of a node that is no more; raises nft.NftError."""
    table = f"inet {table_of(bridge)}"
    nft.apply(f"add table {table}\ndelete table {table}\n")
