"""The sending end of one kind of stream to one member: the connection it dialled, if there is one.

    turn's thread   write(messages) ──► idle: straight to the socket, what does not fit is queued
                                    └─► busy: queued, within QUEUE_BYTES_MAX and QUEUE_COUNT_MAX
    link loop       sends what is queued, a heartbeat when nothing is, notices the end

A message that finds the queue full is lost and told as such; it is not encoded, since what a msgapp
encoder has encoded must be sent. A connection that takes nothing for stall_s_max is given up. A new
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

from kvstore.peers.chunks import chunk
from kvstore.peers.counters import PeerCounters
from kvstore.peers.link_loop import READ, WRITE, LinkLoop
from kvstore.raft.model import Message
from kvstore.wire.msgapp_codec import MessageEncoder, MsgAppEncoder

HEARTBEAT_S: Final = 5.0 / 3
QUEUE_COUNT_MAX: Final = 4096  # writes waiting
QUEUE_BYTES_MAX: Final = 64 << 20
_SEND_BYTES: Final = 256 << 10  # at once, so that the turn never waits long for the lock

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
        """Begin without a connection.

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
        self._moved_s = 0.0  # when the connection last took something
        self._is_closed = False

    @property
    def is_attached(self) -> bool:
        """Whether there is a connection."""
        return self._socket is not None

    def attach(self, connection: socket.socket) -> None:
        """Send on a connection whose head is done, instead of the one before."""
        connection.settimeout(0)
        with self._lock:
            old = self._detach()
            if self._is_closed:
                connection.close()
                return
            self._socket = connection
            self._encoder = self._make_encoder()
            self._moved_s = time.monotonic()
        self._loop.call(lambda: self._watch(connection))
        self._discard(old)
        self._on_attached()

    def write(self, messages: Sequence[Message]) -> bool:
        """Send messages, or queue them; False: one or more of them were lost."""
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
                self._moved_s = time.monotonic()
                self._loop.call(lambda: self._want_room(connection))
        return True

    def close(self) -> None:
        """Give up the connection, and take no other."""
        with self._lock:
            self._is_closed = True
            old = self._detach()
        self._discard(old)

    # In the link loop.

    def beat(self) -> None:
        """Send a heartbeat if nothing else is being sent; give up a connection that stands still.

        Called every HEARTBEAT_S.
        """
        with self._lock:
            connection = self._socket
            if connection is None:
                return
            if self._queue:
                if time.monotonic() - self._moved_s > self._stall_s_max:
                    reason = f"nothing was taken for {self._stall_s_max:g} s"
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
                self._moved_s = time.monotonic()
                self._loop.call(lambda: self._want_room(connection))

    def _watch(self, connection: socket.socket) -> None:
        if connection.fileno() >= 0:
            self._loop.watch(connection, lambda events: self._ready(connection, events))

    def _want_room(self, connection: socket.socket) -> None:
        self._loop.want(connection, READ | WRITE, lambda events: self._ready(connection, events))

    def _ready(self, connection: socket.socket, events: int) -> None:
        if events & READ:
            self._look_for_end(connection)
        if events & WRITE and connection is self._socket:
            self._send_queued(connection)

    def _look_for_end(self, connection: socket.socket) -> None:
        """Read from a member that has nothing to say: its end, or an error."""
        with self._lock:
            if connection is not self._socket:
                return
            try:
                said = connection.recv(4096)
            except _WAIT:
                return
            except OSError as error:
                self._lose("read", error)
                return
            reason = "it sent what nobody asked for" if said else "closed by the other side"
            self._lose("read", ConnectionResetError(reason))

    def _send_queued(self, connection: socket.socket) -> None:
        while True:
            with self._lock:
                if connection is not self._socket:
                    return
                if not self._queue:
                    self._loop.want(
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
                self._moved_s = time.monotonic()
                self._queued_bytes -= sent
                if sent == len(piece):
                    self._queue.popleft()
                else:
                    self._queue[0] = piece[sent:]

    # With the lock held.

    def _lose(self, action: str, error: Exception) -> None:
        """Give up the connection because of an error, and tell."""
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
            with contextlib.suppress(OSError):  # it may be gone already
                old.shutdown(socket.SHUT_RDWR)
            self._loop.call(lambda: self._loop.forget(old))
