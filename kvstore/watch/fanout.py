"""A batch of events as response bytes, each encoded once for all watchers.

    events          e0@5   e1@5   e2@6   e3@7            (@ main revision)
    watcher group   matches 0, 2, 3                      a set of indexes
    parts           [(header@7, e0 e2 e3)]               shared by the group's watchers of a flavor

A *part* is one response without its watch id: header field, and the events (with the fragment
flag before them). A watcher is sent header + its id field + tail, so only a few bytes are made for
each. Parts depend on the events' indexes and the flavor: previous values or not, filters,
fragments.

A part has whole revisions and stays below the size limit if possible; a single revision that is
larger is sent whole, or in flagged fragments to watchers that requested them.

A header's revision is never too new: it is that of the part's last event. In the last part it may
be `covered`, the revision up to which history was read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from kvstore.watch.history import DELETE, KV, MAIN, PREV, PUT, TYPE, Event, History
from kvstore.watch.request import FRAGMENT, NO_DELETE, NO_PUT, PREV_KV
from kvstore.wire.splice import encode_event, watch_head

Headers: TypeAlias = Callable[[int], bytes]
"""Makes the header field of a response from a main revision."""

Parts: TypeAlias = tuple[list[tuple[bytes, bytes]], int]
"""([(header field, tail)], the approximate size for one watcher in bytes)."""

_Chunk: TypeAlias = tuple[int, list[bytes], int]  # main, encoded events, their bytes
_Bundles: TypeAlias = list[tuple[int, bool, list[bytes]]]

_NOTHING: Final[Parts] = ([], 0)
_HEAD_BYTES_MAX: Final = 64  # header field, watch id, fragment flag
_ID_BYTES_TYPICAL: Final = 4
_FRAGMENT_FIELD: Final = watch_head(b"", 0, fragment=True)


class Batch:
    """Events in order, and the responses encoded from them so far."""

    __slots__ = (
        "_covered",
        "_encoded",
        "_header_of",
        "_headers",
        "_history",
        "_parts",
        "_size_max",
        "events",
        "mains",
    )

    def __init__(
        self,
        events: Sequence[Event],
        history: History,
        headers: Headers,
        max_message_bytes: int,
        covered: int = 0,
    ) -> None:
        """Take events in order of revision; covered: see the module's text, 0: none."""
        self.events = events
        self.mains = [event[MAIN] for event in events]
        self._history = history
        self._headers = headers
        self._size_max = max_message_bytes - _HEAD_BYTES_MAX
        self._covered = covered
        self._header_of: dict[int, bytes] = {}
        self._encoded: tuple[dict[int, bytes], dict[int, bytes]] = ({}, {})  # plain, with prev
        self._parts: dict[tuple[int, tuple[int, ...]], Parts] = {}

    def parts(self, indexes: tuple[int, ...], flavor: int) -> Parts:
        """Return the responses with the events at indexes for watchers of a flavor."""
        parts = self._parts.get((flavor, indexes))
        if parts is None:
            parts = self._parts[flavor, indexes] = self._make(indexes, flavor)
        return parts

    def _make(self, indexes: Sequence[int], flavor: int) -> Parts:
        if flavor & (NO_PUT | NO_DELETE):
            dropped = (PUT if flavor & NO_PUT else None, DELETE if flavor & NO_DELETE else None)
            indexes = [at for at in indexes if self.events[at][TYPE] not in dropped]
        if not indexes:
            return _NOTHING
        if len(indexes) == 1:  # as most are where watchers have keys of their own
            at = indexes[0]
            header = self._header(max(self._covered, self.mains[at]))
            piece = self._encode(at, flavor & PREV_KV)
            return [(header, piece)], len(header) + len(piece) + _ID_BYTES_TYPICAL
        pieces = [(self.mains[at], self._encode(at, flavor & PREV_KV)) for at in indexes]
        last_main = max(self._covered, pieces[-1][0])
        if sum(len(piece) for _, piece in pieces) <= self._size_max:
            parts = [(self._header(last_main), b"".join([piece for _, piece in pieces]))]
        else:
            bundles = self._bundles(pieces, last_main, cut=bool(flavor & FRAGMENT))
            parts = [
                (self._header(main), (_FRAGMENT_FIELD if more else b"") + b"".join(bundle))
                for main, more, bundle in bundles
            ]
        size_bytes = sum(len(header) + len(tail) + _ID_BYTES_TYPICAL for header, tail in parts)
        return parts, size_bytes

    def _bundles(self, pieces: list[tuple[int, bytes]], last_main: int, *, cut: bool) -> _Bundles:
        """Return (main for the header, more fragments follow, events) of each response.

        last_main is for the header of the last one; cut: split too large revisions into fragments.
        """
        whole = _by_size(_by_revision(pieces), self._size_max)
        bundles: _Bundles = []
        for at, (main, bundle) in enumerate(whole):
            header_main = last_main if at == len(whole) - 1 else main
            if not cut:
                bundles.append((header_main, False, bundle))
                continue
            singles = ((main, [piece], len(piece)) for piece in bundle)
            fragments = _by_size(singles, self._size_max)
            bundles += [(header_main, True, fragment) for _, fragment in fragments[:-1]]
            bundles.append((header_main, False, fragments[-1][1]))
        return bundles

    def _encode(self, at: int, with_prev: int) -> bytes:
        encoded = self._encoded[1 if with_prev else 0]
        piece = encoded.get(at)
        if piece is None:
            event = self.events[at]
            prev_kv = self._prev_kv(event) if with_prev else None
            piece = encoded[at] = encode_event(event[TYPE], event[KV], prev_kv)
        return piece

    def _prev_kv(self, event: Event) -> bytes | None:
        """Return the value before the event, as a read at the revision before would return it."""
        revkey = event[PREV]
        if revkey is None or event[MAIN] - 1 < self._history.compacted:
            return None
        return self._history.value_of(revkey)

    def _header(self, main: int) -> bytes:
        header = self._header_of.get(main)
        if header is None:
            header = self._header_of[main] = self._headers(main)
        return header


def _by_revision(pieces: Iterable[tuple[int, bytes]]) -> Iterator[_Chunk]:
    """Yield the pieces of each main revision."""
    for main, group in groupby(pieces, key=itemgetter(0)):
        revision = [piece for _, piece in group]
        yield main, revision, sum(map(len, revision))


def _by_size(chunks: Iterable[_Chunk], size_max: int) -> list[tuple[int, list[bytes]]]:
    """Return (main of the last, pieces) of bundles of chunks: as many as fit, but at least one."""
    bundles: list[tuple[int, list[bytes]]] = []
    left_bytes = 0
    for main, pieces, size_bytes in chunks:
        if bundles and size_bytes <= left_bytes:
            bundle = bundles[-1][1]
            bundle += pieces
            bundles[-1] = (main, bundle)
        else:
            bundles.append((main, pieces))
            left_bytes = size_max
        left_bytes -= size_bytes
    return bundles
