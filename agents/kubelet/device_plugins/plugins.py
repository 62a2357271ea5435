"""Device plugins of the machine: they register with the node, and list their devices.

    plugins = DevicePlugins(root / "device-plugins", logger, on_change)
    await plugins.start();  …;  await plugins.stop()
    plugins.amounts()             resource → (all devices, those that are healthy)

    plugin ── Register(resource, endpoint) ─► kubelet.sock (`registration_socket`)
    kubelet ── ListAndWatch, Allocate, PreStartContainer ─► <endpoint>, beside it

A plugin that is gone has no devices: its resource has capacity 0, until it registers again. Only
root of the machine can create sockets in that directory; answers of plugins are limited anyway.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message
from typing_extensions import override

from kvstack.agents.kubelet.device_plugins.gen import api_pb2 as api
from kvstack.agents.kubelet.device_plugins.names import GRPC_SOCKET, SOCKET
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

_Answer = TypeVar("_Answer", bound=Message)

VERSION: Final = "v1beta1"
HEALTHY: Final = "Healthy"
DEVICES_MAX: Final = 10_000
"""The maximum for a plugin."""
_PLUGINS_MAX: Final = 100
_BYTES_MAX: Final = 16 << 20
_CALL_S: Final = 30.0
_NAME: Final = re.compile(
    r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]{0,62})?"
)
_OWN: Final = re.compile(r"([a-z0-9.-]+\.)?kubernetes\.io/.*|requests\..*")
_ENDPOINT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class PluginError(Exception):
    """A plugin does not do what it is asked."""


class _Plugin:
    """One resource, and who offers it."""

    def __init__(self, endpoint: str, options: "api.DevicePluginOptions") -> None:
        self.endpoint = endpoint
        self.options = options
        self.devices: dict[str, bool] = {}
        """Whether each device is healthy, by id."""
        self.channel: grpc.aio.Channel | None = None
        self.task: asyncio.Task[None] | None = None


class Amount(NamedTuple):
    """The capacity and the healthy devices of a resource."""

    all: int
    healthy: int


class DevicePlugins:
    """The plugins of a node; used on one loop."""

    def __init__(self, directory: Path, logger: Logger, on_change: Callable[[], None]) -> None:
        """Listen nowhere yet."""
        self._directory = directory
        self._logger = logger
        self._on_change = on_change
        self._plugins: dict[str, _Plugin] = {}
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen in the directory; ConfigError if the socket cannot be made."""
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        path = self._directory / GRPC_SOCKET
        path.unlink(missing_ok=True)
        server = grpc.aio.server(maximum_concurrent_rpcs=_PLUGINS_MAX)
        server.add_generic_rpc_handlers((_Registration(self._register),))
        try:
            server.add_insecure_port(f"unix://{path}")
        except RuntimeError as error:
            raise ConfigError(f"device plugins cannot register at {path}: {error}") from error
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Stop listening, and disconnect plugins."""
        if self._server is not None:
            await self._server.stop(None)
        for resource in list(self._plugins):
            await self._leave(resource)

    def amounts(self) -> Mapping[str, Amount]:
        """Return how many devices of each resource there are; 0: its plugin is gone."""
        return {
            name: Amount(len(each.devices), sum(each.devices.values()))
            for name, each in sorted(self._plugins.items())
        }

    def healthy(self, resource: str) -> Sequence[str]:
        """Return the ids of the devices that may be given to containers, sorted."""
        found = self._plugins.get(resource)
        devices = {} if found is None else found.devices
        return sorted(number for number, is_healthy in devices.items() if is_healthy)

    def has(self, resource: str) -> bool:
        """Whether a resource has, or had, a plugin."""
        return resource in self._plugins

    async def preferred(self, resource: str, free: Sequence[str], count: int) -> Sequence[str]:
        """Return which of the free devices the plugin would give; PluginError."""
        plugin = self._plugin(resource)
        if not plugin.options.get_preferred_allocation_available or len(free) == count:
            return free[:count]
        asked = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=free, allocation_size=count
        )
        request = api.PreferredAllocationRequest(container_requests=[asked])
        answer = await self._call(
            plugin, "GetPreferredAllocation", request, api.PreferredAllocationResponse
        )
        found = [each for one in answer.container_responses for each in one.deviceIDs]
        chosen = [each for each in dict.fromkeys(found) if each in free][:count]
        rest = [each for each in free if each not in chosen]
        return [*chosen, *rest][:count]

    async def allocate(
        self, resource: str, devices: Sequence[str]
    ) -> "api.ContainerAllocateResponse":
        """Return what a container needs to use devices; PluginError."""
        asked = api.ContainerAllocateRequest(devices_ids=devices)
        request = api.AllocateRequest(container_requests=[asked])
        answer = await self._call(self._plugin(resource), "Allocate", request, api.AllocateResponse)
        if len(answer.container_responses) != 1:
            count = len(answer.container_responses)
            raise PluginError(f"{resource}: {count} answers for one container")
        return answer.container_responses[0]

    async def prepare(self, resource: str, devices: Sequence[str]) -> None:
        """Call a plugin's PreStartContainer, if it requires that; PluginError."""
        plugin = self._plugin(resource)
        if plugin.options.pre_start_required:
            request = api.PreStartContainerRequest(devices_ids=devices)
            answer = api.PreStartContainerResponse
            await self._call(plugin, "PreStartContainer", request, answer)

    # Plugins.

    async def _register(self, request: "api.RegisterRequest") -> str:
        """Register a plugin; return why not, empty: it is registered."""
        name, endpoint = request.resource_name, request.endpoint
        if request.version != VERSION:
            return f"version {request.version[:80]!r} of the API: {VERSION} is known"
        if not _NAME.fullmatch(name) or _OWN.fullmatch(name):
            return f"{name[:80]!r} is not a valid name of an extended resource"
        if not _ENDPOINT.fullmatch(endpoint) or endpoint == SOCKET:
            return f"{endpoint[:80]!r} is not a valid name of a socket in the directory of plugins"
        if name not in self._plugins and len(self._plugins) >= _PLUGINS_MAX:
            return f"there are {_PLUGINS_MAX} resources already"
        await self._leave(name)
        plugin = self._plugins[name] = _Plugin(endpoint, request.options)
        work = self._follow(name, plugin)
        plugin.task = asyncio.get_running_loop().create_task(work, name=f"devices {name}")
        return ""

    async def _leave(self, resource: str) -> None:
        plugin = self._plugins.get(resource)
        if plugin is None:
            return
        if plugin.task is not None:
            plugin.task.cancel()
            await asyncio.gather(plugin.task, return_exceptions=True)
        if plugin.channel is not None:
            await plugin.channel.close()

    async def _follow(self, resource: str, plugin: _Plugin) -> None:
        """Follow a plugin's list of devices, until it ends."""
        options = [("grpc.max_receive_message_length", _BYTES_MAX)]
        address = f"unix://{self._directory / plugin.endpoint}"
        plugin.channel = grpc.aio.insecure_channel(address, options=options)
        stream = plugin.channel.unary_stream(
            f"/{VERSION}.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        reason = "it ended"
        try:
            async for answer in stream(api.Empty()):
                if len(answer.devices) > DEVICES_MAX:
                    reason = f"{len(answer.devices)} devices, more than {DEVICES_MAX}"
                    break
                plugin.devices = {each.ID: each.health == HEALTHY for each in answer.devices}
                self._on_change()
        except grpc.aio.AioRpcError as error:
            reason = error.details() or error.code().name
        finally:
            plugin.devices = {}
        self._logger.warning("a device plugin is gone", resource=resource, reason=reason)
        self._on_change()

    def _plugin(self, resource: str) -> _Plugin:
        found = self._plugins.get(resource)
        if found is None or found.channel is None:
            raise PluginError(f"{resource}: no plugin is there")
        return found

    async def _call(
        self, plugin: _Plugin, method: str, request: Message, answer: type[_Answer]
    ) -> _Answer:
        assert plugin.channel is not None
        call: grpc.aio.UnaryUnaryMultiCallable[Message, _Answer] = plugin.channel.unary_unary(
            f"/{VERSION}.DevicePlugin/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            return await call(request, timeout=_CALL_S)
        except grpc.aio.AioRpcError as error:
            raise PluginError(f"{method}: {error.details() or error.code().name}") from error


class _Registration(grpc.GenericRpcHandler):
    """The kubelet's side of the registration."""

    def __init__(self, register: Callable[["api.RegisterRequest"], Any]) -> None:
        self._take = register

    @override
    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        if handler_call_details.method != f"/{VERSION}.Registration/Register":
            return None

        async def answer(
            request: "api.RegisterRequest", context: "grpc.aio.ServicerContext[Any, Any]"
        ) -> "api.Empty":
            if problem := await self._take(request):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
            return api.Empty()

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=api.RegisterRequest.FromString,
            response_serializer=api.Empty.SerializeToString,
        )
