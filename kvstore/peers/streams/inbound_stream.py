"""One stream from one member: its bytes become messages in the turn's own thread.

    ready set: the stream is readable ──► receive(messages): read, dechunk, decode

The turn reads the socket itself. It reads at most RECEIVE_BYTES_MAX of one stream; the rest stays
in the kernel, whose buffer slows down a member that sends faster than turns are taken.

An InboundStream belongs to one connection: the decoder has its state.
"""

import select
import socket
import ssl
import threading
import time
from typing import Final

from kvstore.peers.counters import PeerCounters
from kvstore.peers.streams.chunks import Dechunker
from kvstore.raft.model import Message
from kvstore.wire.msgapp_codec import MessageDecoder, MsgAppDecoder
from kvstore.wire.varint import WireError

RECEIVE_BYTES_MAX: Final = 1 << 20

Decoder = MsgAppDecoder | MessageDecoder
_WAIT: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError, InterruptedError)


class InboundStream:
    """One connection that messages arrive on."""

    __slots__ = (
        "_counters",
        "_dechunker",
        "_decoder",
        "_first",
        "_heard_s",
        "_is_secure",
        "_lock",
        "_silence_s_max",
        "_socket",
        "descriptor",
        "ended",
        "reason",
    )

    def __init__(
        self,
        connection: socket.socket,
        decoder: Decoder,
        first: bytes,
        *,
        is_chunked: bool,
        counters: PeerCounters,
        silence_s_max: float,
    ) -> None:
        """Read from a connection after the response head; first is what was received with it.

        Members send heartbeats every 1.7 s: silence_s_max must be longer.
        """
        connection.settimeout(0)
        self._socket = connection
        self._decoder = decoder
        self._dechunker = Dechunker() if is_chunked else None
        self._counters = counters
        self._silence_s_max = silence_s_max
        self._first = first
        self._is_secure = type(connection) is not socket.socket  # but TLS on one
        self._lock = threading.Lock()  # a descriptor must not be closed while it is read
        self._heard_s = time.monotonic()
        self.descriptor: Final = connection.fileno()
        self.ended: Final = threading.Event()
        self.reason = ""  # why it ended; empty: the other side closed it

    def receive(self, messages: list[Message], buffer: bytearray) -> bool:
        """Append the messages that have arrived completely; buffer is scratch space.

        True: there may be more that the ready set does not report.
        """
        with self._lock:
            if self.ended.is_set():
                return False
            try:
                return self._receive(messages, buffer)
            except WireError as error:
                self._counters.received_failures += 1
                self.end(str(error))
            except ConnectionResetError:
                self.end("")
            except OSError as error:
                self.end(str(error))
        return False

    def _receive(self, messages: list[Message], buffer: bytearray) -> bool:
        if self._first:
            first, self._first = self._first, b""
            self._feed(first, messages)
        receive, view = self._socket.recv_into, memoryview(buffer)
        left = RECEIVE_BYTES_MAX
        while left > 0:
            try:
                size = receive(buffer)
            except _WAIT:
                return False
            if size == 0:
                self.end("")
                return False
            self._feed(bytes(view[:size]), messages)
            left -= size
            if size < len(buffer) and not self._is_secure:
                return False  # that was all; TLS returns one record at a time
        return self._is_secure

    def _feed(self, data: bytes, messages: list[Message]) -> None:
        self._heard_s = time.monotonic()
        self._counters.received_bytes += len(data)
        dechunker = self._dechunker
        if dechunker is not None:
            data = dechunker.feed(data)
        if data:
            messages += self._decoder.feed(data)
        if dechunker is not None and dechunker.is_over:
            self.end("")  # the body ended, the connection need not

    # Called in any thread.

    def check_silence(self) -> None:
        """End a connection on which not even heartbeats were received for silence_s_max."""
        if time.monotonic() - self._heard_s <= self._silence_s_max:
            return
        with self._lock:
            if not self.ended.is_set() and not _is_readable(self.descriptor):
                self.end(f"nothing was received for {self._silence_s_max:g} s")

    def end(self, reason: str) -> None:
        """Mark the connection as ended; the thread that waits for `ended` closes it."""
        if not self.ended.is_set():
            self.reason = reason
            self.ended.set()

    def close(self) -> None:
        """Close the connection, which must have left the ready set."""
        with self._lock:
            self._socket.close()


def _is_readable(descriptor: int) -> bool:
    """Return whether bytes wait to be read: then the turn is late, not the member."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
