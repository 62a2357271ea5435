"""The calls of the grpcio transport: from grpcio's handler into the mailbox, and answers back.

    grpcio ──► Router.service ──► UnaryCall | ServerStream | BidiStream | RefusedCall
                                        │ mailbox.add_*            ▲ set_result / deliver / end
                                        ▼                          │
                                   the driver thread ──► CallTable.dispatch(outbox)

Everything here runs on the loop thread, except `CallTable.account` and `backlog`, which run on the
driver thread.
Rule: a call is in the table exactly from its arrival in the mailbox until its answer or end was
dispatched or its client went away; in the latter case, and only then, it is reported as gone.

grpcio costs about 100 µs a call; on top of it a unary call has a future here, but no task, lock or
queue. A bidi stream has one task besides grpcio's own, to read while the other writes.
"""

import asyncio
import itertools
from collections import deque
from collections.abc import Collection
from typing import Final, NoReturn, Protocol
from urllib.parse import unquote

from kvstore.batch import Metadata, Outbox, messages
from kvstore.errors import STOPPED, TOO_MANY_REQUESTS, Code, Refusal
from kvstore.transport.grpcio import grpc
from kvstore.transport.mailbox import Mailbox, ReadAhead
from kvstore.wire.rpc import ENDLESS

COMMON_NAME_KEY: Final = "tls-common-name"  # not in METADATA_KEYS, so no client can send it
METADATA_KEYS: Final = frozenset(
    {"hasleader", "token", "authorization", "client-api-version", "traceparent"}
)

_ANSWERED_MAX: Final = 4096  # answered calls whose client address is kept
_UNIX_PEER: Final = "@"  # Go's text for a client at a unix socket, which has no address

STATUS_CODES: Final = {status.value[0]: status for status in grpc.StatusCode}

Context = grpc.aio.ServicerContext[bytes, bytes]
Answer = tuple[int, bytes]  # gRPC code; response, or error text in UTF-8


class CallDetails(Protocol):
    """The properties of a call that grpcio knows before its request is read."""

    method: str
    invocation_metadata: Collection[tuple[str, str | bytes]]


class CallTable:
    """The open calls and streams; an outbox is dispatched to them."""

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
        self.has_client_certificates = False
        self.is_stopping = False  # new calls are refused
        self.server_streams = 0  # open ones, of methods whose streams end
        self._peers: dict[int, str] = {}  # unary call → its client, in grpcio's form
        self._answered: deque[int] = deque()  # answered calls in _peers, the oldest first
        self._room: asyncio.Future[None] | None = None  # shared by all paused readers
        self._lagging: dict[int, Stream] = {}  # used by the driver thread only

    def account(self, outbox: Outbox) -> None:
        """Count the deliveries that will be dispatched; on the driver thread."""
        streams, lagging = self.streams, self._lagging
        for stream_id, head, tail in messages(outbox.deliveries):
            stream = streams.get(stream_id)
            if stream is not None:
                stream.queued_bytes += len(head) + len(tail)
                lagging[stream_id] = stream

    def backlog(self) -> dict[int, int]:
        """Return the unsent bytes of each stream that has any; on the driver thread."""
        backlog: dict[int, int] = {}
        streams = self.streams
        for stream_id, stream in list(self._lagging.items()):
            # Before the counts are read: a send in between must still wake the driver.
            stream.wakes_when_sent = True
            unsent_bytes = stream.queued_bytes - stream.sent_bytes
            if unsent_bytes > 0 and stream_id in streams:
                backlog[stream_id] = unsent_bytes
            else:
                stream.wakes_when_sent = False
                del self._lagging[stream_id]
        return backlog

    def dispatch(self, outbox: Outbox) -> None:
        """Pass each answer in outbox to its call; answers to unknown calls are dropped."""
        calls, streams = self.calls, self.streams
        for call_id, code, body in outbox.replies:
            future = calls.pop(call_id, None)
            if future is None:
                self._reply_to_stream(call_id, code, body)
            elif not future.done():
                future.set_result((code, body))
        for stream_id, head, tail in messages(outbox.deliveries):
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
        """Return the client's metadata with the common name of its verified certificate."""
        if not self.has_client_certificates:
            return sent
        for name in context.auth_context().get("x509_common_name", ()):
            return {**(sent or {}), COMMON_NAME_KEY: name.decode("utf-8", "replace")}
        return sent

    async def wait_for_room(self) -> None:
        """Wait until the driver has taken the messages that paused the caller."""
        if self._room is None:
            self._room = self.loop.create_future()
        await asyncio.shield(self._room)

    def resume(self) -> None:
        """Wake all paused readers."""
        room, self._room = self._room, None
        if room is not None:
            room.set_result(None)

    @property
    def is_drained(self) -> bool:
        """Whether new calls are refused and every call is answered; on any thread."""
        return self.is_stopping and not self.calls and not self.server_streams

    def note_peer(self, call_id: int, peer: str) -> None:
        """Keep the client address of a unary call."""
        self._peers[call_id] = peer

    def note_end(self, call_id: int) -> None:
        """Note that a unary call has ended; its client address is kept for a while."""
        self._answered.append(call_id)
        if len(self._answered) > _ANSWERED_MAX:
            self._peers.pop(self._answered.popleft(), None)

    def peer_of(self, call_id: int) -> str | None:
        """Return the client address of a unary call; on any thread."""
        peer = self._peers.get(call_id)
        if peer is None:
            return None
        kind, _, address = peer.partition(":")
        return unquote(address) if kind.startswith("ipv") else _UNIX_PEER

    def refuse_new(self) -> None:
        """Refuse new calls; open ones go on."""
        self.is_stopping = True
        self.mailbox.wake()

    def refuse_all(self) -> None:
        """Refuse new calls and end open ones, because the server stops."""
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

    def refusal_of(self, message: object) -> Refusal:
        """Return why a message is refused: there is none, or it is above the limit."""
        if not isinstance(message, bytes):  # grpc.aio.EOF
            return Refusal(Code.UNKNOWN, "EOF")
        return Refusal(
            Code.RESOURCE_EXHAUSTED,
            f"grpc: received message larger than max ({len(message)} vs. {self.request_bytes_max})",
        )


