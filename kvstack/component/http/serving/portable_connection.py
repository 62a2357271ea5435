"""One connection of HTTP/1.1 for the portable transport: h11 between bytes and requests.

    bytes ─► h11 ─► Arrival, pieces          one request at a time; the next one waits in h11
    bytes ◄─ h11 ◄─ respond, write, end      after a 101 h11 is not used

Bytes read ahead of the handler are bounded by the listener's window and one read; reading pauses
above it. Unsent bytes are bounded by the listener's backlog; above it the answer is aborted.
"""

import asyncio
import fcntl
import socket
import struct
import sys
import termios
import time
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, Protocol
from urllib.parse import quote_from_bytes

import h11
from typing_extensions import override

from kvstack.component.http.serving.h11_head import H11Head
from kvstack.component.http.serving.listeners import ListenerLimits
from kvstack.component.http.serving.transport import Arrival, Connection, Headers
from kvstack.component.net.accepting import Activity
from kvstack.component.net.descriptors import is_silent

_DISCARDED_MAX: Final = 256 << 10  # of an unread body, received so that the answer arrives
_LINGER_S: Final = 1.0
_INT: Final = struct.Struct("i")
_ASCII: Final = bytes(range(128))
_STALL_LOOKS: Final = 4  # in the time that a socket may take nothing
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_NO_BODY: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_PLAIN: Final = (("Content-Type", "text/plain; charset=utf-8"), ("Connection", "close"))


class Owner(Protocol):
    """The transport that a connection belongs to."""

    is_draining: bool

    def next_call(self, connection: "H1Connection") -> int:
        """Return the number of a new request."""
        ...

    def on_request(self, arrival: Arrival) -> None: ...
    def on_body(self, call: int, data: bytes) -> None: ...
    def on_body_end(self, call: int) -> None: ...
    def on_disconnect(self, call: int) -> None: ...
    def on_writable(self, call: int) -> None: ...
    def on_answered(self, call: int) -> None: ...
    def on_unwritten(self, call: int, connection: "H1Connection") -> None: ...
    def on_written(self, call: int, *, is_requested: bool) -> None: ...
    def on_closed(self, connection: "H1Connection") -> None: ...
    def on_notice(self, notice: str) -> None: ...


