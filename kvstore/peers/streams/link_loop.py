"""The thread of all outbound streams: unsent bytes, heartbeats, ends of connections.

    watch(socket, ready)   call ready(events) in this thread whenever the socket is ready
    call(action)           run an action in this thread, soon
    every(period, action)  run an action in this thread periodically

Only this thread uses the selector; other threads give it actions. It never blocks on a socket.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from kvstack.component.logger import Logger

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
_TICK_S: Final = 0.25
_STOP_S: Final = 5.0

Ready = Callable[[int], None]  # given READ, WRITE or both


class LinkLoop:
    """A selector in a thread."""

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._selector.register(self._wake_reader, READ, None)
        self._actions: deque[Callable[[], None]] = deque()
        self._periodic: list[tuple[float, Callable[[], None]]] = []
        self._due_s: list[float] = []
        self._is_stopping = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="peer-links", daemon=True)

    def every(self, period_s: float, action: Callable[[], None]) -> None:
        """Run action about every period_s; to be called before start()."""
        self._periodic.append((period_s, action))
        self._due_s.append(time.monotonic() + period_s)

    def start(self) -> None:
        """Run the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Run the actions that are queued, end the thread and close the watched sockets."""
        self._is_stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)
        self._is_over = True
        while self._actions:
            self._guard(self._actions.popleft())
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()
        self._wake_writer.close()

    def call(self, action: Callable[[], None]) -> None:
        """Run action in the loop's thread, or at once if that has ended; from any thread."""
        if self._is_over:
            action()
            return
        self._actions.append(action)
        self._wake()

    # Called in the loop's thread.

    def watch(self, each: socket.socket, ready: Ready) -> None:
        """Call ready when the socket is readable; it is closed when the loop ends."""
        if self._is_over:
            each.close()
            return
        self._selector.register(each, READ, ready)

    def change(self, each: socket.socket, events: int, ready: Ready) -> None:
        """Change the events that a watched socket is watched for."""
        if each.fileno() >= 0 and not self._is_over:
            self._selector.modify(each, events, ready)

    def forget(self, each: socket.socket) -> None:
        """Stop watching a socket and close it."""
        if each.fileno() >= 0 and not self._is_over:
            with contextlib.suppress(KeyError):  # it was closed before it was watched
                self._selector.unregister(each)
        each.close()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full: a wake-up is pending
            self._wake_writer.send(b"\0")

    def _run(self) -> None:
        while not (self._is_stopping and not self._actions):
            for key, events in self._selector.select(_TICK_S):
                if key.data is None:
                    with contextlib.suppress(BlockingIOError):
                        self._wake_reader.recv(4096)
                else:
                    self._guard(partial(key.data, events))
            while self._actions:
                self._guard(self._actions.popleft())
            self._run_due()

    def _run_due(self) -> None:
        now_s = time.monotonic()
        for at, (period_s, action) in enumerate(self._periodic):
            if now_s >= self._due_s[at]:
                self._due_s[at] = now_s + period_s
                self._guard(action)

    def _guard(self, action: Callable[[], None]) -> None:
        """Run an action; an exception is a bug, which must not stop all other links."""
        try:
            action()
        except Exception as error:  # noqa: BLE001 - logged; the loop serves all members
            self._logger.error("peer link failed", error=repr(error))
