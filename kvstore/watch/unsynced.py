"""The unsynced watchers, and the order in which their streams are caught up.

    revisions   5 ──► {w1, w4}     9 ──► {w2}     40 ──► {w3}        by the next one they need
    rotation    stream A, stream C                                  streams not paused, in turn

One pass reads a part of history [first, end) and serves every watcher whose next revision is in it,
of any stream; `between` finds them. The streams take turns in choosing that part, so a client that
resumes a million revisions ago does not make the others wait.

This only keeps the order: the hub sends events and decides when a watcher is synced.
"""

from bisect import bisect_left, insort

from kvstore.watch.ranges import Ranges
from kvstore.watch.stream import Stream, Watcher


class UnsyncedWatchers:
    """The unsynced watchers of all streams."""

    __slots__ = ("_at", "_count", "_revisions", "_rotation", "ranges")

    def __init__(self) -> None:
        self.ranges: Ranges[Watcher] = Ranges()
        self._at: dict[int, dict[Watcher, None]] = {}
        self._revisions: list[int] = []  # keys of _at, ascending
        self._rotation: dict[Stream, None] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def waiting_streams(self) -> int:
        """The number of streams that could be served now."""
        return len(self._rotation)

    def add(self, watcher: Watcher) -> None:
        """Add a watcher that needs events from its next revision on."""
        watcher.synced = False
        watcher.stream.unsynced[watcher] = None
        self._count += 1
        self.ranges.add(watcher.key, watcher.end, watcher)
        self._insert(watcher)
        self.resume(watcher.stream)

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher: it is synced, or has ended."""
        self.ranges.remove(watcher.key, watcher.end, watcher)
        self._displace(watcher)
        self._count -= 1
        unsynced = watcher.stream.unsynced
        del unsynced[watcher]
        if not unsynced:
            self.pause(watcher.stream)

    def advance(self, watcher: Watcher, next_revision: int) -> None:
        """Note that a watcher was sent everything before next_revision."""
        self._displace(watcher)
        watcher.next_revision = next_revision
        self._insert(watcher)

    def between(self, first: int, end: int) -> list[Watcher]:
        """Return the watchers with first <= next revision < end."""
        revisions = self._revisions
        found = revisions[bisect_left(revisions, first) : bisect_left(revisions, end)]
        return [watcher for revision in found for watcher in self._at[revision]]

    def take_stream(self) -> Stream | None:
        """Remove and return the next stream of the rotation; resume() appends it again."""
        stream = next(iter(self._rotation), None)
        if stream is not None:
            del self._rotation[stream]
        return stream

    def resume(self, stream: Stream) -> None:
        """Add a stream to the rotation, if it has unsynced watchers and is not paused."""
        if stream.unsynced and not stream.paused:
            self._rotation.setdefault(stream)

    def pause(self, stream: Stream) -> None:
        """Remove a stream from the rotation."""
        self._rotation.pop(stream, None)

    def _insert(self, watcher: Watcher) -> None:
        watchers = self._at.get(watcher.next_revision)
        if watchers is None:
            insort(self._revisions, watcher.next_revision)
            watchers = self._at[watcher.next_revision] = {}
        watchers[watcher] = None

    def _displace(self, watcher: Watcher) -> None:
        revision = watcher.next_revision
        watchers = self._at[revision]
        del watchers[watcher]
        if not watchers:
            del self._at[revision]
            del self._revisions[bisect_left(self._revisions, revision)]
