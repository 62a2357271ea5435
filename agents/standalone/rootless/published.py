"""Ports of a node in a user namespace on the machine: listeners outside, passed on inside.

    async with passed_on(outside, ("127.0.0.1", 6443), logger): …      the API server
    ports = PublishedPorts(outside, informers, ("vm", "10.0.2.100"), logger)
    await ports.start(); …; await ports.stop()

Node ports of Services, and ports of the node that pods ask for (hostPort), are listened on at
127.0.0.1 of the machine, and at no other address. Those below 1024 are left out: an ordinary user
may not listen there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from ipaddress import ip_address
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.client.informers import Informers
from kvstack.agents.standalone.rootless.outside import Outside, OutsideError
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.logger import Logger
from kvstack.component.net import hosts
from kvstack.component.net.relay import Destination, Relay, Room, Single, TcpRelay, UdpRelay

LOOPBACK: Final = "127.0.0.1"
ANYWHERE: Final = "0.0.0.0"
_FIRST_UNPRIVILEGED: Final = 1024
PORTS_MAX: Final = 1_000
_GAP_S: Final = 0.1
"""The delay before changes are handled, so that simultaneous ones are handled at once."""
_PROTOCOLS: Final = ("tcp", "udp")


class PublishedPort(NamedTuple):
    """A port of the machine."""

    protocol: str
    port: int


@contextlib.asynccontextmanager
async def passed_on(
    outside: Outside, address: tuple[str, int], logger: Logger
) -> AsyncIterator[None]:
    """Pass connections to an address of the machine on to the same one inside; OutsideError."""
    host, port = address
    own = await asyncio.to_thread(outside.listen, "tcp", host, port)
    relay = TcpRelay(Single(Destination(_inside(host), port)), Room())
    await relay.take(own)
    logger.debug("connections from outside are passed on", host=host, port=port)
    try:
        yield
    finally:
        relay.close()


def _inside(host: str) -> str:
    """Return where a listener of an address of the machine is reached inside."""
    try:
        address = ip_address(host)
    except ValueError:
        return host  # localhost
    return hosts.LOOPBACK[address.version] if address.is_unspecified else host


def published(
    services: Iterable[Object], pods: Iterable[Object], node: str
) -> dict[PublishedPort, str]:
    """Return the ports that Services have, and pods of a node.

    Each with its address there; empty: any.
    """
    targets: dict[PublishedPort, str] = {}
    for service in services:
        for port in service["spec"].get("ports") or ():
            targets[PublishedPort(_protocol(port), port.get("nodePort") or 0)] = ""
    for pod in pods:
        if is_ended(pod) or pod["spec"].get("nodeName") != node:
            continue
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                address = port.get("hostIP") or ""
                key = PublishedPort(_protocol(port), port.get("hostPort") or 0)
                targets[key] = "" if address == ANYWHERE else address
    return {
        each: address
        for each, address in targets.items()
        if each.protocol in _PROTOCOLS and each.port >= _FIRST_UNPRIVILEGED
    }


def _protocol(port: Object) -> str:
    return str(port.get("protocol") or "TCP").lower()


class PublishedPorts:
    """Ports of Services and pods, on the machine's loopback."""

    def __init__(
        self, outside: Outside, informers: Informers, node: tuple[str, str], logger: Logger
    ) -> None:
        """node: its name, and its address inside."""
        self._outside = outside
        self._informers = informers
        self._node, self._address = node
        self._logger = logger
        self._room = Room()
        self._relays: dict[tuple[PublishedPort, str], Relay | None] = {}
        """Listeners by the port and its target; None: the port is in use."""
        self._left_out = 0
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start; existing ports are published soon after."""
        for each in (SERVICES, PODS):
            self._informers.of(each).on_change(self._on_change)
        self._changed.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="published ports")

    async def stop(self) -> None:
        """Stop publishing."""
        for each in (SERVICES, PODS):
            self._informers.of(each).forget(self._on_change)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for relay in self._relays.values():
            if relay is not None:
                relay.close()
        self._relays.clear()

    def _on_change(self, _old: Object | None, _new: Object | None) -> None:
        self._changed.set()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(_GAP_S)
            self._changed.clear()
            await self._settle()

    async def _settle(self) -> None:
        services, pods = (self._informers.of(each).store for each in (SERVICES, PODS))
        desired = published(services, pods, self._node).items()
        for gone in self._relays.keys() - desired:
            relay = self._relays.pop(gone)
            if relay is not None:
                relay.close()
        missing = sorted(desired - self._relays.keys())
        room = PORTS_MAX - len(self._relays)
        for port, address in missing[:room]:
            self._relays[port, address] = await self._publish(port, address or self._address)
        self._tell_left_out(len(missing[room:]))

    def _tell_left_out(self, count: int) -> None:
        if count > self._left_out:
            text = "ports are not reached from the machine: there are too many"
            self._logger.warning(text, left_out=count, limit=PORTS_MAX)
        self._left_out = count

    async def _publish(self, new: PublishedPort, address: str) -> Relay | None:
        """Listen on a port; None: it is in use, until it is requested again."""
        try:
            own = await asyncio.to_thread(self._outside.listen, new.protocol, LOOPBACK, new.port)
        except OutsideError as error:
            self._logger.warning(
                "a port is not reached from the machine", port=new.port, reason=str(error)
            )
            return None
        target = Single(Destination(address, new.port))
        is_tcp = new.protocol == "tcp"
        relay: Relay = TcpRelay(target, self._room) if is_tcp else UdpRelay(target)
        await relay.take(own)
        return relay
