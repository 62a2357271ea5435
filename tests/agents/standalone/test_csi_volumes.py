"""`kvstack up` with a CSI driver: scheduler, controllers and node as a driver meets them."""

import asyncio
import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.kubelet.disk.mount_table import points_below, take_away
from tests.agents.standalone.test_local_path import STATEFUL_SET
from tests.agents.standalone.test_stack import kubectl, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.support.csi.driver import Driver, registered
from tests.support.csi.sidecars import sidecars
from tests.support.servers import free_ports
from tests.support.waiting import answered

if TYPE_CHECKING:
    import subprocess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]

NAME = "d.io"
CLASS = f"""\
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {{name: {NAME}}}
spec: {{storageCapacity: true, podInfoOnMount: true}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: csi}}
provisioner: {NAME}
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
parameters:
  csi.storage.k8s.io/node-stage-secret-name: key
  csi.storage.k8s.io/node-stage-secret-namespace: default
---
apiVersion: v1
kind: Secret
metadata: {{name: key}}
stringData: {{key: opens}}
"""
CAPACITY = """\
apiVersion: storage.k8s.io/v1
kind: CSIStorageCapacity
metadata: {name: shelf-a}
storageClassName: csi
nodeTopology: {matchLabels: {topology.d.example.com/shelf: a}}
capacity: 10Gi
maximumVolumeSize: 5Gi
"""


@pytest.fixture
def short() -> Iterator[Path]:
    """Give a directory whose path is short enough for the sockets of drivers."""
    directory = Path(tempfile.mkdtemp(prefix="up-"))
    yield directory
    take_away(directory)
    shutil.rmtree(directory)


