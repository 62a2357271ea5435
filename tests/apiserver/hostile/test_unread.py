"""Clients that ask and do not read: what the server holds for them, and how others fare."""

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from typing_extensions import override

from bench.procfs import memory
from tests.apiserver.support.api_servers import ApiServer, cluster
from tests.apiserver.support.requests import Connection, RefusedError, send
from tests.apiserver.support.unread import not_reading
from tests.support.processors import queued_s
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.xdist_group("apiserver-unread")]

READER, OTHER = "alice-token", "bob-token"
MIB = 1 << 20
OBJECT_BYTES = 5_400
OBJECTS = 1_000
FEW = 222
ALL = "/api/v1/configmaps"
SOME = "/api/v1/namespaces/some/configmaps"
LATENCY_S = 0.25
PATIENCE_S = 60.0


class Size(NamedTuple):
    """How many requests there are of each kind."""

    lists: int
    watches: int


FULL = Size(400, 6_676)
SCALED = Size(100, 400)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with cluster(tmp_path_factory.mktemp("unread")) as stack:
        _fill(stack.server)
        yield stack.server
        log = stack.server.log_path.read_text()
        assert "Traceback" not in log, log[-4000:]


def _fill(server: ApiServer) -> None:
    connection = Connection(server)
    try:
        for name in ("some", "rest"):
            connection.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for number in range(OBJECTS):
            space = "some" if number < FEW else "rest"
            document = {"metadata": {"name": f"c-{number}"}, "data": {"v": "x" * OBJECT_BYTES}}
            connection.ask("POST", f"/api/v1/namespaces/{space}/configmaps", document)
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]}
        role = {"metadata": {"name": "reader"}, "rules": [rule]}
        connection.ask("POST", f"{rbac}/clusterroles", role)
        for name in ("alice", "bob"):
            connection.ask(
                "POST",
                f"{rbac}/clusterrolebindings",
                {
                    "metadata": {"name": name},
                    "roleRef": {
                        "apiGroup": "rbac.authorization.k8s.io",
                        "kind": "ClusterRole",
                        "name": "reader",
                    },
                    "subjects": [
                        {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
                    ],
                },
            )
    finally:
        connection.close()


@dataclass
class Seen:
    """What another client and the process's memory were like."""

    rss_before: int
    rss_most: int = 0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def growth_bytes(self) -> int:
        return self.rss_most - self.rss_before

    @property
    def p99_s(self) -> float:
        return sorted(self.latencies_s)[int(len(self.latencies_s) * 0.99)]

    @override
    def __str__(self) -> str:
        return (
            f"RSS {self.rss_before // MIB} to {self.rss_most // MIB} MiB, p99 of another client "
            f"{self.p99_s * 1000:.1f} ms of {len(self.latencies_s)}"
        )


@contextmanager
def watched(server: ApiServer) -> Iterator[Seen]:
    """Measure, from now until the end of the block and a little longer."""
    seen = Seen(memory(server.pid).rss_bytes)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def measure() -> None:
        connection = Connection(server)
        try:
            while not is_over.is_set():
                before_s, begin_s = _queued_s(server), time.monotonic()
                connection.ask("GET", f"{SOME}/c-7", token=OTHER)
                took_s = time.monotonic() - begin_s
                seen.latencies_s.append(took_s - max(_queued_s(server) - before_s, 0.0))
                seen.rss_most = max(seen.rss_most, memory(server.pid).rss_bytes)
                is_over.wait(0.02)
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            failures.append(error)
        finally:
            connection.close()

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield seen
    finally:
        is_over.set()
        thread.join()
    assert not failures, failures


def _queued_s(server: ApiServer) -> float:
    """Behind other programs: what a busy machine adds to a latency."""
    return queued_s(os.getpid()) + queued_s(server.pid)


def attack(server: ApiServer, way: str, size: Size, hold_s: float) -> Seen:
    """Ask for lists, then for watches, by one user; the same while neither is read."""
    connections = -(-size.watches // 250)
    watch = f"{SOME}?watch=1"
    with (
        watched(server) as seen,
        not_reading(server, way, [ALL] * size.lists, token=READER, connections=4),
        not_reading(server, way, [watch] * size.watches, token=READER, connections=connections),
    ):
        time.sleep(hold_s)
    return seen


def assert_bounded(seen: Seen, way: str, growth_bytes_max: int) -> None:
    print(f"{way}: {seen}")  # noqa: T201 - shown with -s: the figures of a release
    assert seen.growth_bytes <= growth_bytes_max, str(seen)
    assert seen.p99_s <= LATENCY_S, str(seen)


@pytest.mark.parametrize("way", ["h2", "held", "h1"])
def test_what_is_not_read_is_bounded(server: ApiServer, way: str) -> None:
    """100 lists of 5.4 MB and 400 watches of 1.2 MB are 1 GB; connections take some, too."""
    assert_bounded(attack(server, way, SCALED, 5.0), way, 128 * MIB)
    _all_go_on(server)


@pytest.mark.long
@pytest.mark.parametrize("way", ["h2", "held", "h1"])
def test_what_is_not_read_is_bounded_at_full_size(server: ApiServer, way: str) -> None:
    assert_bounded(attack(server, way, FULL, 20.0), way, 600 * MIB)
    _all_go_on(server)


def _all_go_on(server: ApiServer) -> None:
    """Who was not read has its seats again, and is served as before."""

    def read() -> Any:
        try:
            return send(server, "GET", SOME, token=READER)
        except RefusedError as refused:
            if refused.code != 429:
                raise
            return None

    listed = wait_for(read, "its seats are back", PATIENCE_S, every_s=0.1)
    assert len(listed["items"]) == FEW
    assert json.dumps(listed).count("x" * OBJECT_BYTES) == FEW
