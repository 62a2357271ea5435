"""The latest changes of one resource, so that watches can begin a little in the past.

    Change(7, "a/web", record, previous)     created: no previous one; deleted: no record

    window.since     changes after this revision are here
    window.after(5)  those after revision 5; ForgottenError if some are not here any more
    window.past(5)   what the keys that changed since were at revision 5

It is bounded in changes and in the memory that only it still holds; the oldest go first. It may
hold as much as the objects themselves take (`fit`): who has missed more is as well off with a list.
Objects that expire are kept compressed once they have left it, so their window is short.
`forget` drops what is old, but not the last SMALL_BYTES: where little changes, who was away for
long goes on without the store. What is older stands in the history of the store.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from kvstack.apiserver.registry.record import Record

CHANGES_MAX: Final = 20_000
BYTES_MAX: Final = 16 << 20
BYTES_MIN: Final = 1 << 20
"""What it may hold of a resource with few objects."""
SMALL_BYTES: Final = 128 << 10
EXPIRING_BYTES_MAX: Final = 256 << 10
"""What it may hold of a resource whose objects expire: a hundred events or so."""
CHANGE_BYTES: Final = 120
"""What a change takes in memory (CPython 3.11)."""


class ForgottenError(LookupError):
    """The changes asked for are older than the window."""


class Change:
    """One object was created, changed or deleted."""

    __slots__ = ("_deleted", "encodings", "key", "previous", "record", "revision")

    def __init__(
        self, revision: int, key: str, record: Record | None, previous: Record | None
    ) -> None:
        """Take the object before and after; either may be None."""
        self.revision = revision
        self.key = key
        self.record = record
        self.previous = previous
        self._deleted: Record | None = None
        self.encodings: dict[object, bytes] | None = None
        """The event as it was written for watches, by form."""

    def gone(self) -> Record:
        """Return the previous object with the revision at which it was gone, or out of sight."""
        if self._deleted is None:
            assert self.previous is not None, "there was one"
            self._deleted = self.previous.at_revision(self.revision)
        return self._deleted

    def forget_forms(self) -> None:
        """Drop what was made of the objects for those who have had the change."""
        self.encodings = self._deleted = None

    @property
    def held_bytes(self) -> int:
        """How many bytes nobody but the window holds, about."""
        held = CHANGE_BYTES
        if self.previous is not None:
            held += self.previous.held_bytes
        if self.record is not None and self.record.lease:
            held += self.record.held_bytes  # it is not compressed before it has left the window
        return held


class Window:
    """The latest changes; see the head of the module."""

    def __init__(
        self, since: int, *, changes_max: int = CHANGES_MAX, bytes_max: int = BYTES_MAX
    ) -> None:
        """Begin empty: changes after `since` will come."""
        self.since = since
        self._changes: deque[Change] = deque()
        self._changes_max = changes_max
        self._bytes_max = bytes_max
        self._bytes = 0

    def fit(self, held_bytes: int, *, expires: bool = False) -> None:
        """Bound it by what the objects take, within BYTES_MIN and BYTES_MAX.

        expires: they expire, so that the bound is EXPIRING_BYTES_MAX.
        """
        fitting = min(max(held_bytes, BYTES_MIN), BYTES_MAX)
        self._bytes_max = EXPIRING_BYTES_MAX if expires else fitting

    def __len__(self) -> int:
        """Return how many changes it holds."""
        return len(self._changes)

    def add(self, changes: Sequence[Change]) -> None:
        """Add changes; those of one revision come together, and the oldest leave together."""
        held = self._changes
        for each in changes:
            held.append(each)
            self._bytes += each.held_bytes
            if each.previous is not None:
                each.previous.encodings = None  # they are not counted, and seldom asked for again
        while held and (len(held) > self._changes_max or self._bytes > self._bytes_max):
            self._drop_oldest()

    def forget(self, revision: int) -> None:
        """Drop the changes at or before a revision, but not the last SMALL_BYTES."""
        held = self._changes
        while held and held[0].revision <= revision and self._bytes > SMALL_BYTES:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        held = self._changes
        revision = held[0].revision
        while held and held[0].revision == revision:
            self._bytes -= held.popleft().held_bytes
        self.since = revision

    def after(self, revision: int) -> list[Change]:
        """Return the changes after a revision, in order; ForgottenError."""
        if revision < self.since:
            raise ForgottenError
        found: list[Change] = []
        for each in reversed(self._changes):
            if each.revision <= revision:
                break
            found.append(each)
        found.reverse()
        return found

    def past(self, revision: int) -> dict[str, Record | None]:
        """Return what the keys that changed since a revision were then; ForgottenError."""
        if revision < self.since:
            raise ForgottenError
        found: dict[str, Record | None] = {}
        for each in reversed(self._changes):
            if each.revision <= revision:
                break
            found[each.key] = each.previous
        return found
