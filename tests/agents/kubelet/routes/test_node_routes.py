"""Nodes come, move and go: the routes of a network namespace that the test made follow."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.informer import Informer
from kvstack.agents.kubelet import command
from kvstack.agents.kubelet.routes import guard
from kvstack.agents.kubelet.routes.node_routes import NodeRoutes, RouteOptions
from kvstack.agents.kubelet.routes.plan import AUTOMATIC, HOST_GATEWAY, NONE
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.component.clock import SystemClock
from kvstack.component.net import nft
from tests.agents.kubelet.routes.test_plan import node
from tests.agents.support.namespaces import has_namespaces
from tests.support.list_log import ListLog
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from kvstack.agents.client.api import Api
    from kvstack.agents.client.event_recorder import EventRecorder

NAMESPACES = pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")

RANGES = (ip_network("10.244.0.0/16"), ip_network("fd00:7::/48"))
OWN = node("a", "10.244.0.0/24", "192.168.0.1", 0)
BESIDE = node("b", "10.244.1.0/24", "192.168.0.2")
NEAR = "10.244.1.0/24 via 192.168.0.2 dev lan"


class Events:
    """What would be told in events."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, str]] = []

    def record(self, about: dict[str, Any], type_: str, reason: str, _message: str) -> None:
        self.written.append((about["metadata"]["name"], type_, reason))


