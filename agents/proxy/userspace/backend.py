"""The mode without rules: listeners for node ports, addresses of this machine and cluster IPs.

    backend = UserspaceBackend(("192.0.2.5", "127.0.0.1"), LocalRanges(4, logger), logger)

Cluster IPs need the right to make their range local (see `local_ranges`); node ports need none. A
port without endpoints has no listener, so connections to it are refused. An address that cannot be
listened on is logged once, and tried again when the Service changes. Endpoints see an address of
this machine as the client's.
"""

from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from typing_extensions import override

from kvstack.agents.proxy.backend import Backend
from kvstack.agents.proxy.choice import Served, Verdict
from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.endpoints import Endpoint
from kvstack.agents.proxy.services import PortName
from kvstack.agents.proxy.userspace.balancer import Balancer
from kvstack.agents.proxy.userspace.local_ranges import LocalRanges
from kvstack.component.logger import Logger
from kvstack.component.net.relay import Relay, Room, TcpRelay, UdpRelay

MODE: Final = "userspace"


class _ListenAddress(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class OwnEndpoint(NamedTuple):
    """What this machine serves a port of a Service by, which no slice may name: it is loopback."""

    name: PortName
    endpoint: Endpoint
    clients: tuple[str, ...]
    """The ranges of those that may connect; others are reset."""


class _Side(NamedTuple):
    """A port of a Service as it is reached from inside or outside: policies differ."""

    name: PortName
    is_internal: bool


class _Listening(NamedTuple):
    """What listens for one side of a port."""

    balancer: Balancer
    relays: dict[_ListenAddress, Relay | None]
    """None: it cannot be had."""
    source_ranges: tuple[str, ...]
    """From where it may be reached; empty: from everywhere."""


class UserspaceBackend(Backend):
    """Listens for one family."""

    def __init__(
        self,
        node_ips: tuple[str, ...],
        ranges: LocalRanges | None,
        logger: Logger,
        own: OwnEndpoint | None = None,
    ) -> None:
        """node_ips: where node ports are served; external addresses are, if they are among them.

        ranges: makes cluster IPs local; None: they are not served.
        """
        self._node_ips = node_ips
        self._ranges = ranges
        self._own = own
        self._logger = logger
        self._room = Room()
        self._listening: dict[_Side, _Listening] = {}

    @property
    @override
    def mode(self) -> str:
        return MODE

    @override
    async def write(self, changes: Changes, view: ClusterView) -> None:
        for name, served in changes.items():
            if served is None:
                self._drop_port(name)
        for served in changes.values():
            if served is not None:
                await self._serve(served)

    @override
    async def write_all(self, view: ClusterView) -> None:
        every = list(view.served())
        for name in {side.name for side in self._listening} - {each.port.name for each in every}:
            self._drop_port(name)
        for served in every:
            await self._serve(served)

    @override
    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        return self._ranges is not None and self._ranges.use(ranges)

    @override
    async def is_there(self) -> bool:
        return True

    @override
    async def tidy(self) -> None:
        pass  # nothing is left behind

    @override
    async def close(self) -> None:
        for side in list(self._listening):
            self._drop(side)
        if self._ranges is not None:
            self._ranges.close()

    def _drop_port(self, name: PortName) -> None:
        self._drop(_Side(name, is_internal=False))
        self._drop(_Side(name, is_internal=True))

    def _drop(self, side: _Side) -> None:
        listening = self._listening.pop(side, None)
        for relay in listening.relays.values() if listening else ():
            if relay is not None:
                relay.close()

    async def _serve(self, served: Served) -> None:
        name = served.port.name
        await self._serve_side(
            _Side(name, is_internal=False),
            served,
            self._external_addresses(served),
            served.external_endpoints,
            served.port.source_ranges,
        )
        own = self._own if self._own is not None and self._own.name == name else None
        await self._serve_side(
            _Side(name, is_internal=True),
            served,
            self._internal_addresses(served, has_own=own is not None),
            served.internal_endpoints if own is None else (own.endpoint,),
            () if own is None else (*own.clients, served.port.cluster_ip),
        )

    async def _serve_side(
        self,
        side: _Side,
        served: Served,
        addresses: set[_ListenAddress],
        endpoints: tuple[Endpoint, ...],
        source_ranges: tuple[str, ...],
    ) -> None:
        listening = self._listening.get(side)
        if listening is not None and listening.source_ranges != source_ranges:
            self._drop(side)
            listening = None
        if listening is None:
            if not addresses:
                return
            listening = self._listening[side] = _Listening(Balancer(), {}, source_ranges)
        listening.balancer.use(endpoints, served.port.affinity_s)
        for address in listening.relays.keys() - addresses:
            relay = listening.relays.pop(address)
            if relay is not None:
                relay.close()
        for address in addresses - listening.relays.keys():
            listening.relays[address] = await self._listen(served, address, listening)
        if not listening.relays:
            del self._listening[side]

    def _external_addresses(self, served: Served) -> set[_ListenAddress]:
        port = served.port
        if served.external is not Verdict.ENDPOINTS or port.name.protocol == "SCTP":
            return set()
        node_ports = {_ListenAddress(ip, port.node_port) for ip in self._node_ips if port.node_port}
        own = [ip for ip in (*port.external_ips, *port.balancer_ips) if ip in self._node_ips]
        return node_ports | {_ListenAddress(ip, port.port) for ip in own}

    def _internal_addresses(self, served: Served, *, has_own: bool) -> set[_ListenAddress]:
        port = served.port
        has_endpoints = has_own or served.internal is Verdict.ENDPOINTS
        if not has_endpoints or port.name.protocol == "SCTP":
            return set()
        if self._ranges is None or not self._ranges.has(port.cluster_ip):
            return set()
        return {_ListenAddress(port.cluster_ip, port.port)}

    async def _listen(
        self, served: Served, address: _ListenAddress, listening: _Listening
    ) -> Relay | None:
        port, balancer = served.port, listening.balancer
        ranges = listening.source_ranges if address.port != port.node_port else ()

        def may(client: str) -> bool:
            return _is_in(client, ranges)

        is_tcp = port.name.protocol == "TCP"
        relay: Relay = TcpRelay(balancer, self._room, may) if is_tcp else UdpRelay(balancer, may)
        try:
            await relay.listen(address.host, address.port)
        except OSError as error:
            self._logger.warning(
                "a port of a Service is not served",
                service=port.name.text,
                address=f"{address.host}:{address.port}",
                reason=str(error),
            )
            return None
        return relay


def _is_in(client: str, ranges: tuple[str, ...]) -> bool:
    return not ranges or any(ip_address(client) in ip_network(each) for each in ranges)
