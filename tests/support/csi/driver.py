"""A CSI driver of the tests: its volumes are directories, on one node, and it misbehaves on demand.

    async with running(Driver("d.example.com", tmp_path / "data"), socket) as driver: …
    async with registered(driver, node_root) as driver: …       as node-driver-registrar does it

    driver.hangs = {"NodePublishVolume"};  driver.refuses["NodeStageVolume"] = (code, text)
    driver.garbles = {"NodeGetInfo"};      driver.requests("NodePublishVolume")

Published volumes are bind mounts where the test is root; elsewhere they are empty directories.
"""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from typing_extensions import override

from kvstack.agents.kubelet.csi.gen import node_pb2 as node
from kvstack.agents.kubelet.csi.gen import registration_pb2 as registration
from kvstack.agents.kubelet.disk.mount_table import points_below
from tests.support.csi.gen import controller_pb2 as controller

TOPOLOGY = "topology.d.example.com/shelf"
_RPC = node.NodeServiceCapability.RPC
_ALL = (
    _RPC.STAGE_UNSTAGE_VOLUME,
    _RPC.GET_VOLUME_STATS,
    _RPC.EXPAND_VOLUME,
    _RPC.SINGLE_NODE_MULTI_WRITER,
)


class Driver(grpc.GenericRpcHandler):
    """Identity, controller and node services of one driver."""

    def __init__(self, name: str, data: Path, *, mounts: bool | None = None) -> None:
        self.name = name
        self.data = data
        self.node_id = "shelf-node"
        self.volumes_max = 0
        self.topology = {TOPOLOGY: "a"}
        self.abilities = list(_ALL)
        self.calls: list[tuple[str, Any]] = []
        self.hangs: set[str] = set()
        self.garbles: set[str] = set()
        self.refuses: dict[str, tuple[grpc.StatusCode, str]] = {}
        self.needs_node_expansion = True
        self.sizes: dict[str, int] = {}
        self._mounts = os.geteuid() == 0 if mounts is None else mounts

    def requests(self, method: str) -> list[Any]:
        """Return the requests of a method, in order."""
        return [request for name, request in self.calls if name == method]

    @override
    def service(self, handler_call_details: Any) -> Any:
        _, service, method = handler_call_details.method.split("/")
        messages = node if service == "csi.v1.Node" else controller
        request = getattr(messages, f"{method}Request", None)
        answer = getattr(self, method, None)
        if request is None or answer is None:
            return None

        async def handle(data: bytes, context: Any) -> bytes:
            parsed = request.FromString(data)
            self.calls.append((method, parsed))
            if method in self.hangs:
                await asyncio.Event().wait()
            if method in self.refuses:
                await context.abort(*self.refuses[method])
            if method in self.garbles:
                return b"\xff\xff\xff garbage"
            done: bytes = (await asyncio.to_thread(answer, parsed)).SerializeToString()
            return done

        return grpc.unary_unary_rpc_method_handler(handle)

    # Identity and controller.

    def GetPluginInfo(self, _request: Any) -> Any:  # noqa: N802 - as the method is called
        return controller.GetPluginInfoResponse(name=self.name, vendor_version="1")

    def Probe(self, _request: Any) -> Any:  # noqa: N802
        return controller.ProbeResponse()

    def CreateVolume(self, request: Any) -> Any:  # noqa: N802
        (self.data / request.name).mkdir(parents=True, exist_ok=True)
        self.sizes[request.name] = request.capacity_range.required_bytes
        volume = controller.CreatedVolume(
            capacity_bytes=self.sizes[request.name],
            volume_id=request.name,
            volume_context=dict(request.parameters),
            accessible_topology=[controller.Place(segments=self.topology)],
        )
        return controller.CreateVolumeResponse(volume=volume)

    def DeleteVolume(self, request: Any) -> Any:  # noqa: N802
        shutil.rmtree(self.data / request.volume_id, ignore_errors=True)
        return controller.DeleteVolumeResponse()

    def ControllerPublishVolume(self, request: Any) -> Any:  # noqa: N802
        context = {"attached-to": request.node_id}
        return controller.ControllerPublishVolumeResponse(publish_context=context)

    def ControllerUnpublishVolume(self, _request: Any) -> Any:  # noqa: N802
        return controller.ControllerUnpublishVolumeResponse()

    def ControllerExpandVolume(self, request: Any) -> Any:  # noqa: N802
        size = self.sizes[request.volume_id] = request.capacity_range.required_bytes
        return controller.ControllerExpandVolumeResponse(
            capacity_bytes=size, node_expansion_required=self.needs_node_expansion
        )

    # Node.

    def NodeGetInfo(self, _request: Any) -> Any:  # noqa: N802
        return node.NodeGetInfoResponse(
            node_id=self.node_id,
            max_volumes_per_node=self.volumes_max,
            accessible_topology=node.Topology(segments=self.topology),
        )

    def NodeGetCapabilities(self, _request: Any) -> Any:  # noqa: N802
        entries = [
            node.NodeServiceCapability(rpc=node.NodeServiceCapability.RPC(type=each))
            for each in self.abilities
        ]
        return node.NodeGetCapabilitiesResponse(capabilities=entries)

    def NodeStageVolume(self, request: Any) -> Any:  # noqa: N802
        source = self.data / request.volume_id
        source.mkdir(parents=True, exist_ok=True)
        if request.volume_capability.WhichOneof("access_type") == "mount":
            self._mount(source, Path(request.staging_target_path))
        return node.NodeStageVolumeResponse()

    def NodeUnstageVolume(self, request: Any) -> Any:  # noqa: N802
        _unmount(Path(request.staging_target_path))
        return node.NodeUnstageVolumeResponse()

    def NodePublishVolume(self, request: Any) -> Any:  # noqa: N802
        target = Path(request.target_path)
        if request.volume_capability.WhichOneof("access_type") == "block":
            target.symlink_to(request.volume_context["device"])
            return node.NodePublishVolumeResponse()
        source = self.data / request.volume_id
        source.mkdir(parents=True, exist_ok=True)
        target.mkdir(exist_ok=True)
        self._mount(Path(request.staging_target_path or source), target)
        return node.NodePublishVolumeResponse()

    def NodeUnpublishVolume(self, request: Any) -> Any:  # noqa: N802
        target = Path(request.target_path)
        _unmount(target)
        if target.is_symlink():
            target.unlink()
        elif target.is_dir():
            target.rmdir()
        return node.NodeUnpublishVolumeResponse()

    def NodeExpandVolume(self, request: Any) -> Any:  # noqa: N802
        size = self.sizes[request.volume_id] = request.capacity_range.required_bytes
        return node.NodeExpandVolumeResponse(capacity_bytes=size)

    def NodeGetVolumeStats(self, request: Any) -> Any:  # noqa: N802
        total = self.sizes.get(request.volume_id, 1 << 20)
        usage = node.VolumeUsage(
            available=total - 7, total=total, used=7, unit=node.VolumeUsage.BYTES
        )
        inodes = node.VolumeUsage(available=3, total=4, used=1, unit=node.VolumeUsage.INODES)
        return node.NodeGetVolumeStatsResponse(usage=[usage, inodes])

    def _mount(self, source: Path, target: Path) -> None:
        if self._mounts and not points_below(target):
            subprocess.run(["mount", "--bind", source, target], check=True)


