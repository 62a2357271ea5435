"""Registers the plugins of one node by calls to their sockets.

    kubelet ── GetInfo ─► socket                    type, name, endpoint, versions
    kubelet ── NodeGetInfo ─► endpoint              id of the node, limit, topology
    kubelet ── CSINode, labels ─► API server
    kubelet ── NotifyRegistrationStatus ─► socket   registered, or why not

CSI drivers alone register here. A name belongs to the socket that registered it first; another one
gets it with a higher version of the protocol, or once the first is gone.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.agents.kubelet.csi.drivers import Driver, Drivers
from kvstack.agents.kubelet.csi.gen import registration_pb2 as api
from kvstack.agents.kubelet.csi.node_client import NodeClient, ask
from kvstack.agents.kubelet.csi.node_info import NodeInfo, NodeInfoError
from kvstack.agents.kubelet.csi.plugin_sockets import RegistrationError
from kvstack.agents.kubelet.csi.volume import checked_driver_name

CSI: Final = "CSIPlugin"
_SERVICE: Final = "/pluginregistration.Registration"
_ANSWER_S: Final = 10.0
_VERSIONS_MAX: Final = 32
_PATH_MAX: Final = 107
_VERSION: Final = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_TEXT_MAX: Final = 1000


class Registration:
    """Registers and unregisters the plugins of one node."""

    def __init__(self, drivers: Drivers, info: NodeInfo, call_s: float) -> None:
        """call_s: the limit of what drivers are asked."""
        self._drivers = drivers
        self._info = info
        self._call_s = call_s
        self._names: dict[str, str] = {}
        """Names of drivers by the sockets that registered them."""

    async def register(self, path: str) -> None:
        """Register the plugin of a socket, and say so to it; RegistrationError."""
        if len(path) > _PATH_MAX:
            raise RegistrationError(f"a path has at most {_PATH_MAX} bytes: {path}")
        try:
            method = f"{_SERVICE}/GetInfo"
            info = await ask(path, method, api.InfoRequest(), api.PluginInfo, timeout_s=_ANSWER_S)
        except DriverError as error:
            raise RegistrationError(f"GetInfo: {error}") from error
        try:
            await self._take(path, info)
        except (RegistrationError, DriverError, NodeInfoError, ValueError) as error:
            text = str(error)[:_TEXT_MAX]
            await self._notify(path, f"plugin registration failed with err: {text}")
            raise RegistrationError(text) from error
        await self._notify(path, "")

    async def unregister(self, path: str) -> None:
        """Forget the driver of a socket that is gone; RegistrationError."""
        name = self._names.get(path)
        if name is None:
            return
        self._drivers.remove(name)
        try:
            await self._info.remove(name)
        except NodeInfoError as error:
            raise RegistrationError(str(error)) from error
        del self._names[path]

    async def _take(self, path: str, info: api.PluginInfo) -> None:
        if info.type != CSI:
            raise RegistrationError(f"no handler registered for plugin type: {info.type[:80]}")
        name = checked_driver_name(info.name)
        version = _highest(info.supported_versions)
        endpoint = info.endpoint or path
        if not Path(endpoint).is_absolute() or len(endpoint) > _PATH_MAX:
            limit = f"an absolute path of at most {_PATH_MAX} bytes"
            raise RegistrationError(f"endpoint {endpoint[:200]!r}: it is to be {limit}")
        registered = self._drivers.find(name)
        if registered is not None and registered.socket != path and registered.version >= version:
            shown = ".".join(str(part) for part in registered.version)
            raise RegistrationError(
                f'CSI driver "{name}": another driver with the same name is already registered '
                f'with a higher supported version: "{shown}"'
            )
        if self._names.get(path, name) != name:
            await self.unregister(path)  # the program at the socket is another one now
        client = NodeClient(name, endpoint, self._call_s)
        await self._info.add(name, await client.info())
        if registered is not None and registered.socket != path:
            self._names.pop(registered.socket, None)
        self._names[path] = name
        self._drivers.add(Driver(client, version, path))

    async def _notify(self, path: str, problem: str) -> None:
        status = api.RegistrationStatus(plugin_registered=not problem, error=problem)
        answer = api.RegistrationStatusResponse
        try:
            method = f"{_SERVICE}/NotifyRegistrationStatus"
            await ask(path, method, status, answer, timeout_s=_ANSWER_S)
        except DriverError as error:
            if not problem:
                await self.unregister(path)
            text = f"{problem}: NotifyRegistrationStatus: {error}".removeprefix(": ")
            raise RegistrationError(text) from error


def _highest(versions: Sequence[str]) -> tuple[int, ...]:
    """Return the highest version of the protocol that is known here; RegistrationError."""
    parsed = [_VERSION.fullmatch(each) for each in versions[:_VERSIONS_MAX]]
    numbers = [tuple(int(part or 0) for part in each.groups()) for each in parsed if each]
    known = [each for each in numbers if each[0] == 1]
    if not known:
        shown = ", ".join(each[:40] for each in versions[:_VERSIONS_MAX])
        raise RegistrationError(f"none of its versions of CSI is supported: [{shown}]; 1 is known")
    return max(known)
