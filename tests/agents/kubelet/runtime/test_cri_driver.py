"""What a container engine is asked for: control groups as it or the settings say, and mounts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from typing_extensions import override

from kvstack.agents.kubelet.configuration import ConfigurationFileError, read_configuration
from kvstack.agents.kubelet.runtime.cri.cri_runtime import CriOptions, CriRuntime
from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from kvstack.agents.kubelet.runtime.cri.image_mounts import image_mount_problem
from kvstack.agents.kubelet.runtime.pod_groups import CGROUPFS, SYSTEMD, slice_of
from kvstack.agents.kubelet.runtime.runtime import (
    ContainerConfig,
    Limits,
    Mount,
    Sandbox,
    StartError,
    UpdateError,
)
from kvstack.component.clock import SystemClock
from tests.support.list_log import ListLog

GROUP = "kubepods/burstable/pod1-2"
SLICES = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"


class Engine(grpc.GenericRpcHandler):
    """An engine that takes whatever it is asked to run: one sandbox, and one container in it."""

    def __init__(self, runtime_config: cri.RuntimeConfigResponse | None) -> None:
        self.parents: list[str] = []
        self.updates: list[cri.UpdateContainerResourcesRequest] = []
        self.created: list[cri.ContainerConfig] = []
        self.lists: asyncio.Queue[asyncio.Event] | None = None
        """Lists of containers wait for the events that they put here; None: they do not wait."""
        self._answers: dict[str, Any] = {
            "Version": cri.VersionResponse(runtime_name="engine", runtime_version="1"),
            "Status": cri.StatusResponse(),
            "ListPodSandbox": cri.ListPodSandboxResponse(),
            "ListContainers": cri.ListContainersResponse(),
            "RunPodSandbox": cri.RunPodSandboxResponse(pod_sandbox_id="s"),
            "PodSandboxStatus": cri.PodSandboxStatusResponse(),
            "UpdateContainerResources": cri.UpdateContainerResourcesResponse(),
            "CreateContainer": cri.CreateContainerResponse(container_id="c"),
            "StartContainer": cri.StartContainerResponse(),
            "ContainerStatus": cri.ContainerStatusResponse(
                status=cri.ContainerStatus(id="c", state=cri.CONTAINER_RUNNING)
            ),
        }
        if runtime_config is not None:
            self._answers["RuntimeConfig"] = runtime_config

    def lose_all(self) -> None:
        """Have nothing any more."""
        self._answers["ListPodSandbox"] = cri.ListPodSandboxResponse()
        self._answers["ListContainers"] = cri.ListContainersResponse()

    def become(self, name: str, version: str) -> None:
        """Be another engine, or another version of it."""
        self._answers["Version"] = cri.VersionResponse(runtime_name=name, runtime_version=version)

    @override
    def service(self, handler_call_details: Any) -> "grpc.RpcMethodHandler[Any, Any] | None":
        method = handler_call_details.method.rpartition("/")[2]
        if method not in self._answers:
            return None

        async def answer(request: bytes, context: Any) -> bytes:
            found: bytes = self._answers[method].SerializeToString()
            if method == "ListContainers" and self.lists is not None:
                allowed = asyncio.Event()
                self.lists.put_nowait(allowed)
                await allowed.wait()
            if method == "RunPodSandbox":
                asked = cri.RunPodSandboxRequest.FromString(request)
                self.parents.append(asked.config.linux.cgroup_parent)
                item = cri.PodSandbox(id="s", labels=asked.config.labels, state=cri.SANDBOX_READY)
                self._answers["ListPodSandbox"] = cri.ListPodSandboxResponse(items=[item])
            if method == "UpdateContainerResources":
                self.updates.append(cri.UpdateContainerResourcesRequest.FromString(request))
                if self.updates[-1].container_id != "c":
                    await context.abort(grpc.StatusCode.NOT_FOUND, "no such container")
            if method == "CreateContainer":
                config = cri.CreateContainerRequest.FromString(request).config
                self.created.append(config)
                one = cri.Container(id="c", labels=config.labels, state=cri.CONTAINER_RUNNING)
                self._answers["ListContainers"] = cri.ListContainersResponse(containers=[one])
                status = cri.ContainerStatus(id="c", labels=one.labels, state=one.state)
                self._answers["ContainerStatus"] = cri.ContainerStatusResponse(status=status)
            return found

        return grpc.unary_unary_rpc_method_handler(answer)


def parent(
    directory: Path, runtime_config: cri.RuntimeConfigResponse | None, configured: str = CGROUPFS
) -> str:
    """Return where a pod's containers are to be."""

    async def main() -> str:
        async with opened(directory, Engine(runtime_config), configured) as (engine, runtime):
            logs = str(directory / "logs")
            await runtime.make_sandbox(Sandbox("1-2", "web", "ns", "web", logs, cgroup=GROUP))
        (found,) = engine.parents
        return found

    return asyncio.run(main())


