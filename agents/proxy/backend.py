"""What makes true what is served: the interface of the modes."""

from collections.abc import Mapping
from typing import Protocol

from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.connections import FlowCleaner


class BackendError(Exception):
    """What is served could not be made true; it is tried again."""


class Backend(Protocol):
    """One family on one node."""

    @property
    def mode(self) -> str:
        """As `/proxyMode` tells it."""
        ...

    @property
    def rule_counts(self) -> Mapping[str, int]:
        """How many rules each table has of the proxy's, where that is counted."""
        return {}

    @property
    def last_rule_counts(self) -> Mapping[str, int]:
        """How many rules the last sync wrote to each table, where that is counted."""
        return {}

    @property
    def cleanup_failures(self) -> int:
        """How often what was used no more could not be taken away."""
        return 0

    @property
    def flows(self) -> FlowCleaner | None:
        """What deletes flows of UDP that lead astray, in modes of rules."""
        return None

    async def write(self, changes: Changes, view: ClusterView) -> None:
        """Make changes true, after all was written once; raises BackendError."""
        ...

    async def write_all(self, view: ClusterView) -> None:
        """Make all of it true, whatever is there now; raises BackendError."""
        ...

    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        """Take the ranges of cluster IPs; return whether all is to be written for it."""
        ...

    async def is_there(self) -> bool:
        """Whether what was written is still there, as far as a cheap look tells."""
        ...

    async def tidy(self) -> None:
        """Take away what was left because it was too early to; a failure waits for the next."""
        ...

    async def close(self) -> None:
        """End; what is left of it is the mode's affair."""
        ...
