"""Clients of a shim, over a socket in the container's directory.

one line of JSON from the client, then:
{"do": "watch"}                 nothing comes; the connection ends when the container has
{"do": "attach"}                frames both ways
{"do": "exec", …}               three descriptors come with the line; a line with the end goes back
{"do": "signal", "number": 15}  {"do": "reopen"}

frame = kind (1 byte), length (4 bytes), data
to the container: 0 input, 4 size of the terminal (columns, rows), 255 no more input
from it:          1 output, 2 errors
"""

import json
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any, Final, TypeAlias

INPUT, OUTPUT, ERRORS, SIZE, CLOSE_INPUT = 0, 1, 2, 4, 255
HEAD: Final = struct.Struct(">BI")
TERMINAL_SIZE: Final = struct.Struct(">HH")
UNSENT_BYTES_MAX: Final = 1 << 20
"""Above it the container's output waits."""
_PIECE: Final = 64 << 10
_LINE_BYTES_MAX: Final = 4 << 20
_DESCRIPTORS_MAX: Final = 3

Request: TypeAlias = dict[str, Any]


def frame(kind: int, data: bytes) -> bytes:
    """Return a frame."""
    return HEAD.pack(kind, len(data)) + data


class Client:
    """One connection; what it asks for is passed on."""

    def __init__(
        self,
        connection: socket.socket,
        on_request: Callable[["Client", Request], None],
        on_frame: Callable[[int, bytes], None],
    ) -> None:
        """The socket does not block."""
        self.connection = connection
        self.is_attached = False
        self.child = 0
        """The process that runs a command for it."""
        self.descriptors: list[int] = []
        self._on_request = on_request
        self._on_frame = on_frame
        self._is_asked = False
        self._received = bytearray()
        self._unsent = bytearray()

    @property
    def unsent(self) -> int:
        """The number of bytes that wait to be sent."""
        return len(self._unsent)

    def receive(self) -> bool:
        """Read from the client; return whether the connection goes on."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self.connection, _PIECE, _DESCRIPTORS_MAX)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.descriptors += descriptors
        self._received += data
        if not data or (not self._is_asked and len(self._received) > _LINE_BYTES_MAX):
            return False
        if not self._is_asked:
            line, newline, rest = bytes(self._received).partition(b"\n")
            if not newline:
                return True
            self._is_asked = True
            self._received = bytearray(rest)
            self._on_request(self, json.loads(line))
        while len(self._received) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._received)
            if len(self._received) < HEAD.size + length:
                break
            self._on_frame(kind, bytes(self._received[HEAD.size : HEAD.size + length]))
            del self._received[: HEAD.size + length]
        return True

    def send(self, data: bytes) -> bool:
        """Send, now or later; return whether the connection goes on."""
        self._unsent += data
        return self.flush()

    def flush(self) -> bool:
        """Send what can be sent; return whether the connection goes on."""
        while self._unsent:
            try:
                sent = self.connection.send(self._unsent)
            except BlockingIOError:
                return True
            except OSError:
                return False
            del self._unsent[:sent]
        return True

    def finish(self) -> None:
        """Send the rest, for which the client must wait, and end."""
        self.connection.setblocking(True)
        self.connection.settimeout(1.0)
        try:
            self.connection.sendall(self._unsent)
        except OSError:
            self._unsent.clear()  # it has gone, or does not read
        self.close()

    def close(self) -> None:
        """End the connection, and what runs for it."""
        self.connection.close()
        for each in self.descriptors:
            os.close(each)
        self.descriptors.clear()
        if self.child:
            try:
                os.kill(self.child, signal.SIGKILL)
            except ProcessLookupError:
                self.child = 0
