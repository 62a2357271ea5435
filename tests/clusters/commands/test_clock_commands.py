"""`kvstack fork --clock`, `kvstack clock` and `kvstack wait`, as users run them."""

import json
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CRON_JOBS, JOBS, PODS
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.clusters.commands.clock_command import _steps
from tests.clusters.support.sources import call
from tests.clusters.support.users import BARE, User, is_alive
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

CRON_JOB = {
    "metadata": {"name": "hourly", "namespace": "default"},
    "spec": {
        "schedule": "0 * * * *",
        "successfulJobsHistoryLimit": 100,
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "a", "image": "a:1"}],
                    }
                }
            }
        },
    },
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    directory = tmp_path_factory.mktemp("source")
    settings = Settings(nodes=1, without=frozenset(("metrics",)))
    with BackgroundCluster(directory / "cluster", settings) as cluster:
        call(cluster.kubeconfig, lambda api: api.create(CRON_JOBS, "default", CRON_JOB))
        yield cluster


@pytest.fixture
def user(tmp_path: Path, source: BackgroundCluster) -> Iterator[User]:
    user = User(tmp_path, source)
    yield user
    user.call("delete", "fork", "--all")


def clock(user: User, *arguments: str) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(user.call("clock", *arguments, "-o", "json")[0])
    return state


