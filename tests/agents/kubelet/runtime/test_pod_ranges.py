"""A node of processes is ready once the range of its pods is in use."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Callable, Coroutine
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.built_in import NODES
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.options import KubeletOptions
from kvstack.agents.kubelet.runtime.process.images import Images
from kvstack.agents.kubelet.runtime.process.options import (
    AUTOMATIC,
    BRIDGE,
    SHARED,
    ProcessOptions,
)
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.process.sandboxes import probe_network
from kvstack.agents.kubelet.runtime.runtime import StartError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.net.netlink import Netlink
from tests.agents.kubelet.runtime.conformance.runtimes import own_range
from tests.agents.support.cluster import TestCluster, eventually
from tests.agents.support.namespaces import has_namespaces
from tests.support.clocks import HandClock

pytestmark = pytest.mark.skipif(
    not has_namespaces() or bool(probe_network()), reason="networks need root and namespaces"
)

RANGE = own_range()
ADDRESS = str(IPv4Network(RANGE)[1])
OTHER = f"t{os.getpid()}"


def runtime_of(directory: Path, network: str, clock: Clock) -> ProcessRuntime:
    root = directory / "node"
    root.mkdir(exist_ok=True)
    options = ProcessOptions(root, network=network, state=directory / "state")
    return ProcessRuntime(
        options, Images(directory / "images", has_host=False), clock, lambda _: None
    )


def run(directory: Path, network: str, story: Callable[[ProcessRuntime, HandClock], Any]) -> None:
    async def main() -> None:
        clock = HandClock()
        runtime = runtime_of(directory, network, clock)
        await runtime.open()
        try:
            await story(runtime, clock)
        finally:
            await runtime.close()

    asyncio.run(main())


def has_address() -> bool:
    return f" {ADDRESS}/24 " in subprocess.check_output(["ip", "-4", "address"], text=True)


def test_a_range_is_waited_for(tmp_path: Path) -> None:
    async def story(runtime: ProcessRuntime, clock: HandClock) -> None:
        assert runtime.problem() == ""  # nobody gives ranges to a node that is not registered
        clock.now += 60
        await runtime.use_ranges([])
        clock.now += 9
        assert "spec.podCIDR" in runtime.problem()
        await runtime.use_ranges([RANGE])
        assert runtime.problem() == ""
        assert runtime.has_network

    run(tmp_path, AUTOMATIC, story)


def test_what_listens_at_the_address_of_the_bridge_is_reached_before_the_first_pod(
    tmp_path: Path,
) -> None:
    """As the cluster's DNS does: the machine, and pods that share its network, ask it there."""

    async def story(runtime: ProcessRuntime, _clock: HandClock) -> None:
        await runtime.use_ranges([RANGE])
        with (
            socket.create_server((ADDRESS, 0)) as server,
            socket.create_connection(server.getsockname(), 10) as connection,
        ):
            assert connection.getsockname()[0] == ADDRESS

    run(tmp_path, AUTOMATIC, story)
    assert not has_address()


def test_a_range_that_is_in_use_is_refused_and_tried_again(tmp_path: Path) -> None:
    async def story(runtime: ProcessRuntime, _clock: HandClock) -> None:
        with Netlink() as links:
            links.add_bridge(OTHER, bytes.fromhex("0a5800000001"))
            try:
                links.set_up(OTHER)
                links.add_address(OTHER, IPv4Interface(f"{ADDRESS}/24"))
                with pytest.raises(StartError, match=f"the range {RANGE} .* in use on {OTHER}"):
                    await runtime.use_ranges([RANGE])
                assert f"message:the range {RANGE}" in runtime.problem()
            finally:
                links.delete(OTHER)
        await runtime.use_ranges([RANGE])
        assert has_address()
        assert runtime.problem() == ""

    run(tmp_path, AUTOMATIC, story)


def test_a_range_that_nobody_gives_is_not_waited_for_any_longer(tmp_path: Path) -> None:
    async def story(runtime: ProcessRuntime, clock: HandClock) -> None:
        await runtime.use_ranges([])
        clock.now += 10
        assert runtime.problem() == ""
        assert not runtime.has_network

    run(tmp_path, AUTOMATIC, story)


@pytest.mark.parametrize(("network", "is_waiting"), [(BRIDGE, True), (SHARED, False)])
def test_other_networks_wait_always_or_never(
    network: str, *, is_waiting: bool, tmp_path: Path
) -> None:
    async def story(runtime: ProcessRuntime, clock: HandClock) -> None:
        await runtime.use_ranges([])
        assert bool(runtime.problem()) == is_waiting
        clock.now += 3600
        assert bool(runtime.problem()) == is_waiting

    run(tmp_path, network, story)


def ready_of(found: dict[str, Any]) -> str:
    conditions = found["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == "Ready")


@pytest.mark.slow
def test_a_new_node_is_ready_once_its_range_is_in_use(tmp_path: Path) -> None:
    async def story(cluster: TestCluster, runtime: ProcessRuntime) -> None:
        first = await cluster.admin.get(NODES, "", "node-a")
        assert ready_of(first) == "False"
        body = b'{"spec": {"podCIDR": "%s", "podCIDRs": ["%s"]}}' % (2 * (RANGE.encode(),))
        path = NODES.path("", "node-a")
        await cluster.admin.call("PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH)
        nodes = cluster.informers.of(NODES).store

        def is_ready() -> bool:
            found = nodes.get("node-a")
            return found is not None and ready_of(found) == "True"

        await eventually(is_ready)
        assert runtime.has_network

    run_node(tmp_path, story)


def run_node(
    directory: Path, story: Callable[[TestCluster, ProcessRuntime], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        async with TestCluster(directory) as cluster:
            clock = HandClock()  # so that the range is waited for however slow the test is
            runtime = runtime_of(directory, AUTOMATIC, clock)
            options = KubeletOptions("node-a", "127.0.0.1", directory / "node")
            machine, log = node.look(directory), cluster.log
            kubelet = Kubelet(
                cluster.admin, runtime, machine, cluster.clock, lambda: 0.5, log, options
            )
            await runtime.open()
            try:
                await kubelet.start()
                await story(cluster, runtime)
            finally:
                await kubelet.stop()
                await runtime.close()

    asyncio.run(main())
