"""`kvstack farm` as test suites use it: over its socket, from Python and from Go."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typing_extensions import override

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CONFIG_MAPS, NAMESPACES
from kvstack.agents.client.resource_type import ResourceType
from tests.clusters.support.sources import add_config_map, call
from tests.support.documented import words
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

KVSTACK = (sys.executable, "-m", "kvstack")
DOCS = Path(__file__).parents[3] / "docs"
TIMEOUT_S = 120
RBAC = "rbac.authorization.k8s.io"
CLUSTER_ROLES = ResourceType(RBAC, "v1", "clusterroles", "ClusterRole", is_namespaced=False)
CLUSTER_ROLE_BINDINGS = ResourceType(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False
)


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("farm", timeout=TIMEOUT_S)
        self._path = path

    @override
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


class Farm(NamedTuple):
    """A farm that runs."""

    process: "subprocess.Popen[str]"
    directory: Path

    @property
    def socket(self) -> Path:
        return self.directory / "farm.sock"

    def call(self, method: str, path: str, body: Any = None, *, code: int) -> Any:
        connection = Connection(self.socket)
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        found = json.load(answer)
        connection.close()
        assert answer.status == code, found
        return found

    def cluster(self, **asked: Any) -> dict[str, Any]:
        made: dict[str, Any] = self.call("POST", "/clusters", asked, code=201)
        return made

    def processes(self) -> set[int]:
        """Return the templates and clusters."""
        found = set()
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    command = (entry / "cmdline").read_bytes()
                    environ = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if b"farm.template" in command and str(self.directory).encode() in environ:
                    found.add(int(entry.name))
        return found


def start(directory: Path, *arguments: str, command: Sequence[str] = ()) -> Farm:
    """Start a farm; command: what begins it and names its socket."""
    runtime = directory / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    process = subprocess.Popen(
        [*KVSTACK, *(command or ("farm", "--listen", f"unix://{directory}/farm.sock")), *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == f"farm at unix://{directory}/farm.sock\n"
    return Farm(process, directory)


def end(farm: Farm) -> None:
    farm.process.send_signal(signal.SIGTERM)
    assert farm.process.wait(TIMEOUT_S) == 0
    assert farm.process.stdout is not None
    farm.process.stdout.close()


SCRIPT = """\
#!/bin/sh
exec {python} -c '
from pathlib import Path
import os
from tests.clusters.support.sources import add_config_map
add_config_map(Path(os.environ["KUBECONFIG"]), "prepared", a="b")
'
"""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    directory = tmp_path_factory.mktemp("farm")
    script = directory / "bootstrap.sh"
    script.write_text(SCRIPT.format(python=sys.executable))
    script.chmod(0o755)
    command = words(
        "kvstack farm --prepare ./bootstrap.sh --listen unix:///tmp/farm.sock",
        {"./bootstrap.sh": str(script), "/tmp/farm.sock": str(directory / "farm.sock")},
    )
    running = start(directory, "--max-clusters", "5", command=command)
    yield running
    end(running)
    wait_for(lambda: not running.processes(), "templates and clusters are gone")
    assert not [p for p in (directory / "run/kvstack/forks").iterdir() if p.is_dir()]


@pytest.fixture(autouse=True)
def _nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delete what a test has left, that others may have as many clusters."""
    yield
    if "farm" in request.fixturenames:
        running: Farm = request.getfixturevalue("farm")
        for each in running.call("GET", "/clusters", code=200)["clusters"]:
            running.call("DELETE", f"/clusters/{each['name']}", code=200)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def names(cluster: dict[str, Any]) -> set[str]:
    found = call(Path(cluster["kubeconfig"]), lambda api: api.list_all(CONFIG_MAPS, "default"))
    return {each["metadata"]["name"] for each in found} - {"kube-root-ca.crt"}


def test_clusters_are_equal_and_do_not_see_each_other(farm: Farm) -> None:
    one, other = farm.cluster(), farm.cluster()
    assert one["revision"] == other["revision"]
    add_config_map(Path(one["kubeconfig"]), "mine")
    assert names(one) == {"prepared", "mine"}
    assert names(other) == {"prepared"}
    assert Path(one["kubeconfig"]).stat().st_mode & 0o777 == 0o600
    listed = farm.call("GET", "/clusters", code=200)["clusters"]
    assert [each["name"] for each in listed] == [one["name"], other["name"]]
    for each in (one, other):
        farm.call("DELETE", f"/clusters/{each['name']}", code=200)
        assert not Path(each["kubeconfig"]).exists()
    clusters = {one["pid"], other["pid"]}
    wait_for(lambda: not clusters & farm.processes(), "the clusters have ended")


