"""A channel to a member in the same process: calls join its turns' inboxes, without a socket.

    event loop                                         the turn's thread
    call, call, call ──► one batch an iteration ──► fill(inbox) ──► turn
    futures are set  ◄── one batch a turn ◄──────── drain(out)

`EmbeddedPort` is a source of the driver; any number of Stores use it, on one event loop or several.
Nothing is copied: bodies and messages are the node's own bytes, and events that many watches share
stay one object.

Ids run downwards from STORE_IDS, below those of the process's other client, and identify the Store.
A Store without user or token has root's permission.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kvstack.component.call_deadlines import Deadlines
from kvstore.batch import AS_ROOT, STORE_IDS, AnyDelivery, Delivery, Inbox, Outbox, messages
from kvstore.batch import Metadata as NodeMetadata
from kvstore.client.channel import ChannelStream, Metadata, Sink
from kvstore.client.channel_store import ChannelStore
from kvstore.client.endpoints import Endpoint
from kvstore.client.errors import CallFailedError
from kvstore.client.options import ClientOptions
from kvstore.client.store import Store
from kvstore.errors import STOPPED, TOO_MANY_REQUESTS, Code
from kvstore.wire import rpc

CALLS_MAX: Final = 65_536  # open in one Store; more are refused
_SLOT_BITS: Final = 12
_SLOTS_MAX: Final = 1 << _SLOT_BITS  # Stores at a time
_SLOT_MASK: Final = _SLOTS_MAX - 1
_NOBODY: Final[NodeMetadata] = {}  # of a user without a token yet, who must not become root

_Reply = tuple[int, int, bytes]
_Arrived = tuple[list[_Reply], list[Delivery], list[_Reply]]  # replies, deliveries, ends


class _Batch:
    """The requests of Stores: columns of an Inbox."""

    __slots__ = ("calls", "frames", "gone", "half_closed", "metadata", "opened")

    def __init__(self) -> None:
        self.calls: list[tuple[int, int, bytes]] = []
        self.opened: list[tuple[int, int]] = []
        self.frames: list[tuple[int, bytes]] = []
        self.half_closed: list[int] = []
        self.gone: list[int] = []
        self.metadata: dict[int, NodeMetadata] = {}

    def add_to(self, other: "_Batch | Inbox") -> None:
        other.calls += self.calls
        other.opened += self.opened
        other.frames += self.frames
        other.half_closed += self.half_closed
        other.gone += self.gone
        other.metadata.update(self.metadata)


class EmbeddedPort:
    """The port for Stores in this process; a source of the driver.

    It must be attached before other sources that take answers with negative ids.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        revision: Callable[[], int | None],
        is_auth_enabled: Callable[[], bool],
        *,
        is_on_loop: bool = False,
    ) -> None:
        """wake makes the driver run a turn; is_on_loop: turns are taken by the Stores' own loop.

        revision returns that of the store, as a linearizable read would, while this member is its
        whole cluster, else None. It and is_auth_enabled are called on the turn's thread.
        """
        self._wake = wake
        self.is_on_loop: Final = is_on_loop
        self._is_auth_enabled = is_auth_enabled
        self._revision = revision
        self._lock = threading.Lock()
        self._batch = _Batch()
        self._has_news = False  # in the batch
        self._is_used = False
        self._channels: list[EmbeddedChannel] = []  # by slot, which is part of the ids
        self._lagging: dict[int, _Stream] = {}  # on the turn's thread
        # As of the last turn, before its answers left: nothing above it has been acknowledged.
        self.known_revision: int | None = None
        self.is_draining = False
        self.is_closed = False  # the driver has stopped: nothing is answered

    def connect(self, options: ClientOptions | None = None) -> Store:
        """Return a Store of this member; options about networks are ignored."""
        options = options or ClientOptions()
        return ChannelStore(EmbeddedChannel(self, options), options)

    @property
    def drained_port(self) -> "DrainedPort":
        """The port that the driver drains when it stops."""
        return DrainedPort(self)

    @property
    def open_calls(self) -> int:
        """The number of open calls."""
        with self._lock:
            return sum(each.open_calls for each in self._channels)

    def close(self) -> None:
        """Fail open and later calls, because the driver has stopped."""
        with self._lock:
            self.is_closed = True
            channels = list(self._channels)
        for channel in channels:
            channel.tell_stopped()

    # For channels.

    def enter(self, channel: "EmbeddedChannel") -> int:
        """Register a channel under a slot of its own until it is closed."""
        with self._lock:
            for slot, each in enumerate(self._channels):
                if each.is_closed:
                    channel.last_number = each.last_number  # ids are never reused
                    self._channels[slot] = channel
                    return slot
            if len(self._channels) == _SLOTS_MAX:
                raise RuntimeError(f"too many open stores of one member, limit {_SLOTS_MAX}")
            self._channels.append(channel)
            return len(self._channels) - 1

    def hand_over(self, batch: _Batch) -> None:
        """Queue a channel's requests for the next turn."""
        with self._lock:
            if self._has_news:
                batch.add_to(self._batch)
            else:
                self._batch = batch
            self._has_news = self._is_used = True
        self._wake()

    # For the driver.

    def fill(self, inbox: Inbox) -> None:
        """Add queued requests, and the backlog of streams."""
        if self._has_news:
            with self._lock:
                batch, self._batch = self._batch, _Batch()
                self._has_news = False
            batch.add_to(inbox)
            if self._is_auth_enabled():
                for each in batch.calls:
                    inbox.metadata.setdefault(each[0], AS_ROOT)
                for stream_id, _ in batch.opened:
                    inbox.metadata.setdefault(stream_id, AS_ROOT)
        if self._lagging:
            self._tell_backlog(inbox)

    def _tell_backlog(self, inbox: Inbox) -> None:
        for stream_id, stream in list(self._lagging.items()):
            waiting = stream.delivered_bytes - stream.done_bytes
            if waiting > 0:
                inbox.backlog[stream_id] = waiting
            else:
                del self._lagging[stream_id]

    def drain(self, out: Outbox) -> None:
        """Remove the answers for Stores and pass them to their loops.

        Cancelled calls may be answered, too; their ids are removed as well.
        """
        if not self._is_used:
            return
        self.known_revision = self._revision()
        replies = [each for each in out.replies if each[0] <= STORE_IDS]
        mine = [each for each in out.deliveries if each[0] <= STORE_IDS]
        ends = [each for each in out.ends if each[0] <= STORE_IDS]
        if replies:
            out.replies = _others(out.replies, len(replies))
        deliveries = [*messages(mine)]
        if deliveries:
            out.deliveries = _others(out.deliveries, len(mine))
            self._note_deliveries(deliveries)
        if ends:
            out.ends = _others(out.ends, len(ends))
        if replies or deliveries or ends:
            self._spread((replies, deliveries, ends))

    def _note_deliveries(self, deliveries: list[Delivery]) -> None:
        for stream_id, head, tail in deliveries:
            stream = self._channels[-stream_id & _SLOT_MASK].streams.get(stream_id)
            if stream is not None:
                stream.delivered_bytes += len(head) + len(tail)
                self._lagging[stream_id] = stream

    def _spread(self, arrived: _Arrived) -> None:
        """Pass each channel its answers."""
        if len(self._channels) == 1:
            self._channels[0].arrive(arrived)
            return
        groups: dict[int, _Arrived] = {}
        for reply in arrived[0]:
            groups.setdefault(-reply[0] & _SLOT_MASK, ([], [], []))[0].append(reply)
        for delivery in arrived[1]:
            groups.setdefault(-delivery[0] & _SLOT_MASK, ([], [], []))[1].append(delivery)
        for end in arrived[2]:
            groups.setdefault(-end[0] & _SLOT_MASK, ([], [], []))[2].append(end)
        for slot, group in groups.items():
            self._channels[slot].arrive(group)


