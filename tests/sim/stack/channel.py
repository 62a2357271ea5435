"""The way of one API server to the store's members: a channel as the store's client wants it.

    call ──► delay ──► inbox of a member ──► outbox ──► delay ──► reply
      └─ nobody there: not sent      └─ the connection breaks: sent, and nothing more is known

One connection at a time, to one member; what goes over it keeps its order. When it breaks,
everything that waits on it fails, and the next call goes to the next member that can be reached.
Nothing here knows what a call means. Retries are the business of the store's own client above.
"""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Final

from kvstore.batch import Inbox, Outbox, messages
from kvstore.client.channel import ChannelStream, Metadata, Sink
from kvstore.client.endpoints import Endpoint
from kvstore.client.errors import CallFailedError
from kvstore.errors import Code
from tests.sim.stack.members import StoreMembers
from tests.sim.stack.pipe import Pipe
from tests.sim.trace import Trace

_BROKEN: Final = "the connection broke"
_RETRY_S: Final = 0.1


class Link:
    """The state of one API server's network towards the members; faults set it."""

    def __init__(self) -> None:
        self.delay_s = (0.0002, 0.002)
        self.cut: set[int] = set()
        """Members that nothing goes to or comes from; who waits is not told."""
        self.held_until_s = 0.0
        """Nothing arrives before, either way: the process is frozen, or the network slow."""


