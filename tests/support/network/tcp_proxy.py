"""A TCP proxy on loopback before one port, run by threads: what stands before a member's peer port.

    with TcpProxy(target_port) as proxy:
        connect to 127.0.0.1:proxy.port; proxy.accepted counts connections; proxy.cut()

It accepts even while nothing listens on the target port, and then closes the connection.
"""

import contextlib
import socket
import threading
from typing import Final, Self

_BYTES: Final = 64 << 10


class TcpProxy:
    """Forwards connections to one port."""

    def __init__(self, target_port: int, listening: socket.socket | None = None) -> None:
        """Forward to a port; listening: the socket to accept from, if there is one already."""
        self._target = ("127.0.0.1", target_port)
        self._listening = listening or socket.create_server(("127.0.0.1", 0), backlog=128)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self.port: int = self._listening.getsockname()[1]
        self.accepted = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        self.cut()

    def cut(self) -> None:
        """End every connection that there is."""
        with self._lock:
            for each in self._open:
                _shut(each)

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        try:
            target = socket.create_connection(self._target)
        except OSError:
            caller.close()
            return
        both = {caller, target}
        with self._lock:
            self._open |= both
        for each in both:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=_copy, args=(target, caller), daemon=True)
        back.start()
        _copy(caller, target)
        back.join()
        with self._lock:
            self._open -= both
        for each in both:
            each.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BYTES):
            target.sendall(data)
    _shut(source)
    _shut(target)


def _shut(each: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it may be closed already
        each.shutdown(socket.SHUT_RDWR)
