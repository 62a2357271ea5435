"""Responses to ranges, kept for serializable reads until a write through this proxy touches them.

    Range, linearizable or not ─► kept           Range, serializable ─► from the cache, if kept
    Put, DeleteRange, Txn      ─► ranges that overlap the written keys are dropped
    Compact(r)                 ─► reads at a revision below r are refused as compacted

Writes that do not pass this proxy are not seen: a serializable read may be old by any amount, as
with etcd's proxy. A read that overlapped a write in time and keys is not kept, so no kept response
is older than a write through this proxy. What one user read is never returned to another: the token
is part of the key. The least recently used responses are dropped when there are too many or they
are too large.
"""

from collections import OrderedDict
from typing import Final

from kvstore.proxy.key_ranges import KeyRange, overlap

ENTRIES_MAX: Final = 2048
BYTES_MAX: Final = 256 << 20

Key = tuple[str, bytes]  # token, request


class PendingRead:
    """A read that is in flight."""

    __slots__ = ("is_dirty", "key", "revision", "span")

    def __init__(self, key: Key, span: KeyRange, revision: int) -> None:
        self.key = key
        self.span = span
        self.revision = revision  # 0: the current one, so that writes make the response outdated
        self.is_dirty = False  # a write of its keys was sent meanwhile


class RangeCache:
    """Responses by token and request."""

    def __init__(self, entries_max: int = ENTRIES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._entries_max = entries_max
        self._bytes_max = bytes_max
        self._responses: OrderedDict[Key, tuple[bytes, PendingRead]] = OrderedDict()
        self._points: dict[bytes, set[Key]] = {}  # those of one key, by that key
        self._spans: dict[KeyRange, set[Key]] = {}  # those of more keys
        self._pending: set[PendingRead] = set()
        self._size_bytes = 0
        self.compacted = -1

    def __len__(self) -> int:
        """Return how many responses are kept."""
        return len(self._responses)

    def get(self, key: Key) -> bytes | None:
        """Return a response, if it is kept."""
        found = self._responses.get(key)
        if found is None:
            return None
        self._responses.move_to_end(key)
        return found[0]

    def begin(self, key: Key, span: KeyRange, revision: int) -> PendingRead:
        """Note that a range is being read; keep() or discard() must follow."""
        read = PendingRead(key, span, revision)
        self._pending.add(read)
        return read

    def discard(self, read: PendingRead) -> None:
        """Note that a read has ended; does nothing after keep()."""
        self._pending.discard(read)

    def keep(self, read: PendingRead, response: bytes) -> None:
        """Keep the response of a read, unless it may be older than a write."""
        self._pending.discard(read)
        key = read.key
        if read.is_dirty or 0 < read.revision <= self.compacted:
            return
        if len(response) > self._bytes_max:
            return
        self._drop(key)
        if not read.revision:
            self._index(read.span).add(key)
        self._responses[key] = (response, read)
        self._size_bytes += len(response)
        while len(self._responses) > self._entries_max or self._size_bytes > self._bytes_max:
            self._drop(next(iter(self._responses)))

    def invalidate(self, written: KeyRange) -> None:
        """Drop all responses at the current revision that overlap a written range.

        Reads that are in flight will not be kept either.
        """
        for read in self._pending:
            if not read.revision and overlap(read.span, written):
                read.is_dirty = True
        dropped = [keys for span, keys in self._spans.items() if overlap(span, written)]
        start, end = written
        if not end:
            dropped.append(self._points.get(start, set()))
        else:
            points = self._points.items()
            dropped += [keys for point, keys in points if overlap((point, b""), written)]
        for key in [key for keys in dropped for key in keys]:
            self._drop(key)

    def compact(self, revision: int) -> None:
        """Note a compaction."""
        self.compacted = max(self.compacted, revision)

    def _index(self, span: KeyRange) -> set[Key]:
        start, end = span
        return self._spans.setdefault(span, set()) if end else self._points.setdefault(start, set())

    def _drop(self, key: Key) -> None:
        found = self._responses.pop(key, None)
        if found is None:
            return
        response, read = found
        self._size_bytes -= len(response)
        if read.revision:
            return
        keys = self._index(read.span)
        keys.discard(key)
        if keys:
            return
        start, end = read.span
        if end:
            del self._spans[read.span]
        else:
            del self._points[start]