def _unmount(path: Path) -> None:
    if points_below(path):
        subprocess.run(["umount", path], check=True)


class _Registrar(grpc.GenericRpcHandler):
    """Says who the driver is, as node-driver-registrar does."""

    def __init__(self, info: registration.PluginInfo) -> None:
        self.info = info
        self.statuses: list[registration.RegistrationStatus] = []
        self.hangs = False

    @override
    def service(self, handler_call_details: Any) -> Any:
        async def get_info(_data: bytes, _context: Any) -> bytes:
            if self.hangs:
                await asyncio.Event().wait()
            return self.info.SerializeToString()

        async def notify(data: bytes, _context: Any) -> bytes:
            self.statuses.append(registration.RegistrationStatus.FromString(data))
            return b""

        methods = {"GetInfo": get_info, "NotifyRegistrationStatus": notify}
        name = handler_call_details.method.removeprefix("/pluginregistration.Registration/")
        return grpc.unary_unary_rpc_method_handler(methods[name])


@asynccontextmanager
async def serving(handler: grpc.GenericRpcHandler, socket: Path) -> AsyncIterator[None]:
    """Serve at a socket, which is removed afterwards."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    await asyncio.to_thread(socket.parent.mkdir, parents=True, exist_ok=True)
    await asyncio.to_thread(socket.unlink, missing_ok=True)
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)
        await asyncio.to_thread(socket.unlink, missing_ok=True)


@asynccontextmanager
async def running(driver: Driver, socket: Path) -> AsyncIterator[Driver]:
    """Run a driver at its socket; nobody is told of it."""
    async with serving(driver, socket):
        yield driver


@asynccontextmanager
async def registrar(
    root: Path, name: str, endpoint: Path, *, file: str = "", **fields: Any
) -> AsyncIterator[_Registrar]:
    """Offer a driver to the kubelet of a root; file: the name of the socket for that."""
    info = registration.PluginInfo(
        type=fields.get("type", "CSIPlugin"),
        name=name,
        endpoint=str(endpoint),
        supported_versions=fields.get("versions", ["1.0.0"]),
    )
    handler = _Registrar(info)
    async with serving(handler, root / "plugins_registry" / (file or f"{name}-reg.sock")):
        yield handler


@asynccontextmanager
async def registered(driver: Driver, root: Path) -> AsyncIterator[Driver]:
    """Run a driver and register it with the kubelet of a root."""
    socket = root / "plugins" / driver.name / "csi.sock"
    async with running(driver, socket), registrar(root, driver.name, socket):
        yield driver
