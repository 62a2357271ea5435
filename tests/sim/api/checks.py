"""What answers and watches must be, by the history of the store.

- A list is the state at its resourceVersion, exactly. One that asks for the present is at or after
  everything that had been shown to anybody when it was sent; any other is at or after what it asks
  for, or at exactly that.
- A read of one object is its state at some moment between the request and the answer.
- A watch tells every change after its begin, once, in order; a bookmark says that nothing is left
  out up to it. A store that follows one is the state at its resourceVersion.
- A write that was acknowledged was done, once, at the revision it was told; one with a precondition
  on what it names. One that was refused was never done. Of one with an unknown outcome both is so.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from tests.sim.api.oracle import Change, Oracle, Scope, Seen, tag_of
from tests.sim.violation import demand

UNKNOWN: Final = -1


def key_of(obj: Object) -> str:
    """Return namespace and name."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def version_of(obj: Object) -> int:
    """Return the revision that an answer bears."""
    return int(obj["metadata"]["resourceVersion"])


def same(shown: Object, stored: Object) -> bool:
    """Whether an object was shown as it is stored."""
    mine, theirs = shown["metadata"], stored["metadata"]
    fields = ("uid", "name", "namespace", "labels")
    return shown.get("data") == stored.get("data") and all(
        mine.get(each) == theirs.get(each) for each in fields
    )


class Checks:
    """All checks of one world; `revealed` is the highest revision that was shown to anybody."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle: Final = oracle
        self.revealed = 0
        self._refused: set[str] = set()
        self._deleted: list[tuple[str, int, int]] = []  # uid, floor, condition
        self.counts: dict[str, int] = {}

    def count(self, what: str) -> None:
        """Count something that was seen."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def reveal(self, revision: int) -> None:
        """Note that a client was shown this revision."""
        self.revealed = max(self.revealed, revision)

    # Reads.

    def listed(
        self, scope: Scope, items: Iterable[Object], revision: int, floor: int, exact: int = 0
    ) -> None:
        """Check a list: at or after floor, or at exact."""
        self.count("lists")
        demand(revision >= floor, "a list is at", revision, "but", floor, "was shown before")
        demand(not exact or revision == exact, "a list is at", revision, "instead of", exact)
        shown = {key_of(each): each for each in items}
        self.reveal(revision)
        self.oracle.when(revision, lambda: self._equal_state("a list", shown, revision, scope))

    def followed(self, scope: Scope, objects: Mapping[str, Object], revision: int) -> None:
        """Check what a client has that follows a watch."""
        self.count("followed")
        self.reveal(revision)
        shown = dict(objects)
        self.oracle.when(revision, lambda: self._equal_state("a store", shown, revision, scope))

    def _equal_state(
        self, what: str, shown: Mapping[str, Object], revision: int, scope: Scope
    ) -> None:
        wanted = self.oracle.state_at(revision, scope)
        demand(
            shown.keys() == wanted.keys(),
            what, "of", scope, "at", revision, "has", sorted(shown), "instead of", sorted(wanted),
        )  # fmt: skip
        for key, obj in shown.items():
            at, stored = wanted[key]
            is_right = version_of(obj) == at and same(obj, stored)
            demand(is_right, what, "at", revision, "shows", obj, "instead of", at, stored)

    def read(self, key: str, obj: Object | None, floor: int, ceiling: int) -> None:
        """Check a read of one object: it was so between two revisions."""
        self.count("reads")
        if obj is not None:
            self.reveal(version_of(obj))
        self.oracle.when(ceiling, lambda: self._was_so(key, obj, floor, ceiling))

    def _was_so(self, key: str, obj: Object | None, floor: int, ceiling: int) -> None:
        now = self.oracle.at(key, floor)
        states = [now] if now else []
        states += [c for c in self.oracle.changes if c.key == key and floor < c.revision <= ceiling]
        if obj is None:
            holds = now is None or any(each.new is None for each in states)
        else:
            at = version_of(obj)
            holds = any(
                each.revision == at and each.new is not None and same(obj, each.new)
                for each in states
            )
        demand(holds, "a read of", key, "between", floor, "and", ceiling, "shows", obj)

    # Writes.

    def written(self, tag: str, obj: Object, condition: int = 0) -> None:
        """Check an acknowledged write; condition: the revision that it named."""
        self.count("writes")
        revision = version_of(obj)
        self.reveal(revision)

        def check() -> None:
            change = self.oracle.by_tag.get(tag)
            demand(
                change is not None and change.revision == revision,
                "write", tag, "was acknowledged at", revision, "but was done by", change,
            )  # fmt: skip
            assert change is not None
            demand(
                not condition or change.old_revision == condition,
                "write", tag, "on condition of", condition, "was done to", change.old_revision,
            )  # fmt: skip
            demand(change.new is not None and same(obj, change.new), "write", tag, "shows", obj)

        self.oracle.when(revision, check)

    def refused(self, tag: str) -> None:
        """Remember a write that must never be done."""
        self.count("refusals")
        self._refused.add(tag)

    def deleted(self, uid: str, floor: int, condition: int) -> None:
        """Remember an acknowledged deletion."""
        self.count("deletions")
        self._deleted.append((uid, floor, condition))

    def finish(self) -> None:
        """Check what can only be told at the end; the oracle must know everything."""
        done = self._refused & self.oracle.by_tag.keys()
        demand(not done, "these writes were refused, and were done:", sorted(done))
        for uid, floor, condition in self._deleted:
            change = self.oracle.deletions.get(uid)
            demand(change, "the deletion of", uid, "was acknowledged and not done")
            assert change is not None
            demand(change.revision > floor, "a deletion of", uid, "before it was asked for", change)
            demand(
                not condition or change.old_revision == condition,
                "a deletion on condition of", condition, "was done to", change.old_revision,
            )  # fmt: skip
        for change in self.oracle.changes:
            self._counts_on(change)

    def _counts_on(self, change: Change) -> None:
        """Check that no update was lost: each one counts on from the state before."""
        if change.new is None or not tag_of(change.new):
            return
        before, now = _counted(change.old), _counted(change.new)
        kind = change.new["data"]["kind"]
        wanted = {"create": 0, "update": before + 1, "patch": before}[kind]
        demand(now == wanted, "an update was lost: a", kind, "made", now, "of", before, change)


