"""HTTP of tests: one request by http.client, or a connection whose bytes are the test's."""

import http.client
import socket
from typing import Self

from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Message, TextMessage

from tests.support.http.cases import Answer, Case, normal

TIMEOUT_S = 60.0


def ask(
    port: int,
    method: str,
    path: str,
    body: str | bytes | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> tuple[int, dict[str, str], bytes]:
    """Make one request; return status, headers by lower-case name and the whole body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        data = body.encode(errors="surrogateescape") if isinstance(body, str) else body
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        if data is not None:
            connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return response.status, found, response.read()
    finally:
        connection.close()


def answer(port: int, case: Case) -> Answer:
    """Run one case."""
    return normal(*ask(port, case.method, case.path, case.body, case.headers))


class Wire:
    """A connection whose bytes are written and read as they are."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def chunk(self, data: bytes) -> None:
        """Send one piece of a chunked body; empty: the end."""
        self.send(b"%x\r\n%s\r\n" % (len(data), data))

    def until(self, expected: bytes) -> bytes:
        """Read until something was seen; return all up to its end, and forget it."""
        while expected not in self.seen:
            data = self.socket.recv(65536)
            assert data, f"the server closed; seen {self.seen!r}"
            self.seen += data
        at = self.seen.index(expected) + len(expected)
        found, self.seen = self.seen[:at], self.seen[at:]
        return found

    def rest(self) -> bytes:
        """Read until the server closes."""
        while data := self.socket.recv(65536):
            self.seen += data
        return self.seen


class WebSocket:
    """A WebSocket client."""

    def __init__(self, port: int, path: str, headers: str = "") -> None:
        self.wire = Wire(port)
        self.wire.send(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: keep-alive, Upgrade\r\n"
            "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n".encode()
        )
        self.head = self.wire.until(b"\r\n\r\n").decode()
        self.frames = Connection(ConnectionType.CLIENT)
        self.messages: list[str] = []
        self.close_code: int | None = None
        self._part = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.socket.close()

    def send(self, text: str) -> None:
        message: Message[str] = TextMessage(data=text)
        self.wire.send(self.frames.send(message))

    def receive(self) -> str:
        """Return the next message; fails if the server closes."""
        self.read_until_closed(messages=1)
        return self.messages.pop(0)

    def read_until_closed(self, messages: int = 1 << 30) -> None:
        """Read until there are so many messages, or the server closes."""
        while len(self.messages) < messages and self.close_code is None:
            data = self.wire.seen or self.wire.socket.recv(65536)
            self.wire.seen = b""
            assert data, "the server closed without a word"
            self.frames.receive_data(data)
            for event in self.frames.events():
                if isinstance(event, TextMessage):
                    self._part += event.data
                    if event.message_finished:
                        self.messages.append(self._part)
                        self._part = ""
                elif isinstance(event, CloseConnection):
                    self.close_code = event.code

    def close(self) -> None:
        self.wire.send(self.frames.send(CloseConnection(code=1000)))
