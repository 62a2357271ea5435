"""The mode that needs no rights: listeners for node ports and for addresses of this machine.

    backend = UserspaceBackend(("192.0.2.5", "127.0.0.1"), logger)

A port that has no endpoint has no listener: who connects is refused. What cannot be listened on is
told once and tried again when it changes. Endpoints see this machine's address as the client's.
"""

from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from typing_extensions import override

from kvstack.agents.proxy.backend import Backend
from kvstack.agents.proxy.choice import Served, Verdict
from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.services import PortName
from kvstack.agents.proxy.userspace.balancer import Balancer
from kvstack.component.logger import Logger
from kvstack.component.net.relay import Relay, Room, TcpRelay, UdpRelay

MODE: Final = "userspace"


class _ListenAddress(NamedTuple):
    """Where something listens."""

    host: str
    port: int


class _Listening(NamedTuple):
    """What listens for one port of a Service."""

    balancer: Balancer
    relays: dict[_ListenAddress, Relay | None]
    """None: it cannot be had."""
    source_ranges: tuple[str, ...]


class UserspaceBackend(Backend):
    """Listens for one family."""

    def __init__(self, node_ips: tuple[str, ...], logger: Logger) -> None:
        """node_ips: where node ports are served; external addresses are, if they are among them."""
        self._node_ips = node_ips
        self._logger = logger
        self._room = Room()
        self._listening: dict[PortName, _Listening] = {}

    @property
    @override
    def mode(self) -> str:
        return MODE

    @override
    async def write(self, changes: Changes, view: ClusterView) -> None:
        for name, served in changes.items():
            if served is None:
                self._drop(name)
        for served in changes.values():
            if served is not None:
                await self._serve(served)

    @override
    async def write_all(self, view: ClusterView) -> None:
        every = list(view.served())
        for name in self._listening.keys() - {each.port.name for each in every}:
            self._drop(name)
        for served in every:
            await self._serve(served)

    @override
    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        return False

    @override
    async def is_there(self) -> bool:
        return True

    @override
    async def tidy(self) -> None:
        pass  # nothing is left behind

    @override
    async def close(self) -> None:
        for name in list(self._listening):
            self._drop(name)

    def _drop(self, name: PortName) -> None:
        known = self._listening.pop(name, None)
        for relay in known.relays.values() if known else ():
            if relay is not None:
                relay.close()

    async def _serve(self, served: Served) -> None:
        port = served.port
        wanted = self._addresses(served)
        known = self._listening.get(port.name)
        if known is not None and known.source_ranges != port.source_ranges:
            self._drop(port.name)
            known = None
        if known is None:
            if not wanted:
                return
            known = _Listening(Balancer(), {}, port.source_ranges)
            self._listening[port.name] = known
        known.balancer.use(served.external_endpoints, port.affinity_s)
        for address in known.relays.keys() - wanted:
            relay = known.relays.pop(address)
            if relay is not None:
                relay.close()
        for address in wanted - known.relays.keys():
            known.relays[address] = await self._listen(served, address, known.balancer)
        if not known.relays:
            del self._listening[port.name]

    def _addresses(self, served: Served) -> set[_ListenAddress]:
        port = served.port
        if served.external is not Verdict.ENDPOINTS or port.name.protocol == "SCTP":
            return set()
        found = {_ListenAddress(ip, port.node_port) for ip in self._node_ips if port.node_port}
        own = [ip for ip in (*port.external_ips, *port.balancer_ips) if ip in self._node_ips]
        return found | {_ListenAddress(ip, port.port) for ip in own}

    async def _listen(
        self, served: Served, address: _ListenAddress, balancer: Balancer
    ) -> Relay | None:
        port = served.port
        ranges = port.source_ranges if address.port != port.node_port else ()

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
