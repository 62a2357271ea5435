"""What the commands take contents from, and how: certificates, the past, namespaces, dumps."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
)
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.apimachinery.objects.times import format_time
from kvstack.clusters.pack.packed_file import read_pack
from kvstack.clusters.sources.etcd import EtcdSource
from kvstack.component import crate
from kvstack.component.clock import SystemClock
from kvstore import embed
from kvstore.client.values import KeyValue
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.clusters.support.sources import (
    WEBHOOKS,
    WIDGETS,
    add_config_map,
    add_widgets,
    call,
    config_map,
    webhook,
)
from tests.clusters.support.users import BARE, User
from tests.support.certificates import Authority
from tests.support.network.ports import free_ports
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundCluster]:
    directory = tmp_path_factory.mktemp("source")
    settings = Settings(nodes=1, without=frozenset(("metrics", "scheduler")))
    with BackgroundCluster(directory / "cluster", settings) as cluster:
        call(cluster.kubeconfig, lambda api: api.create(NAMESPACES, "", named("shop")))
        call(
            cluster.kubeconfig,
            lambda api: api.create(CONFIG_MAPS, "shop", config_map("of-the-shop")),
        )
        add_config_map(cluster.kubeconfig, "a", n="1")
        add_widgets(cluster.kubeconfig, "w")
        taint = {"key": "dedicated", "value": "shop", "effect": "NoSchedule"}
        change = {"metadata": {"labels": {"rack": "r1"}}, "spec": {"taints": [taint]}}
        media_type = "application/merge-patch+json"
        [node] = call(cluster.kubeconfig, lambda api: api.list_all(NODES))
        name = node["metadata"]["name"]
        call(cluster.kubeconfig, lambda api: api.patch(NODES, "", name, change, media_type))
        yield cluster


@pytest.fixture
def user(tmp_path: Path, source: BackgroundCluster) -> Iterator[User]:
    user = User(tmp_path, source)
    yield user
    user.call("delete", "fork", "--all")


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def keys_of(path: Path) -> dict[str, KeyValue]:
    return {kv.key.decode(): kv for kv in read_pack(path, 10_000).rows}


@pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl command is needed to make certificates"
)
def test_a_store_with_certificates(user: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """`etcds://` is verified, and shows a certificate of its own."""
    authority = Authority(user.directory)
    server_cert, server_key = authority.issue("server")
    cert, key = authority.issue("client", host="")
    (port,) = free_ports(1)
    flags = (
        *(f"--cert-file={server_cert}", f"--key-file={server_key}", "--client-cert-auth"),
        f"--trusted-ca-file={authority.file}",
    )
    metadata = {"name": "a", "namespace": "default", "uid": "u"}
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    async def put(member: embed.Member) -> int:
        async with member.store() as store:
            await store.put(b"/registry/configmaps/default/a", json.dumps(obj).encode())
            return await store.current_revision()

    url = f"etcds://127.0.0.1:{port}"
    with embed.start(client_urls=[f"https://127.0.0.1:{port}"], flags=flags) as member:
        revision = asyncio.run(put(member))
        trusting = (f"--etcd-cafile={authority.file}",)
        shown = (f"--etcd-certfile={cert}", f"--etcd-keyfile={key}")
        told, _ = user.call("pack", url, "-o", "x.kvs", *trusting, *shown)
        assert "x.kvs: 1 objects" in told
        assert read_pack(user.directory / "x.kvs", 10).revision == revision
        patient_for = partial(EtcdSource, reach_s=0.5)
        monkeypatch.setattr("kvstack.clusters.sources.etcd.EtcdSource", patient_for)
        for flags_given, reason in (
            (trusting, "CertificateRequired" if crate.is_available() else ""),
            (shown, "UnknownIssuer" if crate.is_available() else ""),
            (("--etcd-cafile=none.pem",), "--etcd-cafile none.pem: No such file or directory"),
            (shown[1:], "--etcd-certfile and --etcd-keyfile need each other"),
        ):
            _, error = user.call("pack", url, "-o", "y.kvs", *flags_given, code=1)
            assert f"https://127.0.0.1:{port}" in error or "--etcd-" in error
            assert reason in error
            assert not (user.directory / "y.kvs").exists()


def test_the_past_of_the_context(user: User, source: BackgroundCluster) -> None:
    found = call(source.kubeconfig, lambda api: api.list_page(CONFIG_MAPS))
    revision, moment = found.resource_version, SystemClock().unix_ms() / 1000
    wait_for(lambda: SystemClock().unix_ms() / 1000 > moment + 1, "a second has passed")
    add_config_map(source.kubeconfig, "late")
    for number, at in enumerate((revision, format_time(int(moment)), "")):
        path = user.directory / f"{number}.kvs"
        user.call("pack", f"--at={at}", "-o", path.name, "--context", "kubernetes-admin@kvstack")
        assert ("/registry/configmaps/default/late" in keys_of(path)) == (not at)
    assert read_pack(user.directory / "0.kvs", 10_000).revision == int(revision)
    said = user.run("fork", "--at", revision, "--name", "before", BARE)
    assert f'fork "before" of "kubernetes-admin@kvstack" at revision {revision}: ' in said.stdout
    names = {
        each["metadata"]["name"]
        for each in call(user.kubeconfig("before"), lambda api: api.list_all(CONFIG_MAPS))
    }
    assert "a" in names
    assert "late" not in names
    call(source.kubeconfig, lambda api: api.delete(CONFIG_MAPS, "default", "late"))


def test_one_namespace(user: User) -> None:
    user.call("pack", "-n", "shop", "-o", "shop.kvs", "--events=false")
    keys = keys_of(user.directory / "shop.kvs")
    assert "/registry/configmaps/shop/of-the-shop" in keys
    assert "/registry/namespaces/shop" in keys
    assert not [key for key in keys if "/default/" in key or key == "/registry/namespaces/default"]
    assert not [key for key in keys if key.startswith("/registry/events/")]


def test_parts_and_nodes_of_a_fork(user: User, source: BackgroundCluster) -> None:
    [before] = call(source.kubeconfig, lambda api: api.list_all(NODES))
    user.run("fork", "--name", "same", "--without=scheduler,dashboard,metrics")
    user.run("fork", "--name", "three", "--nodes=3", "--without=scheduler,dashboard,metrics")
    user.run("wait", "--settled", "--fork=same", "--timeout=60s")
    [same] = call(user.kubeconfig("same"), lambda api: api.list_all(NODES))
    assert same["metadata"]["uid"] == before["metadata"]["uid"]
    assert same["metadata"]["labels"] == before["metadata"]["labels"]
    assert same["spec"] == before["spec"]
    assert {"key": "dedicated", "value": "shop", "effect": "NoSchedule"} in same["spec"]["taints"]
    assert same["status"]["capacity"] == before["status"]["capacity"]
    three = user.kubeconfig("three")
    names = {each["metadata"]["name"] for each in call(three, lambda api: api.list_all(NODES))}
    assert names == {"hollow-1", "hollow-2", "hollow-3"}
    container = {"name": "c", "image": "registry.example/c:1"}
    pod = {**named("waits"), "spec": {"containers": [container]}}
    call(three, lambda api: api.create(PODS, "default", pod))
    user.run("wait", "--settled", "--fork=three", "--timeout=60s")
    waiting = call(three, lambda api: api.get(PODS, "default", "waits"))
    assert "nodeName" not in waiting["spec"]  # nobody schedules it
    assert waiting["status"]["phase"] == "Pending"


def test_calls_that_were_not_made_are_counted(user: User) -> None:
    user.run("fork", "--name", "quiet", "--without=controllers,scheduler,nodes,metrics,dashboard")
    config = user.kubeconfig("quiet")
    call(config, lambda api: api.create(WEBHOOKS, "", webhook("https://192.0.2.1/check")))

    def is_counted() -> bool:
        call(
            config,
            lambda api: api.create(CONFIG_MAPS, "default", {"metadata": {"generateName": "x-"}}),
        )
        [fork] = user.forks()
        return bool(fork["notCalled"])

    wait_for(is_counted, "the webhook is in force")
    [fork] = user.forks()
    [hook] = fork["notCalled"]
    assert hook["what"] == "admission webhook"
    assert hook["name"] == "check.example.com"
    assert hook["times"] >= 1
    assert hook["last"].startswith("CREATE configmaps default/x-")
    [heading, row] = user.call("get", "forks")[0].splitlines()
    at = heading.index("NOT CALLED")
    assert int(row[at:].split()[0]) == hook["times"]


def test_events_come_along_and_end(user: User, source: BackgroundCluster) -> None:
    about = {"kind": "ConfigMap", "apiVersion": "v1", "namespace": "shop", "name": "of-the-shop"}
    event = {"metadata": {"name": "seen.1"}, "involvedObject": about, "reason": "Seen"}
    call(source.kubeconfig, lambda api: api.create(EVENTS, "shop", {**event, "message": "x"}))
    parts = "--without=controllers,scheduler,nodes,metrics,dashboard"
    user.run("fork", "--name", "with", "--clock", "paused", parts)
    user.run("fork", "--name", "bare", "--events=false", parts)

    def names(fork: str) -> set[str]:
        events = call(user.kubeconfig(fork), lambda api: api.list_all(EVENTS))
        return {each["metadata"]["name"] for each in events}

    assert "seen.1" in names("with")
    assert "seen.1" not in names("bare")
    user.call("clock", "advance", "50m", "--fork", "with")
    assert "seen.1" in names("with")
    user.call("clock", "advance", "15m", "--fork", "with")
    assert "seen.1" not in names("with")


def test_a_dump_of_kubectl(user: User, source: BackgroundCluster) -> None:
    try:
        kubectl = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    dump = user.directory / "dump"
    subprocess.run(
        [kubectl, "cluster-info", "dump", "--all-namespaces", f"--output-directory={dump}"],
        env=user.environment,
        check=True,
        capture_output=True,
        timeout=60,
    )
    assert list(dump.rglob("*.json"))
    said = user.run("open", "dump", "--name", "dumped")
    assert "read-only" in said.stdout

    async def compare(api: Api) -> None:
        dumped = {each["metadata"]["uid"]: each for each in await api.list_all(NODES)}
        original = {
            each["metadata"]["uid"]: each
            for each in json.loads((dump / "nodes.json").read_text())["items"]
        }
        assert dumped.keys() == original.keys()
        for uid, node in original.items():
            assert dumped[uid]["spec"] == node["spec"]
            assert (
                dumped[uid]["metadata"]["creationTimestamp"]
                == node["metadata"]["creationTimestamp"]
            )

    call(user.kubeconfig("dumped"), compare)


def test_manifests_of_a_definition_and_its_objects(user: User, source: BackgroundCluster) -> None:
    """What `kubectl get -o yaml` wrote is opened, with its uids."""
    path = user.directory / "manifests"
    path.mkdir()
    items = [
        *call(source.kubeconfig, lambda api: api.list_all(CUSTOM_RESOURCE_DEFINITIONS)),
        *call(source.kubeconfig, lambda api: api.list_all(WIDGETS)),
    ]
    (path / "all.yaml").write_text(yaml.safe_dump_all(items))
    user.run("open", "manifests", "--name", "opened")
    [widget] = call(user.kubeconfig("opened"), lambda api: api.list_all(WIDGETS))
    assert widget["metadata"]["uid"] == items[-1]["metadata"]["uid"]
    assert widget["spec"] == items[-1]["spec"]
