"""Streams of the gateway on both servers that carry it: lines, WebSockets, clients that go away."""

import base64
import hashlib
import json
import time
from collections.abc import Iterator

import pytest

from kvstore.transport import native
from tests.support import servers
from tests.support.http.plain_client import WebSocket, Wire, ask
from tests.support.rpc_client import Client

WAIT_S = 60.0
FOO = base64.b64encode(b"foo").decode()


class ServedPages:
    """A server and the port its pages are on."""

    def __init__(self, server: servers.Server, port: int) -> None:
        self.server = server
        self.port = port

    def put(self, value: str) -> None:
        body = json.dumps({"key": FOO, "value": base64.b64encode(value.encode()).decode()})
        assert ask(self.port, "POST", "/v3/kv/put", body)[0] == 200


@pytest.fixture(scope="module", params=["client port", "own server"])
def pages(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedPages]:
    port = 0
    extra = ["--enable-pprof"]
    if request.param == "own server":
        (port,) = servers.free_ports(1)
        extra += [f"--listen-client-http-urls=http://127.0.0.1:{port}", "--transport=grpcio"]
    elif not native.is_available():
        pytest.skip("the native transport is not built")
    data_dir = tmp_path_factory.mktemp("streams") / "ours"
    with servers.running(servers.ours(data_dir, extra=extra)) as server:
        yield ServedPages(server, port or server.client_port)


def post_chunked(wire: Wire, path: str, *headers: str) -> None:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Transfer-Encoding: chunked", *headers]
    wire.send("\r\n".join([*lines, "", ""]).encode())


def lines_of(data: bytes) -> list[dict[str, object]]:
    """Return the JSON lines in chunks of an answer, however many are in one; a head is left out."""
    if data.startswith(b"HTTP/"):
        data = data.partition(b"\r\n\r\n")[2]
    body = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        body += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return [json.loads(each) for each in body.splitlines()]


def test_a_watch_that_is_written_to_while_it_answers(pages: ServedPages) -> None:
    with Wire(pages.port) as wire:
        post_chunked(wire, "/v3/watch")
        wire.chunk(b'{"create_request":{"key":"Zm9')
        wire.chunk(b'v","watch_id":"7"}}{"create')
        head = wire.until(b"\r\n\r\n").decode().lower()
        assert head.startswith("http/1.1 200 ok\r\n")
        assert "transfer-encoding: chunked" in head
        assert "content-type: application/json" in head
        created = lines_of(wire.until(b"}\n\r\n"))[0]["result"]
        assert created["watch_id"] == "7"  # type: ignore[index]
        pages.put("<one>")
        event = lines_of(wire.until(b"}\n\r\n"))[0]["result"]["events"][0]  # type: ignore[index]
        assert base64.b64decode(event["kv"]["value"]) == b"<one>"
        assert "type" not in event  # PUT is the empty one
        wire.chunk(b'_request":{"key":"AA==","watch_id":8}}')
        assert lines_of(wire.until(b"}\n\r\n"))[0]["result"]["watch_id"] == "8"  # type: ignore[index]
        wire.chunk(b'\n{"cancel_request":{"watch_id":7}}')
        canceled = lines_of(wire.until(b"}\n\r\n"))[0]["result"]
        assert canceled["canceled"] is True  # type: ignore[index]


def test_garbage_after_the_first_message_ends_the_stream(pages: ServedPages) -> None:
    with Wire(pages.port) as wire:
        post_chunked(wire, "/v3/watch", "Connection: close")
        wire.chunk(b'{"create_request":{"key":"Zm9v"}}')
        wire.until(b"}\n\r\n")
        wire.chunk(b'{"cancel_request":{"watch_id":"x"}}')
        [error] = lines_of(wire.until(b"0\r\n\r\n"))
        assert error == {
            "error": {
                "code": 3,
                "message": "Failed to decode request: proto: (line 1:31): invalid value for int64 "
                'field watchId: "x"',
            }
        }


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("xx", "invalid character 'x' looking for beginning of value"),
        (
            '{"create_request":{"key":5}}',
            "proto: (line 1:26): invalid value for bytes field key: 5",
        ),
        ('{"create_request":', "unexpected EOF"),
    ],
)
def test_garbage_as_the_first_message_is_refused(pages: ServedPages, body: str, text: str) -> None:
    status, _, answer = ask(pages.port, "POST", "/v3/watch", body)
    assert status == 400
    assert json.loads(answer)["error"] == {
        "code": 3,
        "message": f"Failed to decode request: {text}",
    }


def test_leases_are_kept_alive_message_by_message(pages: ServedPages) -> None:
    ask(pages.port, "POST", "/v3/lease/grant", '{"TTL":600,"ID":"5"}')
    with Wire(pages.port) as wire:
        post_chunked(wire, "/v3/lease/keepalive", "Connection: close")
        for _ in range(3):
            wire.chunk(b'{"ID":"5"}')
            assert lines_of(wire.until(b"}\n\r\n"))[0]["result"]["TTL"] == "600"  # type: ignore[index]
        wire.chunk(b"")
        assert wire.until(b"0\r\n\r\n") == b"0\r\n\r\n"