class Stream:
    """The sending half of a stream: the unsent messages, and the status that ends it.

    `queued_bytes` is written by the driver thread only, `sent_bytes` by the loop thread only. Their
    difference is the backlog; it includes messages that were flushed but not dispatched yet.
    """

    __slots__ = (
        "_idle",
        "_outgoing",
        "_outgoing_bytes",
        "_status",
        "_table",
        "queued_bytes",
        "sent_bytes",
        "stream_id",
        "wakes_when_sent",
    )  # fmt: skip

    def __init__(self, table: CallTable, stream_id: int) -> None:
        self.stream_id = stream_id
        self.queued_bytes = 0
        self.sent_bytes = 0
        self.wakes_when_sent = False  # the driver saw a backlog and is woken when it is gone
        self._table = table
        self._outgoing: deque[bytes] = deque()
        self._outgoing_bytes = 0
        self._status: Answer | None = None
        self._idle: asyncio.Future[None] | None = None

    def deliver(self, head: bytes, tail: bytes) -> None:
        """Queue one message, or end the stream if too much is unsent."""
        if self._status is not None:
            return
        message = head + tail if tail else head
        if self._outgoing_bytes + len(message) > self._table.backlog_bytes_max and self._outgoing:
            self._end_slow()
            return
        self._outgoing.append(message)
        self._outgoing_bytes += len(message)
        self._wake_writer()

    def end(self, code: int, text: bytes) -> None:
        """End the stream after the queued messages; only the first end counts."""
        if self._status is None:
            self._status = (code, text)
            self._wake_writer()

    def _end_slow(self) -> None:
        table = self._table
        text = (
            f"kvstore: the reader of this stream is too slow: {self._outgoing_bytes} bytes wait "
            f"unsent, limit {table.backlog_bytes_max}"
        )
        self._outgoing.clear()
        self._outgoing_bytes = 0
        self._cut(Refusal(Code.RESOURCE_EXHAUSTED, text))

    def _cut(self, refusal: Refusal) -> None:
        """End the stream from this side, and report it to the node as gone."""
        self.end(refusal.code, refusal.text.encode())
        if self._table.streams.pop(self.stream_id, None) is not None:
            self._table.mailbox.add_gone(self.stream_id)

    def _wake_writer(self) -> None:
        idle = self._idle
        if idle is not None:
            self._idle = None
            if not idle.done():
                idle.set_result(None)

    async def write_out(self, context: Context) -> None:
        """Send messages until the end, then the status; returns or raises AbortError."""
        outgoing = self._outgoing
        while True:
            while outgoing:
                message = outgoing.popleft()
                self._outgoing_bytes -= len(message)
                await context.write(message)
                self.sent_bytes += len(message)
            if self._status is not None:
                break
            if self.wakes_when_sent:
                self.wakes_when_sent = False
                self._table.mailbox.wake()
            self._idle = self._table.loop.create_future()
            await self._idle
        code, text = self._status
        self._table.streams.pop(self.stream_id, None)
        if code:
            await abort(context, code, text)


async def read_request(table: CallTable, context: Context) -> bytes:
    """Read a call's one request once there is room for it; a bad request ends the call."""
    while not table.mailbox.has_room():
        await table.wait_for_room()
    body: object = await context.read()
    if not isinstance(body, bytes) or len(body) > table.request_bytes_max:
        await refuse(context, table.refusal_of(body))
    if table.is_stopping:
        await refuse(context, STOPPED)
    return body


