"""Servers that run out of descriptors: silent connections go first, and nobody else notices."""

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.component.http.serving.notices import OF_DESCRIPTORS
from kvstack.component.net.descriptors import RESERVE, Descriptors
from kvstore.raft.model import ConfState, Snapshot, SnapshotMetadata
from kvstore.storage.snapshots.file import NotNowError, write_snapshot_file
from kvstore.transport import native
from tests.support.http.clients import connect
from tests.support.http.raw_http2 import END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame
from tests.support.servers import Server, etcdctl, running
from tests.support.waiting import wait_for

H2_GET = (
    PREFACE
    + frame(SETTINGS, 0, 0)
    + frame(
        # GET / of the scheme http, with an authority: RFC 7541, C.4.1.
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"),
    )
)
LIMIT = 400
SILENT = 2 * LIMIT
WAIT_S = 60.0
WITH_LIMIT = ["sh", "-c", f'ulimit -n {LIMIT} && exec "$0" "$@"', sys.executable]
NATIVE = pytest.mark.skipif(not native.is_available(), reason="the native transport is not built")
# Serves HTTP and prints its address; "/count" answers how many descriptors are open.
SERVE = """
import asyncio, os, sys
from kvstack.component.http.serving.listeners import Listener
from kvstack.component.http.serving.server import HttpOptions, HttpServer

released = asyncio.Event()

async def handle(request, answer):
    if request.target == "/wait":
        await released.wait()
    if request.target == "/release":
        released.set()
    answer.send(200, [], str(len(os.listdir("/proc/self/fd"))).encode())

async def main():
    options = HttpOptions(portable=sys.argv[1] == "portable")
    async with HttpServer([Listener("http://127.0.0.1:0")], handle, options, print) as server:
        print(server.urls[0], flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""
# The same by the server of a member's pages.
SERVE_PAGES = """
import asyncio, os, socket
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.http.h1_server import H1Server

released = asyncio.Event()

async def handle(request, respond):
    if request.path == "/wait":
        await released.wait()
    if request.path == "/release":
        released.set()
    await respond.whole(200, [], str(len(os.listdir("/proc/self/fd"))).encode())

async def main():
    listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    serving = asyncio.create_task(H1Server(listening, handle, LineLogger([], "info")).run())
    await asyncio.to_thread(os.read, 0, 1)
    serving.cancel()

asyncio.run(main())
"""


@contextlib.contextmanager
def connections(port: int, count: int, first: bytes = b"") -> Iterator[list[socket.socket]]:
    """Connect so many times; each client sends its first bytes at once."""
    with contextlib.ExitStack() as stack:
        made = []
        for _ in range(count):
            made.append(stack.enter_context(socket.create_connection(("127.0.0.1", port))))
            made[-1].sendall(first)
        yield made


def open_descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@NATIVE
def test_a_store_serves_and_takes_snapshots_beside_connections(tmp_path: Path) -> None:
    server = Server([*WITH_LIMIT, "-m", "kvstore"], tmp_path / "d", extra=["--snapshot-count=20"])
    with running(server), connections(server.client_port, SILENT):
        wait_for(lambda: open_descriptors(server.pid) >= LIMIT - RESERVE - 10)
        for number in range(60):
            etcdctl(server, "put", f"k{number}", "v")
        assert "k59\nv" in etcdctl(server, "get", "k59").stdout
        etcdctl(server, "snapshot", "save", str(tmp_path / "snapshot.db"))
        assert (tmp_path / "snapshot.db").stat().st_size > 0
        assert open_descriptors(server.pid) <= LIMIT - RESERVE + 20  # with the snapshot's files
        log = server.log_path.read_text()
        assert "saved snapshot" in log
        assert "connections closed that had sent nothing" in log
        assert server.process is not None
        assert server.process.poll() is None
        assert server.stop() == 0


@contextlib.contextmanager
def http_server(kind: str, notices: list[str]) -> Iterator[str]:
    """Run a server with few descriptors; give its URL, and at the end what it reported."""
    process = subprocess.Popen(
        [*WITH_LIMIT, "-c", SERVE_PAGES if kind == "pages" else SERVE, kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.poll() is None
    finally:
        notices += process.communicate("")[0].splitlines()


@pytest.mark.parametrize(
    ("kind", "protocol"),
    [
        pytest.param("native", "h1", marks=NATIVE),
        pytest.param("native", "h2", marks=NATIVE),
        ("portable", "h1"),
        ("pages", "h1"),
    ],
)
def test_connections_that_are_idle_keep_nobody_out(kind: str, protocol: str) -> None:
    """One request each, and then silence: whoever holds many loses some, and others are served."""

    async def scenario(url: str) -> None:
        port = int(url.rpartition(":")[2])
        first = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" if protocol == "h1" else H2_GET
        async with connect(url, "h1") as waiting:
            slow = asyncio.create_task(waiting.ask("GET", "/wait"))
            with contextlib.ExitStack() as stack:

                def ask(host: str) -> socket.socket:
                    client = socket.create_connection(("127.0.0.1", port), WAIT_S, (host, 0))
                    client.sendall(first)
                    return stack.enter_context(client)

                asked = [ask("127.0.0.1") for _ in range((LIMIT - RESERVE) // 2)]
                other = ask("127.0.0.2")
                asked += [ask("127.0.0.1") for _ in range((LIMIT - RESERVE) // 2)]
                for _ in range(5):
                    async with connect(url, "h1") as client:
                        count = int((await client.ask("GET", "/count")).body)
                        assert count <= LIMIT - RESERVE + 3
                assert other.recv(1 << 16)  # its answer
                assert not is_ended(other)  # its host has one connection
                gone = [each for each in asked if await asyncio.to_thread(is_ended, each)]
                assert gone
            async with connect(url, "h1") as client:
                await client.ask("GET", "/release")
            assert (await slow).status == 200  # nor is who waits for an answer

    notices: list[str] = []
    with http_server(kind, notices) as url:
        asyncio.run(scenario(url))
    assert all(notice.startswith(OF_DESCRIPTORS) for notice in notices), notices
    assert notices or kind != "native"  # others close connections without a word


def is_ended(client: socket.socket) -> bool:
    """Read what there is; tell whether the server has closed the connection."""
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("kind", [pytest.param("native", marks=NATIVE), "portable"])
def test_an_http_server_closes_the_oldest_connections(kind: str) -> None:
    process = subprocess.Popen(
        [*WITH_LIMIT, "-c", SERVE, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        port = int(url.rpartition(":")[2])

        async def scenario() -> None:
            async with connect(url, "h1") as busy:  # it has asked something: it stays
                assert (await busy.ask("GET", "/count")).status == 200
                with connections(port, SILENT) as silent:
                    for _ in range(5):
                        async with connect(url, "h1") as client:
                            count = int((await client.ask("GET", "/count")).body)
                            assert count <= LIMIT - RESERVE + 3
                    silent[0].settimeout(WAIT_S)
                    with contextlib.suppress(ConnectionResetError):
                        assert silent[0].recv(1) == b""  # the oldest is closed
                    silent[-1].setblocking(False)
                    with pytest.raises(BlockingIOError):
                        silent[-1].recv(1)  # one of the newest is not
                assert (await busy.ask("GET", "/count")).status == 200

        asyncio.run(scenario())
        assert process.poll() is None
    finally:
        process.communicate("")


@pytest.mark.parametrize("kind", [pytest.param("native", marks=NATIVE), "portable"])
def test_a_server_waits_while_others_hold_the_descriptors(kind: str) -> None:
    """Connections that have spoken are not closed: new ones wait until some end, without a spin."""
    process = subprocess.Popen(
        [*WITH_LIMIT, "-c", SERVE, kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        port = int(url.rpartition(":")[2])
        with connections(port, SILENT // 2, b"GET /count HTTP/1.1\r\nHost: x\r\n\r\n") as spoken:
            wait_for(lambda: open_descriptors(process.pid) >= LIMIT - RESERVE - 10)
            before = _cpu_s(process.pid)
            time.sleep(1.0)
            assert _cpu_s(process.pid) - before < 0.5
            assert open_descriptors(process.pid) <= LIMIT - RESERVE + 5
            spoken[0].settimeout(WAIT_S)
            assert spoken[0].recv(100).startswith(b"HTTP/1.1 200")
            for each in spoken[: SILENT // 4]:
                each.close()
            spoken[-1].settimeout(WAIT_S)
            assert spoken[-1].recv(100).startswith(b"HTTP/1.1 200")
    finally:
        process.communicate("")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_limit_is_raised_and_what_it_was_is_known() -> None:
    text = """