def test_a_snapshot_is_whole(pages: ServedPages) -> None:
    pages.put("x" * 100_000)
    status, _, answer = ask(pages.port, "POST", "/v3/maintenance/snapshot", "{}")
    assert status == 200
    blobs = [base64.b64decode(json.loads(line)["result"]["blob"]) for line in answer.splitlines()]
    data = b"".join(blobs)
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    assert b"x" * 100_000 in data or data.count(b"x") > 100_000


def test_a_large_stream_to_a_slow_reader(pages: ServedPages) -> None:
    """More than may wait unsent; the server neither keeps it all nor loses any of it."""
    for index in range(6):
        body = json.dumps(
            {"key": FOO, "value": base64.b64encode(b"%d" % index * 1_000_000).decode()}
        )
        assert ask(pages.port, "POST", "/v3/kv/put", body)[0] == 200
    with Wire(pages.port) as wire:
        post_chunked(wire, "/v3/maintenance/snapshot", "Connection: close")
        wire.chunk(b"{}")
        wire.chunk(b"")
        wire.until(b"\r\n\r\n")
        time.sleep(0.3)  # the reader is slow
        answer = wire.rest()
    lines = lines_of(answer)
    data = b"".join([base64.b64decode(line["result"]["blob"]) for line in lines])  # type: ignore[index]
    assert len(data) > 6_000_000
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]


def test_disconnecting_clients_do_not_affect_others(pages: ServedPages) -> None:
    wires = [Wire(pages.port) for _ in range(20)]
    for wire in wires:
        post_chunked(wire, "/v3/watch")
        wire.chunk(b'{"create_request":{"key":"Zm9v"}}')
        wire.until(b"}\n\r\n")
    for wire in wires:
        wire.socket.close()
    pages.put("after")
    with Wire(pages.port) as wire:  # cut off in the middle of its body
        post_chunked(wire, "/v3/kv/put")
        wire.chunk(b'{"key":"Zm9v"')
    with Client(pages.server.endpoint) as client:
        assert client.is_alive()


def test_websocket(pages: ServedPages) -> None:
    with WebSocket(pages.port, "/v3/watch") as socket:
        assert socket.head.startswith("HTTP/1.1 101 ")
        assert "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=" in socket.head.lower()
        assert "sec-websocket-protocol" not in socket.head.lower()
        socket.send('{"create_request":{"key":"Zm9v"}}')
        assert json.loads(socket.receive())["result"]["created"] is True
        pages.put("seen")
        event = json.loads(socket.receive())["result"]["events"][0]
        assert base64.b64decode(event["kv"]["value"]) == b"seen"
        socket.send('{"create_request":{"key":"AA==","watch_id":"9"}}')
        assert json.loads(socket.receive())["result"]["watch_id"] == "9"
        socket.close()
        socket.read_until_closed()
        assert socket.close_code == 1000


def test_websocket_and_bearer(pages: ServedPages) -> None:
    with WebSocket(
        pages.port, "/v3/lease/keepalive", "Sec-WebSocket-Protocol: Bearer, t\r\n"
    ) as socket:
        assert "sec-websocket-protocol: bearer\r\n" in socket.head.lower()
        socket.send('{"ID":"999"}')
        assert json.loads(socket.receive())["result"]["ID"] == "999"


def test_websocket_for_one_answer(pages: ServedPages) -> None:
    with WebSocket(pages.port, "/v3/kv/range?method=GET") as socket:
        socket.send(f'{{"key":"{FOO}","count_only":true}}')
        assert json.loads(socket.receive())["count"] == "1"
        socket.read_until_closed()
        assert socket.close_code == 1000
        assert socket.wire.rest() == b""  # the server closes first


@pytest.mark.parametrize(
    ("path", "text", "answer"),
    [
        ("/v3/nope", "{}", {"code": 5, "message": "Not Found"}),
        (
            "/v3/watch",
            "no",
            {
                "error": {
                    "code": 3,
                    "message": "Failed to decode request: invalid character 'o' in literal null "
                    "(expecting 'u')",
                }
            },
        ),
    ],
)
def test_websocket_refusals_are_messages(
    pages: ServedPages, path: str, text: str, answer: dict[str, object]
) -> None:
    with WebSocket(pages.port, path) as socket:
        socket.send(text)
        assert json.loads(socket.receive()) == answer
        socket.read_until_closed()
        assert socket.close_code == 1000


def test_websocket_frames_that_are_none(pages: ServedPages) -> None:
    with WebSocket(pages.port, "/v3/watch") as socket:
        socket.wire.send(b"\xff" * 32)
        socket.read_until_closed()
        assert socket.close_code == 1002


def test_upgrades_that_are_incomplete(pages: ServedPages) -> None:
    headers = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
    status, found, body = ask(pages.port, "GET", "/v3/watch", headers=headers)
    assert (status, body) == (400, b"Bad Request\n")
    assert found["sec-websocket-version"] == "13"


def test_events_of_the_debugger_are_there(pages: ServedPages) -> None:
    assert b"side-loop" in ask(pages.port, "GET", "/debug/pprof/goroutine?debug=2")[2]
