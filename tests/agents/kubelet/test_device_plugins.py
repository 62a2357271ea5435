"""Devices of plugins: registration, what the node tells, what containers get and give back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import orjson
import pytest
from typing_extensions import override

from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.kubelet.device_plugins import registration_socket
from kvstack.agents.kubelet.device_plugins.gen import api_pb2 as api
from kvstack.agents.kubelet.device_plugins.names import FILE
from kvstack.agents.kubelet.device_plugins.registration_socket import RegistrationSocket
from kvstack.component.errors import ConfigError
from tests.agents.kubelet.test_kubelet import Node, log_of, pod, pytestmark, reach, run
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.list_log import ListLog

__all__ = ["pytestmark"]

RESOURCE = "example.com/dongle"
READS = "echo $SLOT; cat /data/text; echo x > /dev/dongle && echo written; sleep 1000"


class Plugin(grpc.GenericRpcHandler):
    """Has devices; each is /dev/null of the machine."""

    def __init__(self, directory: Path, shared: Path) -> None:
        self.directory = directory
        self.shared = shared
        self.devices = {"a": "Healthy", "b": "Healthy", "c": "Unhealthy"}
        self.changed = asyncio.Event()
        self.started: list[list[str]] = []
        self.refuses = False

    @override
    def service(self, handler_call_details: Any) -> Any:
        method = handler_call_details.method.removeprefix("/v1beta1.DevicePlugin/")
        requests: dict[str, Any] = {
            "ListAndWatch": (api.Empty, self._list),
            "Allocate": (api.AllocateRequest, self._allocate),
            "PreStartContainer": (api.PreStartContainerRequest, self._prepare),
            "GetPreferredAllocation": (api.PreferredAllocationRequest, self._prefer),
        }
        request, answer = requests[method]
        make = (
            grpc.unary_stream_rpc_method_handler
            if method == "ListAndWatch"
            else grpc.unary_unary_rpc_method_handler
        )
        return make(
            answer,
            request_deserializer=request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    async def _list(self, _request: Any, _context: Any) -> AsyncIterator[Any]:
        while True:
            devices = [api.Device(ID=name, health=each) for name, each in self.devices.items()]
            yield api.ListAndWatchResponse(devices=devices)
            self.changed.clear()
            await self.changed.wait()

    async def _allocate(self, request: Any, context: Any) -> Any:
        if self.refuses:
            await context.abort(grpc.StatusCode.INTERNAL, "it is broken")
        [asked] = request.container_requests
        found = api.ContainerAllocateResponse(
            envs={"SLOT": ",".join(asked.devices_ids)},
            mounts=[api.Mount(container_path="/data", host_path=str(self.shared), read_only=True)],
            devices=[
                api.DeviceSpec(
                    container_path="/dev/dongle", host_path="/dev/null", permissions="rw"
                )
            ],
        )
        return api.AllocateResponse(container_responses=[found])

    async def _prepare(self, request: Any, _context: Any) -> Any:
        self.started.append(list(request.devices_ids))
        return api.PreStartContainerResponse()

    async def _prefer(self, request: Any, _context: Any) -> Any:
        [asked] = request.container_requests
        last = sorted(asked.available_deviceIDs)[-asked.allocation_size :]
        one = api.ContainerPreferredAllocationResponse(deviceIDs=last)
        return api.PreferredAllocationResponse(container_responses=[one])


async def register(directory: Path, **wrong: str) -> None:
    given = {"version": "v1beta1", "endpoint": "dongle.sock", "resource_name": RESOURCE, **wrong}
    options = api.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=True
    )
    async with grpc.aio.insecure_channel(f"unix://{directory / 'kubelet.sock'}") as channel:
        call: grpc.aio.UnaryUnaryMultiCallable[Any, Any] = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        await call(api.RegisterRequest(options=options, **given), timeout=10)


@asynccontextmanager
async def offered(directory: Path, shared: Path) -> AsyncIterator[Plugin]:
    """Run a plugin that has registered."""
    server, plugin = grpc.aio.server(), Plugin(directory, shared)
    server.add_generic_rpc_handlers((plugin,))
    server.add_insecure_port(f"unix://{directory / 'dongle.sock'}")
    await server.start()
    try:
        await register(directory)
        yield plugin
    finally:
        await server.stop(None)


def asking(name: str, script: str = READS, count: int = 1) -> dict[str, Any]:
    resources = {"limits": {RESOURCE: str(count)}}
    return pod(name, script, container={"resources": resources}, terminationGracePeriodSeconds=1)


def amounts_of_node(cluster: TestCluster) -> tuple[str, str]:
    status = (cluster.informers.of(NODES).store.get("node-a") or {}).get("status") or {}
    amounts = (status.get(each) or {} for each in ("capacity", "allocatable"))
    whole, usable = (each.get(RESOURCE, "") for each in amounts)
    return whole, usable


def run_with_plugins(tmp_path: Path, story: Any) -> None:
    directory, shared = tmp_path / "d", tmp_path / "shared"
    shared.mkdir()
    (shared / "text").write_text("shared\n")

    async def main(cluster: TestCluster, here: Node) -> None:
        await here.kubelet.stop()
        here.options = replace(here.options, device_plugins=directory)
        here.kubelet = here.new_kubelet()
        await here.kubelet.start()
        async with offered(directory, shared) as plugin:
            await eventually(lambda: amounts_of_node(cluster) == ("3", "2"))
            await story(cluster, here, plugin)
        await eventually(lambda: amounts_of_node(cluster) == ("0", "0"))

    run(tmp_path, main)


def test_containers_get_devices_and_give_them_back(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node, plugin: Plugin) -> None:
        await cluster.admin.create(PODS, "default", asking("one"))
        one = await reach(cluster, "one", "Running")
        await eventually(lambda: log_of(here, one) == "b\nshared\nwritten\n")
        assert plugin.started == [["b"]]
        uid = one["metadata"]["uid"]
        file = here.kubelet.pod_directory(uid) / FILE
        assert orjson.loads(file.read_bytes())["c"][RESOURCE]["ids"] == ["b"]

        # A kubelet that starts anew knows who has what.
        await here.kubelet.stop()
        here.kubelet = here.new_kubelet()
        await here.kubelet.start()
        await register(plugin.directory)
        await eventually(lambda: here.kubelet.node.extended()[RESOURCE] == (3, 2))
        await cluster.admin.create(PODS, "default", asking("two"))
        two = await reach(cluster, "two", "Running")
        await eventually(lambda: log_of(here, two) == "a\nshared\nwritten\n")
        await cluster.admin.delete(PODS, "default", "one")
        await eventually(lambda: not file.exists())
        await cluster.admin.create(PODS, "default", asking("three"))
        three = await reach(cluster, "three", "Running")
        await eventually(lambda: log_of(here, three) == "b\nshared\nwritten\n")

    run_with_plugins(tmp_path, story)


def test_what_cannot_be_given_is_refused(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, here: Node, plugin: Plugin) -> None:
        plugin.refuses = True
        await cluster.admin.create(PODS, "default", asking("broken"))
        found = (await reach(cluster, "broken", "Failed"))["status"]
        assert found["reason"] == "UnexpectedAdmissionError"
        assert "Allocate failed due to Allocate: it is broken" in found["message"]
        plugin.refuses = False
        await cluster.admin.create(PODS, "default", asking("many", count=3))
        found = (await reach(cluster, "many", "Failed"))["status"]
        assert found["reason"] == f"OutOf{RESOURCE}"
        plugin.devices["b"] = "Unhealthy"
        plugin.changed.set()
        await eventually(lambda: amounts_of_node(cluster) == ("3", "1"))
        await cluster.admin.create(PODS, "default", asking("one"))
        one = await reach(cluster, "one", "Running")
        await eventually(lambda: log_of(here, one).startswith("a\n"))

    run_with_plugins(tmp_path, story)


@asynccontextmanager
async def registration(directory: Path, open_server: Any, log: ListLog) -> AsyncIterator[Path]:
    found = RegistrationSocket(directory, open_server, log)
    await found.start()
    try:
        yield directory / "kubelet.sock"
    finally:
        await found.stop()


def test_grpc_is_opened_by_the_first_plugin(tmp_path: Path) -> None:
    opened: list[str] = []
    servers: list[asyncio.Server] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.close()

    async def open_server() -> None:
        if opened in ([], ["failed"]):
            opened.append("failed" if not opened else "opened")
        if opened == ["failed"]:
            raise ConfigError("it cannot be made")
        if not servers:
            servers.append(await asyncio.start_unix_server(answer, tmp_path / ".grpc.sock"))

    async def ask(path: Path, text: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(text)
        writer.write_eof()
        try:
            async with asyncio.timeout(60):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def main() -> None:
        log = ListLog()
        async with registration(tmp_path, open_server, log) as path:
            assert not opened
            assert await ask(path, b"a") == b""
            assert "it cannot be made" in log.text()
            assert (
                await asyncio.gather(*(ask(path, b"b" * 70_000) for _ in range(5)))
                == [b"B" * 70_000] * 5
            )
            assert opened == ["failed", "opened"]
        servers[0].close()

    asyncio.run(main())


def test_only_so_many_plugins_are_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration_socket, "CONNECTIONS_MAX", 2)

    async def main() -> None:
        log = ListLog()
        async with registration(tmp_path, asyncio.Event().wait, log) as path:
            connections = [await asyncio.open_unix_connection(path) for _ in range(3)]
            async with asyncio.timeout(60):
                assert await connections[-1][0].read() == b""
            assert "closed a connection of a device plugin" in log.text()
            for _, writer in connections:
                writer.close()

    asyncio.run(main())


def test_registrations_that_cannot_be_meant(tmp_path: Path) -> None:
    async def story(_cluster: TestCluster, _here: Node, plugin: Plugin) -> None:
        for wrong, text in (
            ({"version": "v1alpha1"}, "v1beta1 is known"),
            ({"resource_name": "cpu"}, "not a valid name of an extended resource"),
            ({"resource_name": "kubernetes.io/a"}, "not a valid name of an extended resource"),
            ({"endpoint": "../../etc/x"}, "not a valid name of a socket"),
            ({"endpoint": "kubelet.sock"}, "not a valid name of a socket"),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match=text):
                await register(plugin.directory, **wrong)

    run_with_plugins(tmp_path, story)
