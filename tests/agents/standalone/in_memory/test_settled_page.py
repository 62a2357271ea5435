"""`/settled` and `/clock`, asked over the network."""

import asyncio
import json
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.standalone.in_memory import background
from kvstack.agents.standalone.in_memory.background import (
    BackgroundCluster,
    Settings,
    make_authorities,
)
from kvstack.agents.standalone.settled import waiters
from kvstack.agents.standalone.settled.others import Others
from kvstack.agents.standalone.settled.waiters import Outcome, Waiters
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.standalone.in_memory.requests import call
from tests.support.waiting import eventually, wait_for

pytestmark = pytest.mark.slow

Start = Callable[..., BackgroundCluster]

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
AGENT = "an-operator/1.0"
POLICY = {"apiVersion": "rbac.authorization.k8s.io/v1"}


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("authorities")
    make_authorities(directory)
    return directory


@pytest.fixture
def start(tmp_path: Path, authorities: Path) -> Iterator[Start]:
    """Return what starts clusters."""
    with ExitStack() as running:

        def start_one(clock: str = "real", **more: Any) -> BackgroundCluster:
            settings = Settings(more.pop("nodes", 1), clock=clock, **more)
            directory = tmp_path / f"cluster-{len(list(tmp_path.iterdir()))}"
            cluster = BackgroundCluster(directory, settings, authorities=authorities)
            return running.enter_context(cluster)

        yield start_one


@pytest.fixture(scope="module")
def bare(
    tmp_path_factory: pytest.TempPathFactory, authorities: Path
) -> Iterator[BackgroundCluster]:
    """Return a cluster in which nothing happens."""
    directory = tmp_path_factory.mktemp("bare") / "cluster"
    without = frozenset(["controllers", "scheduler", "metrics"])
    settings = Settings(0, without, clock="paused")
    with BackgroundCluster(directory, settings, authorities=authorities) as cluster:
        yield cluster


@contextmanager
def connection(cluster: BackgroundCluster) -> Iterator[ssl.SSLSocket]:
    """Yield a connection of the administrator."""
    context = ssl.create_default_context(cafile=cluster.ca_file)
    pki = cluster.ca_file.parent
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    port = int(cluster.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
    ):
        yield secure


