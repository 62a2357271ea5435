"""One gRPC call each: from grpcio's handler into the mailbox, and from the outbox back.

    grpcio ──► Router.service ──► UnaryCall | ServerStream | BidiStream | RefusedCall
                                        │ mailbox.add_*            ▲ settle / deliver / end
                                        ▼                          │
                                   the driver thread ──► CallTable.dispatch(outbox)

Everything here runs on the loop thread, except `CallTable.account` and `backlog`: those are the
driver thread's.
Law: a call is in the calls exactly from its arrival in the mailbox until its answer or its
end was handed over, or its client went away; in the latter case, and only then, it is told gone.

grpcio costs about 100 µs a call; there is no task, lock or queue of ours per unary call on top,
only a future. A bidi stream has one task more than grpcio's own, to read while the other writes.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Collection
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote

import grpc

from kvstore.batch import Metadata, Outbox
from kvstore.errors import STOPPED, TOO_MANY_REQUESTS, Code, Refusal
from kvstore.transport.mailbox import Mailbox, ReadAhead
from kvstore.wire.rpc import ENDLESS

COMMON_NAME_KEY: Final = "tls-common-name"  # no client can send it: see METADATA_KEYS
METADATA_KEYS: Final = frozenset(
    {"hasleader", "token", "authorization", "client-api-version", "traceparent"}
)

_ANSWERED_MAX: Final = 4096  # calls whose client is known after their answer
_NAMELESS: Final = "@"  # a client at a unix socket has no address; Go shows it so

STATUS_CODES: Final = {status.value[0]: status for status in grpc.StatusCode}

Context = grpc.aio.ServicerContext[bytes, bytes]
Answer = tuple[int, bytes]  # gRPC code; response, or error text in UTF-8


class CallDetails(Protocol):
    """What grpcio tells of a call before its request was read."""

    method: str
    invocation_metadata: Collection[tuple[str, str | bytes]]


class CallTable:
    """The calls and streams that are open, and the way of an outbox to them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        mailbox: Mailbox,
        request_bytes_max: int,
        backlog_bytes_max: int,
    ) -> None:
        self.loop = loop
        self.mailbox = mailbox
        self.request_bytes_max = request_bytes_max
        self.backlog_bytes_max = backlog_bytes_max
        self.ids = itertools.count(1)
        self.calls: dict[int, asyncio.Future[Answer]] = {}
        self.streams: dict[int, Stream] = {}
        self.knows_names = False  # clients show certificates
        self.is_stopping = False  # what comes in from now on is refused
        self.server_streams = 0  # open, of those that end by themselves
        self._peers: dict[int, str] = {}  # of unary calls, in grpcio's form
        self._answered: deque[int] = deque()  # of those, for a while
        self._room: asyncio.Future[None] | None = None  # shared by all readers that paused
        self._lagging: dict[int, Stream] = {}  # the driver thread's

    def account(self, outbox: Outbox) -> None:
        """Count what is about to be dispatched; on the driver thread."""
        streams, lagging = self.streams, self._lagging
        for stream_id, head, tail in outbox.deliveries:
            stream = streams.get(stream_id)
            if stream is not None:
                stream.queued_bytes += len(head) + len(tail)
                lagging[stream_id] = stream

    def backlog(self) -> dict[int, int]:
        """Return the bytes waiting unsent per stream, if any; on the driver thread."""
        backlog: dict[int, int] = {}
        streams = self.streams
        for stream_id, stream in list(self._lagging.items()):
            stream.drain_wanted = True  # before reading the counts, or the last one may be missed
            waiting_bytes = stream.queued_bytes - stream.sent_bytes
            if waiting_bytes > 0 and stream_id in streams:
                backlog[stream_id] = waiting_bytes
            else:
                stream.drain_wanted = False
                del self._lagging[stream_id]
        return backlog

    def dispatch(self, outbox: Outbox) -> None:
        """Hand every answer of outbox to its call; what belongs to nobody is dropped."""
        calls, streams = self.calls, self.streams
        for call_id, code, body in outbox.replies:
            future = calls.pop(call_id, None)
            if future is None:
                self._reply_to_stream(call_id, code, body)
            elif not future.done():
                future.set_result((code, body))
        for stream_id, head, tail in outbox.deliveries:
            stream = streams.get(stream_id)
            if stream is not None:
                stream.deliver(head, tail)
        for stream_id, code, text in outbox.ends:
            stream = streams.get(stream_id)
            if stream is not None:
                stream.end(code, text)
            elif (future := calls.pop(stream_id, None)) is not None and not future.done():
                future.set_result((code, text))
        if self.is_drained:
            self.mailbox.wake()

    def metadata_of(self, context: Context, sent: Metadata | None) -> Metadata | None:
        """Return what the client sent, and the common name of its verified certificate."""
        if not self.knows_names:
            return sent
        for name in context.auth_context().get("x509_common_name", ()):
            return {**(sent or {}), COMMON_NAME_KEY: name.decode("utf-8", "replace")}
        return sent

    async def room(self) -> None:
        """Wait until the driver has taken what paused the caller."""
        if self._room is None:
            self._room = self.loop.create_future()
        await asyncio.shield(self._room)

    def resume(self) -> None:
        """Let every paused reader go on."""
        room, self._room = self._room, None
        if room is not None:
            room.set_result(None)

    @property
    def is_drained(self) -> bool:
        """Whether nothing is taken any more and every call is answered; on any thread."""
        return self.is_stopping and not self.calls and not self.server_streams

    def note_peer(self, call_id: int, peer: str) -> None:
        """Remember where a unary call comes from."""
        self._peers[call_id] = peer

    def is_over(self, call_id: int) -> None:
        """Take note that a unary call is over; it may still be asked about for a while."""
        self._answered.append(call_id)
        if len(self._answered) > _ANSWERED_MAX:
            self._peers.pop(self._answered.popleft(), None)

    def peer_of(self, call_id: int) -> str | None:
        """Return the address of the client of a unary call; on any thread."""
        peer = self._peers.get(call_id)
        if peer is None:
            return None
        kind, _, address = peer.partition(":")
        return unquote(address) if kind.startswith("ipv") else _NAMELESS

    def refuse_new(self) -> None:
        """Take nothing new; what is open goes on."""
        self.is_stopping = True
        self.mailbox.wake()

    def refuse_open(self) -> None:
        """End all that is open or comes still: the server stops, nobody will answer any more."""
        self.is_stopping = True
        text = STOPPED.text.encode()
        for future in self.calls.values():
            if not future.done():
                future.set_result((STOPPED.code, text))
        for stream in self.streams.values():
            stream.end(STOPPED.code, text)

    def _reply_to_stream(self, stream_id: int, code: int, body: bytes) -> None:
        stream = self.streams.get(stream_id)
        if stream is not None:
            if code == Code.OK:
                stream.deliver(body, b"")
            stream.end(code, body if code else b"")

    def fault(self, message: object) -> Refusal:
        """Tell what is wrong with a message: there is none, or it is above the limit."""
        if not isinstance(message, bytes):  # grpc.aio.EOF
            return Refusal(Code.UNKNOWN, "EOF")
        return Refusal(
            Code.RESOURCE_EXHAUSTED,
            f"grpc: received message larger than max ({len(message)} vs. {self.request_bytes_max})",
        )


