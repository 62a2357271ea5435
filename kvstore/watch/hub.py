"""The watch streams of one member: they send each watcher its events, in order, exactly once.

    request ──► create, cancel, progress            responses precede the events they concern
    publish ──► this turn's events ──► synced watchers
    step    ──► history            ──► unsynced watchers, until they are synced
                progress notifications, requested or periodic

All messages are appended to `out`, and a stream's messages keep that order, so a progress
notification never overtakes an event.

Invariant, for each watcher: the events it is sent are exactly those of its range from its start
revision on that pass its filters, ascending, none twice, those of one revision together; and no
header has a revision up to which it was not sent everything.

Nothing is queued: the stream of a client that does not read is paused, its watchers keep only their
next revision, and history serves them later. A watcher whose next events are compacted by then is
canceled, as is one that starts below the compacted revision.

Permissions are checked by `permit`. The hub reads no clock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, cast

from kvstore.batch import AnyDelivery
from kvstore.deadlines import Deadlines
from kvstore.errors import TOO_MANY_REQUESTS, Refusal
from kvstore.failpoints import armed, hit
from kvstore.watch.fanout import Batch, Headers, Parts
from kvstore.watch.history import KEY, KV, MAIN, Event, History
from kvstore.watch.ranges import Group, Ranges
from kvstore.watch.request import (
    AUTO_WATCH_ID,
    INVALID_WATCH_ID,
    Cancel,
    Create,
    Progress,
    Refused,
    parse_request,
)
from kvstore.watch.rows import Row, rows_of
from kvstore.watch.stream import HubStats, Stream, StreamBacklog, Watcher, WatchLimits
from kvstore.watch.unsynced import UnsyncedWatchers
from kvstore.wire.splice import watch_head

Permit: TypeAlias = Callable[[int, bytes, bytes | None], str | None]
"""(stream id, key, end) → why that stream may not watch the range, or None; end as in Create"""

_DUPLICATE_ID: Final = "mvcc: duplicate watch ID provided on the WatchStream"
_SHARE_ROWS_MIN: Final = 256  # a stream's share of a step is no smaller than this
_BACKLOGS_MAX: Final = 100  # streams searched for the slowest
_SHARE_BYTES_MIN: Final = 64 << 10


class Rng(Protocol):
    """A random number generator: random.Random is one."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop - 1."""
        ...