class Here:
    """One node of the namespace that the thread is in."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._version = 0
        self.log, self.events = ListLog(), Events()
        self.informer = Informer(cast("Api", None), NODES, SystemClock(), lambda: 0.5, self.log)

    def routes(self, mode: str = AUTOMATIC, *, ends: bool = True) -> NodeRoutes:
        options = RouteOptions("a", RANGES, mode, self._state, ends)
        recorder = cast("EventRecorder", self.events)
        return NodeRoutes(self.informer, recorder, self.log, options)

    def say(self, *nodes: dict[str, Any]) -> None:
        """Let the API have these nodes, and no other."""
        self._version += 1
        version = str(self._version)
        found = [
            {**each, "metadata": {**each["metadata"], "resourceVersion": version}} for each in nodes
        ]
        self.informer.replace(found, version)


def output(*command: str) -> str:
    return subprocess.check_output(command or ("ip", "route", "show", "proto", "75"), text=True)


def ip(text: str) -> None:
    subprocess.check_call(["ip", *text.split()])


def run(directory: Path, story: Callable[[Here], Awaitable[None]]) -> None:
    """Tell a story in a namespace with a network `lan`."""

    def inside() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        for text in (
            "link add lan type veth peer cable",
            "link set cable up",
            "address add 192.168.0.1/24 dev lan",
            "link set lan up",
            "route add default via 192.168.0.254",
        ):
            ip(text)

        async def main() -> None:
            await story(Here(directory))

        asyncio.run(main())

    asyncio.run(in_own_thread(inside))


@NAMESPACES
def test_nodes_come_move_and_go(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        routes = here.routes()
        await routes.start()
        here.say(node("a", "", "192.168.0.1"), BESIDE)  # it has no range yet
        here.say(OWN, BESIDE)
        await eventually(lambda: NEAR in output())
        here.say(OWN, node("b", "10.244.1.0/24", "192.168.0.3"))
        await eventually(lambda: "10.244.1.0/24 via 192.168.0.3 dev lan" in output())
        here.say(OWN, node("b", "10.244.7.0/24", "192.168.0.3"))
        await eventually(lambda: "10.244.7.0/24 via 192.168.0.3 dev lan" in output())
        assert "10.244.1.0/24" not in output()
        here.say(OWN)
        await eventually(lambda: not output())
        here.say(OWN, BESIDE)
        await eventually(lambda: NEAR in output())
        await routes.stop()
        assert not output()

    run(tmp_path, story)


@NAMESPACES
def test_a_hostile_node_is_reported_once(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        routes = here.routes(HOST_GATEWAY)
        await routes.start()
        here.say(OWN, node("c", "0.0.0.0/0", "192.168.0.9"), node("d", "10.244.2.0/24", "8.8.8.8"))
        await eventually(lambda: len(here.events.written) == 2)
        here.say(OWN, BESIDE, node("c", "0.0.0.0/0", "192.168.0.9"))
        await eventually(lambda: NEAR in output())
        reason = ("Warning", "FailedToCreateRoute")
        assert here.events.written == [("c", *reason), ("d", *reason)]
        assert len(output().splitlines()) == 1
        await routes.stop()

    run(tmp_path, story)


@NAMESPACES
def test_what_was_left_is_taken_up_or_away(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        ip("route add 10.244.1.0/24 via 192.168.0.2 proto 75")
        ip("route add 10.244.9.0/24 via 192.168.0.9 proto 75")
        routes = here.routes()
        await routes.start()
        here.say(OWN, BESIDE)
        await eventually(lambda: "10.244.9.0/24" not in output())
        assert NEAR in output()
        await routes.stop()
        ip("route add 10.244.9.0/24 via 192.168.0.9 proto 75")
        routes = here.routes(NONE)
        await routes.start()
        await eventually(lambda: not output())
        await routes.stop()

    run(tmp_path, story)


@NAMESPACES
def test_routes_of_pods_that_go_on_stay(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        for has_bridge in (True, False):
            if has_bridge:
                ip("address add 10.244.0.1/24 dev lan")
            ip("route flush proto 75")
            routes = here.routes(ends=False)
            await routes.start()
            here.say(OWN, BESIDE)
            await eventually(lambda: NEAR in output())
            if not has_bridge:
                ip("address del 10.244.0.1/24 dev lan")
            await routes.stop()
            assert bool(output()) == has_bridge

    run(tmp_path, story)


@NAMESPACES
def test_one_process_writes_and_the_next_takes_over(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        first, second = here.routes(), here.routes()
        await first.start()
        here.say(OWN, BESIDE)
        await eventually(lambda: NEAR in output())
        await second.start()
        here.say(OWN, node("b", "10.244.1.0/24", "192.168.0.3"))
        await eventually(lambda: "via 192.168.0.3" in output())
        await first.stop()
        here.say(OWN, BESIDE)
        await eventually(lambda: NEAR in output())
        await second.stop()
        assert not output()

    run(tmp_path, story)


@NAMESPACES
@pytest.mark.skipif(not nft.is_installed(), reason="the program nft is not installed")
def test_a_tunnel_is_guarded_as_long_as_it_is_there(tmp_path: Path) -> None:
    async def story(here: Here) -> None:
        routes = here.routes()
        await routes.start()
        here.say(OWN, node("b", "10.244.1.0/24", "203.0.113.7"))
        await eventually(lambda: "dev kvxlan1" in output())
        assert "203.0.113.7" in output("nft", "list", "table", "ip", guard.TABLE)
        here.say(OWN, BESIDE)
        await eventually(lambda: NEAR in output())
        await eventually(lambda: guard.TABLE not in output("nft", "list", "tables"))
        assert "kvxlan1" not in output("ip", "link")
        await routes.stop()

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ((), None),
        (("--cluster-cidr=10.244.0.0/16",), AUTOMATIC),
        (("--cluster-cidr=10.244.0.0/16", "--network=vxlan"), "vxlan"),
        (("--cluster-cidr=10.244.0.0/16", "--pod-network=host"), None),
        (("--cluster-cidr=10.244.0.0/16", "--container-runtime-endpoint=unix:///e"), None),
        (
            (
                *("--cluster-cidr=10.244.0.0/16", "--container-runtime-endpoint=unix:///e"),
                "--network=host-gw",
            ),
            HOST_GATEWAY,
        ),
    ],
)
def test_which_kubelets_write_routes(flags: tuple[str, ...], mode: str | None) -> None:
    own, given, _ = command.split_flags([*flags, "--kubeconfig=k", "--hostname-override=a"])
    configuration, _ = command.read(own, given)
    found = command.route_options(own, command.node_options(own, configuration))
    assert (found and found.mode) == mode
    assert found is None or not found.ends_with_node


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (("--network=vxlan",), "--network vxlan: --cluster-cidr is needed, too"),
        (("--network=air", "--cluster-cidr=10.244.0.0/16"), "--network air: one of auto, host-gw"),
    ],
)
def test_flags_of_routes_that_cannot_be_meant(flags: tuple[str, ...], text: str) -> None:
    with pytest.raises(command.FlagError, match=text):
        command.split_flags([*flags, "--kubeconfig=k"])
