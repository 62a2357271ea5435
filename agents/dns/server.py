"""The server: the cluster by informers, and the addresses that it listens on.

server = DnsServer(informers, settings, clock, log)
await server.start()                    follows the cluster
port = await server.listen("10.244.0.1", 53)
await server.stop()
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any, Final

from kvstack.agents.client.built_in import ENDPOINT_SLICES, NAMESPACES, NODES, PODS, SERVICES
from kvstack.agents.client.informer import Handler, Informer
from kvstack.agents.client.informers import Informers
from kvstack.agents.dns import cluster as clusters
from kvstack.agents.dns.clients import PER_SECOND, Clients, Network
from kvstack.agents.dns.cluster import VERIFIED, Cluster
from kvstack.agents.dns.faults import Faults
from kvstack.agents.dns.forwarding.forwarder import Forwarder, Forwarding
from kvstack.agents.dns.programming import Programming
from kvstack.agents.dns.responder import Responder
from kvstack.agents.dns.search_paths import WITHOUT_ADDRESS, SearchPaths
from kvstack.agents.dns.services import service_key
from kvstack.agents.dns.sockets import check_host, is_own, open_pair
from kvstack.agents.dns.tcp_port import TcpPort
from kvstack.agents.dns.traffic import Traffic
from kvstack.agents.dns.udp_port import UdpPort
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

PREFIX_MIN: Final = {4: 16, 6: 48}
"""The shortest prefix of a node's range: no node has more pods."""
ADDRESSES_MAX: Final = 32
"""The maximum number of addresses of a node."""


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """Settings of a DNS server."""

    zone: clusters.Options = field(default_factory=clusters.Options)
    forwarding: Forwarding | None = None
    """Settings for names outside of the cluster; None: they are refused."""
    clients: Sequence[Network] = ()
    """Ranges of clients that may ask."""
    nodes_may_ask: bool = False
    """Whether the nodes of the cluster and their pods may ask, too."""
    machine_may_ask: bool = False
    """Whether this machine may, by any address of its own: rules of the proxy choose one."""
    per_second: int = PER_SECOND
    """Queries of one client."""
    searches_of_node: Callable[[], Sequence[str]] | None = None
    """Domains that nodes search; None: search paths of pods are not walked here."""