class Stream:
    """The writing half of a stream: what waits unsent, and how it ends.

    `queued_bytes` is written by the driver thread only, `sent_bytes` by the loop thread only; their
    difference is the backlog and also counts what was flushed but not dispatched yet.
    """

    __slots__ = (
        "_board", "_idle", "_outgoing", "_outgoing_bytes", "_status", "drain_wanted",
        "queued_bytes", "sent_bytes", "stream_id",
    )  # fmt: skip

    def __init__(self, board: CallTable, stream_id: int) -> None:
        self.stream_id = stream_id
        self.queued_bytes = 0
        self.sent_bytes = 0
        self.drain_wanted = False  # the driver was told of a backlog and wants to know of its end
        self._board = board
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._status: Answer | None = None
        self._idle: asyncio.Future[None] | None = None

    def deliver(self, head: bytes, tail: bytes) -> None:
        """Queue one message, or end the stream if its reader is hopelessly slow."""
        if self._status is not None:
            return
        message = head + tail if tail else head
        if self._outgoing_bytes + len(message) > self._board.backlog_bytes_max and self._outgoing:
            self._give_up()
            return
        self._outgoing.append(message)
        self._outgoing_bytes += len(message)
        self._stir()

    def end(self, code: int, text: bytes) -> None:
        """Let the stream end after what is queued; only the first end counts."""
        if self._status is None:
            self._status = (code, text)
            self._stir()

    def _give_up(self) -> None:
        board = self._board
        text = (
            f"kvstore: the reader of this stream is too slow: {self._outgoing_bytes} bytes wait "
            f"unsent, limit {board.backlog_bytes_max}"
        )
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._cut(Refusal(Code.RESOURCE_EXHAUSTED, text))

    def _cut(self, refusal: Refusal) -> None:
        """End the stream from here; the node is told that it is gone."""
        self.end(refusal.code, refusal.text.encode())
        if self._board.streams.pop(self.stream_id, None) is not None:
            self._board.mailbox.add_gone(self.stream_id)

    def _stir(self) -> None:
        idle = self._idle
        if idle is not None:
            self._idle = None
            if not idle.done():
                idle.set_result(None)

    async def write_out(self, context: Context) -> None:
        """Send what is delivered until the end, then the status; returns or raises AbortError."""
        outgoing = self._outgoing
        while True:
            while outgoing:
                message = outgoing.popleft()
                self._outgoing_bytes -= len(message)
                await context.write(message)
                self.sent_bytes += len(message)
            if self._status is not None:
                break
            if self.drain_wanted:
                self.drain_wanted = False
                self._board.mailbox.wake()
            self._idle = self._board.loop.create_future()
            await self._idle
        code, text = self._status
        self._board.streams.pop(self.stream_id, None)
        if code:
            await abort(context, code, text)


