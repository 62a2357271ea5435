"""What the machine reaches of a node in a user namespace: listeners outside, passed on inside.

    async with passed_on(outside, ("127.0.0.1", 6443), logger): …      the API server
    ports = PublishedPorts(outside, informers, "10.0.2.100", logger)
    await ports.start(); …; await ports.stop()

Node ports of Services, and ports of the node that pods ask for (hostPort), are listened on at
127.0.0.1 of the machine, and at no other address. Those below 1024 are left out: an ordinary user
may not listen there.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.client.informers import Informers
from kvstack.agents.standalone.rootless.outside import Outside, OutsideError
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.component.logger import Logger
from kvstack.component.net.relay import Destination, Relay, Room, Single, TcpRelay, UdpRelay

Object: TypeAlias = dict[str, Any]

LOOPBACK: Final = "127.0.0.1"
ANYWHERE: Final = "0.0.0.0"
_FIRST_UNPRIVILEGED: Final = 1024
_PORTS_MAX: Final = 1_000
_GAP_S: Final = 0.1
"""Changes that come at once are looked at once."""
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
    target = "::1" if ":" in host else LOOPBACK
    relay = TcpRelay(Single(Destination(target, port)), Room())
    await relay.take(own)
    logger.debug("connections from outside are passed on", host=host, port=port)
    try:
        yield
    finally:
        relay.close()


def published(services: Iterable[Object], pods: Iterable[Object]) -> dict[PublishedPort, str]:
    """Return the ports that Services and pods have on the node.

    Each with the address there that it is asked for at; empty: any.
    """
    found: dict[PublishedPort, str] = {}
    for service in services:
        for port in service["spec"].get("ports") or ():
            found[PublishedPort(_protocol(port), port.get("nodePort") or 0)] = ""
    for pod in pods:
        if is_ended(pod) or not pod["spec"].get("nodeName"):
            continue
        for container in pod["spec"]["containers"]:
            for port in container.get("ports") or ():
                address = port.get("hostIP") or ""
                key = PublishedPort(_protocol(port), port.get("hostPort") or 0)
                found[key] = "" if address == ANYWHERE else address
    return {
        each: address
        for each, address in found.items()
        if each.protocol in _PROTOCOLS and each.port >= _FIRST_UNPRIVILEGED
    }


def _protocol(port: Object) -> str:
    return str(port.get("protocol") or "TCP").lower()


class PublishedPorts:
    """Ports of Services and pods, on the machine's loopback."""

    def __init__(self, outside: Outside, informers: Informers, node: str, logger: Logger) -> None:
        """node: the address of the node inside."""
        self._outside = outside
        self._informers = informers
        self._node = node
        self._logger = logger
        self._room = Room()
        self._relays: dict[PublishedPort, Relay | None] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; what there is is published soon after."""
        for each in (SERVICES, PODS):
            self._informers.of(each).on_change(self._on_change)
        self._changed.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="published ports")

    async def stop(self) -> None:
        """Publish nothing any more."""
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
        wanted = published(services, pods)
        for gone in self._relays.keys() - wanted.keys():
            relay = self._relays.pop(gone)
            if relay is not None:
                relay.close()
        for new in sorted(wanted.keys() - self._relays.keys())[: _PORTS_MAX - len(self._relays)]:
            self._relays[new] = await self._publish(new, wanted[new] or self._node)

    async def _publish(self, new: PublishedPort, address: str) -> Relay | None:
        """Listen for a port; None: somebody else does, until it is asked for anew."""
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