class UnaryCall:
    """One request, one response.

    grpcio sees a call with a stream of requests. So the request is read here, once there is room
    for it, and a missing request can be answered. It costs the same.
    """

    __slots__ = ("_metadata", "_method_id", "_table")

    request_streaming = True
    response_streaming = False
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_stream = None

    def __init__(self, table: CallTable, method_id: int, metadata: Metadata | None) -> None:
        self._table = table
        self._method_id = method_id
        self._metadata = metadata

    async def stream_unary(self, _requests: object, context: Context) -> bytes:
        """Pass the request to the driver and wait for its answer."""
        table = self._table
        body = await read_request(table, context)
        metadata = table.metadata_of(context, self._metadata)
        call_id = next(table.ids)
        table.calls[call_id] = future = table.loop.create_future()
        table.note_peer(call_id, context.peer())
        if not table.mailbox.add_call(call_id, self._method_id, body, metadata):
            del table.calls[call_id]
            table.note_end(call_id)
            await refuse(context, TOO_MANY_REQUESTS)
        del body  # the mailbox has it
        code: int
        answer: bytes
        try:
            code, answer = await future
        except asyncio.CancelledError:
            table.calls.pop(call_id, None)
            table.mailbox.add_gone(call_id)
            raise
        finally:
            table.note_end(call_id)
        if code:
            await abort(context, code, answer)
        return answer


class ServerStream:
    """One request, many responses; grpcio sees a bidi stream, for the reason given at UnaryCall."""

    __slots__ = ("_metadata", "_method_id", "_table")

    request_streaming = True
    response_streaming = True
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, table: CallTable, method_id: int, metadata: Metadata | None) -> None:
        self._table = table
        self._method_id = method_id
        self._metadata = metadata

    async def stream_stream(self, _requests: object, context: Context) -> None:
        """Pass the request to the driver and send what it delivers."""
        table = self._table
        body = await read_request(table, context)
        metadata = table.metadata_of(context, self._metadata)
        stream = Stream(table, next(table.ids))
        table.streams[stream.stream_id] = stream
        ends_by_itself = self._method_id not in ENDLESS
        table.server_streams += ends_by_itself
        if not table.mailbox.add_call(stream.stream_id, self._method_id, body, metadata):
            stream.end(TOO_MANY_REQUESTS.code, TOO_MANY_REQUESTS.text.encode())
        try:
            await stream.write_out(context)
        finally:
            table.server_streams -= ends_by_itself
            if table.streams.pop(stream.stream_id, None) is not None:
                table.mailbox.add_gone(stream.stream_id)
            if table.is_drained:
                table.mailbox.wake()


class BidiStream(Stream):
    """Many requests, many responses, independent of each other."""

    __slots__ = ("_ahead", "_metadata", "_method_id")

    request_streaming = True
    response_streaming = True
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, table: CallTable, method_id: int, metadata: Metadata | None) -> None:
        super().__init__(table, next(table.ids))
        self._ahead = ReadAhead()
        self._method_id = method_id
        self._metadata = metadata

    async def stream_stream(self, _requests: object, context: Context) -> None:
        """Read into the mailbox and send deliveries, until the node ends the stream."""
        table = self._table
        if table.is_stopping:
            await refuse(context, STOPPED)
        table.streams[self.stream_id] = self
        metadata = table.metadata_of(context, self._metadata)
        if not table.mailbox.add_opened(self.stream_id, self._method_id, metadata):
            del table.streams[self.stream_id]
            await refuse(context, TOO_MANY_REQUESTS)
        reader = table.loop.create_task(self._read(context))
        try:
            await self.write_out(context)
        finally:
            reader.cancel()
            if table.streams.pop(self.stream_id, None) is not None:
                table.mailbox.add_gone(self.stream_id)

    async def _read(self, context: Context) -> None:
        table, mailbox = self._table, self._table.mailbox
        while True:
            message: object = await context.read()
            if self._status is not None:
                return
            if not isinstance(message, bytes):  # grpc.aio.EOF
                mailbox.add_half_closed(self.stream_id)
                return
            if len(message) > table.request_bytes_max:
                self._cut(table.refusal_of(message))
                return
            if not mailbox.add_frame(self.stream_id, message, self._ahead):
                await table.wait_for_room()


class RefusedCall:
    """A call of a method that is not served."""

    __slots__ = ("_text",)

    request_streaming = True
    response_streaming = True
    request_deserializer = None
    response_serializer = None
    unary_unary = unary_stream = stream_unary = None

    def __init__(self, text: str) -> None:
        self._text = text

    async def stream_stream(self, _requests: object, context: Context) -> None:
        """Answer without reading the request."""
        await abort(context, Code.UNIMPLEMENTED, self._text.encode())


async def refuse(context: Context, refusal: Refusal) -> NoReturn:
    """End a call with a refusal."""
    await abort(context, refusal.code, refusal.text.encode())


async def abort(context: Context, code: int, text: bytes) -> NoReturn:
    """End a call with a code and a text in UTF-8."""
    await context.abort(STATUS_CODES[code], text.decode("utf-8", "replace"))


Call = UnaryCall | ServerStream | BidiStream | RefusedCall