class DnsServer:
    """Answers for a cluster; belongs to one loop."""

    def __init__(
        self, informers: Informers, settings: DnsSettings, clock: Clock, logger: Logger
    ) -> None:
        self._informers = informers
        self._settings = settings
        self._clock = clock
        self._logger = logger
        self.cluster: Final = Cluster(settings.zone)
        self.forwarder: Final = (
            None if settings.forwarding is None else Forwarder(settings.forwarding, clock, logger)
        )
        searches, domain = settings.searches_of_node, settings.zone.domain
        self._paths = None if searches is None else SearchPaths(domain, searches)
        self.responder: Final = Responder(self.cluster, self.forwarder, self._paths)
        self.clients: Final = Clients(
            settings.clients, settings.per_second, is_own if settings.machine_may_ask else None
        )
        self.traffic: Final = Traffic()
        self.faults: Final = Faults(clock, logger)
        self.programming: Final = Programming()
        self._handlers: list[tuple[Informer, Handler]] = []
        self._ports: list[UdpPort | TcpPort] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._nodes: dict[str, tuple[Network, ...]] = {}

    @property
    def is_synced(self) -> bool:
        """Whether the whole cluster is synced."""
        return self.responder.is_synced

    async def start(self) -> None:
        """Follow the cluster; queries are answered once it is synced."""
        informers = self._informers
        self._follow(informers.of(SERVICES), self._on_service)
        self._follow(informers.of(ENDPOINT_SLICES), self._on_slice)
        self._follow(informers.of(NAMESPACES), self._on_namespace)
        if self._settings.zone.pods == VERIFIED:
            self._follow(informers.of(PODS), self._on_pod)
        if self._paths is not None:
            self._follow(informers.of(PODS), self._on_search_path)
        if self._settings.nodes_may_ask:
            self._follow(informers.of(NODES), self._on_node)
        self._begin(self._sync(), "DNS: the cluster becomes known")

    async def listen(self, host: str, port: int) -> int:
        """Listen at an address; return the port (0: any); raises ConfigError."""
        check_host(host)
        datagrams, streams = open_pair(host, port)
        bound: int = datagrams.getsockname()[1]
        shared = (self.responder, self.clients, self.traffic, self.faults, self._clock)
        ports = UdpPort(datagrams, *shared), TcpPort(streams, *shared, self._logger)
        for each in ports:
            each.start()
        self._ports += ports
        if self.forwarder is not None and len(self._ports) == len(ports):
            self._begin(self.forwarder.probe(), "DNS: do resolvers lead back")
        return bound

    async def stop(self) -> None:
        """Stop answering and following."""
        for informer, handler in self._handlers:
            informer.forget(handler)
        self._handlers.clear()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for port in self._ports:
            await port.stop()
        if self.forwarder is not None:
            await self.forwarder.close()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    def _follow(self, informer: Informer, handler: Handler) -> None:
        informer.on_change(handler)
        self._handlers.append((informer, handler))

    async def _sync(self) -> None:
        for informer, _ in self._handlers:
            await informer.synced()
        self.responder.is_synced = True
        self._logger.info("DNS of the cluster is synced", domain=self._settings.zone.domain)

    # Changes.

    def _on_service(self, old: Object | None, new: Object | None) -> None:
        now_s = self._clock.now_s()
        if new is not None:
            self.responder.changed(self.cluster.put_service(new, now_s))
        elif old is not None:
            meta = old["metadata"]
            key = meta["namespace"], meta["name"]
            self.cluster.drop_service(key, now_s)
            self.responder.changed(key)

    def _on_slice(self, old: Object | None, new: Object | None) -> None:
        now_s = self._clock.now_s()
        if old is not None and (new is None or service_key(old) != service_key(new)):
            self.responder.changed(self.cluster.drop_slice(old, now_s))
        if new is not None:
            key = self.cluster.put_slice(new, now_s)
            self.responder.changed(key)
            is_headless = self.cluster.is_headless(key) if key is not None else None
            if self.is_synced and is_headless is not None:  # before, slices are old
                self.programming.count(old, new, now_s, is_headless=is_headless)

    def _on_namespace(self, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self.cluster.drop_namespace(old["metadata"]["name"])
        elif old is None and new is not None:
            self.cluster.put_namespace(new["metadata"]["name"])
        self.responder.changed(None)

    def _on_pod(self, old: Object | None, new: Object | None) -> None:
        before, after = _addresses(old), _addresses(new)
        if before == after:
            return
        shown = new or old or {}
        meta = shown["metadata"]
        self.cluster.drop_pod(meta["namespace"], meta["name"], before)
        self.cluster.put_pod(meta["namespace"], meta["name"], after)
        self.responder.changed(None)

    def _on_search_path(self, old: Object | None, new: Object | None) -> None:
        if self._paths is not None:
            if old is not None:
                self._paths.drop(old)
            if new is not None:
                self._paths.put(new)

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        if new is not None:
            name, networks = new["metadata"]["name"], networks_of(new)
            if self._nodes.get(name) == networks:
                return
            self._nodes[name] = networks
        elif old is not None:
            self._nodes.pop(old["metadata"]["name"], None)
        self.clients.add(network for each in self._nodes.values() for network in each)


def networks_of(node: Object) -> tuple[Network, ...]:
    """Return the addresses of a node, and those of its pods.

    A node writes them itself: ranges that are wider than those of a node's pods are left out, as
    one would let everybody ask.
    """
    networks: list[Network] = []
    for text in node.get("spec", {}).get("podCIDRs") or ():
        with suppress(ValueError):
            network = ip_network(text, strict=False)
            if network.prefixlen >= PREFIX_MIN[network.version]:
                networks.append(network)
    for each in (node.get("status", {}).get("addresses") or ())[:ADDRESSES_MAX]:
        with suppress(ValueError):  # else a name
            networks.append(ip_network(ip_address(each.get("address", ""))))
    return tuple(networks)


def _addresses(pod: Object | None) -> list[str]:
    status = (pod or {}).get("status") or {}
    if status.get("phase") in WITHOUT_ADDRESS:
        return []
    return [each["ip"] for each in status.get("podIPs") or () if each.get("ip")]