def test_a_clock_and_settled(farm: Farm) -> None:
    cluster = farm.cluster(clock="paused", nodes=2, **{"from": "empty"})
    path = f"/clusters/{cluster['name']}"
    before = farm.call("GET", f"{path}/clock", code=200)
    assert before["rate"] == 0
    deployment = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "web"}]},
            },
        },
    }
    body = json.dumps(deployment).encode()
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    call(Path(cluster["kubeconfig"]), lambda api: api.call("POST", deployments, body=body))
    state = farm.call("GET", f"{path}/settled?timeout=30s", code=200)
    assert state["moving"] == []
    assert state["revision"] > cluster["revision"]
    found = call(
        Path(cluster["kubeconfig"]), lambda api: api.call("GET", f"{deployments}/web/status")
    )
    assert found["status"]["readyReplicas"] == 3
    after = farm.call("POST", f"{path}/clock", {"advance": "10m"}, code=200)
    assert after["now"] > before["now"]
    farm.call("DELETE", path, code=200)


def cron_job(name: str, schedule: str, **job: Any) -> bytes:
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    spec = {
        "schedule": schedule,
        "successfulJobsHistoryLimit": 100,
        "jobTemplate": {"spec": {"template": {"spec": pod}, **job}},
    }
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


def test_a_day_goes_by_through_the_route(farm: Farm) -> None:
    """A CronJob runs at each of its times, in order, and Jobs go when their TTL is over."""
    cluster = farm.cluster(clock="paused", **{"from": "empty"})
    clock, kubeconfig = f"/clusters/{cluster['name']}/clock", Path(cluster["kubeconfig"])
    batch = "/apis/batch/v1/namespaces/default"
    for body in (
        cron_job("kept", "30 * * * *"),
        cron_job("gone", "15 * * * *", ttlSecondsAfterFinished=3 * 3600),
    ):
        call(kubeconfig, lambda api, body=body: api.call("POST", f"{batch}/cronjobs", body=body))
    before = datetime.fromisoformat(farm.call("GET", clock, code=200)["now"])
    after = datetime.fromisoformat(farm.call("POST", clock, {"advance": "24h"}, code=200)["now"])
    assert timedelta(hours=24) <= after - before < timedelta(hours=24, minutes=1)
    jobs = call(kubeconfig, lambda api: api.call("GET", f"{batch}/jobs"))["items"]
    assert all(each["status"]["succeeded"] == 1 for each in jobs)
    names = sorted(each["metadata"]["name"] for each in jobs)
    minutes = [int(each.removeprefix("kept-")) for each in names if each.startswith("kept-")]
    assert len(minutes) == 24
    assert [later - earlier for earlier, later in pairwise(minutes)] == [60] * 23
    assert sum(each.startswith("gone-") for each in names) == 3


def test_uids_follow_the_seed_and_none_is_given_twice(farm: Farm) -> None:
    """Neither what the template has prepared nor what it has given is given again."""
    maps = "/api/v1/namespaces/default/configmaps"

    async def uids(api: Api) -> tuple[set[str], list[str]]:
        own = []
        for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, NAMESPACES, CONFIG_MAPS):
            own += [each["metadata"]["uid"] for each in await api.list_all(resource, "")]
        made = []
        for number in range(70):  # more than are generated at once
            body = json.dumps({"metadata": {"name": f"made-{number}"}}).encode()
            made.append((await api.call("POST", maps, body=body))["metadata"]["uid"])
        return set(own), made

    by_seed = []
    for seed in (0, 0, 1):
        cluster = farm.cluster(clock="paused", seed=seed)
        own, made = call(Path(cluster["kubeconfig"]), uids)
        assert len(own) > 50
        assert len(own.union(made)) == len(own) + len(made)
        by_seed.append(made)
    assert by_seed[0] == by_seed[1]
    assert not set(by_seed[0]) & set(by_seed[2])