class DrainedPort:
    """Drains the port; a `kvstore.runtime.driver.Port`."""

    def __init__(self, port: EmbeddedPort) -> None:
        self._port = port

    def drain(self) -> None:
        """Refuse new calls; open ones go on."""
        self._port.is_draining = True

    @property
    def is_drained(self) -> bool:
        """Whether all admitted calls are answered."""
        return not self._port.open_calls


_Row = TypeVar("_Row", _Reply, AnyDelivery)


def _others(rows: list[_Row], mine: int) -> list[_Row]:
    """Return the rows that are not for Stores; `mine` of them are."""
    return [] if mine == len(rows) else [each for each in rows if each[0] > STORE_IDS]


class EmbeddedChannel:
    """The channel of one Store; see `kvstore.client.channel`."""

    def __init__(self, port: EmbeddedPort, options: ClientOptions) -> None:
        self._port = port
        self._is_root: Final = not (options.user or options.token)
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._batch = _Batch()
        self._is_flushing = False  # soon
        self._lock = threading.Lock()
        self._arrived: list[_Arrived] = []  # under the lock
        self._of_metadata: tuple[Metadata | None, NodeMetadata] = (None, _NOBODY)
        self._slot = 0
        self.last_number = 0  # of an id
        self.streams: dict[int, _Stream] = {}
        self.is_closed = False

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop, self._calls, self._expire)
        self._slot = self._port.enter(self)

    async def call(
        self, method: int, body: bytes, limit_s: float | None, metadata: Metadata | None
    ) -> bytes:
        """Return the reply to a unary call; CallFailedError if there is none within limit_s."""
        if self.is_closed:
            raise CallFailedError(Code.UNAVAILABLE, "the client was closed", False)
        if self._port.is_draining:
            raise CallFailedError(*STOPPED, False)
        if len(self._calls) >= CALLS_MAX:
            raise CallFailedError(*TOO_MANY_REQUESTS, False)
        call_id = self._new_id()
        self._batch.calls.append((call_id, method, body))
        if not self._is_root:
            self._batch.metadata[call_id] = self._for_node(metadata)
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[call_id] = future
        if limit_s is not None:
            self._deadlines.add(call_id, limit_s)
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up(call_id)
            raise

    def open(self, method: int, metadata: Metadata | None, sink: Sink) -> ChannelStream:
        """Open a stream."""
        stream_id = self._new_id()
        is_bidi = rpc.METHODS[method].kind == rpc.Kind.BIDI
        stream = self.streams[stream_id] = _Stream(self, stream_id, method, sink, is_bidi=is_bidi)
        if is_bidi:
            self._batch.opened.append((stream_id, method))
        if not self._is_root:
            self._batch.metadata[stream_id] = self._for_node(metadata)
        self.flush_soon()
        return stream

    @property
    def open_calls(self) -> int:
        """The number of open calls."""
        return len(self._calls)

    def local_revision(self) -> int | None:
        """Return the store's revision if this member is its whole cluster; else None."""
        return self._port.known_revision

    @property
    def endpoint_count(self) -> int:
        """Return 1: there is one member in this process."""
        return 1

    async def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Do nothing: the member in this process is the only endpoint."""

    async def close(self) -> None:
        """Close the channel; open calls fail with UNAVAILABLE."""
        if self.is_closed:
            return
        for call_id in [*self._calls, *self.streams]:
            self._batch.gone.append(call_id)
        self._fail_all(CallFailedError(Code.UNAVAILABLE, "the client was closed", True))
        self._deadlines.close()
        if not self._port.is_closed:
            self._port.hand_over(self._batch)
        self.is_closed = True  # last: another channel may take its slot from now on

    def _new_id(self) -> int:
        self.last_number += 1
        return STORE_IDS - (self.last_number << _SLOT_BITS | self._slot)

    def _for_node(self, metadata: Metadata | None) -> NodeMetadata:
        """Return metadata in the node's form; the last result is cached, as many calls share it."""
        if metadata is None:
            return _NOBODY
        if self._of_metadata[0] is not metadata:
            self._of_metadata = (metadata, dict(metadata))
        return self._of_metadata[1]

    def _expire(self, call_id: int) -> None:
        future = self._calls[call_id]
        self._give_up(call_id)
        if not future.done():
            text = "context deadline exceeded"
            future.set_exception(CallFailedError(Code.DEADLINE_EXCEEDED, text, True))

    def _give_up(self, call_id: int) -> None:
        if self._calls.pop(call_id, None) is not None:
            self._batch.gone.append(call_id)
            self.flush_soon()

    # For streams.

    @property
    def batch(self) -> _Batch:
        """The requests of the next hand-over."""
        return self._batch

    def flush_soon(self) -> None:
        """Flush at the end of this iteration of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        if self.is_closed:
            return
        batch, self._batch = self._batch, _Batch()
        if self._port.is_closed:
            self._stopped()
        else:
            self._port.hand_over(batch)

    # On the turn's thread.

    def arrive(self, arrived: _Arrived) -> None:
        """Pass answers to the loop, together with those it has not taken yet."""
        with self._lock:
            self._arrived.append(arrived)
            if len(self._arrived) > 1:
                return  # the loop is notified
        self._tell(self._take)

    def tell_stopped(self) -> None:
        """Fail all open calls and streams."""
        self._tell(self._stopped)

    def _tell(self, function: Callable[[], None]) -> None:
        if self._port.is_on_loop:
            function()
            return
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # nothing waits for a closed one

    # On the loop again.

    def _take(self) -> None:
        with self._lock:
            arrived, self._arrived = self._arrived, []
        calls, streams = self._calls, self.streams
        for replies, deliveries, ends in arrived:
            for call_id, code, body in replies:
                future = calls.pop(call_id, None)
                if future is None:
                    self._reply_to_stream(call_id, code, body)
                elif future.done():
                    continue
                elif code == 0:
                    future.set_result(body)
                else:
                    future.set_exception(CallFailedError(code, body.decode(), True))
            for stream_id, head, tail in deliveries:
                if (stream := streams.get(stream_id)) is not None:
                    stream.sink.on_message(head, tail)
            for stream_id, code, text in ends:
                if (stream := streams.pop(stream_id, None)) is not None:
                    stream.sink.on_end(_failure(code, text))

    def _reply_to_stream(self, stream_id: int, code: int, body: bytes) -> None:
        """Take the only answer to a stream: mostly a refusal."""
        stream = self.streams.pop(stream_id, None)
        if stream is None:
            return
        if code == Code.OK:
            stream.sink.on_message(body, b"")
        stream.sink.on_end(_failure(code, body))

    def _stopped(self) -> None:
        self._fail_all(CallFailedError(*STOPPED, True))

    def _fail_all(self, failure: CallFailedError) -> None:
        futures = list(self._calls.values())
        self._calls.clear()
        for future in futures:
            if not future.done():
                future.set_exception(failure)
        streams = list(self.streams.values())
        self.streams.clear()
        for stream in streams:
            stream.sink.on_end(failure)


def _failure(code: int, text: bytes) -> CallFailedError | None:
    return None if code == Code.OK else CallFailedError(code, text.decode(), True)


class _Stream:
    """One open stream: its writing half, and the backlog of its reader."""

    __slots__ = (
        "_channel",
        "_id",
        "_is_bidi",
        "_method",
        "delivered_bytes",
        "done_bytes",
        "sink",
    )

    def __init__(
        self, channel: EmbeddedChannel, stream_id: int, method: int, sink: Sink, *, is_bidi: bool
    ) -> None:
        self._channel = channel
        self._id = stream_id
        self._method = method
        self._is_bidi = is_bidi
        self.sink: Final = sink
        self.delivered_bytes = 0  # by the turn's thread
        self.done_bytes = 0  # by the loop

    def send(self, message: bytes) -> None:
        if self._id not in self._channel.streams:
            return
        if self._is_bidi:
            self._channel.batch.frames.append((self._id, message))
        else:
            self._channel.batch.calls.append((self._id, self._method, message))
        self._channel.flush_soon()

    def half_close(self) -> None:
        if self._is_bidi and self._id in self._channel.streams:
            self._channel.batch.half_closed.append(self._id)
            self._channel.flush_soon()

    def done_with(self, message_bytes: int) -> None:
        self.done_bytes += message_bytes

    def cancel(self) -> None:
        if self._channel.streams.pop(self._id, None) is not None:
            self._channel.batch.gone.append(self._id)
            self._channel.flush_soon()
