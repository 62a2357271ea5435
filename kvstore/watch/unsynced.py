"""Watchers that still have to see events of the past, and whose turn it is.

    revisions   5 ──► {w1, w4}     9 ──► {w2}     40 ──► {w3}        by the next one they need
    rotation    stream A, stream C                                  streams not held, in turn

One pass reads a stretch of history [first, end) and serves every watcher whose next revision lies
in it, whichever stream it is of; `between` finds them. Which stretch is next is decided by stream,
in rotation, so that a client resuming a million revisions ago does not make the others wait.

It moves nothing itself: sending, and being done, is the hub's business.
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
        """How many streams could be served now."""
        return len(self._rotation)

    def add(self, watcher: Watcher) -> None:
        """Take a watcher that needs events from its next revision on."""
        watcher.synced = False
        watcher.stream.unsynced[watcher] = None
        self._count += 1
        self.ranges.add(watcher.key, watcher.end, watcher)
        self._place(watcher)
        self.resume(watcher.stream)

    def remove(self, watcher: Watcher) -> None:
        """Let a watcher go: it has caught up, or is no more."""
        self.ranges.remove(watcher.key, watcher.end, watcher)
        self._displace(watcher)
        self._count -= 1
        unsynced = watcher.stream.unsynced
        del unsynced[watcher]
        if not unsynced:
            self.pause(watcher.stream)

    def advance(self, watcher: Watcher, next_revision: int) -> None:
        """Note that a watcher has seen everything before next_revision."""
        self._displace(watcher)
        watcher.next_revision = next_revision
        self._place(watcher)

    def between(self, first: int, end: int) -> list[Watcher]:
        """Return the watchers with first <= next revision < end."""
        revisions = self._revisions
        stretch = revisions[bisect_left(revisions, first) : bisect_left(revisions, end)]
        return [watcher for revision in stretch for watcher in self._at[revision]]

    def take_stream(self) -> Stream | None:
        """Return the stream whose turn it is, out of the rotation; resume puts it at the end."""
        stream = next(iter(self._rotation), None)
        if stream is not None:
            del self._rotation[stream]
        return stream

    def resume(self, stream: Stream) -> None:
        """Let a stream take part, if it has anything to catch up and is not held."""
        if stream.unsynced and not stream.held:
            self._rotation.setdefault(stream)

    def pause(self, stream: Stream) -> None:
        """Take a stream out of the rotation."""
        self._rotation.pop(stream, None)

    def _place(self, watcher: Watcher) -> None:
        there = self._at.get(watcher.next_revision)
        if there is None:
            insort(self._revisions, watcher.next_revision)
            there = self._at[watcher.next_revision] = {}
        there[watcher] = None

    def _displace(self, watcher: Watcher) -> None:
        revision = watcher.next_revision
        there = self._at[revision]
        del there[watcher]
        if not there:
            del self._at[revision]
            del self._revisions[bisect_left(self._revisions, revision)]
