"""The watches of one client on one stream, opened again when it breaks.

    watch ── create ──► stream ──► endpoint           ids are chosen here, a new one for each create
    watch ◄── values ── stream ◄──
    break ──► pause ──► another endpoint ──► every watch again, from its next revision

The stream is opened for the first watch and closed with the last. A new token of the user is
fetched for it, because use on a stream does not extend a token. A permanent refusal ends its
watches. If a server's revision is older than what a watch has seen, the cluster is asked whether
that server is behind or the store was restored.
"""

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from kvstore.client.channel import Channel, ChannelStream, Metadata
from kvstore.client.codec import encode
from kvstore.client.codec.decode import CANCELED, CREATED, FRAGMENT, Decoder
from kvstore.client.errors import (
    CallFailedError,
    ClosedError,
    MalformedAnswerError,
    PermissionDeniedError,
    StoreError,
    UnauthenticatedError,
    error_of,
    error_of_text,
)
from kvstore.client.options import ClientOptions
from kvstore.client.tokens import Tokens
from kvstore.client.values import (
    Compacted,
    Event,
    Events,
    Interrupted,
    Progress,
    Restored,
    Resumed,
    Started,
    WatchValue,
)
from kvstore.client.watch import Watch
from kvstore.errors import Code
from kvstore.wire import rpc

_PAUSE_S: Final = 0.02
_PAUSE_MAX_S: Final = 2.0
_PAUSE_FACTOR: Final = 1.6
_FRESH_S: Final = 10.0  # a stream this young has a token that every server still accepts
_SETTLED_S: Final = 1.0  # a stream that lasted this long worked
_ASK_AGAIN_S: Final = 0.2  # progress: a server that is busy with older changes does not answer
_EVENT_COST: Final = 512  # bytes an event counts besides its message
_ALL_WATCHES: Final = -1  # the watch id of an answer to a progress request, or of a refusal
_HAS_LEADER: Final = ("hasleader", "true")
_DENIALS_MAX: Final = 2
# Reasons that may not hold at the next endpoint, or a moment later; all others are final.
_PASSING: Final = frozenset(
    {
        Code.UNAVAILABLE,
        Code.INTERNAL,
        Code.UNKNOWN,
        Code.CANCELED,
        Code.ABORTED,
        Code.DEADLINE_EXCEEDED,
        Code.RESOURCE_EXHAUSTED,
    }
)