def send(to: ssl.SSLSocket, path: str, method: str = "GET", body: bytes = b"") -> None:
    """Send a request, and wait for nothing."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nUser-Agent: {AGENT}\r\n"
    to.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def refused(cluster: BackgroundCluster, method: str, path: str, body: Any = None) -> Object:
    """Return the Status of a request that is refused."""
    with pytest.raises(urllib.error.HTTPError) as found:
        call(cluster, method, path, body)
    status: Object = json.load(found.value)
    return status


def config_map(name: str, size: int = 1) -> Object:
    return {"metadata": {"name": name}, "data": {"a": "x" * size}}


def job() -> Object:
    container = {"name": "a", "image": "a:1"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    spec = {"template": template, "ttlSecondsAfterFinished": 100}
    return {"metadata": {"name": "once"}, "spec": spec}


@pytest.mark.parametrize("clock", ["real", "paused"])
def test_it_answers_once_all_is_done_and_says_what_is_due(start: Start, clock: str) -> None:
    cluster = start(clock)
    call(cluster, "POST", JOBS, job())
    found = call(cluster, "GET", "/settled?timeout=60s")
    assert found["settled"]
    assert found["moving"] == []
    assert found["revision"] > 0
    assert call(cluster, "GET", JOBS)["items"][0]["status"]["succeeded"] == 1
    (due,) = found["due"]
    assert (due["who"], due["what"]) == ("ttl-after-finished-controller", "default/once")
    assert 90 < due["inSeconds"] <= 100
    assert abs(datetime.fromisoformat(found["time"]) - datetime.now(UTC)) < timedelta(minutes=1)


def test_without_time_it_says_what_still_moves(start: Start) -> None:
    cluster = start("paused")
    cluster.settle()
    call(cluster, "POST", JOBS, job())
    found = call(cluster, "GET", "/settled")
    assert not found["settled"]
    assert ("kubelet", "pod default/once") in {
        (each["who"], each["what"].rpartition("-")[0]) for each in found["moving"]
    }
    assert call(cluster, "GET", "/settled?timeout=60s")["settled"]


def test_those_who_watch_are_named_as_long_as_they_do(start: Start) -> None:
    cluster = start()
    with connection(cluster) as watching:
        send(watching, f"{PODS}?watch=true")
        assert watching.recv(4096).startswith(b"HTTP/1.1 200")
        found = call(cluster, "GET", "/settled?timeout=60s")
        assert found["settled"]
        assert not found["exact"]
        (other,) = found["others"]
        assert other["agent"] == AGENT
        assert other["user"] == "kubernetes-admin"
        assert other["watches"] == ["pods"]

    def is_exact() -> bool:
        exact: bool = call(cluster, "GET", "/settled?timeout=60s")["exact"]
        return exact

    wait_for(is_exact, "nobody else is there")


def test_a_client_that_has_asked_counts_until_its_connection_ends(start: Start) -> None:
    cluster = start(nodes=0)
    cluster.settle()
    with connection(cluster) as client:
        send(client, "/version")
        client.recv(65536)
        assert call(cluster, "GET", "/settled?timeout=60s")["exact"]
        send(client, PODS)
        client.recv(65536)
        found = call(cluster, "GET", "/settled?quiet=60s")
        assert not found["settled"]
        assert found["moving"][0]["who"] == AGENT
        assert found["moving"][0]["why"].endswith(" ms ago")
        found = call(cluster, "GET", "/settled?timeout=60s&quiet=10ms")
        assert found["settled"]
        assert not found["exact"]
        assert found["others"][0]["askedSecondsAgo"] >= 0.01


def test_what_a_watch_has_not_been_sent_is_under_way(start: Start) -> None:
    cluster = start(nodes=0, without=frozenset(["controllers", "scheduler", "nodes", "metrics"]))
    with connection(cluster) as watching:
        send(watching, f"{CONFIG_MAPS}?watch=true")
        watching.recv(100)
        found: Object = {"settled": True}
        for number in range(16):  # sockets hold some of it
            if not found["settled"]:
                break
            call(cluster, "POST", CONFIG_MAPS, config_map(f"m{number}", 900_000))
            found = call(cluster, "GET", "/settled?timeout=200ms&quiet=0s")
        assert {(AGENT, "configmaps", "was not sent everything yet")} == {
            (each["who"], each["what"], each["why"]) for each in found["moving"]
        }


def test_who_may_not_ask_is_refused(start: Start) -> None:
    cluster = start(nodes=0)
    for method, path in (("GET", "/settled"), ("GET", "/clock"), ("POST", "/clock")):
        request = urllib.request.Request(cluster.url + path, method=method)
        context = ssl.create_default_context(cafile=cluster.ca_file)
        pki = cluster.ca_file.parent
        context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        request.add_header("Impersonate-User", "bob")
        with pytest.raises(urllib.error.HTTPError) as found:
            urllib.request.urlopen(request, context=context, timeout=60)
        assert found.value.code == 403
        message = json.load(found.value)["message"]
        assert message.endswith(f'User "bob" cannot {method.lower()} path "{path}"')


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("timeout=601s", 'invalid timeout "601s": 0s to 600s'),
        ("timeout=-1s", 'invalid timeout "-1s": 0s to 600s'),
        ("timeout=1", "time: missing unit in duration"),
        ("quiet=61s", 'invalid quiet "61s": 0s to 60s'),
        ("quiet=x", 'invalid quiet "x": time: invalid duration'),
    ],
)
def test_what_cannot_be_waited_for(bare: BackgroundCluster, query: str, text: str) -> None:
    found = refused(bare, "GET", f"/settled?{query}")
    assert found["code"] == 400
    assert text in found["message"]


def test_many_who_wait_share_one_look(start: Start) -> None:
    cluster = start(nodes=0)
    cluster.settle()

    async def wait() -> tuple[list[Outcome], int]:
        live = cluster._live
        own = Waiters(live, Others(live.server))
        found = await asyncio.gather(*(own.wait(60.0, 0.2) for _ in range(500)))
        return found, own.looks

    outcomes, looks = cluster.call(wait())
    assert len(outcomes) == 500
    assert not any(each.moving for each in outcomes)
    assert looks <= 3


def test_so_many_may_wait_and_no_more(
    bare: BackgroundCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters, "WAITERS_MAX", 0)
    with connection(bare) as client:
        send(client, "/settled")
        said = client.recv(4096).decode()
    assert said.startswith("HTTP/1.1 429")
    assert "too many requests wait for it already" in said


def long_count(cluster: BackgroundCluster) -> int:
    """Return how many requests over the network last long."""

    async def count() -> int:
        site = cluster._live.server.site
        own = cluster._live.server.local.transport
        return sum(each.answer.transport is not own for each in site.api.in_flight._open)

    return cluster.call(count())


def test_a_request_that_waits_ends_with_its_client(start: Start) -> None:
    cluster = start(nodes=0)
    with connection(cluster) as asking, connection(cluster) as waiting:
        send(asking, PODS)
        asking.recv(65536)
        send(waiting, "/settled?timeout=600s&quiet=60s")
        wait_for(lambda: long_count(cluster) == 1, "it waits")
        waiting.close()
        wait_for(lambda: long_count(cluster) == 0, "it has ended")


def test_a_request_that_waits_does_not_keep_the_server(start: Start) -> None:
    cluster = start(nodes=0)
    with connection(cluster) as asking, connection(cluster) as waiting:
        send(asking, PODS)
        asking.recv(65536)
        send(waiting, "/settled?timeout=600s&quiet=60s")
        wait_for(lambda: long_count(cluster) == 1, "it waits")
        began_s = time.monotonic()
        cluster.stop()
        assert time.monotonic() - began_s < background.START_S_MAX / 2
        assert waiting.recv(4096).startswith(b"HTTP/1.1 503")


def grant(cluster: BackgroundCluster, user: str) -> None:
    """Let a user read pods, and ask whether the cluster is settled."""
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    rules = [
        {"nonResourceURLs": ["/settled"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    ]
    call(cluster, "POST", roles, {**POLICY, "metadata": {"name": "waits"}, "rules": rules})
    group = "rbac.authorization.k8s.io"
    call(
        cluster,
        "POST",
        f"{roles[:-5]}rolebindings",
        {
            **POLICY,
            "metadata": {"name": "waits"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "waits"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        },
    )


def test_those_who_wait_take_no_seats_from_others(start: Start) -> None:
    cluster = start(nodes=0)
    grant(cluster, "bob")
    with connection(cluster) as asking:
        send(asking, PODS)
        asking.recv(65536)

        async def as_bob() -> None:
            from kvstack.agents.client.api import Api
            from kvstack.agents.client.in_process import InProcess
            from kvstack.apimachinery.attributes import AUTHENTICATED, User

            local = cluster._live.server.local
            token = local.token_for(User("bob", groups=(AUTHENTICATED,)))
            api = Api(InProcess(local.transport, token))
            query = {"timeout": "600s", "quiet": "60s"}
            waiting = [
                asyncio.ensure_future(api.call("GET", "/settled", query)) for _ in range(900)
            ]
            try:
                in_flight = cluster._live.server.site.api.in_flight
                await eventually(lambda: in_flight.long_count >= 900)
                async with asyncio.timeout(30):
                    assert (await api.call("GET", PODS))["items"] == []
            finally:
                for each in waiting:
                    each.cancel()
                await asyncio.wait(waiting)

        cluster.call(as_bob())


# The clock.


def test_a_cluster_that_goes_by_the_machines_clock_refuses_to_change_it(start: Start) -> None:
    cluster = start(nodes=0)
    found = call(cluster, "GET", "/clock")
    assert (found["clock"], found["rate"], found["isAdvancing"]) == ("real", 1.0, False)
    found = refused(cluster, "POST", "/clock", {"advance": "1h"})
    assert found["code"] == 409
    assert found["message"].startswith("this cluster uses the machine's clock, which cannot be")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({}, 'the body must be {"advance": "24h"} or {"rate": 100}'),
        ({"advance": "1h", "rate": 1}, "the body must be"),
        ({"other": 1}, "the body must be"),
        ([1], "the body must be"),
        ({"advance": 3600}, 'expected a duration such as "24h"'),
        ({"advance": "1d"}, 'invalid advance "1d": time: unknown unit'),
        ({"advance": "-1h"}, "advance by -3600 s: 0 to 31622400 s"),
        ({"advance": "9000h"}, "0 to 31622400 s"),
        ({"rate": "fast"}, "invalid rate: it is a number"),
        ({"rate": True}, "invalid rate: it is a number"),
        ({"rate": -1}, "rate -1: 0 to 1e+06"),
        ({"rate": 1e9}, "rate 1e+09: 0 to 1e+06"),
    ],
)
def test_what_a_clock_does_not_do(bare: BackgroundCluster, body: Any, text: str) -> None:
    found = refused(bare, "POST", "/clock", body)
    assert found["code"] == 400
    assert text in found["message"]


def test_a_clock_is_advanced_over_the_network(start: Start) -> None:
    cluster = start("paused")
    call(cluster, "POST", JOBS, job())
    before = datetime.fromisoformat(call(cluster, "GET", "/clock")["time"])
    found = call(cluster, "POST", "/clock", {"advance": "5m"})
    after = datetime.fromisoformat(found["time"])
    assert timedelta(minutes=4, seconds=59) <= after - before <= timedelta(minutes=5, seconds=5)
    assert (found["clock"], found["rate"]) == ("virtual", 0.0)
    assert call(cluster, "GET", JOBS)["items"] == []  # its time was over after 100 s
    assert call(cluster, "POST", "/clock", {"rate": 50})["rate"] == 50
    began_s = cluster.clock.now()
    wait_for(lambda: cluster.clock.now() - began_s > timedelta(seconds=20), "time goes")
    assert call(cluster, "POST", "/clock", {"rate": 0})["rate"] == 0


def test_time_ends_to_go_by_when_its_client_goes(start: Start) -> None:
    cluster = start("paused")
    with connection(cluster) as client:
        send(client, "/clock", "POST", b'{"advance": "8000h"}')
        wait_for(lambda: call(cluster, "GET", "/clock")["isAdvancing"], "it goes by")
        found = call(cluster, "GET", "/settled")
        assert {(each["who"], each["why"]) for each in found["moving"]} >= {
            ("clock", "time is let go by")
        }
    wait_for(lambda: not call(cluster, "GET", "/clock")["isAdvancing"], "it stands")
    now = cluster.clock.now()
    assert cluster.clock.now() == now


def test_the_cluster_may_be_settled_by_several_at_once(start: Start) -> None:
    """Each lets time go as far as it needs; then it stands as before."""
    cluster = start("paused")
    call(cluster, "POST", JOBS, job())
    threads = [
        threading.Thread(target=call, args=(cluster, "GET", "/settled?timeout=60s"))
        for _ in range(5)
    ]
    for each in threads:
        each.start()
    cluster.settle()
    for each in threads:
        each.join(60)
    now = cluster.clock.now()
    assert cluster.clock.now() == now
    assert call(cluster, "GET", "/clock")["rate"] == 0.0
