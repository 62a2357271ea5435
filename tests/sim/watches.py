"""Watchers as clients see them: ordered, unique, reliable, atomic, resumable.

The position of a watcher is the (revision, sub-revision) of the first event it has not seen. The
next event it gets must be the model's next matching one. A message ends between revisions unless it
is marked as a fragment. A header never names a revision whose events are missing, so that a client
may resume after it (a bookmark). After a crash a watcher is resumed after the last message read.
"""

from collections import deque
from dataclasses import dataclass, field

from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.kv_pb2 import Event, KeyValue
from tests.sim.calls import NOBODY, Caller
from tests.sim.checks import Checker
from tests.sim.violation import demand
from tests.support.models.mvcc_model import ModelRow

_C = pb.WatchCreateRequest


@dataclass(slots=True)
class Watcher:
    """One watcher; `next` is its position."""

    request: pb.WatchCreateRequest
    next: tuple[int, int] = (0, 0)
    since: int = 0  # index of the log at which it was created
    in_fragment: bool = False

    def matches(self, row: ModelRow) -> bool:
        """Tell whether an event is for this watcher."""
        request = self.request
        dropped = _C.NODELETE if row.tombstone else _C.NOPUT
        if dropped in request.filters:
            return False
        if not request.range_end:
            return row.key == request.key
        return request.key <= row.key and (
            request.range_end == b"\0" or row.key < request.range_end
        )


@dataclass(slots=True)
class Stream:
    """One watch stream; unread holds (bytes, watcher, revision to go on from)."""

    id: int
    member: int = 0  # where it is open
    caller: Caller = NOBODY
    # Each with what the member had applied when it was asked.
    creates: deque[tuple[pb.WatchCreateRequest, int]] = field(default_factory=deque)
    watchers: dict[int, Watcher] = field(default_factory=dict)
    canceling: set[int] = field(default_factory=set)
    unread: deque[tuple[int, Watcher | None, int]] = field(default_factory=deque)
    unread_bytes: int = 0
    read_to: dict[int, int] = field(default_factory=dict)  # id(watcher) → revision


