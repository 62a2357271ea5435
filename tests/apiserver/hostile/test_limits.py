"""Large, deep, slow: the server refuses or takes it, and serves others meanwhile."""

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.apiserver.support.api_servers import ADMIN_TOKEN, ApiServer, cluster, trusting
from tests.apiserver.support.requests import Connection, RefusedError, send

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("apiserver-hostile")]

MAPS = "/api/v1/namespaces/default/configmaps"
TIMEOUT_S = 60.0
PATIENCE_S = 60.0  # what another client waits at most, on a busy machine
MIB = 1 << 20
WATCHES = 30
WRITES = 40


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with cluster(tmp_path_factory.mktemp("limits")) as stack:
        yield stack.server
        log = stack.server.log_path.read_text()
        assert "Traceback" not in log, log[-4000:]


def sent(
    server: ApiServer, method: str, path: str, body: bytes | None, content_type: str
) -> tuple[int, Any]:
    connection = http.client.HTTPSConnection(
        "127.0.0.1", server.port, timeout=TIMEOUT_S, context=trusting()
    )
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": content_type}
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        is_json = "json" in (response.headers.get("Content-Type") or "")
        return response.status, json.loads(answer) if is_json else answer
    finally:
        connection.close()


def others_are_served(server: ApiServer) -> None:
    begin_s = time.monotonic()
    send(server, "GET", "/api/v1/namespaces/default")
    assert time.monotonic() - begin_s < PATIENCE_S


DEEP = 100_000
PROTOBUF = "application/vnd.kubernetes.protobuf"
BODIES = {
    "deep lists": (b'{"data":' + b"[" * DEEP + b"]" * DEEP + b"}", "application/json"),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, "application/json"),
    "deep, open": (b"[" * DEEP, "application/json"),
    "deep YAML": (b"[" * DEEP, "application/yaml"),
    "YAML that grows": (
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9))
            for n in range(9)
        ),
        "application/yaml",
    ),
    "a long number": (b'{"a":' + b"9" * MIB + b"}", "application/json"),
    "a long key": (b'{"' + b"k" * MIB + b'":1}', "application/json"),
    "many keys": (json.dumps({str(n): n for n in range(100_000)}).encode(), "application/json"),
    "protobuf that claims much": (b"k8s\0\x0a\xff\xff\xff\xff\x07", PROTOBUF),
    "deep protobuf": (b"k8s\0" + b"\x12\x7f" * DEEP, PROTOBUF),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused(server: ApiServer, name: str) -> None:
    body, content_type = BODIES[name]
    status, answer = sent(server, "POST", f"{MAPS}?fieldValidation=Strict", body, content_type)
    assert 400 <= status < 500, (status, str(answer)[:300])
    assert answer["kind"] == "Status"
    others_are_served(server)


def test_a_body_above_the_limit_is_refused(server: ApiServer) -> None:
    body = json.dumps({"metadata": {"name": "large"}, "data": {"a": "x" * (3 * MIB)}}).encode()
    assert sent(server, "POST", MAPS, body, "application/json")[0] == 413
    others_are_served(server)


def test_a_patch_of_too_many_operations_is_refused(server: ApiServer) -> None:
    send(server, "POST", MAPS, {"metadata": {"name": "patched"}, "data": {"a": "1"}})
    operations = [{"op": "add", "path": f"/data/k{n}", "value": "v"} for n in range(10_001)]
    status, _ = sent(
        server,
        "PATCH",
        f"{MAPS}/patched",
        json.dumps(operations).encode(),
        "application/json-patch+json",
    )
    assert status == 413
    copies = [{"op": "add", "path": "/data/a", "value": "x" * 1000}] + [
        {"op": "copy", "from": "/data", "path": f"/data/c{n}"} for n in range(40)
    ]
    status, _ = sent(
        server,
        "PATCH",
        f"{MAPS}/patched",
        json.dumps(copies).encode(),
        "application/json-patch+json",
    )
    assert 400 <= status < 500
    others_are_served(server)


@pytest.mark.parametrize("kilobytes", [64, 900, 2_000])
def test_a_long_selector(server: ApiServer, kilobytes: int) -> None:
    values = ",".join(f"v{n}" for n in range(kilobytes * 150))[: kilobytes * 1000].rstrip(",")
    path = f"{MAPS}?labelSelector={quote(f'a in ({values})')}"
    try:
        status, _ = sent(server, "GET", path, None, "application/json")
        assert status == 200 or 400 <= status < 500
    except (OSError, http.client.HTTPException):
        # More than a head may have is refused, and the rest of it is not waited for.
        assert len(path) > MIB
    others_are_served(server)


def test_slow_writers_hold_nobody_up(server: ApiServer) -> None:
    head = (
        f"POST {MAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    )
    with ExitStack() as stack:
        for _ in range(50):
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), 10))
            stack.enter_context(trusting().wrap_socket(plain)).sendall(head.encode())
        others_are_served(server)


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def test_watches_that_do_not_read_are_torn_or_wait_in_bounds(server: ApiServer) -> None:
    send(server, "POST", MAPS, {"metadata": {"name": "watched"}})
    listed = send(server, "GET", f"{MAPS}?limit=1")
    path = f"{MAPS}?watch=1&resourceVersion={listed['metadata']['resourceVersion']}"
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_TOKEN}\r\n\r\n"
    before = resident_bytes(server.pid)
    with ExitStack() as stack:
        for _ in range(WATCHES):
            plain = stack.enter_context(socket.socket())
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.connect(("127.0.0.1", server.port))
            secure = stack.enter_context(trusting().wrap_socket(plain))
            secure.sendall(request.encode())
        writer = Connection(server)
        for number in range(WRITES):
            body = {"data": {"a": "x" * (MIB // 2), "n": str(number)}}
            writer.ask(
                "PATCH",
                f"{MAPS}/watched",
                body,
                content_type="application/merge-patch+json",
            )
        writer.close()
        others_are_served(server)
        grown = resident_bytes(server.pid) - before
    # Every watch has as much to read; the events' bytes are there once for all of them.
    written = WRITES * MIB // 2
    assert grown < 8 * written, f"{grown >> 20} MiB for {written >> 20} MiB and {WATCHES} watches"


def test_a_watch_that_is_refused_costs_nothing(server: ApiServer) -> None:
    for _ in range(30):
        with pytest.raises(RefusedError):
            send(server, "GET", f"{MAPS}?watch=1&resourceVersion=x")
    others_are_served(server)
