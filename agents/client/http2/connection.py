"""One connection of HTTP/2: frames between bytes and streams (RFC 9113).

    bytes ─► frames ─► Stream: head, body, end
    bytes ◄─ frames ◄─ request(…)                 those of one turn of the loop leave together

- Requests above the server's limit of streams are refused here: see `has_room`.
- Requests that the server has not processed fail with NotProcessedError, and may be sent again.
- A connection on which nothing comes for half a minute is pinged, and given up without an answer.
- Bodies wait for the server's windows; what is received is bounded by ours, a stream each.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from typing_extensions import override

from kvstack.agents.client.http2.frames import (
    ACK,
    CANCEL,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_MAX,
    GO_AWAY,
    HEAD,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW,
    NO_ERROR,
    NUMBER,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PRIORITY_BYTES,
    PUSH,
    REFUSED,
    RESET,
    SETTING,
    SETTINGS,
    STREAMS_MAX,
    WINDOW,
    WINDOW_MAX,
    ProtocolError,
    numbers_of,
    unpadded,
)
from kvstack.agents.client.http2.hpack import Decoder, Encoder, HeadersError
from kvstack.agents.client.http2.stream import WINDOW_BYTES, NotProcessedError, Stream
from kvstack.agents.client.transport import UnreachableError

_FIRST_WINDOW: Final = 65_535
_FIRST_FRAME_MAX: Final = 16_384
_FIRST_STREAMS_MAX: Final = 100
_OWN_FRAME_MAX: Final = 1 << 18
_OWN_WINDOW: Final = 1 << 30
_STREAM_NUMBER_MAX: Final = (1 << 31) - 1
_HEADER_BYTES_MAX: Final = 1 << 20
_SILENT_S: Final = 30.0
_PONG_S: Final = 15.0
_SMALL: Final = (100, 200)  # status codes of heads that come before the real one


class Http2Connection(asyncio.Protocol):
    """A connection, usable after the transport is open."""

    def __init__(self, authority: str, on_lost: Callable[["Http2Connection"], None]) -> None:
        """on_lost is called once, when it becomes unusable."""
        self._loop = asyncio.get_running_loop()
        self._encoder = Encoder(authority)
        self._decoder = Decoder()
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._streams: dict[int, Stream] = {}
        self._next_number = 1
        self._streams_max = _FIRST_STREAMS_MAX
        self._frame_max = _FIRST_FRAME_MAX
        self._first_window = _FIRST_WINDOW
        self._window = _FIRST_WINDOW
        self._held_back: dict[int, Stream] = {}
        """Streams whose bodies wait for a window, by number."""
        self._received_bytes = 0
        self._rest = b""
        self._block: tuple[int, int, bytearray] | None = None
        """Headers whose continuation is awaited: stream, flags, bytes."""
        self._out: list[bytes] = []
        self._is_flush_due = False
        self._is_paused = False
        self._is_leaving = False
        self._is_lost = False
        self._timer: asyncio.TimerHandle | None = None
        self._takers: dict[int, Callable[[int, int, bytes], None]] = {
            RESET: self._take_reset,
            SETTINGS: self._take_settings,
            PUSH: self._take_push,
            PING: self._take_ping,
            GO_AWAY: self._take_go_away,
            WINDOW: self._take_window,
            CONTINUATION: self._take_continuation,
        }
        self._is_silent = False
        self._is_pinged = False

    # Requests.

    @property
    def has_room(self) -> bool:
        """Whether another request may be sent."""
        return (
            not (self._is_leaving or self._is_lost)
            and len(self._streams) < self._streams_max
            and self._next_number <= _STREAM_NUMBER_MAX
        )

    @property
    def is_idle(self) -> bool:
        """Whether no answer is pending."""
        return not self._streams

    def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes
    ) -> Stream:
        """Send a request; `has_room` must be true."""
        number = self._next_number
        self._next_number = number + 2
        stream = self._streams[number] = Stream(self, number, self._first_window)
        block = self._encoder.block(method, target, headers, len(body))
        flags = 0 if body else END_STREAM
        first, rest = block[: self._frame_max], block[self._frame_max :]
        self._send(HEADERS, flags | (0 if rest else END_HEADERS), number, first)
        while rest:
            first, rest = rest[: self._frame_max], rest[self._frame_max :]
            self._send(CONTINUATION, 0 if rest else END_HEADERS, number, first)
        if body:
            stream.unsent = body
            self._send_body(stream)
        return stream

    def cancel(self, stream: Stream) -> None:
        """Reset the stream: its answer is no longer needed."""
        if self._streams.pop(stream.number, None) is not None:
            self._held_back.pop(stream.number, None)
            self._send(RESET, 0, stream.number, NUMBER.pack(CANCEL))

    def allow(self, stream: Stream, count: int) -> None:
        """Grow the stream's receive window."""
        self._send(WINDOW, 0, stream.number, NUMBER.pack(count))

    def close(self, why: str = "the connection was closed") -> None:
        """Give up; what is awaited fails."""
        transport = self._transport
        self._end(UnreachableError(why))
        if transport is not None:
            transport.abort()

    # asyncio's side.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        settings = (
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW, WINDOW_BYTES),
            (FRAME_MAX, _OWN_FRAME_MAX),
        )
        self._out.append(PREFACE)
        self._send(SETTINGS, 0, 0, b"".join(SETTING.pack(*each) for each in settings))
        self._send(WINDOW, 0, 0, NUMBER.pack(_OWN_WINDOW - _FIRST_WINDOW))
        self._timer = self._loop.call_later(_SILENT_S, self._look)

    @override
    def data_received(self, data: bytes) -> None:
        self._is_silent = False
        try:
            self._read(self._rest + data if self._rest else data)
        except (ProtocolError, HeadersError) as error:
            self.close(f"the server does not speak HTTP/2: {error}")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        why = str(exc) if exc is not None else "the server closed the connection"
        self._end(UnreachableError(why or type(exc).__name__))

    @override
    def pause_writing(self) -> None:
        self._is_paused = True

    @override
    def resume_writing(self) -> None:
        self._is_paused = False
        self._flush()

    # Frames out.

    def _send(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        length = len(payload)
        self._out.append(HEAD.pack(length >> 8, length & 0xFF, kind, flags, number))
        self._out.append(payload)
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._transport is not None and self._out and not self._is_paused:
            data = b"".join(self._out)
            self._out.clear()
            self._transport.write(data)

    def _send_body(self, stream: Stream) -> None:
        """Send what the windows allow of a request's body."""
        while stream.unsent:
            size = min(len(stream.unsent), self._frame_max, self._window, stream.send_window)
            if size <= 0:
                self._held_back[stream.number] = stream
                return
            piece, stream.unsent = stream.unsent[:size], stream.unsent[size:]
            self._window -= size
            stream.send_window -= size
            self._send(DATA, 0 if stream.unsent else END_STREAM, stream.number, piece)
        self._held_back.pop(stream.number, None)

    # Frames in.

    def _read(self, data: bytes) -> None:
        position, end = 0, len(data)
        while end - position >= HEAD.size:
            high, low, kind, flags, number = HEAD.unpack_from(data, position)
            length = high << 8 | low
            if length > _OWN_FRAME_MAX:
                raise ProtocolError(f"a frame of {length} bytes, {_OWN_FRAME_MAX} are allowed")
            begin = position + HEAD.size
            place_after = begin + length
            if place_after > end:
                break
            payload = data[begin:place_after]
            position = place_after
            if self._block is not None and kind != CONTINUATION:
                raise ProtocolError("a frame between parts of headers")
            if kind == DATA:
                self._take_data(flags, number, payload)
            elif kind == HEADERS:
                self._take_headers(flags, number, payload)
            elif (taker := self._takers.get(kind)) is not None:  # others do not matter to a client
                taker(flags, number, payload)
            if self._is_lost:
                return
        self._rest = data[position:]

    def _take_data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._received_bytes += size
        if self._received_bytes >= _OWN_WINDOW // 2:
            self._send(WINDOW, 0, 0, NUMBER.pack(self._received_bytes))
            self._received_bytes = 0
        stream = self._streams.get(number)
        if stream is None:
            return  # it was cancelled
        stream.take(unpadded(payload) if flags & PADDED else payload, size)
        if flags & END_STREAM:
            self._finish(stream)

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        if flags & PADDED:
            payload = unpadded(payload)
        if flags & PRIORITY:
            payload = payload[PRIORITY_BYTES:]
        if flags & END_HEADERS:
            self._take_block(flags, number, payload)
        else:
            self._block = (number, flags, bytearray(payload))

    def _take_continuation(self, flags: int, number: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise ProtocolError("a continuation of no headers")
        _, first_flags, block = self._block
        block += payload
        if len(block) > _HEADER_BYTES_MAX:
            raise ProtocolError(f"headers of more than {_HEADER_BYTES_MAX} bytes")
        if flags & END_HEADERS:
            self._block = None
            self._take_block(first_flags, number, bytes(block))

    def _take_block(self, flags: int, number: int, block: bytes) -> None:
        fields = self._decoder.fields(block)  # also of a stream that was cancelled
        stream = self._streams.get(number)
        if stream is None:
            return
        if not stream.status:  # else these are trailers
            if not fields or fields[0].name != b":status" or not fields[0].value.isdigit():
                raise ProtocolError("an answer without a status")
            status = int(fields[0].value)
            if status in range(*_SMALL):
                return
            stream.take_head(status, fields)
        if flags & END_STREAM:
            self._finish(stream)

    def _finish(self, stream: Stream) -> None:
        del self._streams[stream.number]
        if self._held_back.pop(stream.number, None) is not None:
            self._send(RESET, 0, stream.number, NUMBER.pack(NO_ERROR))  # the rest of the body
        stream.end()
        self._leave_if_done()

    def _take_reset(self, _flags: int, number: int, payload: bytes) -> None:
        stream = self._streams.pop(number, None)
        if stream is None:
            return
        self._held_back.pop(number, None)
        (code,) = numbers_of(payload, 1)
        text = f"the server ended the request (HTTP/2 error {code})"
        stream.fail(NotProcessedError(text) if code == REFUSED else UnreachableError(text))
        self._leave_if_done()

    def _take_settings(self, flags: int, _number: int, payload: bytes) -> None:
        if flags & ACK:
            return
        if len(payload) % SETTING.size:
            raise ProtocolError("settings that end within one")
        settings: dict[int, int] = dict(SETTING.iter_unpack(payload))
        if not self._encoder.use_table(settings.get(HEADER_TABLE_SIZE)):
            self._is_leaving = True  # another connection begins with a small table
        self._streams_max = settings.get(STREAMS_MAX, self._streams_max)
        self._frame_max = settings.get(FRAME_MAX, self._frame_max)
        self._send(SETTINGS, ACK, 0, b"")
        window = settings.get(INITIAL_WINDOW, self._first_window)
        change, self._first_window = window - self._first_window, window
        for stream in self._streams.values():
            stream.send_window += change
        self._send_held_back()

    def _take_push(self, _flags: int, _number: int, _payload: bytes) -> None:
        raise ProtocolError("a push that was forbidden")

    def _take_ping(self, flags: int, _number: int, payload: bytes) -> None:
        if not flags & ACK:
            self._send(PING, ACK, 0, payload)

    def _take_go_away(self, _flags: int, _number: int, payload: bytes) -> None:
        last, code = numbers_of(payload, 2)
        self._is_leaving = True
        for number in [each for each in self._streams if each > last]:
            stream = self._streams.pop(number)
            self._held_back.pop(number, None)
            stream.fail(NotProcessedError(f"the server goes away (HTTP/2 error {code})"))
        self._leave_if_done()

    def _take_window(self, _flags: int, number: int, payload: bytes) -> None:
        (count,) = numbers_of(payload, 1)
        if not number:
            self._window += count
            if self._window > WINDOW_MAX:
                raise ProtocolError("a window that is too large")
            self._send_held_back()
        elif (stream := self._streams.get(number)) is not None:
            stream.send_window += count
            if number in self._held_back:
                self._send_body(stream)

    def _send_held_back(self) -> None:
        for stream in list(self._held_back.values()):
            self._send_body(stream)

    def _leave_if_done(self) -> None:
        if self._is_leaving and not self._streams and self._transport is not None:
            self._flush()
            self._transport.close()

    # Its end.

    def _look(self) -> None:
        """Ping a server that is silent; give up one that does not answer."""
        if self._is_silent and self._is_pinged:
            self.close(f"the server does not answer a ping for {_PONG_S} s")
            return
        self._is_pinged = self._is_silent
        if self._is_silent:
            self._send(PING, 0, 0, bytes(8))
        self._is_silent = True
        self._timer = self._loop.call_later(_PONG_S if self._is_pinged else _SILENT_S, self._look)

    def _end(self, error: UnreachableError) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        streams, self._streams = list(self._streams.values()), {}
        self._held_back.clear()
        for stream in streams:
            stream.fail(error)
        self._on_lost(self)
