"""The inbound streams that have bytes to read: polled by the turn itself, or by a thread for it.

    shared    the driver waits for clients and members with one poll of this set
              wait(timeout) ──► turn ──► take(messages)
    watched   a thread polls the set and wakes the driver, whose turn then takes

Sharing saves a thread switch and needs a transport with a descriptor to poll (`share`). Watching
works with any transport, and before the client port is open.
"""

import contextlib
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from kvstore.peers.streams.inbound_stream import InboundStream
from kvstore.raft.model import Message

_BUFFER_BYTES: Final = 256 << 10
_WATCH_S: Final = 0.25
_STOP_S: Final = 2.0

Wake = Callable[[], None]


def _nobody() -> None:
    """Do nothing: no driver runs yet."""


class ReadySet:
    """The set of inbound streams."""

    def __init__(self) -> None:
        self.wake: Wake = _nobody  # makes the driver take a turn
        self._epoll = select.epoll()
        self._shared = select.epoll()  # has only the shared descriptor
        self._deferred_until_ns = 0
        self._inbound_streams: dict[int, InboundStream] = {}
        self._fresh: deque[InboundStream] = deque()  # to be read without being polled
        self._found: list[tuple[int, int]] = []
        self._buffer = bytearray(_BUFFER_BYTES)
        self._taken = threading.Event()
        self._lock = threading.Lock()  # of the watcher's start and end
        self._is_watched = True
        self._watcher = threading.Thread(target=self._watch, name="peer-ready", daemon=True)

    # Called in any thread.

    def stop(self) -> None:
        """Close; no stream is read after that."""
        self._end_watch()
        if self._watcher.is_alive():
            self._watcher.join(_STOP_S)
        self._epoll.close()
        self._shared.close()

    def add(self, inbound: InboundStream) -> None:
        """Add a stream."""
        self._inbound_streams[inbound.descriptor] = inbound
        with contextlib.suppress(ValueError):  # the set is closed: the member is stopping
            self._epoll.register(inbound.descriptor, select.EPOLLIN)
        self._fresh.append(inbound)
        with self._lock:
            if self._is_watched and not self._watcher.is_alive():
                self._watcher.start()
        self.wake()

    def remove(self, inbound: InboundStream) -> None:
        """Remove a stream, if it is in the set."""
        if self._inbound_streams.get(inbound.descriptor) is inbound:
            del self._inbound_streams[inbound.descriptor]
            with contextlib.suppress(OSError, ValueError):
                self._epoll.unregister(inbound.descriptor)

    def check_silence(self) -> None:
        """End streams on which nothing is received."""
        for inbound in list(self._inbound_streams.values()):
            inbound.check_silence()

    # Called in the turn's thread.

    def share(self, descriptor: int) -> None:
        """Let wait() also return when descriptor is readable; ends the watching."""
        self._epoll.register(descriptor, select.EPOLLIN)
        self._shared.register(descriptor, select.EPOLLIN)
        self._end_watch()

    @property
    def is_idle(self) -> bool:
        """Whether there are no streams."""
        return not self._inbound_streams

    def defer_wakeups(self, for_ns: int) -> None:
        """Let no stream end the next wait() before for_ns has passed; 0: no delay."""
        self._deferred_until_ns = time.monotonic_ns() + for_ns if for_ns else 0

    def wait(self, timeout_s: float) -> None:
        """Block until a stream or the shared descriptor is readable; signals are handled."""
        if self._deferred_until_ns:
            deferred_s = (self._deferred_until_ns - time.monotonic_ns()) / 1e9
            self._deferred_until_ns = 0
            if deferred_s > 0:
                deferred_s = min(deferred_s, timeout_s)
                if self._shared.poll(deferred_s):
                    return
                timeout_s -= deferred_s
        self._found = self._epoll.poll(timeout_s)

    def take(self, messages: list[Message]) -> None:
        """Append the messages that have arrived, up to a limit per stream."""
        inbound_streams = self._inbound_streams
        if not inbound_streams:
            return
        found, self._found = self._found or self._epoll.poll(0), []
        for descriptor, _ in found:
            inbound = inbound_streams.get(descriptor)
            if inbound is not None:
                self._receive(inbound, messages)
        for _ in range(len(self._fresh)):
            self._receive(self._fresh.popleft(), messages)
        if self._is_watched:
            self._taken.set()

    def _receive(self, inbound: InboundStream, messages: list[Message]) -> None:
        if inbound.receive(messages, self._buffer):
            self._fresh.append(inbound)
            self.wake()
        if inbound.ended.is_set():
            self.remove(inbound)

    def _end_watch(self) -> None:
        with self._lock:
            self._is_watched = False
        self._taken.set()

    # The watcher's thread.

    def _watch(self) -> None:
        while self._is_watched:
            if self._epoll.poll(_WATCH_S) and self._is_watched:
                self._taken.clear()
                self.wake()
                self._taken.wait(_WATCH_S)
