"""What HTTP costs a program that serves it with `kvstore.http`: CPU of that program's process.

    small answers     by HTTP/1.1 and HTTP/2, plain and by TLS, from handlers that wait and do not
    events            an event to 1,000 open answers: the process's own time and the kernel's
    idle connections  memory of each of 10,000 that asked once (of 1,000 without the crate)

The crate's transport is set beside the one without Rust, which speaks HTTP/1.1. h2load and the
server share the machine's cores.
"""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from bench.http_server import SMALL, Server, serving
from bench.loads import h2
from bench.procfs import Meter, memory
from bench.reporting.figures import OURS, PEER, Better, Measure
from bench.run import Run, Scenario
from kvstore.transport import native
from tests.support.certificates import Authority

_ANSWERS: Final = 20_000
_ANSWER_US: Final = 35.0
_TLS_US: Final = 15.0
_EVENT_US: Final = 1.0
_IDLE_KB: Final = 10.0  # 10,000 in 100 MB
_IDLE: Final = {OURS: 10_000, PEER: 1_000}  # Python's ssl takes some 300 kB each
_EVENTS: Final = 100
_EVENT_BYTES: Final = 256
_OPEN: Final = 1_000
_STREAMS: Final = 100  # open answers of one connection of HTTP/2
_WAIT_S: Final = 60.0


class Protocol(NamedTuple):
    """What is spoken: how h2load is told, and over how many connections how much is in flight."""

    name: str
    http1: bool
    connections: int
    in_flight: int


_HTTP1: Final = Protocol("HTTP/1.1", True, 50, 1)
_HTTP2: Final = Protocol("HTTP/2", False, 10, 5)
_PROTOCOLS: Final = {OURS: (_HTTP1, _HTTP2), PEER: (_HTTP1,)}


def play(run: Run) -> None:
    """Both transports, round by round; connections are opened in processes of their own."""
    why = h2.missing() or ("" if native.is_available() else "the crate was not built")
    if why:
        run.skip(why)
        return
    (run.directory / "files").mkdir()
    pair = Authority(run.directory / "files").issue("server")
    for round_number in run.rounds():
        for who in run.order(round_number):
            with serving(pair, portable=who == PEER) as server:
                for protocol in _PROTOCOLS[who]:
                    with run.step(f"round {round_number + 1}, {who}: {protocol.name}"):
                        _answers(run, who, server, protocol)
                        _events(run, who, server, protocol)
            for scheme in ("http", "https"):
                step = run.step(f"round {round_number + 1}, {who}: idle, {scheme}")
                with step, serving(pair, portable=who == PEER) as server:
                    _idle(run, who, server, is_tls=scheme == "https")
    run.note("CPU: of the server's process, all threads, its part of the kernel's work included.")
    run.note("TLS: its handshakes included, one every 400 or 2,000 answers (HTTP/1.1, HTTP/2).")
    run.note(f"Answers are of {len(SMALL)} bytes, events of {_EVENT_BYTES}.")


def _answers(run: Run, who: str, server: Server, protocol: Protocol) -> None:
    def cpu_us(url: str) -> float:
        meter = Meter([server.process.pid])
        found = h2.get(
            url,
            run.size(_ANSWERS, 1_000),
            connections=protocol.connections,
            in_flight=protocol.in_flight,
            http1=protocol.http1,
        )
        if found.data_bytes != found.requests * len(SMALL):
            raise RuntimeError(f"{found.requests} answers of {found.data_bytes} bytes")
        rates.append(found.rate)
        return sum(meter.used_s()) / found.requests * 1e6

    add, lower, rates = run.figures.add, Better.LOWER, list[float]()
    plain_us = cpu_us(f"{server.plain_url}/small")
    waits_us = cpu_us(f"{server.plain_url}/waits")
    tls_us = cpu_us(f"{server.tls_url}/small")
    name = f"{protocol.name}, small answer"
    add(Measure(name, "µs", lower, limit=_ANSWER_US), who, plain_us)
    add(Measure(f"{name}, handler waits", "µs", lower, limit=_ANSWER_US), who, waits_us)
    add(Measure(f"{name}: TLS adds", "µs", lower, limit=_TLS_US), who, tls_us - plain_us)
    add(Measure(f"{name}: rate", "answers/s", Better.HIGHER), who, rates[0])


def _events(run: Run, who: str, server: Server, protocol: Protocol) -> None:
    count = run.size(_OPEN, 100)
    streams = 1 if protocol.http1 else _STREAMS
    reading = h2.holding(
        f"{server.plain_url}/open",
        connections=count // streams,
        in_flight=streams,
        http1=protocol.http1,
    )
    with reading:
        _wait_open(server, count)
        cost = server.tell(f"events {run.size(_EVENTS, 10)} {_EVENT_BYTES}")
        server.tell("end")
    name = f"{protocol.name}, event to {_OPEN:,} open answers"
    own = Measure(f"{name}, each", "µs", Better.LOWER, limit=_EVENT_US)
    run.figures.add(own, who, cost["user_us"])
    run.figures.add(Measure(f"{name}: kernel", "µs", Better.LOWER), who, cost["system_us"])


def _wait_open(server: Server, count: int) -> None:
    deadline = time.monotonic() + _WAIT_S
    while server.tell("open") != count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.tell('open')} of {count} answers are open")
        time.sleep(0.05)


def _idle(run: Run, who: str, server: Server, *, is_tls: bool) -> None:
    count = run.size(_IDLE[who], 100)
    url = server.tls_url if is_tls else server.plain_url
    with _connections(url, 1, is_tls=is_tls):  # what is loaded once is no connection's
        before = memory(server.process.pid).anon_bytes
    with _connections(url, count, is_tls=is_tls):
        grown = memory(server.process.pid).anon_bytes - before
    name = f"idle connection, {'TLS' if is_tls else 'plain'}"
    run.figures.add(Measure(name, "kB", Better.LOWER, limit=_IDLE_KB), who, grown / count / 1e3)


@contextmanager
def _connections(url: str, count: int, *, is_tls: bool) -> Iterator[None]:
    """Hold connections open that have asked once each."""
    host, _, port = url.partition("://")[2].partition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as stack:
        for _ in range(count):
            plain = stack.enter_context(socket.create_connection((host, int(port)), _WAIT_S))
            each = stack.enter_context(context.wrap_socket(plain)) if is_tls else plain
            each.sendall(b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while not answer.endswith(SMALL):
                piece = each.recv(4096)
                if not piece:
                    raise RuntimeError(f"the server closed a connection after {answer!r}")
                answer += piece
        yield


SCENARIO: Final = Scenario(
    "http",
    "HTTP for other programs",
    "`kvstack.component.http.serving` on an asyncio loop; h2load on the same cores",
    rounds=5,
    play=play,
    columns=("with the crate", "without Rust"),
)