async def read_request(board: CallTable, context: Context) -> bytes:
    """Read a call's one request once there is room for it; what is wrong with it ends the call."""
    while not board.mailbox.has_room():
        await board.room()
    body: object = await context.read()
    if not isinstance(body, bytes) or len(body) > board.request_bytes_max:
        await refuse(context, board.fault(body))
    if board.is_stopping:
        await refuse(context, STOPPED)
    return body


class UnaryCall:
    """One request, one response.

    To grpcio it is a call with a stream of requests: then the request is read here, when there is
    room for it, and a request that is missing can be answered. It costs the same.
    """

    __slots__ = ("_board", "_metadata", "_method_id")

    request_streaming = True
    response_streaming = False
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_stream = None

    def __init__(self, board: CallTable, method_id: int, metadata: Metadata | None) -> None:
        self._board = board
        self._method_id = method_id
        self._metadata = metadata

    async def stream_unary(self, _requests: object, context: Context) -> bytes:
        """Carry the request to the driver and wait for its answer."""
        board = self._board
        body = await read_request(board, context)
        metadata = board.metadata_of(context, self._metadata)
        call_id = next(board.ids)
        board.calls[call_id] = future = board.loop.create_future()
        board.note_peer(call_id, context.peer())
        if not board.mailbox.add_call(call_id, self._method_id, body, metadata):
            del board.calls[call_id]
            board.is_over(call_id)
            await refuse(context, TOO_MANY_REQUESTS)
        del body  # it is the driver's now
        code: int
        answer: bytes
        try:
            code, answer = await future
        except asyncio.CancelledError:
            board.calls.pop(call_id, None)
            board.mailbox.add_gone(call_id)
            raise
        finally:
            board.is_over(call_id)
        if code:
            await abort(context, code, answer)
        return answer


