"""A controller's own writes that its view does not show yet.

    own_writes.note(key, action, answered)
    own_writes.are_seen(key)      → False: the view is older than the last write for the key

A plan made from a view that lacks what was done before would do it again: create a second pod, or
count a condition twice. So a key waits until its view has everything that was written for it: a
newer resourceVersion of the resource, or a deleted object gone or marked. This takes the place of
upstream's expectations and of its guard against stale caches. A write that no view shows within
five minutes is forgotten. Keys of deleted objects are not reconciled again: with each write
some others are looked at, in turn, and forgotten if they are seen.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, TypeAlias

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import Action, Create, Delete, Patch, Update
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock

_FORGOTTEN_S: Final = 300.0
_LOOKED_AT: Final = 2
"""Keys of other writes with each write; with one, a key that is not seen would keep its place."""

StoreOf: TypeAlias = Callable[[ResourceType], ObjectStore | None]


class _Writes:
    """The writes for one key."""

    __slots__ = ("deleted", "last_s", "versions")

    def __init__(self) -> None:
        self.versions: dict[ResourceType, int] = {}
        self.deleted: dict[tuple[ResourceType, str], str] = {}  # resource and key → uid
        self.last_s = 0.0


class OwnWrites:
    """Remembers writes until the stores show them."""

    def __init__(self, store_of: StoreOf, clock: Clock) -> None:
        """store_of: returns the store of a resource; None: it is not read."""
        self._store_of = store_of
        self._clock = clock
        self._writes: dict[str, _Writes] = {}

    def note(self, key: str, action: Action, answered: Object) -> None:
        """Remember a write for a key."""
        if not isinstance(action, Create | Update | Patch | Delete):
            return
        store = self._store_of(action.resource)
        if store is None or getattr(action, "subresource", "") == "binding":
            return
        self._forget_seen()
        writes = self._writes.get(key)
        if writes is None:
            writes = self._writes[key] = _Writes()
        writes.last_s = self._clock.monotonic_s()
        if isinstance(action, Delete):
            name = f"{action.namespace}/{action.name}" if action.namespace else action.name
            known = store.get(name)
            if known is not None:
                writes.deleted[action.resource, name] = known["metadata"].get("uid", "")
            return
        version = answered.get("metadata", {}).get("resourceVersion", "")
        if version.isdecimal():
            writes.versions[action.resource] = max(
                writes.versions.get(action.resource, 0), int(version)
            )

    def _forget_seen(self) -> None:
        for key in list(islice(self._writes, _LOOKED_AT)):
            if not self.are_seen(key):
                self._writes[key] = self._writes.pop(key)  # behind the others

    def __len__(self) -> int:
        """Return how many keys have writes that are not known to be seen."""
        return len(self._writes)

    def are_seen(self, key: str) -> bool:
        """Return whether the stores show all writes for a key."""
        writes = self._writes.get(key)
        if writes is None:
            return True
        is_old = self._clock.monotonic_s() - writes.last_s > _FORGOTTEN_S
        if not is_old and not (self._has_versions(writes) and self._has_deletions(writes)):
            return False
        del self._writes[key]
        return True

    def _has_versions(self, writes: _Writes) -> bool:
        for resource, version in writes.versions.items():
            store = self._store_of(resource)
            if store is not None and int(store.resource_version or 0) < version:
                return False
        return True

    def _has_deletions(self, writes: _Writes) -> bool:
        for (resource, name), uid in writes.deleted.items():
            store = self._store_of(resource)
            known = None if store is None else store.get(name)
            if (
                known is not None
                and known["metadata"].get("uid", "") == uid
                and not known["metadata"].get("deletionTimestamp")
            ):
                return False
        return True
