"""The registered CSI drivers of a node, and their CSIDriver objects.

    drivers.add(driver);  drivers.remove("d.example.com")
    client = drivers.client("d.example.com")          DriverError: it has not registered
    obj = await drivers.object("d.example.com")       None: it does not exist

CSIDrivers are watched from the first registration on: most nodes have no driver.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CSI_DRIVERS
from kvstack.agents.client.informer import Informer
from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.csi.node_client import NodeClient


_SYNC_S: Final = 30.0


class Driver(NamedTuple):
    """A driver that has registered."""

    client: "NodeClient"
    version: tuple[int, ...]
    """The highest of the protocol that it speaks."""
    socket: str
    """The socket by which it registered."""


class Drivers:
    """The registered drivers of a node; used on one loop."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
    ) -> None:
        self._drivers: dict[str, Driver] = {}
        self._informer = Informer(api, CSI_DRIVERS, clock, random, logger)
        self._task: asyncio.Task[None] | None = None
        self.on_change: Callable[[str], None] = lambda _name: None
        """Called with the name of a driver that has registered, or is gone."""

    def add(self, driver: Driver) -> None:
        """Add a driver; one of the same name is replaced."""
        self.watch_objects()
        self._drivers[driver.client.name] = driver
        self.on_change(driver.client.name)

    def remove(self, name: str) -> None:
        """Forget a driver."""
        if self._drivers.pop(name, None) is not None:
            self.on_change(name)

    def find(self, name: str) -> Driver | None:
        """Return a driver; None: none of this name has registered."""
        return self._drivers.get(name)

    def names(self) -> Sequence[str]:
        """Return the names of all drivers."""
        return sorted(self._drivers)

    def client(self, name: str) -> "NodeClient":
        """Return what asks a driver; DriverError."""
        driver = self._drivers.get(name)
        if driver is None:
            text = f"driver name {name} not found in the list of registered CSI drivers"
            raise DriverError(text)
        return driver.client

    def watch_objects(self) -> None:
        """Watch CSIDrivers from now on."""
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._informer.run(), name="informer of CSI drivers")

    async def object(self, name: str) -> Object | None:
        """Return the CSIDriver of a driver; None: there is none. DriverError: not known yet."""
        self.watch_objects()
        try:
            async with asyncio.timeout(_SYNC_S):
                await self._informer.synced()
        except TimeoutError as error:
            text = f"CSIDrivers have not been read within {_SYNC_S:.0f} s"
            raise DriverError(text) from error
        return self._informer.store.get(name)

    def known_object(self, name: str) -> Object | None:
        """Return the CSIDriver of a driver, as far as it is known by now."""
        return self._informer.store.get(name)

    async def close(self) -> None:
        """Watch nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
