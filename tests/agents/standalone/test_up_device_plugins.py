"""`kvstack up` with a device plugin: the node tells of devices, and a pod gets one."""

import asyncio
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.kubelet.test_device_plugins import READS, RESOURCE, offered
from tests.agents.standalone.test_stack import kubectl, lines_of, up
from tests.agents.support.namespaces import has_namespaces
from tests.support.servers import free_ports
from tests.support.waiting import answered

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
]


@pytest.fixture
def short() -> Iterator[Path]:
    """Give a directory whose path is short enough for the sockets of plugins."""
    directory = Path(tempfile.mkdtemp(prefix="up-"))
    yield directory
    shutil.rmtree(directory)


def test_a_plugin_registers_and_a_pod_gets_its_device(short: Path) -> None:
    directory = short / "data" / "kubernetes" / "node" / "device-plugins"
    shared = short / "shared"
    shared.mkdir()
    (shared / "text").write_text("shared\n")
    file = short / "data" / "kubernetes" / "admin.conf"

    async def does(*arguments: str) -> str:
        return await asyncio.to_thread(kubectl, file, short, *arguments)

    async def shows(text: str, *arguments: str) -> None:
        async def is_shown() -> bool:
            return (await does(*arguments)).strip() == text

        await answered(is_shown, within_s=60.0)

    async def main() -> None:
        assert not (directory / ".grpc.sock").exists()  # gRPC is loaded for the first plugin
        async with offered(directory, shared) as plugin:
            escaped = RESOURCE.replace(".", "\\.")
            amount = f"jsonpath={{.items[0].status.allocatable.{escaped}}}"
            await shows("2", "get", "nodes", "-o", amount)
            container = {"name": "one", "resources": {"limits": {RESOURCE: "1"}}}
            overrides = json.dumps({"spec": {"containers": [container]}})
            await does(
                *("run", "one", "--image=host", "--restart=Never", "--override-type=strategic"),
                *(f"--overrides={overrides}", "--command", "--", "/bin/sh", "-c", READS),
            )
            await does("wait", "pod/one", "--for=condition=Ready", "--timeout=60s")

            await shows("b\nshared\nwritten", "logs", "one")
            assert plugin.started == [["b"]]
            await does("delete", "pod", "one", "--grace-period=1", "--timeout=60s")

    (port,) = free_ports(1)
    with up(short / "data", f"--secure-port={port}", "--without=dashboard") as process:
        lines_of(process)
        asyncio.run(main())
