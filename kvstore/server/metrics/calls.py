"""Calls and messages by method and code, counted a batch at a time.

    count_arrivals(columns) ► started, received     count_answers(out) ──► handled, sent, durations

Most turns answer all calls of their batch. Then no call is stored: a few counts over the whole
batch are enough. Only calls that stay open after their turn are stored, each with its turn.

    slot = number of the turn << METHOD_BITS | method

Ids below 0 are the process's own and are not counted, except those from CLIENT_IDS_FROM downwards
to STORE_IDS: the gateway's calls, because etcd's gateway is a client of its own server. A call
whose client went away is counted as CANCELED, as etcd does. Everything here runs in the driver's
thread.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Final, NamedTuple

from kvstack.component.metrics.histograms import (
    DISK_BOUNDS,
    NANOSECOND_S,
    PROMETHEUS_BOUNDS,
    Histogram,
)
from kvstore.batch import STORE_IDS, AnyDelivery, Inbox, Metadata, Outbox
from kvstore.errors import Code
from kvstore.runtime.local_client import CLIENT_IDS_FROM
from kvstore.wire import rpc
from kvstore.wire.columns import tally
from kvstore.wire.rpc import METHODS, Kind

METHOD_BITS: Final = 8
_METHOD_MASK: Final = (1 << METHOD_BITS) - 1
_VERSION_KEY: Final = "client-api-version"
_VERSIONS_MAX: Final = 32  # clients send any text as their version
_OTHER_VERSION: Final = "other"
_UNKNOWN_VERSION: Final = "unknown"
_UNARY: Final = frozenset(method.id for method in METHODS if method.kind == Kind.UNARY)

_first: Final = itemgetter(0)
_second: Final = itemgetter(1)
_third: Final = itemgetter(2)

CallTuple = tuple[int, int, bytes]
Columns = tuple[
    list[CallTuple],
    list[tuple[int, int]],
    list[tuple[int, bytes]],
    list[int],
    dict[int, Metadata],
]
"""The calls, opened streams, frames, gone ids and metadata of an inbox."""


def columns_of(inbox: Inbox) -> Columns:
    """Return the columns of an inbox that are counted; the node may replace them meanwhile."""
    return inbox.calls, inbox.opened, inbox.frames, inbox.gone, inbox.metadata


Stages = tuple[int, ...]


@dataclass(slots=True)
class SlowCalls:
    """Calls of one method that arrived in one turn, were answered in one turn, and were slow."""

    method: int
    code: int
    count: int
    took_ns: int
    in_one_turn: bool  # answered in the turn they arrived in
    before: Stages  # times spent so far in each stage, when they arrived
    request: bytes | None  # of one of these calls, if still kept
    response: bytes | None  # of the same call
    call_id: int | None = None  # of the same call


class OpenCalls(NamedTuple):
    """Calls or streams of one method that are open."""

    method: int
    count: int  # type: ignore[assignment]
    oldest_ns: int  # age


class _Turn:
    """The turn some open calls arrived in."""

    __slots__ = ("began_ns", "calls", "left", "stages")

    def __init__(self, began_ns: int, stages: Stages, calls: list[CallTuple]) -> None:
        self.began_ns = began_ns
        self.stages = stages
        self.calls = calls
        self.left = len(calls)


class CallCounters:
    """The calls and streams of the client port."""

    def __init__(
        self, slow_ns: int, on_slow: Callable[[SlowCalls], None], *, extensive: bool = False
    ) -> None:
        """on_slow is called with unary calls that took longer than slow_ns.

        extensive: also keep a histogram of the durations of each method.
        """
        assert len(METHODS) <= 1 << METHOD_BITS
        self._slow_ns = slow_ns
        self._on_slow = on_slow
        self.started = [0] * len(METHODS)
        self.received = [0] * len(METHODS)  # messages
        self.sent = [0] * len(METHODS)
        self.received_bytes = 0
        self.sent_bytes = 0
        self.handled: dict[tuple[int, int], int] = {}  # (method, code) → calls
        self.durations: dict[tuple[int, bool], Histogram] = {}  # unary: (method, succeeded)
        self.handling: list[Histogram] | None = None
        if extensive:
            self.handling = [Histogram(PROMETHEUS_BOUNDS) for _ in METHODS]
        self.versions: dict[tuple[str, bool], int] = {}  # (client's version, is unary) → calls
        self._turn = 0
        self._began_ns = 0
        self._stages: Stages = ()
        self._batch: list[CallTuple] = []
        self._batch_counts: dict[int, int] = {}  # its calls by method
        self._open: dict[int, int] = {}  # call → slot
        self._turns: dict[int, _Turn] = {}  # of open calls
        self._streams: dict[int, tuple[int, int]] = {}  # stream → (method, since ns)
        self._others: dict[int, int] = {}  # streams other than watches → method
        self._pages: set[int] = set()  # HTTP requests, not calls, whose answers are streamed

    @property
    def open_calls(self) -> int:
        """How many unary calls are open."""
        return len(self._open)

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    def open_by_method(self, now_ns: int) -> list[OpenCalls]:
        """Return the open calls and streams, in the order of methods."""
        since: dict[int, list[int]] = {}
        for slot in self._open.values():
            began_ns = self._turns[slot >> METHOD_BITS].began_ns
            since.setdefault(slot & _METHOD_MASK, []).append(began_ns)
        for method, began_ns in self._streams.values():
            since.setdefault(method, []).append(began_ns)
        return [
            OpenCalls(method, len(each), now_ns - min(each))
            for method, each in sorted(since.items())
        ]

    # Arrivals.

    def count_arrivals(self, columns: Columns, now_ns: int, stages: Stages) -> None:
        """Count the calls and messages of an inbox; stages: ns spent in each stage so far."""
        self._began_ns = now_ns
        self._stages = stages
        calls, opened, frames, gone, metadata = columns
        if calls:
            if calls[-1][0] < 0:  # the process's own come last
                calls = [call for call in calls if _is_counted(call[0])]
            self._batch = calls
            if calls:
                self._start(calls)
        if opened or frames:
            self._count_streams(opened, frames, now_ns)
        if gone:
            self._cancel(gone, now_ns)
        if opened or metadata:
            self._note_versions(opened, metadata, len(calls))
        elif calls:
            self._note_version(_UNKNOWN_VERSION, len(calls), 0)

    def _start(self, calls: list[CallTuple]) -> None:
        started, received = self.started, self.received
        self._batch_counts, size_bytes = tally(calls)
        for method, count in self._batch_counts.items():
            started[method] += count
            received[method] += count
        self.received_bytes += size_bytes

    def _count_streams(
        self, opened: list[tuple[int, int]], frames: list[tuple[int, bytes]], now_ns: int
    ) -> None:
        for stream_id, method in opened:
            if _is_counted(stream_id):
                self._open_stream(stream_id, method, now_ns)
                self.started[method] += 1
        streams = self._streams
        counts = Counter(map(_first, frames))
        if not streams.keys() >= counts.keys():
            frames = [frame for frame in frames if frame[0] in streams]
            counts = Counter(map(_first, frames))
        for stream_id, count in counts.items():
            self.received[streams[stream_id][0]] += count
        self.received_bytes += sum(map(len, map(_second, frames)))

    def _open_stream(self, stream_id: int, method: int, now_ns: int) -> None:
        self._streams[stream_id] = (method, now_ns)
        if method != rpc.WATCH:
            self._others[stream_id] = method

    def _cancel(self, disconnected: Iterable[int], now_ns: int) -> None:
        for each in disconnected:
            slot = self._open.pop(each, None)
            if slot is not None:
                self._handle_slots(Counter([(slot, int(Code.CANCELED))]), now_ns, None, None)
            elif each in self._streams:
                self._end_stream(each, Code.CANCELED, now_ns)

    def _note_versions(
        self, opened: list[tuple[int, int]], metadata: dict[int, Metadata], calls: int
    ) -> None:
        if not opened:
            named = [each.get(_VERSION_KEY, _UNKNOWN_VERSION) for each in metadata.values()]
            if len(named) == calls and named.count(named[0]) == calls:
                self._note_version(named[0], calls, 0)
                return
        self._note_mixed_versions(opened, metadata, calls)

    def _note_mixed_versions(
        self, opened_streams: list[tuple[int, int]], metadata: dict[int, Metadata], calls: int
    ) -> None:
        ids = [stream_id for stream_id, _ in opened_streams if _is_counted(stream_id)]
        opened = len(ids)
        of_streams = [metadata.get(stream_id, {}) for stream_id in ids]
        streams = Counter(each.get(_VERSION_KEY, _UNKNOWN_VERSION) for each in of_streams)
        named = Counter(
            [
                each.get(_VERSION_KEY, _UNKNOWN_VERSION)
                for call_id, each in metadata.items()
                if _is_counted(call_id)
            ]
        )
        named[_UNKNOWN_VERSION] += calls + opened - named.total()
        for version, count in named.items():
            self._note_version(version, count - streams[version], streams[version])

    def _note_version(self, version: str, unary: int, streams: int) -> None:
        versions = self.versions
        if len(versions) >= _VERSIONS_MAX and (version, bool(unary)) not in versions:
            version = _OTHER_VERSION
        if unary:
            versions[version, True] = versions.get((version, True), 0) + unary
        if streams:
            versions[version, False] = versions.get((version, False), 0) + streams

    # Departures.

    def count_answers(self, out: Outbox, now_ns: int) -> None:
        """Count the answers and messages of an outbox."""
        batch, replies = self._batch, out.replies
        if replies and replies[-1][0] < 0:  # the process's own come last
            replies = [reply for reply in replies if _is_counted(reply[0])]
        if batch or replies:
            self._batch = []
            codes, size_bytes = tally(replies)
            if not self._is_all_answered(batch, codes, now_ns):
                self._count_mixed(batch, replies, now_ns)
            self.sent_bytes += size_bytes
        if out.responses:
            self._pages.update([each[0] for each in out.responses if each[3] is None])
        if out.deliveries:
            self._deliver(out.deliveries)
        for stream_id, code, _ in out.ends:
            self._pages.discard(stream_id)
            if stream_id in self._streams:
                self._end_stream(stream_id, code, now_ns)

    def _is_all_answered(self, batch: list[CallTuple], codes: dict[int, int], now_ns: int) -> bool:
        """Count a turn whose replies answer exactly its batch, all of them OK and none slow.

        codes: how many replies have each code.
        """
        if self._open or codes != {0: len(batch)}:
            return False
        took_ns = now_ns - self._began_ns
        if took_ns > self._slow_ns:
            return False
        counts = self._batch_counts
        if not _UNARY.issuperset(counts):
            return False
        for method, count in counts.items():
            self._handle(method, 0, count, took_ns)
        return True

    def _count_mixed(
        self, batch: list[CallTuple], replies: list[tuple[int, int, bytes]], now_ns: int
    ) -> None:
        """Count a turn with calls that stay open or replies to calls of earlier turns."""
        unary = batch
        if not _UNARY.issuperset(map(_second, batch)):
            unary = [call for call in batch if call[1] in _UNARY]
        if unary:
            self._turn += 1
            base = self._turn << METHOD_BITS
            self._turns[self._turn] = _Turn(self._began_ns, self._stages, unary)
            slots_in = map(base.__or__, map(_second, unary))
            self._open.update(zip(map(_first, unary), slots_in, strict=True))
        if len(unary) < len(batch):
            for call_id, method, _ in batch:
                if method not in _UNARY:
                    self._open_stream(call_id, method, self._began_ns)
        if not replies:
            return
        slots = list(map(self._open.pop, map(_first, replies), repeat(-1)))
        codes = list(map(_second, replies))
        if any(codes):
            counts = Counter(zip(slots, codes, strict=True))
        else:
            counts = Counter({(slot, 0): count for slot, count in Counter(slots).items()})
        self._handle_slots(counts, now_ns, slots, replies)

    def _handle_slots(
        self,
        counts: "Counter[tuple[int, int]]",
        now_ns: int,
        slots: list[int] | None,
        replies: list[tuple[int, int, bytes]] | None,
    ) -> None:
        for (slot, code), count in counts.items():
            if slot < 0:
                continue  # its client had disconnected, or the call is the process's own
            number, method = slot >> METHOD_BITS, slot & _METHOD_MASK
            turn = self._turns[number]
            took_ns = now_ns - turn.began_ns
            self._handle(method, code, count, took_ns)
            if took_ns > self._slow_ns:
                reply = None
                if slots is not None and replies is not None:
                    reply = replies[slots.index(slot)]
                self._report_slow(turn, method, code, count, took_ns, reply)
            turn.left -= count
            if turn.left == 0:
                del self._turns[number]

    def _report_slow(
        self,
        turn: _Turn,
        method: int,
        code: int,
        count: int,
        took_ns: int,
        reply: tuple[int, int, bytes] | None,
    ) -> None:
        request = response = call_id = None
        if reply is not None:
            call_id = reply[0]
            response = reply[2] if reply[1] == Code.OK else None
            request = next((call[2] for call in turn.calls if call[0] == reply[0]), None)
        in_one_turn = turn.began_ns == self._began_ns
        slow = SlowCalls(
            method, code, count, took_ns, in_one_turn, turn.stages, request, response, call_id
        )
        self._on_slow(slow)

    def _handle(self, method: int, code: int, count: int, took_ns: int) -> None:
        handled, key = self.handled, (method, code)
        handled[key] = handled.get(key, 0) + count
        self.sent[method] += count  # etcd counts refusals as well
        took_s = took_ns * NANOSECOND_S
        timed = (method, code == 0)
        duration = self.durations.get(timed)
        if duration is None:
            duration = self.durations[timed] = Histogram(DISK_BOUNDS)
        duration.add(took_s, count)
        if self.handling is not None:
            self.handling[method].add(took_s, count)

    def _end_stream(self, stream_id: int, code: int, now_ns: int) -> None:
        method, since_ns = self._streams.pop(stream_id)
        self._others.pop(stream_id, None)
        key = (method, int(code))
        self.handled[key] = self.handled.get(key, 0) + 1
        if self.handling is not None:
            self.handling[method].add((now_ns - since_ns) * NANOSECOND_S)

    def _deliver(self, deliveries: list[AnyDelivery]) -> None:
        if self._pages or deliveries[-1][0] < 0:  # not of calls; the process's own come last
            streams = self._streams
            deliveries = [each for each in deliveries if each[0] in streams]
        watches = len(deliveries)
        others = self._others
        if others:
            known = map(others.get, map(_first, deliveries))
            for method, count in Counter(known).items():
                if method is not None:
                    self.sent[method] += count
                    watches -= count
        self.sent_bytes += sum(map(len, map(_second, deliveries)))
        self.sent_bytes += sum(map(len, map(_third, deliveries)))
        for each in deliveries:
            if len(each) == 4:  # of watches
                _, head, tail, middles = each
                more = len(middles) - 1  # than the one message that was counted
                watches += more
                self.sent_bytes += more * (len(head) + len(tail)) + sum(map(len, middles))
        self.sent[rpc.WATCH] += watches


def _is_counted(call_id: int) -> bool:
    return call_id > 0 or STORE_IDS < call_id <= CLIENT_IDS_FROM
