"""The fixtures for users' tests, used as a user would."""

import json
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.standalone.background import BackgroundCluster, Rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def call(cluster: BackgroundCluster, method: str, path: str, body: Any = None) -> Any:
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    assert config["clusters"][0]["cluster"]["server"] == cluster.url
    context = ssl.create_default_context(cafile=cluster.ca_file)
    pki = cluster.ca_file.parent
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        cluster.url + path, data, {"Content-Type": "application/json"}, method=method
    )
    with urllib.request.urlopen(request, context=context) as answer:
        return json.load(answer)


def config_map(name: str) -> Any:
    return {"metadata": {"name": name}, "data": {"a": "b"}}


CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="session")
def kvstack_prepared(kvstack_prepare: Callable[..., BackgroundCluster]) -> Rows:
    with kvstack_prepare(nodes=0) as cluster:
        call(cluster, "POST", CONFIG_MAPS, config_map("prepared"))
        return cluster.rows()


def names(cluster: BackgroundCluster) -> set[str]:
    return {each["metadata"]["name"] for each in call(cluster, "GET", CONFIG_MAPS)["items"]}


def test_a_cluster_of_its_own(kvstack_cluster: BackgroundCluster) -> None:
    call(kvstack_cluster, "POST", CONFIG_MAPS, config_map("mine"))
    assert "mine" in names(kvstack_cluster)
    nodes = call(kvstack_cluster, "GET", "/api/v1/nodes")["items"]
    assert [each["metadata"]["name"] for each in nodes] == ["hollow-1"]


@pytest.mark.kvstack(nodes=2, without=["controllers"])
def test_another_cluster(kvstack_cluster: BackgroundCluster) -> None:
    assert len(call(kvstack_cluster, "GET", "/api/v1/nodes")["items"]) == 2
    assert "mine" not in names(kvstack_cluster)


@pytest.mark.parametrize("number", [1, 2])
def test_forks_do_not_see_each_other(kvstack_fork: BackgroundCluster, number: int) -> None:
    found = names(kvstack_fork)
    assert "prepared" in found
    assert not {f"fork-{each}" for each in (1, 2)} & found
    call(kvstack_fork, "POST", CONFIG_MAPS, config_map(f"fork-{number}"))


def test_a_fork_goes_on_where_the_prepared_cluster_stood(
    kvstack_fork: BackgroundCluster, kvstack_prepared: Rows
) -> None:
    rows = {each.key: each for each in kvstack_prepared.records}
    prepared = rows[b"/registry/configmaps/default/prepared"]
    found = call(kvstack_fork, "GET", f"{CONFIG_MAPS}/prepared")["metadata"]
    assert found["resourceVersion"] == str(prepared.mod_revision)
    assert found["uid"] == json.loads(prepared.value)["metadata"]["uid"]
    made = call(kvstack_fork, "POST", CONFIG_MAPS, config_map("later"))["metadata"]
    assert int(made["resourceVersion"]) > kvstack_prepared.revision
    path = f"{CONFIG_MAPS}?resourceVersion={kvstack_prepared.revision}&resourceVersionMatch=Exact"
    assert "later" not in {
        each["metadata"]["name"] for each in call(kvstack_fork, "GET", path)["items"]
    }


def test_the_error_of_a_start_is_raised(tmp_path: Path) -> None:
    blocked = tmp_path / "cluster"
    blocked.write_text("a file")
    cluster = BackgroundCluster(blocked)
    with pytest.raises(Exception, match="cluster"):
        cluster.start()
    began = time.monotonic()
    with pytest.raises(Exception, match="cluster"):
        cluster.stop()
    assert time.monotonic() - began < 60  # it does not wait for a thread that never was


def test_what_comes_with_the_plugin_is_imported_as_it_is(tmp_path: Path) -> None:
    # pytest does the same with all packages of a plugin that is installed as a wheel.
    (tmp_path / "conftest.py").write_text(
        'import pytest\npytest.register_assert_rewrite("kvstack", "kvstore")\n'
    )
    (tmp_path / "test_it.py").write_text(
        "from importlib.machinery import SourceFileLoader\n"
        "from kvstack.agents.standalone import background\n"
        "from kvstore.client import values\n"
        "def test_it():\n"
        "    for each in (background, values):\n"
        "        assert type(each.__spec__.loader) is SourceFileLoader\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "kvstack.pytest_plugin", "-q", "-W", "ignore"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