class H1Connection(asyncio.Protocol):
    """A client's connection, from its handshake on."""

    def __init__(
        self,
        owner: Owner,
        limits: ListenerLimits,
        make_connection: Callable[[asyncio.Transport], Connection],
        host: str,
    ) -> None:
        """Serve for owner; make_connection describes the connection after its handshake.

        host: of the client.
        """
        self._owner = owner
        self.host: Final = host
        self._limits = limits
        self._make_connection = make_connection
        self._loop = asyncio.get_running_loop()
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.header_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._call = 0  # the open request; 0: none
        self._is_head = False
        self._gathered: bytearray | None = None  # body of a request not delivered yet
        self._request: h11.Request | None = None
        self._has_answer = False  # the answer has begun
        self._may_upgrade = False
        self._is_upgraded = False
        self._ahead = 0  # bytes of the body delivered and not read
        self._is_held = False  # nothing is delivered before the reader begins
        self._discarded = 0
        self._is_reading = True
        self._writable_below: int | None = None
        self._unwritten = 0  # the last answer that has ended, if bytes of it are unsent
        self._is_written_requested = False
        self._is_lingering = False
        self._is_first = True
        self._is_aborted = False
        self.is_silent = True  # the client has sent nothing
        self.active_s = time.monotonic()  # a request began or ended, or the connection began
        self._stall_timer: asyncio.TimerHandle | None = None
        self._written = 0  # bytes, to the transport
        self._sent_seen = (
            0,
            0.0,
        )  # bytes that the socket had taken, and since when it took no more

    # The loop's side.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection = self._make_connection(transport)
        if self._connection.is_tls:
            self.is_silent = False  # it has done the handshake
        if self._is_aborted:
            transport.abort()
        self._start_timer(self._limits.handshake_timeout_s)

    @override
    def data_received(self, data: bytes) -> None:
        self.is_silent = False
        if self._is_lingering:
            self._discarded += len(data)
            self._pause_or_resume()
        elif self._is_upgraded:
            self._deliver_body(data)
        else:
            if self._h11.their_state is h11.IDLE and not data.isascii():
                data = _escaped_line(data)
            self._h11.receive_data(data)
            self._advance()

    @override
    def eof_received(self) -> bool:
        if self._is_upgraded and self._call:
            self._owner.on_body_end(self._call)
            return True  # the other half stays open
        return False

    @override
    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        self._note_written()
        if self._call:
            self._owner.on_disconnect(self._call)
            self._call = 0
        self._transport = None
        self._owner.on_closed(self)

    @override
    def resume_writing(self) -> None:
        if self._unsent() == 0:
            self._note_written()
        if self._writable_below is not None and self._call:
            self._writable_below = None
            self._owner.on_writable(self._call)

    # Requests.

    def _advance(self) -> None:
        """Handle what h11 has parsed."""
        try:
            while self._transport is not None and not self._is_full():
                event = self._h11.next_event()
                if isinstance(event, h11.Request):
                    self._begin(event)
                elif isinstance(event, h11.Data):
                    self._on_data(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage):
                    self._on_end()
                elif event is h11.PAUSED and self._h11.their_state is h11.DONE and self._is_idle():
                    self._next()
                else:
                    break
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))
        self._pause_or_resume()

    def _begin(self, request: h11.Request) -> None:
        if request.http_version not in _VERSIONS:
            raise h11.RemoteProtocolError("unknown version", error_status_hint=505)
        if _size_of(request) > self._limits.header_bytes_max:
            raise h11.RemoteProtocolError("headers too large", error_status_hint=431)
        self._stop_timer()
        self._is_first = False
        self.active_s = time.monotonic()
        self._request = request
        self._is_head = request.method == b"HEAD"
        self._has_answer = False
        self._ahead = self._discarded = 0
        headers = dict(request.headers)
        length = headers.get(b"content-length", b"")
        size = int(length) if length else 0
        is_chunked = b"transfer-encoding" in headers
        self._may_upgrade = b"upgrade" in headers and size == 0 and not is_chunked
        is_streamed = is_chunked or size > self._limits.whole_body_bytes_max
        self._is_held = size > 0 and self._h11.they_are_waiting_for_100_continue
        if is_streamed or self._is_held or self._may_upgrade:
            self._deliver_request(None)
        else:
            self._gathered = bytearray()
            self._start_timer(self._limits.body_timeout_s)

    def _deliver_request(self, body: bytes | None) -> None:
        request, connection = self._request, self._connection
        assert request is not None
        assert connection is not None
        self._call = self._owner.next_call(self)
        self._owner.on_request(
            Arrival(
                self._call,
                connection,
                request.method.decode("ascii"),
                request.target.decode("ascii"),
                f"HTTP/{request.http_version.decode('ascii')}",
                H11Head(request),
                body,
                self._may_upgrade,
            )
        )

    def _on_data(self, data: bytes) -> None:
        if self._gathered is not None:
            self._gathered += data
        elif self._call:
            self._deliver_body(data)
        else:
            self._discarded += len(data)
            if self._discarded > _DISCARDED_MAX:
                self._close_lingering()

    def _deliver_body(self, data: bytes) -> None:
        if self._call:
            self._ahead += len(data)
            self._owner.on_body(self._call, data)
            self._pause_or_resume()

    def _on_end(self) -> None:
        if self._gathered is not None:
            self._stop_timer()
            body, self._gathered = bytes(self._gathered), None
            self._deliver_request(body)
        elif self._call and not self._may_upgrade:
            self._owner.on_body_end(self._call)
        self._next()

    def _is_idle(self) -> bool:
        return self._call == 0 and self._h11.our_state is h11.DONE

    def _next(self) -> None:
        """Start the next request, if both sides have finished this one."""
        if self._call or self._transport is None or self._is_lingering or self._is_upgraded:
            return
        states = self._h11.our_state, self._h11.their_state
        if h11.MUST_CLOSE in states or h11.ERROR in states or h11.CLOSED in states:
            self._close_lingering()
        elif states == (h11.DONE, h11.DONE):
            if self._owner.is_draining:
                self._close()
                return
            self._h11.start_next_cycle()
            self._start_timer(self._limits.idle_timeout_s)
            self._advance()

    # Back-pressure towards the client.

    def _is_full(self) -> bool:
        if not self._call:
            return False
        return self._is_held or self._ahead >= self._limits.window_bytes

    def _is_received(self) -> bool:
        """Return whether a request is open that was received completely."""
        return bool(self._call) and self._h11.their_state not in {h11.IDLE, h11.SEND_BODY}

    def _pause_or_resume(self) -> None:
        """Read only if there is room; what follows a complete request waits, too."""
        if self._transport is None:
            return
        has_next = self._is_received() and len(self._h11.trailing_data[0]) > 0
        wants = not (self._is_full() or (has_next and not self._is_upgraded))
        if self._is_lingering:
            wants = self._discarded <= _DISCARDED_MAX
        if wants != self._is_reading:
            self._is_reading = wants
            if wants:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def take(self, size: int) -> None:
        """Note that the reader has read bytes of the body, or (0) begins to read."""
        self._ahead -= size
        if self._is_held and self._transport is not None:
            self._is_held = False
            if self._h11.they_are_waiting_for_100_continue:
                self._send(h11.InformationalResponse(status_code=100, headers=[]))
        if not self._is_upgraded and not self._is_full():
            self._loop.call_soon(self._advance)
        self._pause_or_resume()

    # Answers.

    def respond(self, status: int, headers: Headers, body: bytes | None) -> None:
        """Answer; ValueError for an invalid header."""
        own = [
            (name.encode("latin-1"), value.encode("utf-8", "surrogateescape"))
            for name, value in headers
        ]
        names = {name.lower() for name, _ in own}
        if b"date" not in names:
            own.append((b"Date", formatdate(usegmt=True).encode()))
        if self._owner.is_draining and status >= 200 and b"connection" not in names:
            own.append((b"Connection", b"close"))
        if body is not None and status not in _NO_BODY and b"content-length" not in names:
            own.append((b"Content-Length", str(len(body)).encode()))
        make = h11.InformationalResponse if status < 200 else h11.Response
        try:
            event = make(status_code=status, headers=own, reason=_reason(status))
        except h11.LocalProtocolError as error:
            raise ValueError(str(error)) from error
        self._has_answer = True
        self._send(event)
        if status == 101:
            self._is_upgraded = True
            rest, _ = self._h11.trailing_data
            if rest:
                self._deliver_body(bytes(rest))
            self._pause_or_resume()
        elif body is not None:
            if body and not self._is_head and status not in _NO_BODY:
                self._send(h11.Data(data=body))
            self.end(is_whole=True)

    def write(self, data: bytes) -> int:
        """Send bytes; return how many are unsent."""
        if self._transport is None:
            return 0
        if self._is_upgraded:
            self._put(data)
        else:
            self._send(h11.Data(data=data))
        unsent = self._unsent()
        if unsent > self._limits.backlog_bytes_max and unsent > len(data):
            limit = self._limits.backlog_bytes_max
            self._notice(
                f"the reader of an answer is too slow: {unsent} bytes unsent, limit {limit}"
            )
            self.abort()
        return unsent

    def end(self, *, is_whole: bool) -> None:
        """End the answer; if it is not complete, the connection is closed before its end."""
        call, self._call = self._call, 0
        self.active_s = time.monotonic()
        self._owner.on_answered(call)
        if self._transport is None:
            return
        if not is_whole or not self._has_answer:
            self._break_off()
        elif self._is_upgraded:
            self._close()
        else:
            self._send(h11.EndOfMessage())
            if self._unsent() > 0:
                self._note_written()  # of the one before, if its client has sent the next request
                self._unwritten = call
                self._owner.on_unwritten(call, self)
            # Not at once: the caller may be in a step of its handler.
            self._loop.call_soon(self._after_answer)

    def _after_answer(self) -> None:
        self._next()
        if self._transport is not None and not self._is_lingering and not self._call:
            self._advance()

    def notify_written(self) -> bool:
        """Request an on_written for the answer that has ended; true if its bytes are sent."""
        if self._transport is None or self._unsent() == 0:
            self._note_written()
            return True
        self._is_written_requested = True
        self._transport.set_write_buffer_limits(high=0, low=0)
        return False

    def _note_written(self) -> None:
        """Report the answer that has ended as sent."""
        call, self._unwritten = self._unwritten, 0
        is_requested, self._is_written_requested = self._is_written_requested, False
        if call:
            self._owner.on_written(call, is_requested=is_requested)

    @property
    def unsent_bytes(self) -> int:
        """How many bytes are unsent."""
        return self._unsent()

    def notify_writable(self, unsent_bytes_max: int) -> bool:
        """Request an on_writable once so few bytes are unsent; true if they are now."""
        if self._transport is None or self._unsent() <= unsent_bytes_max:
            return True
        self._writable_below = unsent_bytes_max
        self._transport.set_write_buffer_limits(high=unsent_bytes_max, low=unsent_bytes_max)
        return False

    def _unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def _send(self, event: h11.Event) -> None:
        if self._transport is None:
            return
        if data := self._h11.send(event):
            self._put(data)

    def _put(self, data: bytes) -> None:
        """Write bytes, and watch that the socket takes them."""
        if self._transport is None:
            return
        self._transport.write(data)
        self._written += len(data)
        limit_s = self._limits.write_stall_timeout_s
        if self._stall_timer is None and limit_s > 0 and self._unsent() > 0:
            self._sent_seen = self._acknowledged(), self._loop.time()
            self._stall_timer = self._loop.call_later(limit_s / _STALL_LOOKS, self._look_for_stall)

    def _acknowledged(self) -> int:
        """Return how many bytes the client's system has taken; elsewhere than on Linux, the own.

        A slow reader may take for minutes what the socket holds before it is writable again.
        """
        raw = None if self._transport is None else self._transport.get_extra_info("socket")
        held = bytearray(_INT.size)
        if raw is not None and sys.platform == "linux":
            fcntl.ioctl(raw.fileno(), termios.TIOCOUTQ, held)
        return self._written - self._unsent() - int(_INT.unpack(held)[0])

    def _look_for_stall(self) -> None:
        """Close the connection if its socket takes no byte for too long although some wait."""
        self._stall_timer = None
        if self._transport is None or not self._unsent():
            return
        limit_s, now = self._limits.write_stall_timeout_s, self._loop.time()
        sent, since = self._sent_seen
        if self._acknowledged() > sent:
            self._sent_seen = self._acknowledged(), now
        elif now - since >= limit_s:
            self._notice(f"connection closed: write: the client has read nothing for {limit_s:g} s")
            self.abort()
            return
        self._stall_timer = self._loop.call_later(limit_s / _STALL_LOOKS, self._look_for_stall)

    # The end.

    @property
    def is_answering(self) -> bool:
        """Whether anything but an answer in progress is to be sent."""
        if self._call and self._has_answer:
            return False
        return self._transport is not None

    def drain(self) -> None:
        """Serve no request after the open one."""
        if not self._call and self._gathered is None and self._h11.their_state is h11.IDLE:
            self._close()

    @property
    def is_waiting(self) -> bool:
        """Whether no request is under way."""
        is_open = self._transport is not None and not self._is_aborted
        is_busy = self._call or self._gathered is not None or self._is_upgraded or self._unwritten
        return is_open and not is_busy

    def activity(self, raw: socket.socket) -> Activity:
        """Return what decides whether it is closed when descriptors run short."""
        return Activity(self.host, self.active_s, self.is_waiting and is_silent(raw))

    def close(self) -> None:
        """Close after sending what was written."""
        self._close()

    def abort(self) -> None:
        """Close at once, or as soon as the connection is made."""
        self._is_aborted = True
        self.is_silent = False
        if self._transport is not None:
            self._transport.abort()

    def _refuse(self, status: int, text: str) -> None:
        """Answer an invalid request."""
        if self._transport is None or self._is_lingering:
            return
        if self._call:
            self._break_off()
            return
        if self._h11.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = f"{status} {_reason(status).decode()}: {text}".encode()
            headers = [*_PLAIN, ("Content-Length", str(len(body)))]
            own = [(name.encode(), value.encode()) for name, value in headers]
            self._send(h11.Response(status_code=status, headers=own, reason=_reason(status)))
            self._send(h11.Data(data=body))
            self._send(h11.EndOfMessage())
        self._close_lingering()

    def _break_off(self) -> None:
        """End the connection so that the client sees an error: a body without end, or a reset."""
        if self._transport is None:
            return
        if self._has_answer and not self._is_upgraded:
            self._transport.close()
        else:
            self._transport.abort()

    def _close(self) -> None:
        self._stop_timer()
        # asyncio's TLS forgets its protocol when it is closed twice, and cannot be aborted then.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def _close_lingering(self) -> None:
        """Close after the client had time to read; else it might lose the answer.

        Some of what it still sends is read. Who sends more waits, and has as long to read.
        """
        if self._transport is None or self._is_lingering:
            return
        self._is_lingering = True
        self._discarded = 0
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._pause_or_resume()
        self._stop_timer()
        self._timer = self._loop.call_later(_LINGER_S, self._close)

    def _notice(self, text: str) -> None:
        if self._connection is not None:
            self._owner.on_notice(f"{text}: {self._connection.peer}")

    def _start_timer(self, time_s: float) -> None:
        """Limit the time until the client's next step."""
        self._stop_timer()
        self._timer = self._loop.call_later(time_s, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        if self._gathered is not None:
            self._refuse(408, "request body takes too long")
        elif self._is_first:
            self._notice("connection closed: HTTP/1.1: no request in time")
            self._close()
        else:
            self._close()


def _escaped_line(data: bytes) -> bytes:
    """Escape bytes of a request line that h11 refuses and Go's servers accept."""
    line, newline, rest = data.partition(b"\n")
    return quote_from_bytes(line, safe=_ASCII).encode() + newline + rest


def _size_of(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


def _reason(status: int) -> bytes:
    try:
        return HTTPStatus(status).phrase.encode()
    except ValueError:
        return b""