class SimChannel:
    """A channel; see `kvstore.client.channel`."""

    def __init__(
        self, name: str, members: StoreMembers, link: Link, rng: random.Random, trace: Trace
    ) -> None:
        self._name = name
        self._members = members
        self._link = link
        self._rng = rng
        self._trace = trace
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._streams: dict[int, _Stream] = {}
        self._member = 0  # that it is connected to; 0: to none
        self._connection = 0  # how often it has connected
        self._outward, self._inward = Pipe(), Pipe()
        self._is_over = False

    def start(self) -> None:
        """Begin."""
        self._members.on_answers.append(self._take)
        self._members.on_end.append(self._ended)

    # The connection.

    def _connect(self) -> bool:
        """Be connected to some member; False: none can be reached."""
        if self._member:
            return True
        numbers = [each.number for each in self._members.members]
        start = self._rng.randrange(len(numbers))
        for number in numbers[start:] + numbers[:start]:
            if self._members.is_serving(number) and number not in self._link.cut:
                self._member = number
                self._connection += 1
                return True
        return False

    def break_off(self) -> None:
        """Lose the connection: all that waits fails, and may have been done."""
        if not self._member:
            return
        self._trace.note(self._name, "breaks off", self._member)
        self._member = 0
        failure = CallFailedError(Code.UNAVAILABLE, _BROKEN, True)
        calls, streams = list(self._calls.values()), list(self._streams.values())
        self._calls.clear()
        self._streams.clear()
        for future in calls:
            if not future.done():
                future.set_exception(failure)
        for stream in streams:
            stream.sink.on_end(failure)

    def break_off_from(self, member: int) -> None:
        """Lose the connection, if it is to this member."""
        if member == self._member:
            self.break_off()

    def _ended(self, number: int) -> None:
        if number == self._member:
            connection = self._connection
            self._loop.call_later(self._delay_s(), self._break_if, connection)

    def _break_if(self, connection: int) -> None:
        if connection == self._connection:
            self.break_off()

    def _delay_s(self) -> float:
        return self._rng.uniform(*self._link.delay_s)

    def send(self, call_id: int, what: "_Message") -> None:
        """Send something over the connection that a call or stream is on."""
        link = self._link
        if self._is_over or self._member in link.cut:
            return
        at_s = max(self._loop.time() + self._delay_s(), link.held_until_s)
        self._outward.send(at_s, partial(self._arrive, self._connection, call_id, what))

    def _arrive(self, connection: int, call_id: int, what: "_Message") -> None:
        # What was sent arrives also if its sender has ended meanwhile, unless it was cut off.
        if connection == self._connection and self._member and self._member not in self._link.cut:
            if self._members.is_serving(self._member):
                self._members.add(self._member, lambda inbox: what.add_to(call_id, inbox))
            else:
                self.break_off()

    def _take(self, member: int, out: Outbox) -> None:
        """Take the answers of a member that are for this channel."""
        link = self._link
        if member != self._member or member in link.cut or self._is_over:
            return
        calls, streams = self._calls, self._streams
        mine: list[tuple[int, int | None, bytes, bytes]] = [
            (each, code, body, b"")
            for each, code, body in out.replies
            if each in calls or each in streams
        ]
        mine += [
            (each, None, head, tail)
            for each, head, tail in messages(out.deliveries)
            if each in streams
        ]
        mine += [(each, code, text, b"") for each, code, text in out.ends if each in streams]
        if mine:
            at_s = max(self._loop.time() + self._delay_s(), link.held_until_s)
            self._inward.send(at_s, partial(self._receive, self._connection, mine))

    def _receive(
        self, connection: int, arrived: Sequence[tuple[int, int | None, bytes, bytes]]
    ) -> None:
        if connection != self._connection or self._member in self._link.cut:
            return
        for call_id, code, head, tail in arrived:
            future = self._calls.pop(call_id, None)
            if future is not None:
                self._trace.note(self._name, self._loop.time(), "reply", code, len(head))
                if future.done():
                    continue
                if code == Code.OK:
                    future.set_result(head)
                else:
                    future.set_exception(CallFailedError(code or 0, head.decode(), True))
                continue
            stream = self._streams.get(call_id)
            if stream is None:
                continue
            if code is None:
                stream.sink.on_message(head, tail)
            else:
                del self._streams[call_id]
                failure = CallFailedError(code, head.decode(), True) if code else None
                stream.sink.on_end(failure)

    # What the store's client calls.

    async def call(
        self, method: int, body: bytes, limit_s: float | None, metadata: Metadata | None
    ) -> bytes:
        """Return the reply to a unary call."""
        until_s = None if limit_s is None else self._loop.time() + limit_s
        while self._is_over or not self._connect():
            if self._is_over or (until_s is not None and self._loop.time() >= until_s):
                raise CallFailedError(Code.UNAVAILABLE, "no member can be reached", False)
            await asyncio.sleep(_RETRY_S)
        call_id = self._members.take_id()
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[call_id] = future
        self._trace.note(self._name, self._loop.time(), "call", method, len(body))
        self.send(call_id, _Message("call", method, body, metadata))
        try:
            async with asyncio.timeout_at(until_s):
                return await future
        except TimeoutError:
            raise CallFailedError(
                Code.DEADLINE_EXCEEDED, "context deadline exceeded", True
            ) from None
        finally:
            if self._calls.pop(call_id, None) is not None:
                self.send(call_id, _Message("gone"))

    def open(self, method: int, metadata: Metadata | None, sink: Sink) -> ChannelStream:
        """Open a stream; one to nobody ends soon."""
        stream_id = self._members.take_id()
        stream = _Stream(self, stream_id, sink)
        if self._is_over or not self._connect():
            failure = CallFailedError(Code.UNAVAILABLE, "no member can be reached", False)
            self._loop.call_later(_RETRY_S, stream.end, failure)
            return stream
        self._streams[stream_id] = stream
        self.send(stream_id, _Message("open", method, b"", metadata))
        return stream

    def forget(self, stream_id: int) -> None:
        """Cancel a stream."""
        if self._streams.pop(stream_id, None) is not None:
            self.send(stream_id, _Message("gone"))

    def is_open(self, stream_id: int) -> bool:
        """Whether a stream is open."""
        return stream_id in self._streams

    def local_revision(self) -> int | None:
        """Return None: members are elsewhere."""
        return None

    @property
    def endpoint_count(self) -> int:
        """The number of members."""
        return len(self._members.members)

    async def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Do nothing: members stay who they are."""

    async def close(self) -> None:
        """End everything."""
        self.kill()

    def kill(self) -> None:
        """End with the process of the API server: nothing goes out or comes in any more."""
        if not self._is_over:
            self.break_off()
            self._is_over = True
            self._members.on_answers.remove(self._take)
            self._members.on_end.remove(self._ended)


class _Message:
    """Something that is on its way to a member."""

    __slots__ = ("_body", "_kind", "_metadata", "_method")

    def __init__(
        self, kind: str, method: int = 0, body: bytes = b"", metadata: Metadata | None = None
    ) -> None:
        self._kind = kind
        self._method = method
        self._body = body
        self._metadata = metadata

    def add_to(self, call_id: int, inbox: Inbox) -> None:
        """Put it into a member's inbox."""
        match self._kind:
            case "call":
                inbox.calls.append((call_id, self._method, self._body))
            case "open":
                inbox.opened.append((call_id, self._method))
            case "frame":
                inbox.frames.append((call_id, self._body))
            case "half close":
                inbox.half_closed.append(call_id)
            case _:
                inbox.gone.append(call_id)
        if self._metadata:
            inbox.metadata[call_id] = dict(self._metadata)


class _Stream:
    """The writing half of a stream."""

    __slots__ = ("_channel", "_id", "_is_canceled", "sink")

    def __init__(self, channel: SimChannel, stream_id: int, sink: Sink) -> None:
        self._channel = channel
        self._id = stream_id
        self._is_canceled = False
        self.sink: Final = sink

    def send(self, message: bytes) -> None:
        if self._channel.is_open(self._id):
            self._channel.send(self._id, _Message("frame", body=message))

    def half_close(self) -> None:
        if self._channel.is_open(self._id):
            self._channel.send(self._id, _Message("half close"))

    def done_with(self, message_bytes: int) -> None:
        """Nothing waits for readers here."""

    def cancel(self) -> None:
        self._is_canceled = True
        self._channel.forget(self._id)

    def end(self, failure: CallFailedError) -> None:
        """End a stream that was never opened."""
        if not self._is_canceled:
            self.sink.on_end(failure)
