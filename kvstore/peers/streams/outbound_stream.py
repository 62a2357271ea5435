"""One kind of stream to one member, on the connection that the member dialled, if there is one.

    turn's thread   write(messages) ──► queue empty: to the socket, what does not fit is queued
                                    └─► else: queued, within QUEUE_BYTES_MAX and QUEUE_COUNT_MAX
    link loop       sends the queue, or a heartbeat if it is empty; notices the end

If the queue is full, messages are lost and reported. They are not encoded: what a msgapp encoder
has encoded must be sent. A connection that accepts nothing for stall_s_max is closed. A new
connection replaces the old one.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from kvstore.peers.counters import PeerCounters
from kvstore.peers.streams.chunks import chunk
from kvstore.peers.streams.link_loop import READ, WRITE, LinkLoop
from kvstore.raft.model import Message
from kvstore.wire.msgapp_codec import MessageEncoder, MsgAppEncoder

HEARTBEAT_S: Final = 5.0 / 3
QUEUE_COUNT_MAX: Final = 4096  # writes
QUEUE_BYTES_MAX: Final = 64 << 20
_SEND_BYTES: Final = 256 << 10  # at once, so that the turn does not wait long for the lock

Encoder = MsgAppEncoder | MessageEncoder
_WAIT: Final = (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError, InterruptedError)


class OutboundStream:
    """One kind of stream to one member."""

    def __init__(
        self,
        kind: str,
        heartbeat: bytes,
        make_encoder: Callable[[], Encoder],
        loop: LinkLoop,
        counters: PeerCounters,
        on_lost: Callable[[str, str, str], None],
        stall_s_max: float,
        on_attached: Callable[[], None] = lambda: None,
    ) -> None:
        """Start without a connection.

        on_lost(kind, action, reason) is called, in any thread, when a connection was lost, and
        on_attached() when there is a new one.
        """
        self._kind = kind
        self._heartbeat = chunk(heartbeat)
        self._make_encoder = make_encoder
        self._loop = loop
        self._counters = counters
        self._on_lost = on_lost
        self._stall_s_max = stall_s_max
        self._on_attached = on_attached
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._encoder: Encoder = make_encoder()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._progress_s = 0.0  # when the connection last accepted bytes
        self._is_closed = False

    @property
    def is_attached(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def attach(self, connection: socket.socket) -> None:
        """Send on this connection, whose response head is sent, instead of the previous one."""
        connection.settimeout(0)
        with self._lock:
            old = self._detach()
            if self._is_closed:
                connection.close()
                return
            self._socket = connection
            self._encoder = self._make_encoder()
            self._progress_s = time.monotonic()
        self._loop.call(lambda: self._watch(connection))
        self._discard(old)
        self._on_attached()

    def write(self, messages: Sequence[Message]) -> bool:
        """Send or queue messages; False: they were lost."""
        with self._lock:
            connection = self._socket
            if connection is None:
                return False
            if len(self._queue) >= QUEUE_COUNT_MAX or self._queued_bytes >= QUEUE_BYTES_MAX:
                self._counters.sent_failures += len(messages)
                return False
            encode = self._encoder.encode
            data = chunk(
                encode(messages[0])
                if len(messages) == 1
                else b"".join([encode(message) for message in messages])
            )
            self._counters.sent_bytes += len(data)
            if self._queue:
                self._queue.append(memoryview(data))
                self._queued_bytes += len(data)
                return True
            try:
                sent = connection.send(data)
            except _WAIT:
                sent = 0
            except OSError as error:
                self._lose("write", error)
                self._counters.sent_failures += len(messages)
                return False
            if sent < len(data):
                self._queue.append(memoryview(data)[sent:])
                self._queued_bytes = len(data) - sent
                self._progress_s = time.monotonic()
                self._loop.call(lambda: self._watch_writable(connection))
        return True

    def close(self) -> None:
        """Close the connection, and accept no other."""
        with self._lock:
            self._is_closed = True
            old = self._detach()
        self._discard(old)

    # In the link loop.

    def send_heartbeat(self) -> None:
        """Send a heartbeat if the queue is empty; close a connection that has stalled.

        Called every HEARTBEAT_S.
        """
        with self._lock:
            connection = self._socket
            if connection is None:
                return
            if self._queue:
                if time.monotonic() - self._progress_s > self._stall_s_max:
                    reason = f"nothing was accepted for {self._stall_s_max:g} s"
                    self._lose("write", TimeoutError(reason))
                return
            try:
                sent = connection.send(self._heartbeat)
            except _WAIT:
                sent = 0
            except OSError as error:
                self._lose("heartbeat", error)
                self._counters.sent_failures += 1
                return
            self._counters.sent_bytes += sent
            if sent < len(self._heartbeat):
                self._queue.append(memoryview(self._heartbeat)[sent:])
                self._queued_bytes = len(self._heartbeat) - sent
                self._progress_s = time.monotonic()
                self._loop.call(lambda: self._watch_writable(connection))

    def _watch(self, connection: socket.socket) -> None:
        if connection.fileno() >= 0:
            self._loop.watch(connection, lambda events: self._ready(connection, events))

    def _watch_writable(self, connection: socket.socket) -> None:
        self._loop.change(connection, READ | WRITE, lambda events: self._ready(connection, events))

    def _ready(self, connection: socket.socket, events: int) -> None:
        if events & READ:
            self._read_end(connection)
        if events & WRITE and connection is self._socket:
            self._send_queued(connection)

    def _read_end(self, connection: socket.socket) -> None:
        """Read the end of the connection, or an error: the member sends nothing on it."""
        with self._lock:
            if connection is not self._socket:
                return
            try:
                received = connection.recv(4096)
            except _WAIT:
                return
            except OSError as error:
                self._lose("read", error)
                return
            reason = "unexpected bytes" if received else "closed by the other side"
            self._lose("read", ConnectionResetError(reason))

    def _send_queued(self, connection: socket.socket) -> None:
        while True:
            with self._lock:
                if connection is not self._socket:
                    return
                if not self._queue:
                    self._loop.change(
                        connection, READ, lambda events: self._ready(connection, events)
                    )
                    return
                piece = self._queue[0]
                try:
                    sent = connection.send(piece[:_SEND_BYTES])
                except _WAIT:
                    return
                except OSError as error:
                    self._lose("write", error)
                    return
                self._progress_s = time.monotonic()
                self._queued_bytes -= sent
                if sent == len(piece):
                    self._queue.popleft()
                else:
                    self._queue[0] = piece[sent:]

    # Called with the lock held.

    def _lose(self, action: str, error: Exception) -> None:
        """Close the connection because of an error, and report it."""
        old = self._detach()
        if old is not None:
            self._loop.call(lambda: self._loop.forget(old))
            self._on_lost(self._kind, action, str(error) or type(error).__name__)

    def _detach(self) -> socket.socket | None:
        old, self._socket = self._socket, None
        self._queue.clear()
        self._queued_bytes = 0
        return old

    def _discard(self, old: socket.socket | None) -> None:
        if old is not None:
            with contextlib.suppress(OSError):  # it may be closed already
                old.shutdown(socket.SHUT_RDWR)
            self._loop.call(lambda: self._loop.forget(old))
