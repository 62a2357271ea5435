"""`kvstack up` with a CSI driver: scheduler, controllers and node as a driver meets them."""

import asyncio
import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
        async with asyncio.timeout(90):
            while True:
                with contextlib.suppress(AssertionError):  # what is asked for is not there yet
                    if condition(text := await self.does(*arguments)):
                        return text
                await asyncio.sleep(0.2)


@asynccontextmanager
async def beside(user: User, driver: Driver, root: Path) -> AsyncIterator[Api]:
    """Run a driver with its sidecars."""
    api = Api(connect(load(user.file)))
    socket = root / "plugins" / NAME / "csi.sock"
    try:
        async with registered(driver, root), sidecars(api, NAME, socket):
            yield api
    finally:
        await api.close()


def tell(
    directory: Path, *stories: Callable[[User, Driver], Awaitable[None]], limit: int = 0
) -> None:
    """Tell stories one after the other; the cluster is killed after each but the last.

    limit: of the volumes that the driver has on a node; 0: none.
    """
    root = directory / "data" / "kubernetes" / "node"
    driver = Driver(NAME, directory / "shelf")
    driver.volumes_max = limit

    async def main(story: Callable[[User, Driver], Awaitable[None]]) -> None:
        user = User(directory)
        async with beside(user, driver, root):
            await story(user, driver)

    for number, story in enumerate(stories):
        (api,) = free_ports(1)
        with up(directory / "data", f"--secure-port={api}") as process:
            lines_of(process)
            asyncio.run(main(story))
            if number + 1 < len(stories):
                process.send_signal(signal.SIGKILL)
                process.wait()


def test_a_stateful_set_outlives_the_cluster(short: Path) -> None:
    async def first(user: User, driver: Driver) -> None:
        await user.applies(CLASS)
        claims = STATEFUL_SET.replace("storage: 1Gi}", "storage: 6Gi}")
        await user.applies(of_class(claims))
        # The driver has not said yet how much there is; then too little, then enough.
        events = ("get", "events", "-o", "jsonpath={.items[*].message}")
        no_space = "node(s) did not have enough free storage"
        await user.sees(lambda text: no_space in text, *events)
        await user.applies(CAPACITY)
        body = json.dumps({"maximumVolumeSize": "6Gi"})
        await user.does("patch", "csistoragecapacity", "shelf-a", "--type=merge", "-p", body)
        await user.does("rollout", "status", "statefulset/db", "--timeout=90s")
        assert dict(driver.asked("NodeStageVolume")[0].secrets) == {"key": "opens"}
        context = driver.asked("NodePublishVolume")[0].volume_context
        assert context["csi.storage.k8s.io/pod.name"] == "db-0"
        assert await user.does("exec", "db-0", "--", "cat", "/data/starts") == "db-0\n"

    async def second(user: User, driver: Driver) -> None:
        await user.sees(
            lambda text: text == "db-0\ndb-0\n", "exec", "db-0", "--", "cat", "/data/starts"
        )
        await user.does("rollout", "status", "statefulset/db", "--timeout=90s")
        await user.does("delete", "statefulset", "db", "--timeout=90s")
        await user.does("wait", "pod", "--all", "--for=delete", "--timeout=90s")
        await user.sees(lambda text: not text, "get", "volumeattachments", "-o", "name")
        assert not [each for each in mounts(short) if "csi" in each]
        await user.does("delete", "pvc", "--all", "--timeout=90s")
        await user.sees(lambda text: not text, "get", "pv", "-o", "name")
        assert not list(driver.data.iterdir())

    tell(short, first, second)


def of_class(text: str) -> str:
    """Return a StatefulSet whose claims are of the class of the driver."""
    return text.replace("      accessModes", "      storageClassName: csi\n      accessModes")


def mounts(directory: Path) -> list[str]:
    return points_below(directory)


def test_a_node_has_no_more_volumes_than_its_driver_says(short: Path) -> None:
    async def story(user: User, driver: Driver) -> None:
        await user.applies(CLASS.replace("storageCapacity: true, ", ""))
        await user.applies(of_class(STATEFUL_SET))
        text = "exceed max volume count"
        events = ("get", "events", "-o", "jsonpath={.items[*].message}")
        await user.sees(lambda found: text in found, *events)
        await user.does("wait", "pod/db-0", "--for=condition=Ready", "--timeout=60s")
        assert len(driver.asked("NodePublishVolume")) == 1
        found: Any = json.loads(await user.does("get", "csinodes", "-o", "json"))
        [entry] = found["items"][0]["spec"]["drivers"]
        assert entry["allocatable"] == {"count": 1}
        await user.does("delete", "statefulset", "db", "--timeout=90s")
        await user.sees(lambda text: not text, "get", "volumeattachments", "-o", "name")

    tell(short, story, limit=1)
