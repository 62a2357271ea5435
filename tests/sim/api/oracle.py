"""Everything that ever changed in the store, read by an observer whose way to it has no faults.

    oracle.when(17, check)        check() is called once all changes up to revision 17 are known
    oracle.state_at(17, scope)    the objects there were at revision 17
    oracle.changes_of(scope, 3)   what a watch of the scope must tell after revision 3

Only ConfigMaps are looked into. A broken promise that a check finds is raised in the observer and
ends the world.
"""

import asyncio
import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstore.client.store import Store
from kvstore.client.values import EventKind, Events, Progress, Started
from tests.sim.violation import demand

PREFIX: Final = b"/registry/configmaps/"


class Scope(NamedTuple):
    """What a list or watch selects."""

    namespace: str = ""
    color: str = ""

    def holds(self, key: str, obj: Object | None) -> bool:
        """Whether an object is selected."""
        if obj is None or (self.namespace and not key.startswith(f"{self.namespace}/")):
            return False
        labels = obj["metadata"].get("labels") or {}
        return not self.color or labels.get("color") == self.color


class Change(NamedTuple):
    """One change of one object; None: it was, or is, not there."""

    revision: int
    key: str
    old: Object | None
    old_revision: int
    new: Object | None


class Seen(NamedTuple):
    """What a watch has to tell: DELETED comes with the state before."""

    type: str
    revision: int
    key: str
    obj: Object


_REVISION: Final = attrgetter("revision")


class Oracle:
    """The history of the store's ConfigMaps."""

    def __init__(self) -> None:
        self.revision = 0
        """Everything up to here is known."""
        self.changes: list[Change] = []
        self.by_tag: dict[str, Change] = {}
        """What each write of a client has done; no tag comes twice."""
        self.deletions: dict[str, Change] = {}
        """By uid."""
        self._by_key: dict[str, list[Change]] = {}
        self._waiting: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.checked = 0

    async def follow(self, store: Store) -> None:
        """Take all changes until cancelled."""
        async with store.watch(b"\0", b"\0", start_revision=1, progress_notify=True) as watch:
            async for value in watch:
                match value:
                    case Events():
                        for event in value.events:
                            if event.kv.key.startswith(PREFIX):
                                deleted = event.kind == EventKind.DELETE
                                self._take(
                                    event.kv.key[len(PREFIX) :].decode(),
                                    event.kv.mod_revision,
                                    None if deleted else orjson.loads(event.kv.value),
                                )
                        self._advance(value.events[-1].kv.mod_revision)
                    case Progress():
                        self._advance(value.revision)
                    case Started():
                        pass
                    case _:
                        name = type(value).__name__
                        demand(name in ("Interrupted", "Resumed"), "the observer lost", value)

    def _take(self, key: str, revision: int, new: Object | None) -> None:
        versions = self._by_key.setdefault(key, [])
        last = versions[-1] if versions else None
        old = None if last is None else last.new
        change = Change(revision, key, old, last.revision if last and old else 0, new)
        versions.append(change)
        self.changes.append(change)
        if new is None:
            if old is not None:
                self.deletions[old["metadata"]["uid"]] = change
            return
        tag = tag_of(new)
        if tag:
            demand(tag not in self.by_tag, "write", tag, "was done twice:", change)
            self.by_tag[tag] = change

    def _advance(self, revision: int) -> None:
        self.revision = max(self.revision, revision)
        while self._waiting and self._waiting[0][0] <= self.revision:
            heapq.heappop(self._waiting)[2]()

    def when(self, revision: int, check: Callable[[], None]) -> None:
        """Call a check once everything up to a revision is known."""
        self.checked += 1
        if revision <= self.revision:
            check()
            return
        self._count += 1
        heapq.heappush(self._waiting, (revision, self._count, check))

    async def reach(self, revision: int) -> None:
        """Wait until everything up to a revision is known."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reached() -> None:
            if not future.done():
                future.set_result(None)

        self.when(revision, reached)
        await future

    @property
    def waiting(self) -> int:
        """How many checks are still to be made."""
        return len(self._waiting)

    def at(self, key: str, revision: int) -> Change | None:
        """Return the last change of a key at or before a revision."""
        versions = self._by_key.get(key, [])
        place = bisect_right(versions, revision, key=_REVISION)
        return versions[place - 1] if place else None

    def state_at(self, revision: int, scope: Scope) -> dict[str, tuple[int, Object]]:
        """Return revision and state of all objects of a scope at a revision, by key."""
        found = {}
        for key in self._by_key:
            change = self.at(key, revision)
            if change is not None and change.new is not None and scope.holds(key, change.new):
                found[key] = (change.revision, change.new)
        return found

    def changes_of(self, scope: Scope, after: int) -> Iterator[Seen]:
        """Give what a watch of a scope must tell of changes after a revision, in order."""
        first = bisect_right(self.changes, after, key=_REVISION)
        for place in range(first, len(self.changes)):
            change = self.changes[place]
            was, now = scope.holds(change.key, change.old), scope.holds(change.key, change.new)
            if now:
                assert change.new is not None
                kind = "MODIFIED" if was else "ADDED"
                yield Seen(kind, change.revision, change.key, change.new)
            elif was:
                assert change.old is not None
                yield Seen("DELETED", change.revision, change.key, change.old)


def tag_of(obj: Object) -> str:
    """Return which write of a client made this state."""
    tag: str = (obj.get("data") or {}).get("tag", "")
    return tag
