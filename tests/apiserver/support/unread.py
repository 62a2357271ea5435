"""Clients that ask for much and read nothing, as a process of their own.

    with not_reading(server, "h2", ["/api/v1/configmaps"] * 400, token="bob-token", connections=4):
        …                                    all requests are sent, and no answer is read

    h2    streams of HTTP/2 with windows as large as they get: the socket is what is not read
    held  streams of HTTP/2 without window, on connections that are read
    h1    a connection of HTTP/1.1 a request

Answers to the last request of each connection are not waited for: `ready` means "sent".
"""

import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import hpack

from tests.apiserver.support.api_servers import ApiServer, trusting
from tests.support.http.raw_http2 import (
    ACK,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

_INITIAL_WINDOW = 4
_WINDOW_MAX = (1 << 31) - 1
_TIMEOUT_S = 60.0


@contextmanager
def not_reading(
    server: ApiServer, way: str, paths: Sequence[str], *, token: str, connections: int = 1
) -> Iterator[None]:
    """Ask for paths, as many connections as there are for HTTP/2; end the clients in the end."""
    plan = {
        "port": server.port,
        "way": way,
        "paths": list(paths),
        "token": token,
        "connections": connections,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.apiserver.support.unread"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(plan) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line == "ready\n", f"the clients ended: {line!r}"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def _connect(port: int, protocol: str) -> ssl.SSLSocket:
    context = trusting()
    context.set_alpn_protocols([protocol])
    raw = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S)
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def _ask_h1(port: int, path: str, token: str) -> socket.socket:
    client = _connect(port, "http/1.1")
    head = f"GET {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n"
    client.sendall(head.encode())
    return client


def _ask_h2(port: int, paths: Sequence[str], token: str, window: int) -> ssl.SSLSocket:
    client = _connect(port, "h2")
    setting = _INITIAL_WINDOW.to_bytes(2, "big") + window.to_bytes(4, "big")
    client.sendall(PREFACE + frame(SETTINGS, 0, 0, setting) + frame(SETTINGS, ACK, 0))
    more = (_WINDOW_MAX - 65_535).to_bytes(4, "big")
    client.sendall(frame(WINDOW_UPDATE, 0, 0, more))
    encoder = hpack.Encoder()
    for number, path in enumerate(paths):
        headers = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "test"),
            (":path", path),
            ("authorization", f"Bearer {token}"),
        ]
        opening = encoder.encode(headers)
        client.sendall(frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, opening))
    return client


def _discard(client: ssl.SSLSocket) -> None:
    while client.recv(1 << 16):
        pass


def main() -> None:
    """Do what the first line says, until the input ends."""
    plan = json.loads(sys.stdin.readline())
    port, way, paths, token = plan["port"], plan["way"], plan["paths"], plan["token"]
    clients: list[socket.socket] = []
    if way == "h1":
        clients += [_ask_h1(port, path, token) for path in paths]
    else:
        count = plan["connections"]
        for at in range(count):
            window = _WINDOW_MAX if way == "h2" else 0
            client = _ask_h2(port, paths[at::count], token, window)
            clients.append(client)
            if way == "held":
                client.settimeout(None)
                threading.Thread(target=_discard, args=(client,), daemon=True).start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