class User:
    """Somebody with kubectl."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "data" / "kubernetes" / "admin.conf"
        self._home = directory

    async def does(self, *arguments: str) -> str:
        return await asyncio.to_thread(kubectl, self.file, self._home, *arguments)

    async def applies(self, text: str) -> None:
        file = self._home / "applied.yaml"
        await asyncio.to_thread(file.write_text, text)
        await self.does("apply", "-f", str(file))

    async def sees(self, condition: Callable[[str], bool], *arguments: str) -> str:
        """Return what a command prints, once it is as expected."""

        async def printed() -> tuple[str] | None:
            with contextlib.suppress(AssertionError):  # what is asked for is not there yet
                if condition(text := await self.does(*arguments)):
                    return (text,)
            return None

        (text,) = await answered(printed, within_s=90)
        return text


Story = Callable[[User, Driver], Awaitable[None]]


def tell(
    directory: Path, driver: Driver, story: Story, how: signal.Signals, *, outlives: bool
) -> None:
    """Tell a story of a cluster that ends then; outlives: whether its driver is there meanwhile."""
    root = directory / "data" / "kubernetes" / "node"
    socket = root / "plugins" / NAME / "csi.sock"

    async def main(process: "subprocess.Popen[str]") -> None:
        user = User(directory)
        async with registered(driver, root):
            api = Api(connect(load(user.file)))
            try:
                async with sidecars(api, NAME, socket):
                    await story(user, driver)
            finally:
                await api.close()
            if outlives:
                process.send_signal(how)
                await asyncio.to_thread(process.wait)
        if not outlives:
            process.send_signal(how)
            await asyncio.to_thread(process.wait)

    (port,) = free_ports(1)
    with up(directory / "data", f"--secure-port={port}") as process:
        lines_of(process)
        asyncio.run(main(process))


def of_class(text: str) -> str:
    """Return a StatefulSet whose claims are of the class of the driver."""
    return text.replace("      accessModes", "      storageClassName: csi\n      accessModes")


def mounts(directory: Path) -> list[str]:
    """Return what the driver has mounted on the node."""
    points = points_below(directory / "data" / "kubernetes" / "node")
    return [each for each in points if "csi" in each]


def test_a_stateful_set_outlives_the_cluster(short: Path) -> None:
    async def first(user: User, driver: Driver) -> None:
        await user.applies(CLASS)
        await user.applies(of_class(STATEFUL_SET.replace("storage: 1Gi}", "storage: 6Gi}")))
        # The driver has not said yet how much there is; then too little, then enough.
        events = ("get", "events", "-o", "jsonpath={.items[*].message}")
        no_space = "node(s) did not have enough free storage"
        await user.sees(lambda text: no_space in text, *events)
        await user.applies(CAPACITY)
        body = json.dumps({"maximumVolumeSize": "6Gi"})
        await user.does("patch", "csistoragecapacity", "shelf-a", "--type=merge", "-p", body)
        await user.does("rollout", "status", "statefulset/db", "--timeout=90s")
        assert dict(driver.requests("NodeStageVolume")[0].secrets) == {"key": "opens"}
        context = driver.requests("NodePublishVolume")[0].volume_context
        assert context["csi.storage.k8s.io/pod.name"] == "db-0"
        assert await user.does("exec", "db-0", "--", "cat", "/data/starts") == "db-0\n"

    async def second(user: User, driver: Driver) -> None:
        assert not driver.requests("NodeUnpublishVolume")  # nobody could ask
        starts = ("exec", "db-0", "--", "cat", "/data/starts")
        await user.sees(lambda text: text == "db-0\ndb-0\n", *starts)
        await user.does("delete", "pod", "db-1", "--timeout=90s")
        await user.does("rollout", "status", "statefulset/db", "--timeout=90s")
        assert len(driver.requests("NodeUnpublishVolume")) == 1

    driver = Driver(NAME, short / "shelf")
    tell(short, driver, first, signal.SIGKILL, outlives=True)
    assert len(mounts(short)) == 4
    tell(short, driver, second, signal.SIGTERM, outlives=True)
    # While it is there, the driver is asked; nothing is left that a removal could reach.
    assert len(driver.requests("NodeUnpublishVolume")) == 3
    assert not mounts(short)
    assert not list((short / "data").rglob("vol_data.json"))
    assert len(list((short / "shelf").rglob("starts"))) == 2


def test_a_node_has_no_more_volumes_than_its_driver_says(short: Path) -> None:
    async def story(user: User, driver: Driver) -> None:
        await user.applies(CLASS.replace("storageCapacity: true, ", ""))
        await user.applies(of_class(STATEFUL_SET))
        text = "exceed max volume count"
        events = ("get", "events", "-o", "jsonpath={.items[*].message}")
        await user.sees(lambda shown: text in shown, *events)
        await user.does("wait", "pod/db-0", "--for=condition=Ready", "--timeout=60s")
        assert len(driver.requests("NodePublishVolume")) == 1
        nodes: Any = json.loads(await user.does("get", "csinodes", "-o", "json"))
        [entry] = nodes["items"][0]["spec"]["drivers"]
        assert entry["allocatable"] == {"count": 1}
        # A pod that goes lets the next one come; what nobody claims any more goes, too.
        await user.does("delete", "statefulset", "db", "--timeout=90s")
        await user.sees(lambda shown: not shown, "get", "volumeattachments", "-o", "name")
        await user.does("delete", "pvc", "--all", "--timeout=90s")
        await user.sees(lambda shown: not shown, "get", "pv", "-o", "name")
        assert not list(driver.data.iterdir())
        one = STATEFUL_SET.replace("replicas: 2", "replicas: 1")
        await user.applies(of_class(one))
        await user.does("rollout", "status", "statefulset/db", "--timeout=60s")

    driver = Driver(NAME, short / "shelf")
    driver.volumes_max = 1
    tell(short, driver, story, signal.SIGTERM, outlives=False)
    # What the driver was not there to undo is known at the next start, and its data is there.
    assert not mounts(short)
    assert len(list((short / "data").rglob("vol_data.json"))) == 2
    assert len(list((short / "shelf").rglob("starts"))) == 1