def _counted(obj: Object | None) -> int:
    return int(obj["data"]["n"]) if obj is not None and "n" in (obj.get("data") or {}) else 0


class WatchCheck:
    """The checks of one stream of events."""

    def __init__(self, checks: Checks, name: str, scope: Scope, after: int) -> None:
        self._checks = checks
        self._name = name
        self._scope = scope
        self._checked = after  # all up to here was compared
        self.revision = after
        """The last that was told."""

    def event(self, kind: str, obj: Object) -> None:
        """Check an event."""
        self._checks.count("events")
        revision, key = version_of(obj), key_of(obj)
        demand(
            revision > self.revision,
            self._name, "is told of", revision, "after", self.revision,
        )  # fmt: skip
        self.revision = revision
        self._checks.reveal(revision)
        told = Seen(kind, revision, key, obj)
        self._checks.oracle.when(revision, lambda: self._compare(revision, told))

    def bookmark(self, revision: int) -> None:
        """Check that nothing was left out up to a bookmark."""
        self._checks.count("bookmarks")
        demand(
            revision >= self.revision,
            self._name, "gets a bookmark of", revision, "after", self.revision,
        )  # fmt: skip
        self.revision = revision
        self._checks.reveal(revision)
        self._checks.oracle.when(revision, lambda: self._compare(revision, None))

    def _compare(self, revision: int, reported: Seen | None) -> None:
        wanted = None
        for change in self._checks.oracle.changes_of(self._scope, self._checked):
            if change.revision >= revision + (reported is None):
                wanted = change
                break
            demand(None, self._name, "of", self._scope, "was not told of", change)
        if reported is not None:
            holds = (
                wanted is not None and wanted[:3] == reported[:3] and same(reported.obj, wanted.obj)
            )
            demand(holds, self._name, "was told", reported, "instead of", wanted)
        self._checked = revision
