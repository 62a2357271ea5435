"""DNS as a part of `kvstack up`: the addresses that it listens on, and who may ask.

    with pods in networks of their own    the first address of the node's range: its bridge's
    else, with a node that runs pods      its address, a port that is free
    without such a node                   the loopback

It listens on nothing else. Only the cluster's nodes and pods may ask. Its metrics are at the same
address, port 9153 or one that is free, for the same clients.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Final
from urllib.parse import urlsplit

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.informers import Informers
from kvstack.agents.dns.clients import Network
from kvstack.agents.dns.cluster import Options
from kvstack.agents.dns.forwarding.exchange import Resolver
from kvstack.agents.dns.forwarding.forwarder import Forwarding
from kvstack.agents.dns.forwarding.node_resolvers import NodeResolvers
from kvstack.agents.dns.pages import METRICS, DnsPages
from kvstack.agents.dns.publishing.kube_dns import Endpoint, KubeDns
from kvstack.agents.dns.server import DnsServer, DnsSettings
from kvstack.agents.dns.sockets import is_own
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.hosts import join_host_port

PORT: Final = 53
METRICS_PORT: Final = 9153
_ADDRESS_S: Final = 0.1
_ADDRESS_S_MAX: Final = 5.0
DOMAIN: Final = "cluster.local"


@dataclass(frozen=True, slots=True)
class LocalDnsOptions:
    """Settings of DNS in this process."""

    node: str
    """Its name."""
    address: str
    """The address to listen on if pods have no networks of their own."""
    service_ip: str
    """The cluster IP of the Service kube-dns."""
    has_bridge: bool = False
    """Whether pods of this node have networks of their own."""
    ranges: Sequence[Network] = ()
    """The ranges of all pods of the cluster."""
    walks: bool = False
    """Whether the search paths of pods are tried by the server."""


class LocalDns:
    """The server, and the objects that lead to it."""

    def __init__(
        self, api: Api, informers: Informers, clock: Clock, logger: Logger, options: LocalDnsOptions
    ) -> None:
        """api: as the user who keeps the objects."""
        self._informers = informers
        self._clock = clock
        self._logger = logger
        self._options = options
        own, of_node = ip_network(options.address), NodeResolvers(clock)
        settings = DnsSettings(
            Options(DOMAIN),
            Forwarding(of_node, own=frozenset((Resolver(options.service_ip),))),
            (ip_network("127.0.0.0/8"), ip_network("::1"), own, *options.ranges),
            nodes_may_ask=True,
            machine_may_ask=True,
            searches_of_node=of_node.searches if options.walks else None,
        )
        self._server = DnsServer(informers, settings, clock, logger)
        self._objects = KubeDns(api, informers, options.node, options.service_ip, logger)
        self._range = asyncio.Event()
        self._follows = False
        self._pages: DnsPages | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start; if pods have networks of their own, it listens once the node has its range."""
        await self._server.start()
        self._objects.start()
        if self._options.has_bridge:
            self._informers.of(NODES).on_change(self._on_node)
            self._follows = True
        else:
            self._range.set()
        self._task = asyncio.get_running_loop().create_task(self._listen(), name="DNS")

    async def stop(self) -> None:
        """Stop answering."""
        if self._follows:
            self._informers.of(NODES).forget(self._on_node)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._objects.stop()
        if self._pages is not None:
            await self._pages.stop()
        await self._server.stop()

    def _on_node(self, _old: Object | None, new: Object | None) -> None:
        is_own = new is not None and new["metadata"]["name"] == self._options.node
        if is_own and self._range_of(new or {}):
            self._range.set()

    async def _listen(self) -> None:
        await self._range.wait()
        address = self._options.address
        if self._options.has_bridge:
            node = self._informers.of(NODES).store.get(self._options.node)
            found = self._range_of(node or {})
            if found is None:
                return  # the node is gone again
            address = str(found[1])  # the bridge's
        port = await self._bind(address)
        if port:
            self._objects.answers_at(Endpoint(address, port))
            await self._await_address(address)
            metrics_port = await self._serve_metrics(address, port)
            self._objects.answers_at(Endpoint(address, port, metrics_port))

    async def _bind(self, address: str) -> int:
        """Return the port that names are answered on; 0: none."""
        for port in (PORT, 0) if self._options.has_bridge else (0,):
            try:
                bound = await self._server.listen(address, port)
            except ConfigError as error:
                self._logger.warning("DNS cannot listen", reason=str(error))
            else:
                self._logger.info("DNS is serving", address=address, port=bound)
                return bound
        return 0

    async def _await_address(self, address: str) -> None:
        """Wait until this machine has an address: the bridge is made after the range is known."""
        wait_s = _ADDRESS_S
        while not is_own(address):
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _ADDRESS_S_MAX)

    async def _serve_metrics(self, address: str, dns_port: int) -> int:
        """Return the port of the metrics, for the clients of DNS alone; 0: none."""
        for port in (METRICS_PORT, 0) if self._options.has_bridge else (0,):
            pages = DnsPages(
                self._server,
                f"dns://:{dns_port}",
                {METRICS: join_host_port(address, port)},
                self._clock,
                self._server.clients.allows,
            )
            try:
                await pages.start()
            except (ComponentError, OSError) as error:
                self._logger.warning("metrics of DNS cannot be served", reason=str(error))
                continue
            self._pages = pages
            bound = urlsplit(pages.urls[0]).port or 0
            self._logger.info("metrics of DNS are served", address=address, port=bound)
            return bound
        return 0

    def _range_of(self, node: Object) -> Network | None:
        """Return the range of a node's pods that is of the family of the Service."""
        family = ip_address(self._options.service_ip).version
        every = map(ip_network, (node.get("spec") or {}).get("podCIDRs") or ())
        return next((each for each in every if each.version == family), None)