class Watches:
    """All watch streams, and the watchers to be created again."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.streams: dict[int, Stream] = {}
        self.again: list[pb.WatchCreateRequest] = []
        self.events = 0

    def crashed(self, member: int) -> None:
        """End every stream of a member; its watchers are resumed at any member."""
        for stream in list(self.streams.values()):
            if stream.member == member:
                self.ended(stream.id)

    def ended(self, stream_id: int) -> None:
        """End a stream; its watchers are resumed after the last message read."""
        stream = self.streams.pop(stream_id)
        self.again += [create for create, _ in stream.creates]
        for watcher in stream.watchers.values():
            start = stream.read_to.get(id(watcher), watcher.next[0])
            self._resume(watcher, start)

    def _resume(self, watcher: Watcher, start: int) -> None:
        create = pb.WatchCreateRequest()
        create.CopyFrom(watcher.request)
        create.start_revision = start
        create.watch_id = 0
        self.again.append(create)

    def read(self, stream: Stream, budget_bytes: int) -> None:
        """Read up to so many bytes of a stream."""
        while stream.unread and budget_bytes > 0:
            size_bytes, watcher, revision = stream.unread.popleft()
            budget_bytes -= size_bytes
            stream.unread_bytes -= size_bytes
            if watcher is not None:
                stream.read_to[id(watcher)] = revision

    def delivered(self, stream: Stream, body: bytes) -> None:
        """Check one message."""
        response = pb.WatchResponse.FromString(body)
        if response.header.revision:
            self._checker.seen(stream.member, response.header)
        watcher = stream.watchers.get(response.watch_id)
        if response.created:
            watcher = self._created(stream, response)
        elif response.canceled:
            self._canceled(stream, response)
        elif response.watch_id == -1:
            for each in stream.watchers.values():
                self._bookmark(each, response.header.revision)
                stream.unread.append((0, each, each.next[0]))
        else:
            demand(watcher, "a message for watcher", response.watch_id, "which is not there")
            assert watcher is not None
            self._events(stream, watcher, response)
        going_on = watcher.next[0] if watcher else 0
        stream.unread.append((len(body), watcher, going_on))
        stream.unread_bytes += len(body)

    def _created(self, stream: Stream, response: pb.WatchResponse) -> Watcher | None:
        demand(stream.creates, "a watcher that was not requested:", response)
        create, asked_at = stream.creates.popleft()
        if response.canceled:
            if self._may_be_refused(stream, create, asked_at, response.cancel_reason):
                return None
            is_taken = create.watch_id in stream.watchers or create.watch_id in stream.canceling
            is_empty = bool(create.range_end) and create.range_end != b"\0"
            is_empty = is_empty and create.key >= create.range_end
            demand(is_taken or is_empty, "a valid watcher was refused:", create, response)
            return None
        demand(create.watch_id in (0, response.watch_id), "watcher", create, "is", response)
        demand(response.watch_id not in stream.watchers, "two watchers", response.watch_id)
        start = create.start_revision or response.header.revision + 1
        self._check_access(stream, create)
        since = self._checker.applied[stream.member]
        watcher = stream.watchers[response.watch_id] = Watcher(create, (start, 0), since)
        stream.read_to[id(watcher)] = start
        return watcher

    def _canceled(self, stream: Stream, response: pb.WatchResponse) -> None:
        watcher = stream.watchers.pop(response.watch_id, None)
        if response.compact_revision:
            demand(watcher, "watcher", response.watch_id, "was not there to be canceled")
            assert watcher is not None
            compacted = response.compact_revision
            demand(compacted in self._checker.model.compactions, "never compacted:", response)
            demand(watcher.next[0] < compacted, "watcher at", watcher.next, "canceled:", response)
            stream.canceling.add(response.watch_id)  # the id stays taken
            self._resume(watcher, compacted)
        elif watcher is not None and self._may_be_refused(
            stream, watcher.request, watcher.since, response.cancel_reason
        ):
            stream.read_to.pop(id(watcher), None)
        else:
            demand(
                response.watch_id in stream.canceling, "a cancel that was not requested:", response
            )
            stream.canceling.discard(response.watch_id)

    def _may_be_refused(
        self, stream: Stream, create: pb.WatchCreateRequest, since: int, reason: str
    ) -> bool:
        """Tell whether a watch may have been refused, or ended, for lack of permission."""
        return self._checker.access.explains_cancel(
            stream.caller, stream.member, since, (create.key, create.range_end), reason
        )

    def _check_access(self, stream: Stream, create: pb.WatchCreateRequest) -> None:
        self._checker.access.check_watching(
            stream.caller, stream.member, create.key, create.range_end
        )

    def _events(self, stream: Stream, watcher: Watcher, response: pb.WatchResponse) -> None:
        if response.events:
            self._check_access(stream, watcher.request)
        else:
            demand(watcher.request.progress_notify, "progress that was not requested", response)
        demand(watcher.request.fragment or not response.fragment, "a fragment", response)
        rows = self._checker.model.rows_from(watcher.next[0])
        for event in response.events:
            row = next((each for each in rows if self._is_due(watcher, each)), None)
            demand(
                row, "an event that is not in the model, or comes twice:", event, "at", watcher.next
            )
            assert row is not None
            self._check_event(watcher, row, event)
            watcher.next = (row.main, row.sub + 1)
        self.events += len(response.events)
        watcher.in_fragment = response.fragment
        if not response.fragment:
            last = watcher.next[0] if response.events else 0
            self._bookmark(watcher, max(response.header.revision, last))

    def _is_due(self, watcher: Watcher, row: ModelRow) -> bool:
        return (row.main, row.sub) >= watcher.next and watcher.matches(row)

    def _check_event(self, watcher: Watcher, row: ModelRow, event: Event) -> None:
        model = self._checker.model
        main = row.main
        if row.tombstone:
            wanted = KeyValue(key=row.key, mod_revision=main)
        else:
            wanted = KeyValue.FromString(row.kv)
        is_right = event.kv == wanted and event.type == (
            Event.DELETE if row.tombstone else Event.PUT
        )
        demand(is_right, "event", event, "instead of", wanted, "at", watcher.next)
        before = model.at(row.key, main - 1) if watcher.request.prev_kv else None
        if before is None or (main <= model.compacted and not event.HasField("prev_kv")):
            demand(not event.HasField("prev_kv"), "a previous value that there was not:", event)
        else:
            demand(event.prev_kv == before, "event", event, "came after", before)

    def _bookmark(self, watcher: Watcher, revision: int) -> None:
        """Advance a watcher to the revision of a header: it must have seen all events up to it."""
        self._complete(watcher, revision)
        watcher.next = max(watcher.next, (revision + 1, 0))

    def _complete(self, watcher: Watcher, revision: int) -> None:
        """Check that everything up to a revision was sent."""
        for row in self._checker.model.rows_from(watcher.next[0]):
            if row.main > revision:
                return
            demand(
                not self._is_due(watcher, row),
                "watcher",
                watcher.request,
                "at",
                watcher.next,
                "gets a header of",
                revision,
                "and has not seen",
                row,
            )

    def behind(self) -> list[str]:
        """Return the watchers that have not seen everything, or are to be canceled."""
        found = []
        for stream in self.streams.values():
            for watcher in stream.watchers.values():
                rows = self._checker.model.rows_from(watcher.next[0])
                row = next((each for each in rows if self._is_due(watcher, each)), None)
                key, end = watcher.request.key, watcher.request.range_end
                if not self._checker.access.may_watch(stream.caller, stream.member, key, end):
                    found.append(f"{watcher.request} of {stream.caller} is not canceled")
                elif row is not None or watcher.in_fragment:
                    found.append(f"{watcher.request} at {watcher.next} lacks {row}")
        return found