class WatchSession:
    """All watches of a client; the sink of their stream."""

    def __init__(
        self,
        channel: Channel,
        tokens: Tokens,
        decoder: Decoder,
        options: ClientOptions,
        current_revision: Callable[[], Awaitable[int]],
    ) -> None:
        """Create the session, without a stream; current_revision asks the whole cluster."""
        self._channel = channel
        self._tokens = tokens
        self._decode = decoder.watch
        self._options = options
        self._current_revision = current_revision
        self._loop = asyncio.get_running_loop()
        self._random = random.Random(options.seed)  # noqa: S311 - back-off
        self._watches: dict[Watch, None] = {}  # in the order of arrival
        self._by_id: dict[int, Watch] = {}  # on the stream
        self._creating: deque[int] = deque()  # ids, in the order servers answer
        self._last_id = 0
        self._stream: ChannelStream | None = None
        self._opened_at = 0.0
        self._opening: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._pause_s = 0.0
        self._queued_bytes = 0
        self._asked: set[Watch] = set()  # a progress request is unanswered
        self._asking: set[Watch] = set()  # since then
        self._starts_early = False  # watches start one revision before the next they need
        self._ask_timer: asyncio.TimerHandle | None = None
        self._last_tail: tuple[bytes, list[Event]] = (b"", [])
        self._metadata: tuple[Metadata | None, Metadata | None] = (None, None)
        self._is_closed = False

    # For watches.

    def add(self, watch: Watch) -> None:
        """Serve a watch until it is removed or ends."""
        if self._is_closed:
            watch.finish(ClosedError("the store was closed"))
            return
        self._watches[watch] = None
        if self._stream is not None:
            self._create(watch)
        elif self._opening is None:
            self._open_soon(None)

    def remove(self, watch: Watch) -> None:
        """Stop serving a watch."""
        if watch not in self._watches:
            return
        del self._watches[watch]
        self._leave_stream(watch, is_known=False)
        self._asked.discard(watch)
        self._asking.discard(watch)
        if not self._watches:
            self._close_stream()

    def consume(self, watch: Watch, size_bytes: int) -> None:
        """Note that a reader has consumed values of so many bytes."""
        self._queued_bytes -= size_bytes
        if watch.is_suspended and watch.queued_bytes <= watch.resume_below:
            watch.is_suspended = False
            if self._stream is not None and watch in self._watches:
                self._create(watch)

    def request_progress(self, watch: Watch) -> None:
        """Request a progress notification for a watch."""
        self._asking.add(watch)
        if not self._starts_early:
            self._start_early()
        if watch.is_running and not self._asked:
            self._ask_progress()

    def close(self) -> None:
        """End all watches with ClosedError."""
        self._is_closed = True
        for task in (self._opening, self._checking):
            if task is not None:
                task.cancel()
        self._close_stream()
        for watch in self._take_all():
            watch.finish(ClosedError("the store was closed"))

    # The stream.

    def _open_soon(self, broken: CallFailedError | None) -> None:
        """Open the stream, after the pause and once there is a token."""
        if broken is None and not self._tokens.can_renew and not self._pause_s:
            self._open()
            return
        self._opening = self._loop.create_task(self._open_again(), name="watch stream")
        self._opening.add_done_callback(self._opened)

    async def _open_again(self) -> None:
        while True:
            pause_s = self._pause_s
            self._pause_s = min(max(pause_s * _PAUSE_FACTOR, _PAUSE_S), _PAUSE_MAX_S)
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))
            try:
                await self._tokens.renew(self._tokens.metadata, self._options.timeout_s)
            except CallFailedError as failure:
                error = error_of(failure, is_change=False)
                if isinstance(error, UnauthenticatedError | PermissionDeniedError):
                    self._fail(error)
                    return
                continue
            break
        self._opening = None  # before the stream is set: it may break immediately
        if self._watches:
            self._open()

    def _opened(self, task: asyncio.Task[None]) -> None:
        if self._opening is task:
            self._opening = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(StoreError(f"the stream of watches: {error!r}"))
            raise error

    def _open(self) -> None:
        self._creating.clear()
        self._opened_at = self._loop.time()
        self._stream = self._channel.open(rpc.WATCH, self._stream_metadata(), self)
        for watch in self._watches:
            if not watch.is_suspended:
                self._create(watch)
        self._asking |= self._asked
        self._asked.clear()

    def _stream_metadata(self) -> Metadata | None:
        metadata = self._tokens.metadata
        if not self._options.require_leader:
            return metadata
        if self._metadata[0] is not metadata or self._metadata[1] is None:
            self._metadata = (metadata, (*(metadata or ()), _HAS_LEADER))
        return self._metadata[1]

    def _close_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
        if self._ask_timer is not None:
            self._ask_timer.cancel()
            self._ask_timer = None

    def _create(self, watch: Watch, *, is_exact: bool = False) -> None:
        """Create a watch on the stream; is_exact: not before the next revision it needs."""
        assert self._stream is not None
        self._last_id += 1
        watch.id = self._last_id
        self._by_id[watch.id] = watch
        self._creating.append(watch.id)
        start = watch.next_revision
        if start > 0:
            watch.last_event_revision = start - 1
        if self._starts_early and start > 1 and not is_exact:
            start -= 1
        watch.start_revision = start
        self._stream.send(
            encode.watch_create(
                watch.key,
                watch.end,
                watch.id,
                start,
                prev_kv=watch.prev_kv,
                filters=watch.filters,
                progress_notify=watch.progress_notify,
            )
        )

    def _leave_stream(self, watch: Watch, *, is_known: bool) -> None:
        """Remove a watch from the stream; is_known: the server has ended it."""
        watch_id, watch.id = watch.id, 0
        watch.is_running = False
        watch.partial, watch.partial_bytes = [], 0
        if (
            self._by_id.pop(watch_id, None) is not None
            and self._stream is not None
            and not is_known
        ):
            self._stream.send(encode.watch_cancel(watch_id))

    def on_end(self, failure: CallFailedError | None) -> None:
        """Take the stream's end: open another, or end the watches if that cannot help."""
        self._stream = None
        self._break(failure or CallFailedError(Code.UNAVAILABLE, "the stream ended", True))

    def _break(self, failure: CallFailedError) -> None:
        """Recover from the loss of the stream."""
        if self._loop.time() - self._opened_at >= _SETTLED_S:
            self._pause_s = 0.0
        self._close_stream()
        if failure.code not in _PASSING and not self._tokens.is_refusal(failure):
            self._fail(error_of(failure, is_change=False))
            return
        for watch in self._watches:
            self._interrupt(watch, failure.text)
        self._by_id.clear()
        if self._watches and self._opening is None and not self._is_closed:
            self._open_soon(failure)

    def _interrupt(self, watch: Watch, reason: str) -> None:
        was_running = watch.is_running or watch.is_quiet
        watch.is_quiet = False
        self._leave_stream(watch, is_known=True)
        if was_running:
            self._push(watch, Interrupted(reason))

    def _fail(self, error: StoreError) -> None:
        """End every watch with an error."""
        for watch in self._take_all():
            watch.finish(error.again())

    def _take_all(self) -> list[Watch]:
        watches = list(self._watches)
        self._watches.clear()
        self._by_id.clear()
        self._asked.clear()
        self._asking.clear()
        return watches

    # Received messages.

    def on_message(self, head: bytes, tail: bytes) -> None:
        """Take a WatchResponse."""
        stream = self._stream
        if stream is None:
            return
        size = len(head) + len(tail)
        stream.done_with(size)
        try:
            revision, watch_id, flags, compact_revision, reason, events = self._decode(head)
            if tail:
                events = events + self._events_of(tail) if events else self._events_of(tail)
        except ValueError as error:
            text = f"the answer is not a WatchResponse: {error}"
            self._break(CallFailedError(Code.INTERNAL, text, True))
            return
        if flags & CREATED:
            watch_id = self._created(watch_id)
        watch = self._by_id.get(watch_id)
        if watch is None:
            if watch_id == _ALL_WATCHES and not flags & CANCELED:
                self._progress(revision)
        elif flags & CANCELED:
            self._canceled(watch, compact_revision, reason)
        elif flags & CREATED:
            self._started(watch, revision)
        elif events or watch.partial:
            self._deliver(watch, revision, events, size, is_fragment=bool(flags & FRAGMENT))
        else:
            watch.seen_revision = max(watch.seen_revision, revision)
            watch.next_revision = max(watch.next_revision, revision + 1)
            self._push(watch, Progress(revision))

    def _events_of(self, tail: bytes) -> list[Event]:
        """Return the events in a tail; the last result is cached, because many watches share it."""
        if tail is not self._last_tail[0]:
            self._last_tail = (tail, self._decode(tail)[5])
        return self._last_tail[1]

    def _created(self, watch_id: int) -> int:
        """Return the watch whose create was answered: a refusal has no id, so the order decides."""
        while self._creating:
            created = self._creating.popleft()
            if watch_id in (created, _ALL_WATCHES):
                return created
        return watch_id

    def _started(self, watch: Watch, revision: int) -> None:
        watch.is_running = True
        watch.denials = 0
        if not watch.next_revision:
            watch.next_revision = revision + 1
        if watch.is_quiet:
            watch.is_quiet = False
        elif watch.was_started:
            self._push(watch, Resumed(revision))
        else:
            watch.was_started = True
            self._push(watch, Started(revision))
        watch.is_ahead = watch.start_revision > revision
        if revision < watch.seen_revision and self._checking is None:
            self._checking = self._loop.create_task(self._check_restored(), name="restored?")
            self._checking.add_done_callback(self._checked)
        watch.seen_revision = max(watch.seen_revision, revision)
        if watch in self._asking and not self._asked:
            self._ask_progress()

    async def _check_restored(self) -> None:
        """End the watches that have seen later revisions than the cluster has."""
        try:
            revision = await self._current_revision()
        except StoreError:
            return  # the next break asks again
        for watch in list(self._watches):
            if watch.seen_revision > revision:
                self._finish(watch, Restored(revision))

    def _checked(self, task: asyncio.Task[None]) -> None:
        self._checking = None
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _canceled(self, watch: Watch, compact_revision: int, reason: str) -> None:
        if compact_revision:
            self._leave_stream(watch, is_known=True)
            if watch.start_revision < watch.next_revision >= compact_revision:
                self._create(watch, is_exact=True)
                return
            self._finish(watch, Compacted(compact_revision))
            return
        if not reason:  # not because of the watch itself
            self._interrupt(watch, "the server ended the watch")
            self._create(watch)
            return
        error = error_of_text(reason)
        if self._may_be_old_token(error) and watch.denials < _DENIALS_MAX:
            watch.denials += 1
            self._break(CallFailedError(Code.UNAVAILABLE, reason, True))
            return
        self._leave_stream(watch, is_known=True)
        self._end(watch, error)

    def _may_be_old_token(self, error: StoreError) -> bool:
        """Return whether only the stream's token may be the reason of a refusal."""
        if not self._tokens.can_renew:
            return False
        if isinstance(error, UnauthenticatedError):
            return True
        is_fresh = self._loop.time() - self._opened_at < _FRESH_S
        return isinstance(error, PermissionDeniedError) and not is_fresh

    def _finish(self, watch: Watch, value: Compacted | Restored) -> None:
        """End a watch with a last value."""
        self._push(watch, value)
        self._end(watch, None)

    def _end(self, watch: Watch, error: StoreError | None) -> None:
        self.remove(watch)
        watch.finish(error)

    def _deliver(
        self, watch: Watch, revision: int, events: list[Event], size: int, *, is_fragment: bool
    ) -> None:
        if watch.partial:
            events, size = watch.partial + events, size + watch.partial_bytes
            watch.partial, watch.partial_bytes = [], 0
        watch.is_ahead = False
        if events[0].kv.mod_revision <= watch.last_event_revision:
            events = [each for each in events if each.kv.mod_revision > watch.last_event_revision]
            if not events:
                return
        last = events[-1].kv.mod_revision
        if is_fragment:  # the last revision may continue in the next message
            whole = [each for each in events if each.kv.mod_revision != last]
            watch.partial, watch.partial_bytes = events[len(whole) :], size
            if size > self._options.response_bytes_max:
                self._end(
                    watch, MalformedAnswerError(f"revision {last} has {size} bytes of events")
                )
                return
            if not whole:
                return
            events, last = whole, whole[-1].kv.mod_revision
            revision = last
        watch.last_event_revision = last
        watch.next_revision = last + 1
        watch.seen_revision = max(watch.seen_revision, revision)
        self._push(watch, Events(revision, events), size + _EVENT_COST * len(events))

    def _push(self, watch: Watch, value: WatchValue, size: int = 0) -> None:
        self._queued_bytes += watch.push(value, size)
        limit = self._options.watch_bytes_max
        if self._queued_bytes > self._options.watches_bytes_max and self._watches:
            limit = min(limit, self._options.watches_bytes_max // len(self._watches))
        if watch.queued_bytes > limit and watch.id:
            self._leave_stream(watch, is_known=False)
            watch.is_suspended, watch.resume_below = True, limit // 2
            reason = f"the reader is too slow: {watch.queued_bytes} bytes queued, limit {limit}"
            self._queued_bytes += watch.push(Interrupted(reason))

    # Progress.

    def _start_early(self) -> None:
        """From now on create watches one revision early, and create those again that are ahead.

        While a watch that starts after the store's revision is on the stream, servers send no
        progress notifications.
        """
        self._starts_early = True
        for watch in self._watches:
            if watch.is_running and watch.is_ahead and watch.next_revision > 1:
                self._leave_stream(watch, is_known=False)
                watch.is_quiet = True
                self._create(watch)

    def _ask_progress(self) -> None:
        """Request progress for the watches whose readers requested it."""
        if self._ask_timer is not None:
            self._ask_timer.cancel()
            self._ask_timer = None
        asked = {each for each in self._asking if each.is_running}
        self._asking -= asked
        self._asked |= asked
        if self._stream is not None and self._asked:
            self._stream.send(encode.PROGRESS_REQUEST)
            self._ask_timer = self._loop.call_later(_ASK_AGAIN_S, self._ask_progress)

    def _progress(self, revision: int) -> None:
        """Notify the watches that requested it; others have notifications of their own."""
        asked, self._asked = self._asked, set()
        for watch in asked:
            if watch.is_running and not watch.partial:
                watch.seen_revision = max(watch.seen_revision, revision)
                watch.next_revision = max(watch.next_revision, revision + 1)
                self._push(watch, Progress(revision))
            else:
                self._asking.add(watch)  # the server's answer did not include it
        self._ask_progress()