import resource
from kvstack.component.net.descriptors import original_limit, raise_limit
raise_limit(); raise_limit()
print(*resource.getrlimit(resource.RLIMIT_NOFILE), original_limit())
"""
    command = ["sh", "-c", 'ulimit -Sn 300 && ulimit -Hn 500 && exec "$0" "$@"', sys.executable]
    shown = subprocess.run([*command, "-c", text], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["500", "500", "300"]


def test_every_server_program_raises_it(tmp_path: Path) -> None:
    command = ["sh", "-c", 'ulimit -Sn 300 && ulimit -Hn 500 && exec "$0" "$@"', sys.executable]
    with running(Server([*command, "-m", "kvstore"], tmp_path / "d")) as server:
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        found = next(line for line in limits.splitlines() if line.startswith("Max open files"))
        assert found.split()[3:5] == ["500", "500"]


def test_descriptors_are_counted_once_a_number_lies_in_the_reserve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = [str(number) for number in range(100)]
    counts = []

    def listed(_: str) -> list[str]:
        counts.append(len(numbers))
        return numbers

    monkeypatch.setattr(os, "listdir", listed)
    monkeypatch.setattr(time, "monotonic", lambda: float(len(counts)))
    for limit, first in ((1024, 874), (256, 128)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        left = Descriptors()
        assert not left.are_short_with(first - 1)
        assert counts == []
        numbers = [*numbers, str(first)]
        assert not left.are_short_with(first)  # a high number alone is no shortage
        numbers = [str(number) for number in range(first + 1)]
        assert left.are_short_with(20)  # of those counted then
        left.note_closed()
        numbers = [str(number) for number in range(first)]
        assert not left.are_short()
        numbers = [str(number) for number in range(100)]
        counts.clear()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert not Descriptors().are_short_with(1_000_000)


def test_a_snapshot_without_a_descriptor_is_tried_again(tmp_path: Path) -> None:
    snapshot = Snapshot(SnapshotMetadata(ConfState(voters=(1,)), 7, 2), b"")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_next_descriptor(), hard))
    try:
        with pytest.raises(NotNowError, match=r"cannot write snapshot .*Too many open files"):
            write_snapshot_file(tmp_path, snapshot)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    assert write_snapshot_file(tmp_path, snapshot).exists()


def _next_descriptor() -> int:
    with socket.socket() as one:
        return one.fileno()
