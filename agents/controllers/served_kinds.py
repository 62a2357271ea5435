"""The resource of a kind, by discovery, cached for half a minute.

resource = yield from kinds.resource_of("apps/v1", "Deployment", now_s)
"""

from collections.abc import Generator
from typing import Final

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import Outcome, Step, discover

_KNOWN_S: Final = 30.0


class UnknownKindError(Exception):
    """The server has no such kind; the message is upstream's."""

    def __init__(self, api_version: str, kind: str) -> None:
        super().__init__(f'no matches for kind "{kind}" in version "{api_version}"')


class ServedKinds:
    """Remembers the resources of kinds."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[ResourceType, float]] = {}

    def resource_of(
        self, api_version: str, kind: str, now_s: float
    ) -> Generator[Step, list[Outcome], ResourceType]:
        """Return the resource whose objects are of a kind; raises UnknownKindError."""
        known = self._known.get((api_version, kind))
        if known is not None and now_s - known[1] < _KNOWN_S:
            return known[0]
        found = yield from discover()
        resource = found.of_kind(api_version, kind)
        if resource is None:
            self._known.pop((api_version, kind), None)
            raise UnknownKindError(api_version, kind)
        self._known[api_version, kind] = (resource, now_s)
        return resource