def test_one_that_goes_by_the_machines_clock_has_none_to_advance(farm: Farm) -> None:
    cluster = farm.cluster()
    path = f"/clusters/{cluster['name']}"
    said = farm.call("POST", f"{path}/clock", {"advance": "1h"}, code=422)["error"]
    assert "goes by the machine's clock" in said
    farm.call("DELETE", path, code=200)


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({"nodes": 101}, 422, "nodes 101: 0 to 100"),
        ({"nodes": "3"}, 400, "nodes: '3' is of another type"),
        ({"nodes": True}, 400, "nodes: True is of another type"),
        ({"nods": 3}, 400, "nods: one of from, nodes"),
        ({"without": ["all"]}, 422, "without 'all'"),
        ({"without": [3]}, 400, "without: a list of texts"),
        ({"from": "prod"}, 422, "from 'prod'"),
        ({"ttl": "soon"}, 400, "ttl 'soon': a length of time"),
        ({"ttl": "-1s"}, 400, "it is negative"),
        ({"ttl": "1000h"}, 422, "at most 86400 s"),
        ({"clock": "sun"}, 422, "clock 'sun'"),
        ({"seed": -1}, 422, "seed -1"),
        ({"owner": 1 << 40}, 422, "owner"),
        ([], 400, "not a JSON object"),
    ],
)
def test_what_cannot_be_is_named(farm: Farm, body: Any, code: int, said: str) -> None:
    assert said in farm.call("POST", "/clusters", body, code=code)["error"]


def test_what_is_not_there(farm: Farm) -> None:
    for method, path in (
        ("GET", "/clusters/c999"),
        ("DELETE", "/clusters/c999"),
        ("GET", "/clusters/c999/settled"),
        ("POST", "/clusters/c999/clock"),
        ("GET", "/"),
        ("PUT", "/clusters"),
    ):
        body = {"rate": 1} if method == "POST" else None
        assert "does not exist" in farm.call(method, path, body, code=404)["error"]


def test_they_end_with_their_time_their_owner_and_above_the_limit(farm: Farm) -> None:
    owner = subprocess.Popen(["sleep", "600"])
    short = farm.cluster(ttl="1s")
    owned = farm.cluster(owner=owner.pid)
    wait_for(lambda: not Path(short["kubeconfig"]).exists(), "its time is over")
    assert Path(owned["kubeconfig"]).exists()
    owner.kill()
    owner.wait()
    wait_for(lambda: not Path(owned["kubeconfig"]).exists(), "its owner is gone")
    many = [farm.cluster() for _ in range(5)]
    assert "5 clusters" in farm.call("POST", "/clusters", {}, code=429)["error"]
    for each in many:
        farm.call("DELETE", f"/clusters/{each['name']}", code=200)


def test_one_that_was_killed_is_forgotten(farm: Farm) -> None:
    cluster = farm.cluster()
    os.kill(cluster["pid"], signal.SIGKILL)
    wait_for(lambda: farm.call("GET", "/clusters", code=200)["clusters"] == [], "it is forgotten")
    # Its number is free at once, and its files go after that.
    wait_for(lambda: not Path(cluster["kubeconfig"]).exists(), "its files are gone")


def test_one_that_does_nothing_any_more_is_ended_before_its_directory_goes(farm: Farm) -> None:
    cluster = farm.cluster()
    os.kill(cluster["pid"], signal.SIGSTOP)
    farm.call("DELETE", f"/clusters/{cluster['name']}", code=200)
    assert not Path(f"/proc/{cluster['pid']}").exists()
    assert not Path(cluster["kubeconfig"]).parent.exists()


def test_a_killed_spare_is_replaced(farm: Farm) -> None:
    templates = farm.processes()
    first = farm.cluster()
    wait_for(lambda: len(farm.processes()) == len(templates) + 1, "there is another spare")
    for pid in farm.processes() - templates - {first["pid"]}:
        os.kill(pid, signal.SIGKILL)
        wait_for(partial(is_gone, pid), "it is gone")
    assert names(farm.cluster()) == {"prepared"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, 'the body must be {"advance": "24h"} or {"rate": 100}'),
        ({"advance": 3600}, 'invalid advance: expected a duration such as "24h"'),
        ({"advance": "1d"}, 'invalid advance "1d"'),
        ({"rate": True}, "invalid rate: it is a number"),
    ],
)
def test_clocks_are_asked_in_the_words_of_clusters(farm: Farm, body: Any, said: str) -> None:
    path = f"/clusters/{farm.cluster(clock='virtual')['name']}/clock"
    assert said in farm.call("POST", path, body, code=400)["error"]


