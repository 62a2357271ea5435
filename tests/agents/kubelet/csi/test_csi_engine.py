"""Volumes of a CSI driver in containers of containerd: what an engine is given of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.agents.client.built_in import PODS
from kvstack.agents.kubelet.runtime.cri.cri_runtime import CriOptions, CriRuntime
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from tests.agents.kubelet.csi.csi_cluster import Scene, pod, tell
from tests.agents.kubelet.csi.test_csi_pods import NO_ATTACH, loop_device, with_device
from tests.agents.kubelet.runtime.conformance import runtimes
from tests.agents.kubelet.test_kubelet import Node, log_of, reach
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


async def use_engine(cluster: TestCluster, node: Node) -> None:
    """Let containers of a node be an engine's from now on."""
    await node.runtime.close()
    directory = node.options.root.parent
    socket = await runtimes._containerd(directory)
    options = CriOptions(f"unix://{socket}", node.options.root, directory / "logs")
    engine = CriRuntime(
        options, SystemClock(), cluster.log, lambda uid: node.kubelet.container_ended(uid)
    )
    await answered(lambda: runtimes.is_open(engine))
    node.runtime = engine  # type: ignore[assignment]


@pytest.fixture
def engine(short_directory: Path) -> Iterator[Path]:
    runtimes.require("cri")
    yield short_directory
    runtimes.close(short_directory)


def of_engine(obj: Object) -> Object:
    """Return a pod with the image of the engine, that needs no network of its own."""
    obj["spec"]["hostNetwork"] = True
    obj["spec"]["containers"][0] |= {"image": runtimes.IMAGE, "imagePullPolicy": "Never"}
    return obj


def test_containers_of_an_engine_have_volumes(engine: Path) -> None:
    async def story(scene: Scene) -> None:
        admin = scene.cluster.admin
        await scene.claim("data")
        await scene.claim("disk", volumeMode="Block")
        script = "echo written > /v/data/text; cat /v/data/text"
        await admin.create(PODS, "default", of_engine(pod("one", script, "data")))
        one = await reach(scene.cluster, "one", "Succeeded")
        assert log_of(scene.node, one) == "written\n"
        await admin.create(PODS, "default", of_engine(with_device("two", "disk")))
        two = await reach(scene.cluster, "two", "Succeeded")
        assert log_of(scene.node, two) == "from the disk\nblock special file\n0\n"
        await eventually(lambda: len(scene.driver.requests("NodeUnstageVolume")) == 2)

    with loop_device(engine) as device:
        tell(
            engine,
            story,
            driver_spec=NO_ATTACH,
            parameters={"device": str(device)},
            prepare=use_engine,
        )