@asynccontextmanager
async def opened(
    directory: Path, engine: Engine, driver: str = CGROUPFS
) -> AsyncIterator[tuple[Engine, CriRuntime]]:
    """Run an engine, and what asks it."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((engine,))
    socket = f"unix://{directory / 'engine.sock'}"
    server.add_insecure_port(socket)
    await server.start()
    options = CriOptions(socket, directory, directory / "logs", cgroup_driver=driver)
    runtime = CriRuntime(options, SystemClock(), ListLog(), lambda _uid: None)
    try:
        await runtime.open()
        yield engine, runtime
    finally:
        await runtime.close()
        await server.stop(None)


def test_limits_of_a_container_that_runs(tmp_path: Path) -> None:
    async def main() -> None:
        async with opened(tmp_path, Engine(None)) as (engine, runtime):
            await runtime.update("c", Limits(512, 50_000, 64 << 20))
            [asked] = engine.updates
            assert (asked.linux.cpu_shares, asked.linux.cpu_quota) == (512, 50_000)
            assert asked.linux.memory_limit_in_bytes == 64 << 20
            with pytest.raises(UpdateError, match="no such container"):
                await runtime.update("gone", Limits())

    asyncio.run(main())


def test_what_is_made_while_the_engine_lists_is_not_forgotten(tmp_path: Path) -> None:
    sandbox = Sandbox("1-2", "web", "ns", "web", str(tmp_path / "logs"))

    async def main() -> None:
        async with opened(tmp_path, Engine(None)) as (engine, runtime):
            lists: asyncio.Queue[asyncio.Event] = asyncio.Queue()
            engine.lists = lists
            first = await lists.get()  # it has neither the sandbox nor the container
            await runtime.make_sandbox(sandbox)
            container = await runtime.start(ContainerConfig(sandbox, "c", 0, "r/i:1"))
            first.set()
            second = await lists.get()  # what the first had has been taken over
            assert runtime.has_sandbox("1-2")
            assert runtime.of_pod("1-2") == [container]
            second.set()
            third = await lists.get()
            assert runtime.has_sandbox("1-2")
            engine.lose_all()
            third.set()
            (await lists.get()).set()  # the first that has nothing
            (await lists.get()).set()
            assert not runtime.has_sandbox("1-2")
            with pytest.raises(StartError, match="the pod has no sandbox"):
                await runtime.start(ContainerConfig(sandbox, "c", 1, "r/i:1"))
            engine.lists = None

    asyncio.run(main())


def test_images_are_mounted_by_engines_that_can(tmp_path: Path) -> None:
    logs = str(tmp_path / "logs")
    sandbox = Sandbox("1-2", "web", "ns", "web", logs)
    whole = Mount("", "/all", is_read_only=True, image="r/i:1", image_id="sha256:1")
    part = Mount("etc", "/part", is_read_only=True, image="r/i:1", image_id="sha256:1")

    async def main() -> None:
        async with opened(tmp_path, Engine(None)) as (engine, runtime):
            await runtime.make_sandbox(sandbox)

            async def start(*mounts: Mount) -> list[cri.Mount]:
                await runtime.start(ContainerConfig(sandbox, "c", 0, "r/i:1", mounts=mounts))
                return [each for each in engine.created[-1].mounts if each.HasField("image")]

            engine.become("containerd", "v2.2.0")
            image = cri.ImageSpec(image="sha256:1", user_specified_image="r/i:1")
            assert await start(whole, part) == [
                cri.Mount(container_path="/all", readonly=True, image=image),
                cri.Mount(container_path="/part", readonly=True, image=image, image_sub_path="etc"),
            ]
            engine.become("containerd", "v2.1.5")  # while the kubelet runs
            assert len(await start(whole)) == 1
            with pytest.raises(StartError, match=r"subPath .* containerd 2\.2 .*: .* v2\.1\.5$"):
                await start(whole, part)
            engine.become("containerd", "1.6.20~ds1")
            assert await start() == []
            with pytest.raises(StartError, match=r"needs containerd 2\.1 .* 1\.6\.20~ds1$") as old:
                await start(whole)
            assert old.value.reason == "CreateContainerError"
            assert len(engine.created) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("engine", "version", "has_sub_path", "can"),
    [
        ("containerd", "v2.1.0-rc.1", False, True),
        ("containerd", "v2.0.9", False, False),
        ("containerd", "1.7.27", False, False),
        ("containerd", "v2.10.0", True, True),
        ("cri-o", "1.31.0", False, True),
        ("cri-o", "1.32.4", True, False),
        ("cri-o", "1.9.1", False, False),
        ("containerd", "main", True, True),
        ("other", "0.1", True, True),
    ],
)
def test_which_engines_mount_images(
    engine: str, version: str, *, has_sub_path: bool, can: bool
) -> None:
    problem = image_mount_problem(engine, version, has_sub_path=has_sub_path)
    assert (problem == "") is can
    assert can or (engine in problem and version in problem)


def runtime_config(driver: "cri.CgroupDriver") -> cri.RuntimeConfigResponse:
    linux = cri.LinuxRuntimeConfiguration(cgroup_driver=driver)
    return cri.RuntimeConfigResponse(linux=linux)


def test_an_engine_with_systemd_is_given_slices(tmp_path: Path) -> None:
    assert parent(tmp_path, runtime_config(cri.SYSTEMD)) == SLICES


def test_an_engine_that_does_not_tell_is_given_what_the_settings_say(tmp_path: Path) -> None:
    assert parent(tmp_path, None, SYSTEMD) == SLICES
    assert parent(tmp_path, cri.RuntimeConfigResponse(), SYSTEMD) == SLICES


def test_names_of_slices() -> None:
    assert slice_of("kubepods") == "/kubepods.slice"
    assert slice_of("a-b/c") == "/a_b.slice/a_b-c.slice"


def test_a_driver_that_nobody_knows_is_refused() -> None:
    said = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    assert read_configuration({**said, "cgroupDriver": SYSTEMD})["cgroupDriver"] == SYSTEMD
    with pytest.raises(ConfigurationFileError, match="cgroupDriver: cgroups: one of"):
        read_configuration({**said, "cgroupDriver": "cgroups"})
