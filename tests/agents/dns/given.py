"""Objects of a small cluster, and the server that knows them, on the loopback."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, cast

from dns.message import Message, from_wire, make_query

from kvstack.agents.client.built_in import ENDPOINT_SLICES, NAMESPACES, NODES, PODS, SERVICES
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.dns.cluster import Cluster, Options
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.server import DnsServer, DnsSettings
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from tests.support.list_log import ListLog

if TYPE_CHECKING:
    from kvstack.agents.client.informers import Informers

NOW_S = 1_700_000_000
LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


def meta(name: str, namespace: str = "default", **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}",
            "resourceVersion": "1", **more}  # fmt: skip


def service(name: str, ips: Iterable[str] = ("10.96.0.7",), *ports: tuple[str, int, str],
            namespace: str = "default", **spec: Any) -> Object:  # fmt: skip
    given = list(ips)
    told = [
        {"name": each, "port": number, "protocol": protocol} for each, number, protocol in ports
    ]
    own = {"clusterIP": given[0], "clusterIPs": given} if given else {}
    return {"metadata": meta(name, namespace), "spec": {**own, "ports": told, **spec}}


def piece(of: str, *endpoints: dict[str, Any], ports: Iterable[tuple[str, int, str]] = (),
          kind: str = "IPv4", name: str = "", namespace: str = "default") -> Object:  # fmt: skip
    labels = {"kubernetes.io/service-name": of}
    return {
        "metadata": meta(name or f"{of}-{kind.lower()}", namespace, labels=labels),
        "addressType": kind,
        "endpoints": list(endpoints),
        "ports": [{"name": n, "port": number, "protocol": p} for n, number, p in ports],
    }  # fmt: skip


def endpoint(*addresses: str, ready: bool | None = True, **more: Any) -> dict[str, Any]:
    return {"addresses": list(addresses), "conditions": {"ready": ready}, **more}


SERVICES_GIVEN = (
    service("web", ["10.96.0.7"], ("http", 80, "TCP"), ("dns", 53, "UDP")),
    service("both", ["10.96.0.8", "fd00:10::8"], ("http", 80, "TCP")),
    service("peers", ["None"], ("raft", 2380, "TCP"), ("", 99, "TCP")),
    service("empty", ["None"], ("raft", 2380, "TCP")),
    service("portless", ["None"]),
    service("alias", [], type="ExternalName", externalName="web.default.svc.cluster.local"),
    service("abroad", [], type="ExternalName", externalName="Foo.Example.com"),
    service("number", [], type="ExternalName", externalName="192.0.2.7"),
    service("circle", [], type="ExternalName", externalName="circle.default.svc.cluster.local"),
    service("kube-dns", ["10.96.0.10"], ("dns", 53, "UDP"), namespace="kube-system"),
)
SLICES_GIVEN = (
    piece("web", endpoint("10.244.0.2"), endpoint("10.244.0.3", ready=False),
          ports=[("http", 8080, "TCP")]),
    piece("peers", endpoint("10.244.0.4", hostname="peers-0"),
          endpoint("10.244.0.5", ready=None, targetRef={"kind": "Pod", "name": "a-pod"}),
          endpoint("10.244.0.6", ready=False, hostname="peers-2"),
          ports=[("raft", 12380, "TCP"), ("", 199, "TCP")]),
    piece("peers", endpoint("fd00::4", hostname="peers-0"), endpoint("fd00::"),
          ports=[("raft", 12380, "TCP"), ("", 199, "TCP")], kind="IPv6"),
    piece("empty", endpoint("10.244.0.9", ready=False), ports=[("raft", 2380, "TCP")]),
    piece("portless", endpoint("10.244.0.11")),
)  # fmt: skip


def cluster(options: Options | None = None) -> Cluster:
    """Return a cluster that knows the objects above."""
    found = Cluster(options or Options())
    for name in ("default", "kube-system"):
        found.put_namespace(name)
    for each in SERVICES_GIVEN:
        found.put_service(each, NOW_S)
    for each in SLICES_GIVEN:
        found.put_slice(each, NOW_S)
    found.put_pod("default", "a-pod", ["10.244.0.5"])
    return found


def responder(options: Options | None = None) -> Responder:
    """Return one that knows the cluster and asks nobody."""
    found = Responder(cluster(options), None)
    found.is_synced = True
    return found


def answer_to(found: Responder, name: str, kind: str = "A", **more: Any) -> Message:
    """Return the answer of a query that needs nobody else."""
    query = make_query(name, kind, **more)
    answer = found.at_once(query.to_wire())
    assert isinstance(answer, bytes)
    return from_wire(answer)


class GivenInformers:
    """Informers whose objects a test gives."""

    def __init__(self) -> None:
        self.log = ListLog()
        self.found: dict[ResourceType, Informer] = {}

    def of(self, resource: ResourceType) -> Informer:
        if resource not in self.found:
            api = cast("Any", None)  # they never run
            self.found[resource] = Informer(api, resource, SystemClock(), lambda: 0.5, self.log)
        return self.found[resource]

    def give(self, resource: ResourceType, objects: Iterable[Object]) -> None:
        self.of(resource).replace([{**each} for each in objects], "1")

    def give_all(self) -> None:
        names = [{"metadata": {"name": each}} for each in ("default", "kube-system")]
        given = {SERVICES: SERVICES_GIVEN, ENDPOINT_SLICES: SLICES_GIVEN, NAMESPACES: names,
                 NODES: (), PODS: ()}  # fmt: skip
        for resource, objects in given.items():
            self.give(resource, objects)


@asynccontextmanager
async def serving(
    settings: DnsSettings | None = None, informers: GivenInformers | None = None
) -> AsyncGenerator[tuple[DnsServer, int]]:
    """Run a server on the loopback; give it and its port."""
    given = informers or GivenInformers()
    if informers is None:
        given.give_all()
    settings = settings or DnsSettings(clients=LOOPBACK)
    server = DnsServer(cast("Informers", given), settings, SystemClock(), given.log)
    try:
        await server.start()
        port = await server.listen("127.0.0.1", 0)
        await asyncio.sleep(0)
        yield server, port
    finally:
        await server.stop()


async def over_udp(port: int, wire: bytes, *, host: str = "127.0.0.1") -> bytes:
    """Return the answer of a datagram."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        asking.connect((host, port))
        await loop.sock_sendall(asking, wire)
        async with asyncio.timeout(20):
            return await loop.sock_recv(asking, 65535)


async def over_tcp(port: int, *wires: bytes) -> list[bytes]:
    """Return the answers of queries that are sent together on one connection."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"".join(len(each).to_bytes(2, "big") + each for each in wires))
            found = []
            for _ in wires:
                length = int.from_bytes(await reader.readexactly(2), "big")
                found.append(await reader.readexactly(length))
            return found
        finally:
            writer.close()
