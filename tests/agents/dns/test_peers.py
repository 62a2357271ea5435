"""Servers of DNS behind one Service: each has its EndpointSlice while it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kvstack.agents.client.built_in import CLUSTER_ROLES, ENDPOINT_SLICES, NAMESPACES, SERVICES
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.dns import command
from kvstack.agents.dns.cluster import Options
from kvstack.agents.dns.publishing import peers as peers_module
from kvstack.agents.dns.publishing.kube_dns import (
    PROBED_LABEL,
    Endpoint,
    KubeDns,
    decide,
    piece,
    service,
    slice_name,
)
from kvstack.agents.dns.publishing.peers import FAILURES, PEERS_MAX, Peers, peers_of
from kvstack.agents.dns.server import DnsServer, DnsSettings
from kvstack.agents.standalone import dns_access
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.support.cluster import TestCluster, eventually, stored_object
from tests.support.network.ports import free_ports

RBAC = "rbac.authorization.k8s.io"
TYPES = {
    "ClusterRole": CLUSTER_ROLES,
    **{
        kind: ResourceType(
            RBAC, "v1", kind.lower() + "s", kind, is_namespaced=not kind.startswith("Cluster")
        )
        for kind in ("Role", "RoleBinding", "ClusterRoleBinding")
    },
}
SYSTEM = "kube-system"
OWNER = {"metadata": {"uid": "u"}}
HERE = Endpoint("192.0.2.7", 53, is_probed=True)


def stored(name: str, endpoint: Endpoint) -> dict[str, Any]:
    made: dict[str, Any] = piece(slice_name(name), OWNER, endpoint)
    made["metadata"] |= {"uid": name, "resourceVersion": "7"}
    return made


def test_only_slices_of_other_servers_of_the_kind_are_probed() -> None:
    other = stored("other", HERE)
    (peer,) = peers_of(slice_name("own"), [stored("own", HERE), other])
    assert peer == (slice_name("other"), "other", "7", "192.0.2.7", 53)
    of_up = stored("node", HERE._replace(is_probed=False))
    assert PROBED_LABEL not in of_up["metadata"]["labels"]
    elsewhere = stored("elsewhere", HERE)
    elsewhere["metadata"]["labels"]["kubernetes.io/service-name"] = "metrics-server"
    strange = stored("strange", HERE)
    strange["ports"] = [{"port": 53}, {"name": "dns-tcp"}]
    named = {**stored("named", HERE), "addressType": "FQDN"}
    empty = {**stored("empty", HERE), "endpoints": None, "ports": None}
    assert not list(peers_of(slice_name("own"), [of_up, elsewhere, strange, named, empty]))


def run(tmp_path: Path, story: Callable[[TestCluster, Informers], Awaitable[None]]) -> None:
    """Run a story with the user's rights, and informers that have no more."""

    async def body() -> None:
        async with TestCluster(tmp_path) as cluster:
            for each in (*dns_access.OBJECTS, *dns_access.OF_PROGRAM):
                namespace = each["metadata"].get("namespace", "")
                await cluster.admin.create(TYPES[each["kind"]], namespace, dict(each))
            api = cluster.api(dns_access.USER)
            async with Informers(api, cluster.clock, Random(1).random, cluster.log) as informers:
                await story(cluster, informers)

    asyncio.run(body())


def test_a_server_is_published_when_names_are_known_and_withdrawn_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "LAMEDUCK_S", 0.0)

    async def story(cluster: TestCluster, informers: Informers) -> None:
        api = cluster.api(dns_access.USER)
        settings = DnsSettings(Options(), nodes_may_ask=True)
        server = DnsServer(informers, settings, cluster.clock, cluster.log)
        objects = KubeDns(api, informers, "one", "10.0.0.10", cluster.log)
        peers = Peers(api, informers, "one", cluster.log)
        async with command._published(objects, peers, server, HERE):
            services = informers.of(SERVICES).store
            made = await eventually(lambda: services.get(f"{SYSTEM}/kube-dns"))
            assert made["spec"]["clusterIP"] == "10.0.0.10"
            with pytest.raises(ApiError):  # names are not known yet
                await cluster.admin.get(ENDPOINT_SLICES, SYSTEM, slice_name("one"))
            await server.start()
            slices = informers.of(ENDPOINT_SLICES).store
            own = await eventually(lambda: slices.get(f"{SYSTEM}/{slice_name('one')}"))
            assert own["endpoints"][0]["addresses"] == ["192.0.2.7"]
            assert own["metadata"]["labels"][PROBED_LABEL] == "true"
        with pytest.raises(ApiError) as raised:
            await cluster.admin.get(ENDPOINT_SLICES, SYSTEM, slice_name("one"))
        assert raised.value.is_not_found
        await objects.withdraw()  # there is none any more
        await server.stop()
        assert not cluster.log.of("warning")

    run(tmp_path, story)