class ServerStream:
    """One request, many responses; to grpcio a bidi stream, as UnaryCall."""

    __slots__ = ("_board", "_metadata", "_method_id")

    request_streaming = True
    response_streaming = True
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, board: CallTable, method_id: int, metadata: Metadata | None) -> None:
        self._board = board
        self._method_id = method_id
        self._metadata = metadata

    async def stream_stream(self, _requests: object, context: Context) -> None:
        """Carry the request to the driver and send what it delivers."""
        board = self._board
        body = await read_request(board, context)
        metadata = board.metadata_of(context, self._metadata)
        stream = Stream(board, next(board.ids))
        board.streams[stream.stream_id] = stream
        ends_by_itself = self._method_id not in ENDLESS
        board.server_streams += ends_by_itself
        if not board.mailbox.add_call(stream.stream_id, self._method_id, body, metadata):
            stream.end(TOO_MANY_REQUESTS.code, TOO_MANY_REQUESTS.text.encode())
        try:
            await stream.write_out(context)
        finally:
            board.server_streams -= ends_by_itself
            if board.streams.pop(stream.stream_id, None) is not None:
                board.mailbox.add_gone(stream.stream_id)
            if board.is_drained:
                board.mailbox.wake()


class BidiStream(Stream):
    """Many requests, many responses, each in its own time."""

    __slots__ = ("_ahead", "_metadata", "_method_id")

    request_streaming = True
    response_streaming = True
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, board: CallTable, method_id: int, metadata: Metadata | None) -> None:
        super().__init__(board, next(board.ids))
        self._ahead = ReadAhead()
        self._method_id = method_id
        self._metadata = metadata

    async def stream_stream(self, _requests: object, context: Context) -> None:
        """Read into the mailbox and send what is delivered, until the node ends the stream."""
        board = self._board
        if board.is_stopping:
            await refuse(context, STOPPED)
        board.streams[self.stream_id] = self
        metadata = board.metadata_of(context, self._metadata)
        if not board.mailbox.add_opened(self.stream_id, self._method_id, metadata):
            del board.streams[self.stream_id]
            await refuse(context, TOO_MANY_REQUESTS)
        reader = board.loop.create_task(self._read(context))
        try:
            await self.write_out(context)
        finally:
            reader.cancel()
            if board.streams.pop(self.stream_id, None) is not None:
                board.mailbox.add_gone(self.stream_id)

    async def _read(self, context: Context) -> None:
        board, mailbox = self._board, self._board.mailbox
        while True:
            message: object = await context.read()
            if self._status is not None:
                return
            if not isinstance(message, bytes):  # grpc.aio.EOF
                mailbox.add_half_closed(self.stream_id)
                return
            if len(message) > board.request_bytes_max:
                self._cut(board.fault(message))
                return
            if not mailbox.add_frame(self.stream_id, message, self._ahead):
                await board.room()


class RefusedCall:
    """A call of something that is not served."""

    __slots__ = ("_text",)

    request_streaming = True
    response_streaming = True
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, text: str) -> None:
        self._text = text

    async def stream_stream(self, _requests: object, context: Context) -> None:
        """Answer without reading anything."""
        await abort(context, Code.UNIMPLEMENTED, self._text.encode())


async def refuse(context: Context, refusal: Refusal) -> NoReturn:
    """End a call with a refusal."""
    await abort(context, refusal.code, refusal.text.encode())


async def abort(context: Context, code: int, text: bytes) -> NoReturn:
    """End a call with a code and a text in UTF-8."""
    await context.abort(STATUS_CODES[code], text.decode("utf-8", "replace"))


Call = UnaryCall | ServerStream | BidiStream | RefusedCall
