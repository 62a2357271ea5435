"""A client of a CSI driver's node service.

    client = NodeClient("d.example.com", "/…/plugins/d/csi.sock")
    facts = await client.info()
    await client.publish(volume, PublishCall(path, staging_path, …))

Each call has a connection and a timeout of its own: a driver that was killed and started
again is reached at once. DriverError has the refusal, with upstream's texts, and
whether the operation may still be under way (timeout, lost connection, invalid answer).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.agents.kubelet.csi.gen import node_pb2 as api
from kvstack.agents.kubelet.csi.volume import Volume
from kvstack.agents.kubelet.volumes.volume_stats import Fill, Usage

_Answer = TypeVar("_Answer", bound=Message)

_BYTES_MAX: Final = 4 << 20
_TEXT_MAX: Final = 800
_MODES: Final = api.VolumeCapability.AccessMode
_BY_MODE: Final = {
    "ReadWriteOnce": _MODES.SINGLE_NODE_WRITER,
    "ReadOnlyMany": _MODES.MULTI_NODE_READER_ONLY,
    "ReadWriteMany": _MODES.MULTI_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODES.SINGLE_NODE_WRITER,
}
_BY_MODE_OF_MANY_WRITERS: Final = {
    **_BY_MODE,
    "ReadWriteOnce": _MODES.SINGLE_NODE_MULTI_WRITER,
    "ReadWriteOncePod": _MODES.SINGLE_NODE_SINGLE_WRITER,
}
_UNFINISHED: Final = frozenset(
    (
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
    )
)
"""Codes after which an operation may still be under way."""
_GO_NAMES: Final = {grpc.StatusCode.CANCELLED: "Canceled"}


class NodeFacts(NamedTuple):
    """The answer of NodeGetInfo."""

    node_id: str
    volumes_max: int
    """0: not reported."""
    topology: Mapping[str, str]


class Abilities(NamedTuple):
    """The capabilities of a driver's node service."""

    stages: bool = False
    tells_stats: bool = False
    expands: bool = False
    mounts_for_group: bool = False
    has_many_writers: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """The parameters that staging and publishing share."""

    abilities: Abilities
    context: Mapping[str, str] = field(default_factory=dict)
    """The publish context, from attaching the volume."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    group: int | None = None
    """The group that the driver gives the files to."""


class NodeClient:
    """Asks one driver."""

    def __init__(self, name: str, endpoint: str, call_s: float) -> None:
        """call_s: the timeout of each call."""
        self.name: Final = name
        self.endpoint: Final = endpoint
        self._call_s = call_s

    async def info(self) -> NodeFacts:
        """Return what the driver says of the node; DriverError."""
        answer = await self._ask("NodeGetInfo", api.NodeGetInfoRequest(), api.NodeGetInfoResponse)
        topology = dict(answer.accessible_topology.segments)
        return NodeFacts(answer.node_id, answer.max_volumes_per_node, topology)

    async def abilities(self) -> Abilities:
        """Return what the driver can do; DriverError."""
        request = api.NodeGetCapabilitiesRequest()
        answer = await self._ask("NodeGetCapabilities", request, api.NodeGetCapabilitiesResponse)
        kinds = {each.rpc.type for each in answer.capabilities}
        kind = api.NodeServiceCapability.RPC
        return Abilities(
            kind.STAGE_UNSTAGE_VOLUME in kinds,
            kind.GET_VOLUME_STATS in kinds,
            kind.EXPAND_VOLUME in kinds,
            kind.VOLUME_MOUNT_GROUP in kinds,
            kind.SINGLE_NODE_MULTI_WRITER in kinds,
        )

    async def stage(self, volume: Volume, path: str, call: Call) -> None:
        """Make a volume ready on the node; DriverError."""
        request = api.NodeStageVolumeRequest(
            volume_id=volume.handle,
            publish_context=call.context,
            staging_target_path=path,
            volume_capability=_capability(volume, call),
            secrets=call.secrets,
            volume_context=volume.attributes,
        )
        await self._ask("NodeStageVolume", request, api.NodeStageVolumeResponse)

    async def publish(
        self, volume: Volume, path: str, staging: str, attributes: Mapping[str, str], call: Call
    ) -> None:
        """Publish a volume at a path; DriverError.

        staging: where it is staged; empty: nowhere.
        """
        request = api.NodePublishVolumeRequest(
            volume_id=volume.handle,
            publish_context=call.context,
            staging_target_path=staging,
            target_path=path,
            volume_capability=_capability(volume, call),
            readonly=volume.is_read_only,
            secrets=call.secrets,
            volume_context=attributes,
        )
        await self._ask("NodePublishVolume", request, api.NodePublishVolumeResponse)

    async def unpublish(self, handle: str, path: str) -> None:
        """Unpublish a volume; DriverError."""
        request = api.NodeUnpublishVolumeRequest(volume_id=handle, target_path=path)
        await self._ask("NodeUnpublishVolume", request, api.NodeUnpublishVolumeResponse)

    async def unstage(self, handle: str, path: str) -> None:
        """Undo what staging did; DriverError."""
        request = api.NodeUnstageVolumeRequest(volume_id=handle, staging_target_path=path)
        await self._ask("NodeUnstageVolume", request, api.NodeUnstageVolumeResponse)

    async def expand(
        self, volume: Volume, path: str, staging: str, size_bytes: int, call: Call
    ) -> None:
        """Expand a volume on the node to its new size; DriverError."""
        request = api.NodeExpandVolumeRequest(
            volume_id=volume.handle,
            volume_path=path,
            capacity_range=api.CapacityRange(required_bytes=size_bytes),
            staging_target_path=staging,
            volume_capability=_capability(volume, call),
            secrets=call.secrets,
        )
        await self._ask("NodeExpandVolume", request, api.NodeExpandVolumeResponse)

    async def fill(self, handle: str, path: str) -> Fill:
        """Return how full a volume is; DriverError."""
        request = api.NodeGetVolumeStatsRequest(volume_id=handle, volume_path=path)
        answer = await self._ask("NodeGetVolumeStats", request, api.NodeGetVolumeStatsResponse)
        usages = {each.unit: Usage(each.available, each.total, each.used) for each in answer.usage}
        return Fill(usages.get(api.VolumeUsage.BYTES), usages.get(api.VolumeUsage.INODES))

    async def _ask(self, method: str, request: Message, answer: type[_Answer]) -> _Answer:
        return await ask(
            self.endpoint, f"/csi.v1.Node/{method}", request, answer, timeout_s=self._call_s
        )


async def ask(
    socket: str, method: str, request: Message, answer: type[_Answer], *, timeout_s: float
) -> _Answer:
    """Return what a program answers over its socket; DriverError."""
    options = [("grpc.max_receive_message_length", _BYTES_MAX), ("grpc.enable_retries", 0)]
    async with grpc.aio.insecure_channel(f"unix://{socket}", options=options) as channel:
        # Bytes, so that an invalid answer is not mistaken for an error of the driver.
        call: grpc.aio.UnaryUnaryMultiCallable[Message, bytes] = channel.unary_unary(
            method, request_serializer=lambda message: message.SerializeToString()
        )
        try:
            data = await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from error
    try:
        return answer.FromString(data)
    except DecodeError as error:
        text = f"{method}: the answer of {len(data)} bytes cannot be read: {error}"
        raise DriverError(text, is_final=False) from error


def _refusal(error: grpc.aio.AioRpcError) -> DriverError:
    code = error.code()
    name = _GO_NAMES.get(code) or code.name.title().replace("_", "")
    text = (error.details() or "")[:_TEXT_MAX]
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        text = "context deadline exceeded"
    return DriverError(
        f"rpc error: code = {name} desc = {text}", code=name, is_final=code not in _UNFINISHED
    )


def _capability(volume: Volume, call: Call) -> api.VolumeCapability:
    modes = _BY_MODE_OF_MANY_WRITERS if call.abilities.has_many_writers else _BY_MODE
    mode = _MODES(mode=modes.get(volume.access_mode, _MODES.UNKNOWN))
    if volume.is_block:
        block = api.VolumeCapability.BlockVolume()
        return api.VolumeCapability(block=block, access_mode=mode)
    mount = api.VolumeCapability.MountVolume(
        fs_type=volume.fs_type,
        mount_flags=volume.mount_options,
        volume_mount_group="" if call.group is None else str(call.group),
    )
    return api.VolumeCapability(mount=mount, access_mode=mode)
