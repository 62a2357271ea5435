"""Failpoints: their language, and setting them by environment and over HTTP."""

import http.client
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvstack.component.errors import ConfigError
from kvstore import failpoints
from kvstore.server.failpoints import ArmedFailpoint, Failpoints, from_environment, parse
from tests.support.cluster.harness import Cluster
from tests.support.servers import free_ports


@pytest.fixture(autouse=True)
def _disarm() -> Iterator[None]:
    yield
    for name in failpoints.NAMES:
        failpoints.disarm(name)


def test_nothing_is_armed_at_first() -> None:
    assert failpoints.hit("raftBeforeSave") is None


def test_a_value_is_returned() -> None:
    Failpoints().set("raftBeforeSave", 'return("te\\"xt")')
    assert failpoints.hit("raftBeforeSave") == 'te"xt'
    assert failpoints.hit("raftAfterSave") is None


def test_counts_run_out_and_the_next_term_takes_over() -> None:
    armed = ArmedFailpoint("raftBeforeSave", "2*return(1)->1*return(true)->off")
    assert [armed() for _ in range(5)] == [1, 1, True, None, None]
    assert armed.count == 5


def test_chances() -> None:
    assert ArmedFailpoint("x", "0%return(1)")() is None
    assert ArmedFailpoint("x", "100.0%return(1)")() == 1


def test_sleeping_takes_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    ArmedFailpoint("x", 'sleep("1.5s")')()
    ArmedFailpoint("x", "sleep(20)")()
    assert slept == [1.5, 0.02]


def test_a_panic_ends_the_process() -> None:
    script = (
        "from kvstore.server.failpoints import Failpoints; from kvstore import failpoints;"
        "Failpoints().set('walAfterSync', 'panic'); failpoints.hit('walAfterSync'); print('alive')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "failpoint panic: walAfterSync" in done.stderr


@pytest.mark.parametrize(
    "text",
    ["", "nothing", "sleep", 'sleep("soon")', "2*", "panic panic", "return(", "break", "1.5*off"],
)
def test_terms_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"failpoint|duration"):
        parse(text)


def test_the_environment_sets_them() -> None:
    environment = {"GOFAIL_FAILPOINTS": 'raftBeforeSave=return("a");walAfterSync=return("b")'}
    assert from_environment(environment) is None
    assert (failpoints.hit("raftBeforeSave"), failpoints.hit("walAfterSync")) == ("a", "b")


@pytest.mark.parametrize("value", ["noSuchPlace=panic", "raftBeforeSave", "raftBeforeSave=x"])
def test_a_bad_environment_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="GOFAIL_FAILPOINTS"):
        from_environment({"GOFAIL_FAILPOINTS": value})


def test_a_leader_whose_heartbeats_are_dropped_is_replaced() -> None:
    three = Cluster(3)
    three.start()
    failpoints.arm("raftDropHeartbeat", lambda: "")
    three.run_until(lambda: not any(each.is_leader for each in three.members))
    failpoints.disarm("raftDropHeartbeat")
    three.run_until(lambda: any(each.is_leader for each in three.members))


def test_over_http() -> None:
    (port,) = free_ports(1)
    stop = from_environment({"GOFAIL_HTTP": f"127.0.0.1:{port}"})
    assert stop is not None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)

    def ask(method: str, path: str, body: str = "") -> tuple[int, str]:
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()

    try:
        assert ask("PUT", "/raftBeforeSave", "return(5)") == (204, "")
        assert failpoints.hit("raftBeforeSave") == 5
        assert ask("GET", "/raftBeforeSave") == (200, "return(5)\n")
        assert ask("GET", "/raftBeforeSave/count") == (200, "1")
        status, lines = ask("GET", "/")
        assert status == 200
        assert {"raftBeforeSave=return(5)", "raftAfterSave="} <= set(lines.split("\n"))
        assert ask("DELETE", "/raftBeforeSave") == (204, "")
        assert failpoints.hit("raftBeforeSave") is None
        assert ask("DELETE", "/raftBeforeSave")[0] == 400
        assert ask("PUT", "/noSuchPlace", "panic") == (
            400,
            "fail to set failpoint: failpoint: failpoint does not exist\n",
        )
        assert ask("PUT", "/failpoints", "walAfterSync=off;walBeforeSync=off")[0] == 204
        assert ask("GET", "/walAfterSync") == (200, "off\n")
    finally:
        connection.close()
        stop()