def test_two_servers_of_one_name_are_reported_and_do_not_write_without_end(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, informers: Informers) -> None:
        api = cluster.api(dns_access.USER)
        store = informers.of(ENDPOINT_SLICES).store
        servers = [KubeDns(api, informers, "one", "10.0.0.10", cluster.log) for _ in range(2)]
        for number, server in enumerate(servers):
            server.start()
            server.answers_at(HERE._replace(address=f"192.0.2.{number}"))

        def warnings() -> int:
            text = "the EndpointSlice of DNS was changed: do two servers have the same name?"
            return [line for line, _ in cluster.log.of("warning")].count(text)

        def generation() -> int:
            return int(
                stored_object(store, f"{SYSTEM}/{slice_name('one')}")["metadata"]["generation"]
            )

        # Each writes, the first changes it back, and so does the other.
        await eventually(lambda: warnings() == len(servers))
        writes = await eventually(generation)
        for number in range(20):
            made = piece(slice_name(f"n{number}"), OWNER, HERE)  # both are told of that
            await cluster.admin.create(ENDPOINT_SLICES, SYSTEM, made)
            await eventually(lambda n=number: store.get(f"{SYSTEM}/{slice_name(f'n{n}')}"))  # type: ignore[misc]
        assert (warnings(), generation()) == (len(servers), writes)
        for server in servers:
            await server.stop()

    run(tmp_path, story)


def test_labels_of_others_stay() -> None:
    own = stored("one", HERE)
    own["metadata"]["labels"]["example.com/team"] = "x"
    assert decide(slice_name("one"), OWNER, [own], HERE) is None
    del own["metadata"]["labels"][PROBED_LABEL]
    write = decide(slice_name("one"), OWNER, [own], HERE)
    assert write is not None
    assert write.verb == "update"


def test_a_server_that_does_not_answer_loses_its_slice_and_no_other_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("dead", "alive", "up")

    async def story(cluster: TestCluster, informers: Informers) -> None:
        listener = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        # A slice has no address of the loopback, so each stands for a port there.
        (dead,) = free_ports(1)
        ports = {"192.0.2.0": dead, "192.0.2.1": listener.sockets[0].getsockname()[1]}
        connects = peers_module._answers
        monkeypatch.setattr(
            peers_module, "_answers", lambda host, _: connects("127.0.0.1", ports[host])
        )
        owner = await cluster.admin.create(SERVICES, SYSTEM, service("10.0.0.10"))
        for number, name in enumerate(names):
            endpoint = Endpoint(f"192.0.2.{number}", 53, is_probed=name != "up")
            made = piece(slice_name(name), owner, endpoint)
            await cluster.admin.create(ENDPOINT_SLICES, SYSTEM, made)
        store = informers.of(ENDPOINT_SLICES).store
        await eventually(lambda: len(store.in_namespace(SYSTEM)) == len(names))
        peers = Peers(cluster.api(dns_access.USER), informers, "one", cluster.log)
        for _ in range(FAILURES - 1):
            await peers.probe()
        await cluster.admin.get(ENDPOINT_SLICES, SYSTEM, slice_name("dead"))
        await peers.probe()
        with pytest.raises(ApiError) as raised:
            await cluster.admin.get(ENDPOINT_SLICES, SYSTEM, slice_name("dead"))
        assert raised.value.is_not_found
        for name in names[1:]:
            await cluster.admin.get(ENDPOINT_SLICES, SYSTEM, slice_name(name))
        (line,) = cluster.log.of("warning")
        assert line[1]["slice"] == slice_name("dead")
        listener.close()
        await listener.wait_closed()

    run(tmp_path, story)


def test_a_server_that_answers_again_is_counted_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [False] * (FAILURES - 1) + [True] + [False] * (FAILURES - 1)

    async def answer(_host: str, _port: int) -> bool:
        return answers[0]

    async def story(cluster: TestCluster, informers: Informers) -> None:
        owner = await cluster.admin.create(SERVICES, SYSTEM, service("10.0.0.10"))
        for number in range(PEERS_MAX + 1):
            made = piece(slice_name(f"n{number}"), owner, HERE)
            await cluster.admin.create(ENDPOINT_SLICES, SYSTEM, made)
        slices = informers.of(ENDPOINT_SLICES)
        await slices.synced()
        await eventually(lambda: len(slices.store.in_namespace(SYSTEM)) > PEERS_MAX)
        peers = Peers(cluster.api(dns_access.USER), informers, "one", cluster.log)
        while answers:
            await peers.probe()
            answers.pop(0)
        assert len(peers._failures) == PEERS_MAX
        assert not cluster.log.of("warning")

    monkeypatch.setattr("kvstack.agents.dns.publishing.peers._answers", answer)
    run(tmp_path, story)


def test_the_user_may_read_no_secrets_and_write_no_other_objects(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, _informers: Informers) -> None:
        api = cluster.api(dns_access.USER)
        secrets = ResourceType("", "v1", "secrets", "Secret")
        for wrong in (
            api.get(secrets, SYSTEM, "x"),
            api.delete(SERVICES, SYSTEM, "kube-dns"),
            api.create(SERVICES, "default", service("")),
            api.delete(ENDPOINT_SLICES, "default", "kubernetes"),
            api.delete(NAMESPACES, "", "default"),
        ):
            with pytest.raises(ApiError) as raised:
                await wrong
            assert raised.value.code == 403

    run(tmp_path, story)