def time_of(state: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(state["time"])


def test_a_fork_whose_time_stands_until_it_is_advanced(user: User) -> None:
    said = user.run("fork", "--name", "x", "--clock", "paused").stdout
    assert "paused clock, " in said
    before = clock(user, "--fork", "x")
    assert (before["clock"], before["rate"]) == ("virtual", 0.0)
    assert abs(time_of(before) - datetime.now(UTC)) < timedelta(minutes=5)
    said, errors = user.call("wait", "--settled", "--fork", "x")
    assert said.startswith("x is settled at revision ")
    assert "; cronjob-controller default/hourly is due in " in said
    assert errors == ""
    after = clock(user, "advance", "2h30m", "--fork", "x")
    gone = time_of(after) - time_of(before)
    assert timedelta(hours=2, minutes=30) <= gone <= timedelta(hours=2, minutes=30, seconds=10)
    jobs = call(user.kubeconfig("x"), lambda api: api.list_page(JOBS, "default")).items
    assert len(jobs) in (2, 3)
    assert {each["status"]["succeeded"] for each in jobs} == {1}
    [fork] = user.forks()
    assert fork["clock"] == "paused"
    assert clock(user, "rate", "50", "--context", "x")["rate"] == 50.0
    wait_for(lambda: time_of(clock(user, "--fork", "x")) - time_of(after) > timedelta(seconds=20))
    said, _ = user.call("clock", "pause", "--fork", "x")
    assert said.rstrip().endswith(", a clock of its own, paused")
    said, _ = user.call("clock", "resume", "--fork", "x")
    assert said.rstrip().endswith(", a clock of its own, as fast as the machine's")
    assert "virtual x1" in user.call("get", "forks")[0]


def test_whose_clock_stands_ends_all_the_same(user: User) -> None:
    """The life of a fork goes by the machine's time."""
    user.run("fork", "--name", "short", "--clock", "paused", "--ttl", "3s", BARE)
    wait_for(lambda: not user.forks())
    user.run("fork", "--name", "x", "--clock", "paused", BARE)
    [fork] = user.forks()
    user.call("delete", "fork", "x")
    user.assert_nothing_is_left(fork["pid"])
    process = user.start("fork", "--detach=false", "--name", "mine", "--clock", "virtual", BARE)
    wait_for(lambda: [each for each in user.forks() if each["url"]])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    user.assert_nothing_is_left()
    assert not is_alive(process.pid)


def test_a_command_that_is_interrupted_leaves_time_where_it_is(user: User) -> None:
    user.run("fork", "--name", "x", "--clock", "paused")
    process = user.start("clock", "advance", "8000h", "--fork", "x")
    wait_for(lambda: clock(user, "--fork", "x")["isAdvancing"])
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.communicate()[1] == "interrupted\n"
    wait_for(lambda: not clock(user, "--fork", "x")["isAdvancing"])
    assert clock(user, "--fork", "x")["time"] == clock(user, "--fork", "x")["time"]


def test_other_clusters_refuse_to_change_their_clocks(user: User) -> None:
    assert clock(user)["clock"] == "real"
    _, errors = user.call("clock", "advance", "1h", code=1)
    assert errors.startswith("Error: kubernetes-admin@kvstack: this cluster uses the machine's")


def test_it_waits_for_the_current_context_and_names_who_else_writes(
    user: User, source: BackgroundCluster
) -> None:
    watching, is_over = threading.Event(), threading.Event()

    async def watch(api: Api) -> None:
        page = await api.list_page(PODS, "default")
        watching.set()
        async for _ in api.watch(PODS, "default", resource_version=page.resource_version):
            if is_over.is_set():
                return

    thread = threading.Thread(target=lambda: call(source.kubeconfig, watch), daemon=True)
    thread.start()
    assert watching.wait(60)

    def is_named() -> bool:
        said, errors = user.call("wait", "--settled")
        assert said.startswith("kubernetes-admin@kvstack is settled at revision ")
        return "may still act: " in errors and "which watches pods and asked " in errors

    wait_for(is_named, "who watches is named")
    is_over.set()
    container = {"name": "a", "image": "a:1"}
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    call(source.kubeconfig, lambda api: api.create(PODS, "default", pod))
    thread.join(60)


def test_what_is_not_settled_in_time_is_named(user: User) -> None:
    user.run("fork", "--name", "x", "--clock", "paused", "--without=metrics,dashboard")
    container = {"name": "a", "image": "a:1"}
    spec = {"restartPolicy": "Never", "containers": [container]}
    pod = {"metadata": {"name": "new"}, "spec": spec}
    call(user.kubeconfig("x"), lambda api: api.create(PODS, "default", pod))
    said, errors = user.call("wait", "--settled", "--timeout=0", "--fork=x", code=1)
    assert said == ""
    assert errors.startswith("x is not settled after 0.")
    assert "default/new" in errors
    user.call("wait", "--settled", "--fork=x")

    def is_exact() -> bool:
        """Tell whether the connection by which the pod was made is known to be closed."""
        found = json.loads(user.call("wait", "--settled", "--fork=x", "-o", "json")[0])
        assert (found["settled"], found["moving"]) == (True, [])
        exact: bool = found["exact"]
        return exact

    wait_for(is_exact, "nobody else is there")


class NotOurs(BaseHTTPRequestHandler):
    """A server that has no such page."""

    def do_GET(self) -> None:
        body = b"404 page not found\n"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def test_a_server_that_is_not_ours_does_not_tell(user: User) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NotOurs) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        config = yaml.safe_load(user.before)
        config["clusters"][0]["cluster"] = {"server": url}
        user.config.write_text(yaml.safe_dump(config))
        for arguments in (("wait", "--settled"), ("clock",)):
            code = 2 if arguments[0] == "wait" else 1
            _, errors = user.call(*arguments, code=code)
            assert "only those of `kvstack up` and of forks do" in errors
        server.shutdown()
    _, errors = user.call("wait", "--settled", code=2)
    assert errors.startswith(f"Error: kubernetes-admin@kvstack ({url}): ")
    user.config.write_text(user.before)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("wait",), 2, "--settled is required"),
        (("wait", "--settled", "--timeout=-1s"), 2, "--timeout is negative"),
        (("wait", "--settled", "--quiet=2m"), 2, "--quiet 120s: 0s to 60s"),
        (("wait", "--settled", "-o", "yaml"), 2, "--output yaml: text or json"),
        (("wait", "--settled", "pods"), 2, "kvstack wait does not take 'pods'"),
        (("wait", "--settled", "--fork=x"), 2, "fork 'x' does not exist"),
        (("wait", "--settled", "--fork=x", "--context=y"), 2, "--fork x and --context y"),
        (("wait", "--settled", "--context=y"), 2, "context 'y' does not exist"),
        (("clock", "hop"), 1, "kvstack clock hop: one of show, pause, resume, advance, rate"),
        (("clock", "advance"), 1, "kvstack clock advance: how long, such as 24h"),
        (("clock", "advance", "1d"), 1, 'time: unknown unit "d" in duration "1d"'),
        (("clock", "advance", "9000h"), 1, "kvstack clock advance 9000h: 0s to 8784h"),
        (("clock", "rate"), 1, "kvstack clock rate: how fast, such as 100"),
        (("clock", "rate", "nan"), 1, "kvstack clock rate nan: 0 to 1000000"),
        (("clock", "rate", "fast"), 1, "kvstack clock rate fast: it is a number"),
        (("clock", "pause", "1h"), 1, "kvstack clock does not take '1h'"),
        (("clock", "--output=yaml"), 1, "--output yaml: text or json"),
        (("fork", "--clock=fast"), 1, "--clock fast: one of real, virtual, paused"),
        (("open", ".", "--clock=virtual"), 1, "--clock virtual needs --live"),
    ],
)
def test_what_makes_no_sense(user: User, arguments: tuple[str, ...], code: int, text: str) -> None:
    _, errors = user.call(*arguments, code=code)
    assert text in errors


def test_time_is_advanced_in_steps_that_can_be_watched() -> None:
    assert _steps("advance", "2h0m1.5s") == [
        {"advance": "3600s"},
        {"advance": "3600s"},
        {"advance": "1500000000ns"},
    ]
    assert _steps("advance", "2h") == [{"advance": "3600s"}] * 2
    assert _steps("advance", "0s") == [{"advance": "0ns"}]
    assert _steps("show", "") == []
