"""The receiving end of one stream from one member: bytes become messages in the turn's own thread.

    ready set  this stream has something ──► receive(messages): read, unchunk, decode

No thread stands between the wire and the turn. A turn reads no more than RECEIVE_BYTES_MAX of one
stream; what is left waits in the kernel, whose buffer stops a member that sends faster than turns
are taken.

An inbound belongs to one connection: the decoder has its state.
"""

import select
import socket
import ssl
import threading
import time
from typing import Final

from kvstore.peers.chunks import Dechunker
from kvstore.peers.counters import PeerCounters
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
        "over",
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
        """Read from a connection whose head is done; first is what came with the head.

        A member's heartbeats come every 1.7 s: silence_s_max must be longer.
        """
        connection.settimeout(0)
        self._socket = connection
        self._decoder = decoder
        self._dechunker = Dechunker() if is_chunked else None
        self._counters = counters
        self._silence_s_max = silence_s_max
        self._first = first
        self._is_secure = isinstance(connection, ssl.SSLSocket)
        self._lock = threading.Lock()  # so that nobody closes a descriptor that is being read
        self._heard_s = time.monotonic()
        self.descriptor: Final = connection.fileno()
        self.over: Final = threading.Event()
        self.reason = ""  # why it is over; empty: a good end

    def receive(self, messages: list[Message], buffer: bytearray) -> bool:
        """Append the messages that have arrived whole; buffer is scratch space.

        True: there may be more that no ready set will tell of.
        """
        with self._lock:
            if self.over.is_set():
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
                return False  # that was all; a secure connection hands out a record at a time
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
            self.end("")  # the connection could carry on, the stream does not

    # From any thread.

    def check_silence(self) -> None:
        """Give up a connection on which nothing, not even a heartbeat, was sent for long."""
        if time.monotonic() - self._heard_s <= self._silence_s_max:
            return
        with self._lock:
            if not self.over.is_set() and not _is_readable(self.descriptor):
                self.end(f"nothing was heard for {self._silence_s_max:g} s")

    def end(self, reason: str) -> None:
        """Say that the connection is over; who waits for that closes it."""
        if not self.over.is_set():
            self.reason = reason
            self.over.set()

    def close(self) -> None:
        """Close the connection, which is in no ready set any more."""
        with self._lock:
            self._socket.close()


def _is_readable(descriptor: int) -> bool:
    """Tell whether bytes wait to be read: then it is the turn that is late, not the member."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))