class Hub:
    """All watch streams of one member."""

    def __init__(self, history: History, headers: Headers, limits: WatchLimits, rng: Rng) -> None:
        """Watch history from its current revision on; headers: see fanout."""
        self._history = history
        self._headers = headers
        self._limits = limits
        self._rng = rng
        self._revision = history.revision  # published up to here
        self._streams: dict[int, Stream] = {}
        self._watcher_count = 0
        self.events_sent = 0  # to watchers, before their filters
        self._synced: Ranges[Watcher] = Ranges()
        self._unsynced = UnsyncedWatchers()
        self._progress_due: dict[Stream, None] = {}  # progress was requested and not sent yet
        self._ticks = Deadlines()  # of streams with periodic progress notifications
        self._unsent: dict[Stream, None] = {}  # streams that may have something unsent
        self.permit: Permit | None = None  # checked before a watcher is created; None: all may

    def open(self, stream_id: int, now_ns: int) -> None:
        """Open a stream; ValueError if it is open."""
        if stream_id in self._streams:
            raise ValueError(f"watch stream {stream_id} is open already")
        interval_ns = self._limits.progress_interval_ns
        period_ns = interval_ns + self._rng.randrange(max(interval_ns // 10, 1))
        budget_bytes = self._limits.backlog_high_bytes
        self._streams[stream_id] = Stream(stream_id, now_ns, period_ns, budget_bytes)

    def close(self, stream_id: int) -> None:
        """Close a stream and its watchers; one that is not open is ignored."""
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        for watcher in stream.watchers.values():
            if watcher is not None:
                self._remove(watcher)
        self._progress_due.pop(stream, None)
        self._unsent.pop(stream, None)
        self._ticks.drop(stream_id)

    def request(
        self, stream_id: int, body: bytes, now_ns: int, out: list[AnyDelivery]
    ) -> Refusal | None:
        """Handle one WatchRequest; a refusal ends the stream, which the caller then closes.

        Responses are appended to out at once, except progress, which step() sends. A stream that is
        not open (any more) is ignored.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            return None
        limits = self._limits
        over_bytes = stream.sent_bytes - stream.budget_bytes
        if over_bytes > limits.backlog_max_bytes - limits.backlog_high_bytes:
            return TOO_MANY_REQUESTS
        request = parse_request(body)
        if isinstance(request, Refusal):
            return request
        if self.permit is not None and isinstance(request, Create | Refused) and request.key:
            denied = self.permit(stream_id, request.key, request.end)
            if denied is not None:
                self._refuse(stream, denied, out)
                return None
        if isinstance(request, Create):
            self._create(stream, request, now_ns, out)
        elif isinstance(request, Refused):
            self._refuse(stream, request.reason, out)
        elif isinstance(request, Cancel):
            self._cancel(stream, request.watch_id, out)
        elif isinstance(request, Progress):
            self._request_progress(stream)
        return None

    @property
    def has_streams(self) -> bool:
        """Whether any stream is open."""
        return bool(self._streams)

    def stream_ids(self) -> list[int]:
        """Return the open streams."""
        return list(self._streams)

    def recheck(self, permit: Permit, out: list[AnyDelivery]) -> None:
        """Cancel the watchers that permit refuses, with the reason; O(watchers)."""
        for stream in self._streams.values():
            for watcher in list(stream.watchers.values()):
                if watcher is None:
                    continue
                denied = permit(stream.id, watcher.key, watcher.end)
                if denied is not None:
                    del stream.watchers[watcher.id]
                    self._remove(watcher)
                    head = watch_head(
                        self._headers(self._revision),
                        watcher.id,
                        canceled=True,
                        cancel_reason=denied,
                    )
                    self._emit(stream, head, out)

    def publish(self, events: Sequence[Event], out: list[AnyDelivery]) -> None:
        """Send this turn's events, whole revisions in order, to the synced watchers.

        Events up to the published revision are ignored; if some before the first are missing, the
        watchers are caught up from history instead.
        """
        if events and events[0][MAIN] <= self._revision:
            events = [event for event in events if event[MAIN] > self._revision]
        if not events:
            return
        first = events[0][MAIN]
        if first != self._revision + 1:
            self._mark_unsynced(events[-1][MAIN])
        self._revision = events[-1][MAIN]
        if self._watcher_count == len(self._unsynced):
            return
        batch = Batch(events, self._history, self._headers, self._limits.max_message_bytes)
        for watcher in self._send(batch, self._synced, 0, out):
            self._to_unsynced(watcher, max(watcher.next_revision, first))

    def step(
        self,
        now_ns: int,
        backlog: Mapping[int, int],
        budget_rows: int,
        budget_bytes: int,
        out: list[AnyDelivery],
    ) -> bool:
        """Catch watchers up within the budget and send progress; once a turn, after publish.

        backlog: unsent bytes of each stream if above zero, measured before anything of this turn
        was sent. True if more can be done at once.
        """
        if not self._streams:
            self._revision = self._history.revision
            return False
        self._measure(backlog)
        if self._history.revision > self._revision:
            self._mark_unsynced(self._history.revision)
            self._revision = self._history.revision
        if armed and self._unsynced.waiting_streams > 0:
            hit("beforeSyncWatchers")
        self._catch_up(budget_rows, budget_bytes, out)
        self._send_progress(out)
        self._send_periodic_progress(now_ns, out)
        for stream in self._unsent:
            stream.marked_bytes = stream.sent_bytes
        return self._unsynced.waiting_streams > 0

    @property
    def has_paused(self) -> bool:
        """Whether a stream waits until its reader has taken more."""
        return any(stream.paused for stream in self._unsent)

    def next_due_ns(self) -> int | None:
        """Return when step() has periodic progress to send; None: never."""
        return self._ticks.next_ns()

    def stats(self) -> HubStats:
        """Return the counts for metrics."""
        high_bytes = self._limits.backlog_high_bytes
        return HubStats(
            streams=len(self._streams),
            watchers=self._watcher_count,
            synced=self._watcher_count - len(self._unsynced),
            unsynced=len(self._unsynced),
            paused_streams=sum(stream.paused for stream in self._unsent),
            unsent_bytes=sum(
                high_bytes - stream.budget_bytes + stream.sent_bytes for stream in self._unsent
            ),
        )

    def slowest(self, limit: int) -> list[StreamBacklog]:
        """Return up to limit streams that are behind or paused, the furthest behind first."""
        behind = [each.id for each in self._streams.values() if each.unsynced or each.paused]
        backlogs = [self.backlog(stream_id) for stream_id in behind[:_BACKLOGS_MAX]]
        backlogs.sort(key=lambda backlog: backlog.behind_revisions, reverse=True)
        return backlogs[:limit]

    def backlog(self, stream_id: int) -> StreamBacklog:
        """Return how far a stream is behind; KeyError if it is not open."""
        stream = self._streams[stream_id]
        slowest = min((each.next_revision for each in stream.unsynced), default=None)
        return StreamBacklog(
            stream_id=stream_id,
            watchers=sum(each is not None for each in stream.watchers.values()),
            unsynced=len(stream.unsynced),
            paused=stream.paused,
            behind_revisions=0 if slowest is None else self._revision + 1 - slowest,
        )

    # Requests.

    def _create(self, stream: Stream, create: Create, now_ns: int, out: list[AnyDelivery]) -> None:
        if len(stream.watchers) >= self._limits.watchers_per_stream_max:
            limit = self._limits.watchers_per_stream_max
            self._refuse(stream, f"too many watchers on one stream, the limit is {limit}", out)
            return
        watch_id = create.watch_id
        if watch_id == AUTO_WATCH_ID:
            while stream.next_id in stream.watchers:
                stream.next_id += 1
            watch_id = stream.next_id
            stream.next_id += 1
        elif watch_id in stream.watchers:
            self._refuse(stream, _DUPLICATE_ID, out)
            return
        start = create.start_revision
        watcher = Watcher(
            stream,
            watch_id,
            watch_head(b"", watch_id),
            create.key,
            create.end,
            create.flavor,
            start or self._revision + 1,
        )
        stream.watchers[watch_id] = watcher
        self._watcher_count += 1
        if start == 0 or start > self._revision:
            self._synced.add(watcher.key, watcher.end, watcher)
            if start:
                stream.future[watcher] = None
        else:
            self._unsynced.add(watcher)
        if create.progress_notify:
            self._notify(stream, watcher, now_ns)
        self._emit(stream, watch_head(self._headers(self._revision), watch_id, created=True), out)

    def _refuse(self, stream: Stream, reason: str, out: list[AnyDelivery]) -> None:
        head = watch_head(
            self._headers(self._revision),
            INVALID_WATCH_ID,
            created=True,
            canceled=True,
            cancel_reason=reason,
        )
        self._emit(stream, head, out)

    def _cancel(self, stream: Stream, watch_id: int, out: list[AnyDelivery]) -> None:
        if watch_id not in stream.watchers:
            return  # as in etcd
        watcher = stream.watchers.pop(watch_id)
        if watcher is not None:
            self._remove(watcher)
        self._emit(stream, watch_head(self._headers(self._revision), watch_id, canceled=True), out)

    def _remove(self, watcher: Watcher) -> None:
        """Remove a watcher everywhere except in stream.watchers."""
        if watcher.synced:
            self._synced.remove(watcher.key, watcher.end, watcher)
        else:
            self._unsynced.remove(watcher)
        stream = watcher.stream
        stream.future.pop(watcher, None)
        stream.notified.pop(watcher, None)
        if not stream.notified:
            self._ticks.drop(stream.id)
        self._watcher_count -= 1

    def _emit(self, stream: Stream, head: bytes, out: list[AnyDelivery]) -> None:
        out.append((stream.id, head, b""))
        self._unsent[stream] = None
        stream.sent_bytes += len(head)

    # Events.

    def _send(
        self, batch: Batch, ranges: Ranges[Watcher], floor: int, out: list[AnyDelivery]
    ) -> list[Watcher]:
        """Send a batch to the watchers of ranges, from the next revision of each on.

        Watchers whose next revision is below floor are skipped. Synced ones of a group are sent
        their events a row at a time. Returns those that were not sent theirs because their stream
        is paused.
        """
        hits: dict[int, tuple[Watcher | Group[Watcher], list[int]]] = {}
        for at, event in enumerate(batch.events):
            for group in ranges.match(event[KEY]):
                hit = hits.get(id(group))
                if hit is None:
                    hits[id(group)] = (group, [at])
                else:
                    hit[1].append(at)
        missed: list[Watcher] = []
        for group, indexes in hits.values():
            matched = tuple(indexes)
            if not isinstance(group, Group):
                self._send_each(batch, matched, (group,), floor, out, missed)
                continue
            rows: list[Row] | None = None
            if ranges is self._synced:
                rows = cast("list[Row] | None", group.derived) or rows_of(group, batch.mains[0])
                group.derived = rows
            if rows is None:
                self._send_each(batch, matched, group, floor, out, missed)
            else:
                self._send_rows(batch, matched, rows, out, missed)
        return missed

    def _send_rows(
        self,
        batch: Batch,
        matched: tuple[int, ...],
        rows: list[Row],
        out: list[AnyDelivery],
        missed: list[Watcher],
    ) -> None:
        """Send the events at matched to rows of synced watchers, which get all of them."""
        unsent = self._unsent
        parts_of: dict[int, Parts] = {}
        for row in rows:
            flavor, stream, id_fields = row.flavor, row.stream, row.id_fields
            if flavor not in parts_of:
                parts_of[flavor] = batch.parts(matched, flavor)
            parts, size_bytes = parts_of[flavor]
            if not parts:
                continue
            size_bytes *= len(id_fields)
            if stream.paused or stream.sent_bytes + size_bytes > stream.budget_bytes:
                self._send_each(batch, matched, row.watchers, 0, out, missed)
                continue
            stream_id = stream.id
            for header, tail in parts:
                out.append((stream_id, header, tail, id_fields))
            for watcher in row.notified:
                watcher.quiet = False
            self.events_sent += len(matched) * len(id_fields)
            unsent[stream] = None
            stream.sent_bytes += size_bytes

    def _send_each(
        self,
        batch: Batch,
        matched: tuple[int, ...],
        watchers: Iterable[Watcher],
        floor: int,
        out: list[AnyDelivery],
        missed: list[Watcher],
    ) -> None:
        """Send the events at matched to watchers, to each from its next revision on."""
        mains, unsent = batch.mains, self._unsent
        first_main = mains[matched[0]]
        parts_of: dict[int, Parts] = {}  # by flavor, for those that get all of matched
        for watcher in watchers:
            next_revision = watcher.next_revision
            if next_revision < floor:
                continue
            flavor = watcher.flavor
            if next_revision > first_main:
                rest = tuple(at for at in matched if mains[at] >= next_revision)
                parts, size_bytes = batch.parts(rest, flavor)
            elif flavor in parts_of:
                parts, size_bytes = parts_of[flavor]
            else:
                parts, size_bytes = parts_of[flavor] = batch.parts(matched, flavor)
            if not parts:
                continue
            stream = watcher.stream
            if stream.paused:
                missed.append(watcher)
                continue
            stream_id = stream.id
            id_field = watcher.id_field
            for header, tail in parts:
                out.append((stream_id, header + id_field, tail))
            watcher.quiet = False
            self.events_sent += len(matched)
            unsent[stream] = None
            stream.sent_bytes += size_bytes
            if stream.sent_bytes > stream.budget_bytes:
                self._pause(stream)

    def _mark_unsynced(self, up_to: int) -> None:
        """Make every watcher unsynced that may have missed events up to a revision."""
        for stream in self._streams.values():
            for watcher in stream.watchers.values():
                if watcher is None or not watcher.synced:
                    continue
                next_revision = max(watcher.next_revision, self._revision + 1)
                if next_revision <= up_to:
                    self._to_unsynced(watcher, next_revision)

    def _to_unsynced(self, watcher: Watcher, next_revision: int) -> None:
        """Make a synced watcher unsynced."""
        self._synced.remove(watcher.key, watcher.end, watcher)
        watcher.stream.future.pop(watcher, None)
        watcher.next_revision = next_revision
        self._unsynced.add(watcher)

    def _catch_up(self, budget_rows: int, budget_bytes: int, out: list[AnyDelivery]) -> None:
        unsynced = self._unsynced
        if not unsynced.waiting_streams:
            return
        streams = unsynced.waiting_streams
        share_rows = max(budget_rows // streams, _SHARE_ROWS_MIN)
        share_bytes = max(budget_bytes // streams, _SHARE_BYTES_MIN)
        while budget_rows > 0 and budget_bytes > 0:
            stream = unsynced.take_stream()
            if stream is None:
                break
            self._cancel_compacted(stream, out)
            if stream.unsynced:
                first = min(each.next_revision for each in stream.unsynced)
                rows = min(share_rows, budget_rows)
                events = self._pass(first, rows, min(share_bytes, budget_bytes), out)
                budget_rows -= max(len(events), 1)
                budget_bytes -= sum(len(event[KV]) for event in events)
            unsynced.resume(stream)

    def _pass(
        self, first: int, limit_rows: int, limit_bytes: int, out: list[AnyDelivery]
    ) -> Sequence[Event]:
        """Read one part of history from first on for all watchers whose next revision is in it."""
        end = self._revision + 1
        events, next_main = self._history.history(first, end, limit_rows, limit_bytes)
        passing = [
            each for each in self._unsynced.between(first, next_main) if not each.stream.paused
        ]
        batch = Batch(
            events,
            self._history,
            self._headers,
            self._limits.max_message_bytes,
            covered=next_main - 1,
        )
        missed = set(self._send(batch, self._unsynced.ranges, first, out))
        for watcher in passing:
            if watcher in missed:
                continue
            if next_main < end:
                self._unsynced.advance(watcher, next_main)
            else:
                self._unsynced.remove(watcher)
                watcher.next_revision = next_main
                watcher.synced = True
                self._synced.add(watcher.key, watcher.end, watcher)
        return events

    def _cancel_compacted(self, stream: Stream, out: list[AnyDelivery]) -> None:
        """Cancel the watchers of a stream whose next events are compacted, as etcd does.

        The header has no revision then, and the id stays taken until the client cancels it.
        """
        compacted = self._history.compacted
        for watcher in [each for each in stream.unsynced if each.next_revision < compacted]:
            self._remove(watcher)
            stream.watchers[watcher.id] = None
            head = watch_head(
                self._headers(0), watcher.id, canceled=True, compact_revision=compacted
            )
            self._emit(stream, head, out)

    # Back-pressure.

    def _pause(self, stream: Stream) -> None:
        stream.paused = True
        self._unsynced.pause(stream)

    def _measure(self, backlog: Mapping[int, int]) -> None:
        """Take the transport's unsent bytes; pause and resume streams accordingly."""
        limits = self._limits
        for stream_id in backlog:
            if stream_id in self._streams:
                self._unsent[self._streams[stream_id]] = None
        for stream in list(self._unsent):
            unsent_bytes = backlog.get(stream.id, 0)
            stream.sent_bytes -= stream.marked_bytes
            stream.marked_bytes = 0
            stream.budget_bytes = limits.backlog_high_bytes - unsent_bytes
            waiting_bytes = unsent_bytes + stream.sent_bytes
            if stream.paused and waiting_bytes <= limits.backlog_low_bytes:
                stream.paused = False
                self._unsynced.resume(stream)
            elif waiting_bytes > limits.backlog_high_bytes:
                self._pause(stream)
            if waiting_bytes == 0:
                del self._unsent[stream]

    # Progress.

    def _request_progress(self, stream: Stream) -> None:
        """Note a request; as in etcd not of a stream without watchers or with future ones."""
        if any(stream.watchers.values()) and not self._future_of(stream):
            self._progress_due[stream] = None

    def _send_progress(self, out: list[AnyDelivery]) -> None:
        """Send requested progress to the streams whose watchers are all synced."""
        for stream in list(self._progress_due):
            if stream.paused or stream.unsynced or self._future_of(stream):
                continue
            del self._progress_due[stream]
            if any(watcher is not None for watcher in stream.watchers.values()):
                head = watch_head(self._headers(self._revision), INVALID_WATCH_ID)
                self._emit(stream, head, out)

    def _notify(self, stream: Stream, watcher: Watcher, now_ns: int) -> None:
        """Add a watcher to its stream's periodic progress notifications."""
        if not stream.notified:
            late_ns = now_ns - stream.tick_ns
            if late_ns >= 0:
                stream.tick_ns += (late_ns // stream.period_ns + 1) * stream.period_ns
            self._ticks.set(stream.id, stream.tick_ns)
        stream.notified[watcher] = None

    def _send_periodic_progress(self, now_ns: int, out: list[AnyDelivery]) -> None:
        """Send progress to watchers that are synced and had no events for a period."""
        while (stream_id := self._ticks.pop_due(now_ns)) is not None:
            stream = self._streams[stream_id]
            late_ns = now_ns - stream.tick_ns
            stream.tick_ns += (late_ns // stream.period_ns + 1) * stream.period_ns
            self._ticks.set(stream_id, stream.tick_ns)
            header = self._headers(self._revision)
            future = self._future_of(stream)
            for watcher in stream.notified:
                is_idle = watcher.quiet and watcher.synced and not stream.paused
                if is_idle and watcher not in future:
                    self._emit(stream, header + watcher.id_field, out)
                watcher.quiet = True

    def _future_of(self, stream: Stream) -> dict[Watcher, None]:
        """Return the watchers of a stream whose start revision has not been reached."""
        if stream.future:
            stream.future = {
                each: None for each in stream.future if each.next_revision > self._revision
            }
        return stream.future
