"""A watch that stays open while later steps run: over HTTP, framed protobuf or WebSocket.

A thread reads it and keeps its events as recordings do: {"json"}, {"text"}, {"base64"}, and for
frames of a WebSocket their opcode.
"""

import base64
import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from tests.apiserver.player.documents import is_plain_bookmark, packed
from tests.apiserver.player.target import TIMEOUT_S, Target, plain_headers

QUIET_S = 0.3  # nothing more comes: after so long without an event
_TEXT, _CLOSE = 1, 8  # opcodes


class WatchStream:
    """One open watch. `answer` is what a recording has: status, headers, events."""

    def __init__(
        self, target: Target, path: str, headers: Mapping[str, str], token: str | None
    ) -> None:
        sent = dict(headers)
        if token is not None:
            sent = {"authorization": f"Bearer {token}"} | sent
        self.answer: dict[str, Any] = {}
        self._events: list[dict[str, Any]] = []
        self._ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        target.before()
        if sent.get("upgrade") == "websocket":
            self._socket = self._upgraded(target, path, sent)
        else:
            self._socket = self._requested(target, path, sent)

    # over HTTP

    def _requested(self, target: Target, path: str, headers: dict[str, str]) -> socket.socket:
        connection = target.connect()
        connection.request("GET", path, headers=headers)
        own = connection.sock
        response = connection.getresponse()
        self.answer = {"status": response.status, "headers": plain_headers(response.headers)}
        if response.status != 200:
            self.answer |= packed(response.read())
            self._ended = True
        elif "protobuf" in (response.headers.get("Content-Type") or ""):
            self._read(lambda: self._frames(response))
        else:
            self._read(lambda: self._lines(response))
        return own

    def _lines(self, response: http.client.HTTPResponse) -> None:
        while line := response.readline():
            if line.strip():
                self._add(packed(line))

    def _frames(self, response: http.client.HTTPResponse) -> None:
        while len(head := response.read(4)) == 4:
            frame = head + response.read(struct.unpack(">I", head)[0])
            self._add({"base64": base64.b64encode(frame).decode()})

    # over WebSocket

    def _upgraded(self, target: Target, path: str, headers: dict[str, str]) -> socket.socket:
        plain = socket.create_connection((target.host, target.port), timeout=TIMEOUT_S)
        own = (
            target.context.wrap_socket(plain, server_hostname=target.host)
            if target.has_tls
            else plain
        )
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {target.host}:{target.port}",
            *(f"{key}: {value}" for key, value in headers.items()),
        ]
        own.sendall("\r\n".join([*lines, "", ""]).encode())
        stream = own.makefile("rb")
        status = int(stream.readline().split()[1])
        got = {}
        while line := stream.readline().strip():
            key, _, value = line.decode().partition(":")
            got[key.lower()] = value.strip()
        self.answer = {"status": status, "headers": got}
        if status == 101:
            self._read(lambda: self._messages(stream))
        else:
            self.answer |= packed(stream.read(int(got.get("content-length", 0))))
            self._ended = True
        return own

    def _messages(self, stream: BinaryIO) -> None:
        while len(head := stream.read(2)) == 2:
            opcode, length = head[0] & 15, head[1] & 127
            if length == 126:
                length = struct.unpack(">H", stream.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", stream.read(8))[0]
            content = stream.read(length)
            if opcode != _TEXT:
                self._add({"opcode": opcode, "base64": base64.b64encode(content).decode()})
            elif content.startswith(b"{"):
                self._add({"opcode": opcode, "json": json.loads(content)})
            else:
                self._add({"opcode": opcode, "text": content.decode()})
            if opcode == _CLOSE:
                return

    # events

    def _read(self, pump: Callable[[], None]) -> None:
        def run() -> None:
            try:
                pump()
            except (OSError, ValueError, AttributeError, http.client.HTTPException):
                pass  # the stream was torn: what came is there, what did not is missed
            finally:
                with self._changed:
                    self._ended = True
                    self._changed.notify_all()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _add(self, event: dict[str, Any]) -> None:
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def settle(self, quiet_s: float) -> None:
        """Wait until nothing has come for so long."""
        count = -1
        while not self._ended and len(self._events) != count:
            count = len(self._events)
            with self._changed:
                self._changed.wait_for(self._more_than(count), quiet_s)

    def finish(self, count: int, timeout_s: float, *, until_end: bool) -> None:
        """Wait for so many events and quiet after them, or until the server ends the stream."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not self._ended and (until_end or self._arrived() < count):
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    break
                self._changed.wait(left_s)
        if not until_end:
            self.settle(QUIET_S)
        with self._changed:
            if self._events or self.answer["status"] in (101, 200):
                self.answer["events"] = list(self._events)
        self.close()

    def close(self) -> None:
        """End the watch from this side."""
        with contextlib.suppress(OSError):  # the server was first
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._thread is not None:
            self._thread.join(TIMEOUT_S)
        self._socket.close()

    def _more_than(self, count: int) -> Callable[[], bool]:
        return lambda: self._ended or len(self._events) > count

    def _arrived(self) -> int:
        return sum(not is_plain_bookmark(event) for event in self._events)
