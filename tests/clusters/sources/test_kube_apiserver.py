"""Contents of a real kube-apiserver on a real etcd: by its API, of its store, of a snapshot.

    KVSTORE_TEST_PEER=…/etcd KVSTACK_TEST_KUBE_APISERVER=…/kube-apiserver pytest …

All three are the same cluster. What a source does with the server is read from its audit log.
"""

import asyncio
import base64
import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest
import yaml

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from kvstack.agents.client.kubeconfig import Kubeconfigs, connect
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.clusters.contents import Contents
from kvstack.clusters.sources.api_listing import PAGE_OBJECTS
from kvstack.clusters.sources.api_server import ApiServerSource
from kvstack.clusters.sources.etcd import EtcdSource
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from kvstack.clusters.sources.state_files import StateFileSource
from kvstore.client.values import KeyValue
from tests.clusters.support.sources import (
    API_SERVICES,
    WIDGETS,
    aggregated,
    config_map,
    definition,
    objects_of,
)
from tests.clusters.support.users import User
from tests.support.network.ports import free_ports
from tests.support.servers import Server, etcd, etcdctl, running
from tests.support.waiting import wait_for

API_SERVER: Final = os.environ.get("KVSTACK_TEST_KUBE_APISERVER", "")
ADMIN, FORKER, LIMITED, TENANT = "admin", "forker", "limited", "tenant"
READY_S: Final = 120.0
SHOP: Final = "shop"
MANY: Final = 2 * PAGE_OBJECTS + 7
READS: Final = frozenset(("get", "list", "watch"))
RBAC: Final = "rbac.authorization.k8s.io"
ROLES: Final = ResourceType(RBAC, "v1", "clusterroles", "ClusterRole", is_namespaced=False)
BINDINGS: Final = ResourceType(
    RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False
)
BINDINGS_OF_NAMESPACES: Final = ResourceType(RBAC, "v1", "rolebindings", "RoleBinding")
EVENTS: Final = ResourceType("", "v1", "events", "Event")
READABLE: Final = (
    "configmaps",
    "events",
    "namespaces",
    "nodes",
    "pods",
    "serviceaccounts",
    "services",
)
"""Resources of the core that the limited user may list."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not API_SERVER, reason="no other API server: KVSTACK_TEST_KUBE_APISERVER names none"
    ),
]


class Upstream(NamedTuple):
    """A running cluster: an API server on a store, and the contexts of its users."""

    store: Server
    kubeconfig: Path
    audit: Path
    encryption: Path
    """The configuration by which Secrets are encrypted."""

    def api(self, user: str) -> Api:
        cluster = Kubeconfigs([self.kubeconfig]).cluster(user)
        return Api(connect(cluster), Options(user_agent="test"))

    def source(self, user: str = FORKER) -> ApiServerSource:
        return ApiServerSource(Kubeconfigs([self.kubeconfig]).cluster(user), user)

    def read(self, user: str = FORKER, **options: Any) -> Contents:
        return asyncio.run(self.source(user).read(ReadOptions(**options), Silent()))

    def operations(self, user: str) -> list[tuple[str, str]]:
        """Return what a user did: verbs and paths."""
        events = map(json.loads, self.audit.read_text().splitlines())
        return [
            (event["verb"], event["requestURI"])
            for event in events
            if event["user"]["username"] == user
        ]


@contextmanager
def api_server(directory: Path, store: Server, encryption: Path, *flags: str) -> Iterator[Upstream]:
    """Run kube-apiserver on a store; encryption: the configuration by which Secrets are kept."""
    (port,) = free_ports(1)
    (directory / "tokens").write_text(
        f"t-{ADMIN},{ADMIN},{ADMIN},system:masters\n"
        f"t-{FORKER},{FORKER},{FORKER},system:masters\n"
        f"t-{LIMITED},{LIMITED},{LIMITED}\n"
        f"t-{TENANT},{TENANT},{TENANT}\n"
    )
    (directory / "audit.yaml").write_text(
        yaml.safe_dump(
            {
                "apiVersion": "audit.k8s.io/v1",
                "kind": "Policy",
                "omitStages": ["RequestReceived"],
                "rules": [{"level": "Metadata"}],
            }
        )
    )
    key = directory / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    upstream = Upstream(store, directory / "config", directory / "audit.log", encryption)
    upstream.kubeconfig.write_text(yaml.safe_dump(kubeconfig_of(port)))
    upstream.kubeconfig.chmod(0o600)
    log_path = directory / "apiserver.log"
    command = (
        *(API_SERVER, f"--etcd-servers={store.client_url}", f"--cert-dir={directory / 'certs'}"),
        *("--authorization-mode=RBAC", f"--token-auth-file={directory / 'tokens'}"),
        *("--service-account-issuer=https://test", f"--service-account-key-file={key}"),
        *(f"--service-account-signing-key-file={key}", "--service-cluster-ip-range=10.96.0.0/16"),
        *("--bind-address=127.0.0.1", "--advertise-address=192.0.2.1", f"--secure-port={port}"),
        *(f"--encryption-provider-config={encryption}", *flags),
        *(f"--audit-log-path={upstream.audit}", f"--audit-policy-file={directory / 'audit.yaml'}"),
    )
    with log_path.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_for(
            lambda: is_ready(upstream),
            lambda: f"kube-apiserver is ready:\n{log_path.read_text()[-4000:]}",
            READY_S,
        )
        yield upstream
    finally:
        process.kill()
        process.wait()


def write_encryption(path: Path) -> Path:
    """Write an EncryptionConfiguration with a key of its own."""
    key_text = base64.b64encode(os.urandom(32)).decode()
    providers = [{"aescbc": {"keys": [{"name": "k", "secret": key_text}]}}, {"identity": {}}]
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "EncryptionConfiguration",
                "resources": [{"resources": ["secrets"], "providers": providers}],
            }
        )
    )
    return path


def kubeconfig_of(port: int) -> dict[str, Any]:
    users = (ADMIN, FORKER, LIMITED, TENANT)
    cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": f"t-{user}"}} for user in users],
        "contexts": [{"name": user, "context": {"cluster": "c", "user": user}} for user in users],
        "current-context": FORKER,
    }


def is_ready(upstream: Upstream) -> bool:
    async def ask() -> bool:
        api = upstream.api(ADMIN)
        try:
            await api.get(SERVICES, "default", "kubernetes")
            response = await api.open("GET", "/readyz")
            return await response.read() == b"ok"
        except (ApiError, UnreachableError):
            return False
        finally:
            await api.close()

    return asyncio.run(ask())


def deployment(name: str) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "web", "image": "registry.example/web:1.4"}
    return {
        "metadata": {"name": name, "namespace": SHOP},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


async def fill(api: Api) -> None:
    """Create what is to be read."""
    await api.create(NAMESPACES, "", {"metadata": {"name": SHOP}})
    await api.create(SERVICE_ACCOUNTS, SHOP, {"metadata": {"name": "default"}})
    await api.create(CUSTOM_RESOURCE_DEFINITIONS, "", definition())
    for number in range(3):
        await api.create(DEPLOYMENTS, SHOP, deployment(f"web-{number}"))
    for start in range(0, MANY, 50):
        await asyncio.gather(
            *(
                api.create(CONFIG_MAPS, SHOP, config_map(f"c{number:04d}", n=str(number)))
                for number in range(start, min(start + 50, MANY))
            )
        )
    await api.create(SECRETS, SHOP, {"metadata": {"name": "db"}, "stringData": {"password": "x"}})
    await api.create(API_SERVICES, "", aggregated())
    rules = [
        {"apiGroups": [""], "resources": list(READABLE), "verbs": ["get", "list"]},
        {"apiGroups": ["apps", "apiextensions.k8s.io", "example.com"], "resources": ["*"],
         "verbs": ["list"]},
    ]  # fmt: skip
    await api.create(ROLES, "", {"metadata": {"name": LIMITED}, "rules": rules})
    subject = {"kind": "User", "name": LIMITED, "apiGroup": RBAC}
    role = {"kind": "ClusterRole", "name": LIMITED, "apiGroup": RBAC}
    binding = {"metadata": {"name": LIMITED}, "roleRef": role, "subjects": [subject]}
    await api.create(BINDINGS, "", binding)
    rules = [
        {"apiGroups": [""], "resources": ["configmaps", "pods", "serviceaccounts"],
         "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
    ]  # fmt: skip
    await api.create(ROLES, "", {"metadata": {"name": TENANT}, "rules": rules})
    role = {"kind": "ClusterRole", "name": TENANT, "apiGroup": RBAC}
    subject = {**subject, "name": TENANT}
    binding = {"metadata": {"name": TENANT}, "roleRef": role, "subjects": [subject]}
    await api.create(BINDINGS_OF_NAMESPACES, SHOP, binding)
    node = {"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4", "pods": "10"}}}
    await api.create(NODES, "", node)
    container = {"name": "c", "image": "registry.example/job:1"}
    spec = {
        "containers": [container],
        "nodeName": "n1",
        "automountServiceAccountToken": False,
    }
    pod = await api.create(PODS, SHOP, {"metadata": {"name": "bound"}, "spec": spec})
    about = {"kind": "Pod", "apiVersion": "v1", "namespace": SHOP, "name": "bound"}
    about["uid"] = pod["metadata"]["uid"]
    event = {"metadata": {"name": "bound.1"}, "involvedObject": about, "reason": "Started"}
    await api.create(EVENTS, SHOP, {**event, "type": "Normal", "message": "started"})
    # A second version of some objects, and one that goes.
    for name in ("c0003", "c0004"):
        changed = await api.get(CONFIG_MAPS, SHOP, name)
        await api.update(CONFIG_MAPS, {**changed, "data": {"changed": "yes"}})
    await api.delete(CONFIG_MAPS, SHOP, "c0005")
    widget = {"apiVersion": "example.com/v1", "kind": "Widget"}
    for name in ("a", "b"):
        obj = {**widget, "metadata": {"name": name}, "spec": {"big": 1.5, "deep": {"none": None}}}
        await _create_once_served(api, obj)


async def _create_once_served(api: Api, obj: dict[str, Any]) -> None:
    async with asyncio.timeout(READY_S):
        while True:
            try:
                await api.create(WIDGETS, SHOP, obj)
            except ApiError as error:
                if not error.is_not_found:
                    raise
                await asyncio.sleep(0.1)
            else:
                return


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Upstream]:
    directory = tmp_path_factory.mktemp("upstream")
    keys = write_encryption(directory / "encryption.yaml")
    with running(etcd(directory / "etcd")) as store, api_server(directory, store, keys) as server:

        async def main() -> None:
            api = server.api(ADMIN)
            try:
                await fill(api)
            finally:
                await api.close()

        asyncio.run(main())
        yield server


def read_store(upstream: Upstream, **options: Any) -> Contents:
    source = EtcdSource([upstream.store.client_url])
    return asyncio.run(source.read(ReadOptions(**options), Silent()))


def without_its_servers(rows: Sequence[KeyValue]) -> dict[bytes, KeyValue]:
    """Return rows without what the server writes all the time."""
    return {kv.key: kv for kv in rows if not kv.key.startswith(b"/registry/leases/")}


def test_the_same_by_its_api_of_its_store_and_of_a_snapshot(
    upstream: Upstream, tmp_path: Path
) -> None:
    by_api = upstream.read()
    path = tmp_path / "snapshot.db"
    etcdctl(upstream.store, "snapshot", "save", str(path))
    encryption = str(upstream.encryption)
    of_store = read_store(upstream, at=str(by_api.revision), encryption_config=encryption)
    options = ReadOptions(encryption_config=encryption)
    of_file = asyncio.run(StateFileSource(path).read(options, Silent()))
    assert by_api.revision == of_store.revision <= of_file.revision
    assert by_api.origin.version == "v1.37.1"
    assert by_api.origin.kind == "API server"
    rows = {
        name: without_its_servers(contents.rows)
        for name, contents in (("api", by_api), ("store", of_store), ("file", of_file))
    }
    assert rows["store"] == {
        key: kv._replace(lease=rows["store"][key].lease) for key, kv in rows["file"].items()
    }
    assert rows["api"].keys() == rows["store"].keys()
    objects = {name: objects_of(found.values()) for name, found in rows.items()}
    assert len(objects["api"]) > MANY
    for key, obj in objects["store"].items():
        assert orjson.loads(orjson.dumps(objects["api"][key])) == obj, key
        assert objects["file"][key] == obj
    revisions = {
        name: {key: kv.mod_revision for key, kv in found.items()} for name, found in rows.items()
    }
    assert revisions["api"] == revisions["store"] == revisions["file"]
    assert [(each.what, each.number) for each in of_store.left_out] == []
    assert [each.what for each in by_api.left_out] == ["remote.example.com/v1"]
    events = [kv for kv in by_api.rows if kv.key.startswith(b"/registry/events/")]
    assert events
    assert all(contents.leases for contents in (by_api, of_store, of_file))
    assert not any(
        kv.key.startswith((b"/registry/masterleases", b"/registry/ranges"))
        for contents in (by_api, of_store, of_file)
        for kv in contents.rows
    )


def test_rights_in_one_namespace(upstream: Upstream) -> None:
    """No Secrets, no custom resources, and nothing of the cluster."""
    everything = upstream.read()
    contents = upstream.read(TENANT, namespaces=(SHOP,))
    named = {each.what for each in contents.left_out}
    assert "namespaces" not in named  # it is read by its name
    assert {"nodes", f"secrets in {SHOP}", f"widgets.example.com in {SHOP}"} <= named
    within = f"/{SHOP}/".encode()
    for resource in (b"configmaps", b"deployments", b"pods", b"serviceaccounts"):
        assert [kv.key for kv in contents.rows if kv.key.split(b"/")[2] == resource] == [
            kv.key
            for kv in everything.rows
            if kv.key.split(b"/")[2] == resource and within in kv.key
        ], resource
    rest = [kv.key for kv in contents.rows if within not in kv.key]
    assert rest == [f"/registry/namespaces/{SHOP}".encode()]


def test_its_past_by_a_revision_and_not_by_a_time(upstream: Upstream) -> None:
    async def change() -> None:
        api = upstream.api(ADMIN)
        try:
            await api.create(CONFIG_MAPS, SHOP, config_map("c0000-late"))
            await api.delete(CONFIG_MAPS, SHOP, "c0950")
        finally:
            await api.close()

    before = upstream.read()
    asyncio.run(change())
    past = upstream.read(at=str(before.revision))
    assert past.revision == before.revision
    assert without_its_servers(past.rows) == without_its_servers(before.rows)
    assert without_its_servers(upstream.read().rows) != without_its_servers(before.rows)
    for user in (FORKER, LIMITED):
        with pytest.raises(SourceError, match="this server does not show its past state"):
            upstream.read(user, at="2026-01-01T00:00:00Z")
        with pytest.raises(SourceError, match="--since: this server does not show its past"):
            upstream.read(user, since_s=60.0)


def test_encrypted_secrets_are_left_out_of_a_store_without_their_keys(upstream: Upstream) -> None:
    contents = read_store(upstream)
    assert [(each.what, each.number) for each in contents.left_out] == [("secrets", 1)]
    assert GroupResource("", "secrets") in contents.unread
    assert not any(kv.key.startswith(b"/registry/secrets/") for kv in contents.rows)


def test_what_a_user_may_not_read_is_named(upstream: Upstream) -> None:
    everything = upstream.read()
    contents = upstream.read(LIMITED)
    named = {each.what: each.why for each in contents.left_out}
    assert "forbidden" in named["secrets"]
    assert GroupResource("", "secrets") in contents.unread
    listed = {kv.key for kv in contents.rows}
    missing = {kv.key.split(b"/")[2] for kv in everything.rows if kv.key not in listed}
    assert b"secrets" in missing
    assert not missing & {b"configmaps", b"deployments", b"example.com", b"namespaces"}
    read_whole = {b"configmaps", b"deployments", b"example.com"}
    assert {
        kv.key: kv.mod_revision for kv in contents.rows if kv.key.split(b"/")[2] in read_whole
    } == {kv.key: kv.mod_revision for kv in everything.rows if kv.key.split(b"/")[2] in read_whole}


class Once:
    """Progress that does something once, when some objects were read."""

    def __init__(self, after: int, do: Callable[[], None]) -> None:
        self.after, self.do, self.is_done = after, do, False

    def say(self, text: str) -> None:
        words = text.split()
        if words[0] == "reading:" and int(words[1]) >= self.after and not self.is_done:
            self.is_done = True
            self.do()


def read_while_it_is_compacted(
    upstream: Upstream, made: str, gone: str
) -> tuple[Contents, set[str]]:
    """Make and delete a ConfigMap while they are read; return the contents, and which there are."""

    async def change() -> None:
        api = upstream.api(ADMIN)
        try:
            await api.create(CONFIG_MAPS, SHOP, config_map(made))
            await api.delete(CONFIG_MAPS, SHOP, gone)
        finally:
            await api.close()

    def change_and_compact() -> None:
        thread = threading.Thread(target=lambda: asyncio.run(change()))
        thread.start()
        thread.join()
        status = json.loads(etcdctl(upstream.store, "endpoint", "status", "-w", "json").stdout)
        revision = status[0]["Status"]["header"]["revision"]
        etcdctl(upstream.store, "compaction", "--physical", str(revision))

    progress = Once(PAGE_OBJECTS, change_and_compact)
    contents = asyncio.run(upstream.source().read(ReadOptions(), progress))
    assert progress.is_done
    prefix = f"/registry/configmaps/{SHOP}/".encode()
    keys = [kv.key for kv in contents.rows if kv.key.startswith(prefix)]
    return contents, {key.removeprefix(prefix).decode() for key in keys}


def test_a_store_that_is_compacted_while_its_server_is_read(upstream: Upstream) -> None:
    """The server has the state in memory, and goes on with it."""
    contents, names = read_while_it_is_compacted(upstream, "c0000-first", "c0900")
    assert [each.what for each in contents.left_out] == ["remote.example.com/v1"]
    assert "c0900" in names
    assert "c0000-first" not in names


def test_a_server_that_gives_up_a_revision_while_it_is_read(
    upstream: Upstream, tmp_path: Path
) -> None:
    """410, as of servers before 1.34: the kind is read as it is now, and that is reported."""
    gate = "--feature-gates=ListFromCacheSnapshot=false"
    with api_server(tmp_path, upstream.store, upstream.encryption, gate) as older:
        contents, names = read_while_it_is_compacted(older, "c0000-second", "c0901")
    [left] = [each for each in contents.left_out if each.what == "configmaps"]
    assert "its revision was given up while it was read" in left.why
    read_at = re.match(r"read at revision (\d+) and not \d+: ", left.why)
    assert read_at is not None
    assert int(read_at[1]) <= contents.revision
    assert "c0901" not in names
    assert "c0000-second" in names
    assert all(kv.mod_revision <= contents.revision for kv in contents.rows)


@pytest.fixture
def user(tmp_path: Path, upstream: Upstream) -> Iterator[User]:
    found = User(tmp_path, upstream)  # type: ignore[arg-type]
    yield found
    found.run("delete", "fork", "--all")


def test_a_fork_has_the_same_objects_and_a_plan_is_made_of_it(
    upstream: Upstream, user: User
) -> None:
    said = user.run("fork", "--name=copy", "--without=controllers,scheduler,nodes")
    store = f"etcd://{upstream.store.endpoint}"
    keys = f"--encryption-provider-config={upstream.encryption}"
    assert user.call("diff", FORKER, store, keys)[0] == "no difference\n"
    assert f'of "{FORKER}" at revision ' in said.stdout
    assert "remote.example.com" in said.stdout + said.stderr

    async def compare() -> None:
        theirs = upstream.api(ADMIN)
        ours = Api(connect(Kubeconfigs([user.config]).cluster("copy")), Options(user_agent="test"))
        try:
            for resource in (
                CONFIG_MAPS,
                DEPLOYMENTS,
                SECRETS,
                WIDGETS,
                NAMESPACES,
                ROLES,
                BINDINGS,
            ):
                original = {
                    each["metadata"]["uid"]: each for each in await theirs.list_all(resource)
                }
                copied = {each["metadata"]["uid"]: each for each in await ours.list_all(resource)}
                # The fork's server adds what it needs itself.
                assert original.items() <= copied.items(), resource
                assert original
        finally:
            await theirs.close()
            await ours.close()

    asyncio.run(compare())
    change = user.directory / "change.yaml"
    changed = deployment("web-1")
    changed["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/web:1.5"
    change.write_text(yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", **changed}))
    planned = user.run("plan", "-f", str(change), code=1).stdout
    assert f"~ deployment {SHOP}/web-1" in planned
    assert "1.4 → 1.5" in planned
    assert "+ replicaset" in planned
    of_a_tenant = ("--context", TENANT, "-n", SHOP)
    assert "1.4 → 1.5" in user.run("plan", *of_a_tenant, "-f", str(change), code=1).stdout
    assert {verb for verb, _ in upstream.operations(TENANT)} <= READS
    operations = upstream.operations(FORKER)
    assert len(operations) > 100
    assert {verb for verb, _ in operations} <= READS
