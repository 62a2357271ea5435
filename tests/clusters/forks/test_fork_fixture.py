"""`kvstack_fork` of a packed file, a snapshot, manifests, a context, as users have it."""

import json
import os
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.clusters.contents import Contents
from kvstack.clusters.forks.background_fork import BackgroundFork
from kvstack.clusters.forks.fork_settings import ForkSettings
from kvstack.clusters.pack.packed_file import write_pack
from kvstack.component.errors import ComponentError
from tests.clusters.plan.planning import SHOP, contents_of
from tests.clusters.support.snapshots import real_snapshot
from tests.clusters.support.sources import add_config_map, call

pytestmark = pytest.mark.slow

PODS = "/api/v1/namespaces/shop/pods"
USER_TEST = """\
import kubernetes
import pytest

{fixtures}

{mark}
def test_of_mine(kvstack_fork):
    kubernetes.config.load_kube_config(str(kvstack_fork.kubeconfig))
    {body}
"""


def get(cluster: BackgroundCluster, path: str) -> Any:
    """Return what the API answers the user of the cluster's kubeconfig."""
    user = yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster.ca_file)
    pki = cluster.ca_file.parent
    assert "client-certificate-data" in user or "client-certificate" in user
    context.load_cert_chain(pki / "super-admin.crt", pki / "super-admin.key")
    with urllib.request.urlopen(cluster.url + path, context=context, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def shop() -> Contents:
    return contents_of(SHOP)


@pytest.fixture(scope="session")
def kvstack_prepared() -> Path:
    return SHOP  # as users name a file


def test_its_nodes_are_hollow_and_its_workloads_get_pods(kvstack_fork: BackgroundFork) -> None:
    assert isinstance(kvstack_fork, BackgroundFork)
    kvstack_fork.settle()
    pods = [
        each
        for each in get(kvstack_fork, PODS)["items"]
        # The CronJob is due at three o'clock, which it may just be.
        if each["metadata"]["ownerReferences"][0]["kind"] != "Job"
    ]
    assert len(pods) == 7
    assert {each["spec"]["nodeName"] for each in pods} == {"n1", "n2"}
    assert kvstack_fork.left_out == []
    assert kvstack_fork.unasked == []


@pytest.mark.kvstack(nodes=3, without=["controllers"], clock="paused", seed=7)
def test_a_mark_changes_it(kvstack_fork: BackgroundFork) -> None:
    assert len(get(kvstack_fork, "/api/v1/nodes")["items"]) == 3
    kvstack_fork.clock.advance(minutes=1)
    assert get(kvstack_fork, PODS)["items"] == []


@pytest.mark.kvstack(contents="../plan/shop.yaml")
def test_paths_of_a_mark_are_relative_to_the_test(kvstack_fork: BackgroundFork) -> None:
    assert get(kvstack_fork, "/api/v1/namespaces/shop")["status"]["phase"] == "Active"


def test_contents_serve_any_number_of_forks(shop: Contents, tmp_path: Path) -> None:
    rows = list(shop.rows)
    uids = []
    for number in range(2):
        with BackgroundFork(tmp_path / str(number), shop, ForkSettings("none")) as fork:
            uids.append(get(fork, "/api/v1/namespaces/shop")["metadata"]["uid"])
            call(fork.kubeconfig, lambda api: api.call("DELETE", "/api/v1/namespaces/shop"))
    assert uids[0] == uids[1]
    assert shop.rows == rows


def test_one_that_has_ended_is_not_asked(shop: Contents, tmp_path: Path) -> None:
    fork = BackgroundFork(tmp_path / "fork", shop)
    with fork:
        pass
    with pytest.raises(ComponentError, match="does not run"):
        fork.rows()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BackgroundCluster]:
    with BackgroundCluster(tmp_path / "source", Settings(nodes=0)) as cluster:
        add_config_map(cluster.kubeconfig, "kept", a="b")
        yield cluster


def run_user_test(
    directory: Path, *, fixtures: str = "", mark: str = "", body: str, **environ: str
) -> "subprocess.CompletedProcess[str]":
    """Run a test of a user in a process of its own."""
    text = USER_TEST.format(fixtures=fixtures, mark=mark, body=body)
    (directory / "test_user.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "kvstack.pytest_plugin", "-q", "-W", "ignore"]
    return subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(directory), str(directory)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "XDG_RUNTIME_DIR": str(directory), **environ},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


READ = 'assert kubernetes.client.CoreV1Api().read_namespaced_config_map("kept", "default").data'


def test_of_a_context(source: BackgroundCluster, tmp_path: Path) -> None:
    directory = tmp_path / "user"
    directory.mkdir(mode=0o700)
    name = yaml.safe_load(source.kubeconfig.read_text())["current-context"]
    mark = f'@pytest.mark.kvstack(contents="context:{name}")'
    change = READ + (
        '; kubernetes.client.CoreV1Api().delete_namespaced_config_map("kept", "default")'
    )
    kubeconfig = str(source.kubeconfig)
    done = run_user_test(directory, mark=mark, body=change, KUBECONFIG=kubeconfig)
    assert done.returncode == 0, done.stdout + done.stderr
    found = call(
        source.kubeconfig,
        lambda api: api.call("GET", "/api/v1/namespaces/default/configmaps/kept"),
    )
    assert found["data"] == {"a": "b"}  # the fork's is another


def test_of_a_packed_file_and_a_snapshot(shop: Contents, tmp_path: Path) -> None:
    write_pack(tmp_path / "shop.kvs", shop, None)
    fixtures = '@pytest.fixture(scope="session")\ndef kvstack_prepared():\n    return "shop.kvs"'
    body = 'assert kubernetes.client.AppsV1Api().read_namespaced_deployment("web", "shop")'
    done = run_user_test(tmp_path, fixtures=fixtures, body=body)
    assert done.returncode == 0, done.stdout + done.stderr
    real_snapshot(tmp_path)
    mark = '@pytest.mark.kvstack(contents="kubernetes.db")'
    body = "assert len(kubernetes.client.CoreV1Api().list_namespace().items) >= 4"
    done = run_user_test(tmp_path, mark=mark, body=body)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('@pytest.mark.kvstack(contents="none.kvs")', "'none.kvs' is not a fork, context, file"),
        ("", "kvstack_fork needs a fixture kvstack_prepared"),
        ('@pytest.mark.kvstack(contents="test_user.py")', "test_user.py"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, mark: str, said: str) -> None:
    done = run_user_test(tmp_path, mark=mark, body="pass")
    assert done.returncode == 1
    assert said in done.stdout
