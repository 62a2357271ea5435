"""CSI on one node: registration, CSINode, volumes, and periodic work.

    csi = CsiNode(api, …)
    await csi.open()          what an earlier kubelet left is known
    csi.start()               drivers may register; called once the pods of the node are known
    csi.volumes               what pods have
    await csi.close()         volumes are left as they are

gRPC is imported when the first driver registers: most nodes have none.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.agents.kubelet.csi.drivers import Drivers
from kvstack.agents.kubelet.csi.growing import Growing
from kvstack.agents.kubelet.csi.mounted_volumes import MountedVolumes
from kvstack.agents.kubelet.csi.mounting import Mounting
from kvstack.agents.kubelet.csi.node_info import NodeInfo, NodeInfoError
from kvstack.agents.kubelet.csi.plugin_sockets import PluginSockets
from kvstack.agents.kubelet.csi.secrets import Secrets
from kvstack.agents.kubelet.csi.volume_data import VolumePaths
from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.volumes.service_tokens import ServiceTokens
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.csi.registration import Registration


SOCKETS: Final = "plugins_registry"
PLUGINS: Final = "plugins"
_EVERY_S: Final = 60.0
_UPDATE_MIN_S: Final = 10.0
_GIVEN_BACK_S: Final = 10.0
"""The timeout for releasing volumes when the node ends with its pods."""
_MODE: Final = 0o750


class CsiNode:
    """CSI on one node; all of it belongs to one loop."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        recorder: EventRecorder,
        name: str,
        root: Path,
        *,
        node: Callable[[], Object],
        again: Callable[[str], None],
        report: Callable[[], None],
        call_s: float,
    ) -> None:
        """node: the Node's object; again: sync a pod, by its uid; report: update volumes in use.

        call_s: the limit of each thing that drivers are asked.
        """
        self._clock = clock
        self._logger = logger
        self._root = root
        self._call_s = call_s
        self._drivers: Final = Drivers(api, clock, random, logger)
        self._info = NodeInfo(api, node, logger)
        self._tokens = ServiceTokens(api, clock, random)
        paths, secrets = VolumePaths(root, name), Secrets(api)
        mounting = Mounting(api, self._drivers, paths, secrets, self._tokens, logger, name, report)
        growing = Growing(api, self._drivers, paths, secrets, recorder, clock, logger, name)
        self.volumes: Final = MountedVolumes(
            paths,
            self._drivers,
            mounting,
            growing,
            clock,
            logger,
            tell=lambda pod, reason, text: recorder.record(pod, "Warning", reason, text),
            again=again,
            report=report,
        )
        self._registration: Registration | None = None
        self._updated_s: dict[str, float] = {}
        """When drivers were last asked for their limits, monotonic."""
        self._busy: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Find what an earlier kubelet left; OSError."""
        for each in (SOCKETS, PLUGINS):
            (self._root / each).mkdir(mode=_MODE, parents=True, exist_ok=True)
        await self.volumes.open()

    def start(self) -> None:
        """Start plugin registration."""
        if self.volumes.uids() or self.volumes.in_use():
            self._drivers.watch_objects()
        self.volumes.clear_unused()
        sockets = PluginSockets(self._root / SOCKETS, self, self._clock, self._logger)
        spawn = asyncio.get_running_loop().create_task
        self._tasks += [
            spawn(self._info.open(), name="CSINode"),
            spawn(sockets.run(), name="registration of plugins"),
            spawn(self._keep(), name="volumes of CSI drivers"),
        ]

    async def end(self) -> None:
        """Release all volumes of pods, which have ended with the node; then stop.

        Whoever removes the directory of a node that has ended must not reach into volumes: what
        drivers do not unmount in time is unmounted without them, and given back at the next start.
        """
        if not await self.volumes.give_back(_GIVEN_BACK_S):
            text = "volumes of CSI drivers are unmounted without them"
            self._logger.warning(text, pods=sorted(self.volumes.uids()))
        await self.close()
        for directory in (self._root / "pods", self._root / PLUGINS / "kubernetes.io"):
            await asyncio.to_thread(mount_table.take_away, directory)

    async def close(self) -> None:
        """Stop; volumes are left as they are."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
                self._logger.error("a task of volumes ended", error=repr(done))
        await self.volumes.close()
        await self._drivers.close()

    def forget(self, uid: str) -> None:
        """Keep the tokens of a pod no longer."""
        self._tokens.forget(uid)

    # Plugins.

    async def register(self, path: str) -> None:
        """Register the plugin of a socket; RegistrationError."""
        await (await self._registered()).register(path)

    async def unregister(self, path: str) -> None:
        """Forget the plugin of a socket that is gone; RegistrationError."""
        await (await self._registered()).unregister(path)

    async def _registered(self) -> "Registration":
        if self._registration is None:
            name = "kvstack.agents.kubelet.csi.registration"
            module = await asyncio.to_thread(import_module, name)
            if self._registration is None:
                self._registration = module.Registration(self._drivers, self._info, self._call_s)
        return self._registration

    # What is due.

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            self.keep()

    def keep(self) -> None:
        """Start the work of each minute, except for drivers that are still busy with the last."""
        self.volumes.republish()
        for name in self._drivers.names():
            if name not in self._busy:
                self._busy.add(name)
                work = self._keep_driver(name)
                task = asyncio.get_running_loop().create_task(work, name=f"CSI driver {name}")
                self._tasks.append(task)
                task.add_done_callback(self._tasks.remove)

    async def _keep_driver(self, name: str) -> None:
        try:
            await self.volumes.measure(name)
            await self._update_limit(name)
        finally:
            self._busy.discard(name)

    async def _update_limit(self, name: str) -> None:
        """Ask a driver for its limit again, if it says how often that is to be done."""
        now_s = self._clock.monotonic_s()
        spec = (self._drivers.known_object(name) or {}).get("spec") or {}
        every_s = spec.get("nodeAllocatableUpdatePeriodSeconds")
        last_s = self._updated_s.setdefault(name, now_s)
        if not every_s or now_s - last_s < max(every_s, _UPDATE_MIN_S):
            return
        self._updated_s[name] = now_s
        try:
            await self._info.add(name, await self._drivers.client(name).info())
        except (DriverError, NodeInfoError) as error:
            text = "the limit of a CSI driver was not updated"
            self._logger.warning(text, driver=name, error=str(error))