def test_nothing_outlives_a_farm_that_is_killed(tmp_path: Path) -> None:
    farm = start(tmp_path)
    farm.cluster()
    wait_for(lambda: len(farm.processes()) == 3, "a template, a cluster and a spare")
    farm.process.kill()
    farm.process.wait(TIMEOUT_S)
    assert farm.process.stdout is not None
    farm.process.stdout.close()
    wait_for(lambda: not farm.processes(), "templates and clusters are gone")
    again = start(tmp_path)  # its socket is taken over, what was left is removed
    assert len([p for p in (tmp_path / "run/kvstack/forks").iterdir() if p.is_dir()]) == 1
    end(again)


def test_over_tcp_the_token_is_asked_for(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir(mode=0o700)
    process = subprocess.Popen(
        [*KVSTACK, "farm", "--listen", "127.0.0.1:0"],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        url = process.stdout.readline().removeprefix("farm at ").strip()
        token = process.stdout.readline().removeprefix("token ").strip()
        for given, code in (("", 401), ("wrong", 401), (token, 200)):
            request = urllib.request.Request(
                f"{url}/clusters", headers={"Authorization": f"Bearer {given}"}
            )
            assert _status(request) == code
    finally:
        process.terminate()
        assert process.wait(TIMEOUT_S) == 0
        process.stdout.close()


def _status(request: urllib.request.Request) -> int:
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            status: int = answer.status
    except urllib.error.HTTPError as error:
        return error.code
    return status


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--listen", "0.0.0.0:80"), "--listen 0.0.0.0:80"),
        (("--max-clusters", "0"), "--max-clusters 0: 1 to 1000"),
        (("--nodes", "-1"), "--nodes -1"),
        (("--contents", "none.kvs"), "file does not exist"),
        (("--prepare", "false"), "it ended with code 1"),
        (("--prepare", "no-such-program"), "No such file"),
    ],
)
def test_wrong_flags_are_named(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = subprocess.run(
        [*KVSTACK, "farm", *arguments],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode
    assert said in done.stderr


GO_TEST = """\
package kvtest

import (
	"crypto/tls"
	"encoding/base64"
	"net/http"
	"os"
	"regexp"
	"testing"
	"time"
)

func TestOfMine(t *testing.T) {
	cluster := New(t, Options{Clock: "virtual", Nodes: 2})
	data, err := os.ReadFile(cluster.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	part := func(name string) []byte {
		text := regexp.MustCompile(name + `: (\\S+)`).FindSubmatch(data)
		found, err := base64.StdEncoding.DecodeString(string(text[1]))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	pair, err := tls.X509KeyPair(part("client-certificate-data"), part("client-key-data"))
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	response, err := client.Get(cluster.URL + "/api/v1/nodes/hollow-2")
	if err != nil || response.StatusCode != 200 {
		t.Fatal(response, err)
	}
	cluster.Settle(t, 30*time.Second)
	before := cluster.Now(t)
	cluster.Advance(t, 10*time.Minute)
	if passed := cluster.Now(t).Sub(before); passed < 10*time.Minute {
		t.Fatal(passed)
	}
}
"""


def test_the_go_client(farm: Farm, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go")
    shutil.copy(DOCS / "kvtest.go", tmp_path)
    (tmp_path / "go.mod").write_text("module example.com/kvtest\n\ngo 1.21\n")
    (tmp_path / "kvtest_test.go").write_text(GO_TEST)
    environ = {
        **os.environ,
        "KVSTACK_FARM": f"unix://{farm.socket}",
        # The user's own cache, as go has it: the standard library is compiled once, and the first
        # time as quickly as it can be.
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod '-gcflags=all=-N -l'",
        "GOPROXY": "off",
        "GOTOOLCHAIN": "local",
    }
    for command in (("vet", "."), ("test", "-count=1", "-vet=off", "-v", "./...")):
        done = subprocess.run(
            [go, *command],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "--- PASS: TestOfMine" in done.stdout
    assert farm.call("GET", "/clusters", code=200)["clusters"] == []
