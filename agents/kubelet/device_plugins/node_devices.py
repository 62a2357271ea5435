"""The devices of a node's plugins; gRPC, which is large, is loaded for the first plugin.

Until then no pod has devices, and the node has no extended resources.
"""

import asyncio
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvstack.agents.kubelet.device_plugins.names import FILE
from kvstack.agents.kubelet.device_plugins.registration_socket import RegistrationSocket
from kvstack.agents.kubelet.runtime.runtime import NO_DEVICES, DeviceNeeds
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.device_plugins.devices import Devices
    from kvstack.agents.kubelet.device_plugins.plugins import DevicePlugins

_MODULE: Final = "kvstack.agents.kubelet.device_plugins.devices"


class NodeDevices:
    """The devices of one node; used on one loop."""

    def __init__(
        self, directory: Path | None, pods: Path, on_change: Callable[[], None], logger: Logger
    ) -> None:
        """directory: where plugins register; None: none may. pods: the directories of pods."""
        self._directory = directory
        self._pods = pods
        self._on_change = on_change
        self._logger = logger
        self._registration: RegistrationSocket | None = None
        self._plugins: DevicePlugins | None = None
        self._devices: Devices | None = None

    async def start(self) -> None:
        """Let plugins register; ConfigError if that is not possible."""
        if self._directory is None:
            return
        if await asyncio.to_thread(self._pods_with_devices):
            await self._open()  # what these pods have is not given again
        self._registration = RegistrationSocket(self._directory, self._open, self._logger)
        await self._registration.start()

    async def stop(self) -> None:
        """Disconnect plugins."""
        if self._registration is not None:
            await self._registration.stop()
        if self._plugins is not None:
            await self._plugins.stop()

    def amounts(self) -> Mapping[str, tuple[int, int]]:
        """Return the capacity and the healthy devices of each resource."""
        return {} if self._plugins is None else self._plugins.amounts()

    async def give(self, pod: Object) -> tuple[str, str] | None:
        """Give a pod its devices; return reason and message if that is not possible."""
        return None if self._devices is None else await self._devices.give(pod)

    async def needs(self, uid: str, name: str) -> DeviceNeeds:
        """Return what a container needs to use its devices; StartError."""
        return NO_DEVICES if self._devices is None else await self._devices.needs(uid, name)

    def take_back(self, uid: str) -> None:
        """Take the devices of a pod back."""
        if self._devices is not None:
            self._devices.take_back(uid)

    def _pods_with_devices(self) -> list[str]:
        """Return the uids of pods to which an earlier kubelet gave devices."""
        return [each.parent.name for each in self._pods.glob(f"*/{FILE}")]

    async def _open(self) -> None:
        """Answer plugins, if that is not done yet; ConfigError."""
        if self._plugins is not None or self._directory is None:
            return
        await asyncio.to_thread(importlib.import_module, _MODULE)  # the loop goes on
        from kvstack.agents.kubelet.device_plugins.devices import Devices
        from kvstack.agents.kubelet.device_plugins.plugins import DevicePlugins

        plugins = DevicePlugins(self._directory, self._logger, self._on_change)
        devices = Devices(plugins, lambda uid: self._pods / uid, self._logger)
        devices.find(await asyncio.to_thread(self._pods_with_devices))
        await plugins.start()
        self._devices, self._plugins = devices, plugins
