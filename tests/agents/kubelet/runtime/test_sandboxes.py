"""How the sandboxes of a node are made and end when something goes wrong, or the node stops."""

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from typing_extensions import override

from kvstack.agents.kubelet.cancellation import until_done
from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.sandboxes import RECORD, HeldSandbox, Sandboxes
from kvstack.agents.kubelet.runtime.runtime import Sandbox
from kvstack.component.net.netlink import Netlink
from tests.agents.support.namespaces import has_namespaces

needs_root = pytest.mark.skipif(not has_namespaces(), reason="sandboxes need root and namespaces")


class FailingNetwork(PodNetwork):
    """A network that cannot disconnect some pods."""

    def __init__(self, failing: set[str], state: Path) -> None:
        super().__init__("node", state)
        self.failing = failing
        self.disconnected: list[str] = []

    @override
    def disconnect(self, uid: str) -> None:
        if uid in self.failing:
            raise OSError(errno.EBUSY, f"{uid} is busy")
        self.disconnected.append(uid)


class SlowSandboxes(Sandboxes):
    """Sandboxes whose thread, once begun, waits before it makes anything."""

    is_real = True

    def __init__(self, directory: Path, network: PodNetwork) -> None:
        super().__init__(directory / "pods", directory / "state", network, outlives_node=False)
        self.begun = threading.Event()
        self.may_go_on = threading.Event()

    @override
    def _make(self, sandbox: Sandbox, *, has_network: bool, has_users: bool) -> HeldSandbox:
        self.begun.set()
        assert self.may_go_on.wait(30)
        if self.is_real:
            return super()._make(sandbox, has_network=has_network, has_users=has_users)
        record = self._pods / sandbox.uid / RECORD
        record.parent.mkdir(parents=True)
        record.touch()
        return HeldSandbox(sandbox.uid, ("10.0.0.2",), {"net": os.open("/dev/null", os.O_RDONLY)})


class MadeUpSandboxes(SlowSandboxes):
    """Sandboxes that nothing of the kernel belongs to."""

    is_real = False


def test_an_interface_that_went_by_itself_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = iter([errno.ENODEV, errno.EPERM])

    def refuse(*_: object) -> list[bytes]:
        raise OSError(next(codes), "refused")

    monkeypatch.setattr(Netlink, "ask", refuse)
    with Netlink() as links:
        links.delete("kv0")  # between the list and this, its namespace ended
        with pytest.raises(OSError, match="refused"):
            links.delete("kv0")


@needs_root
def test_the_kernel_knows_no_such_interface() -> None:
    with Netlink() as links:
        links.delete("kv-not-there")


def test_each_sandbox_is_closed_whatever_happens_to_others(tmp_path: Path) -> None:
    uids = ["a", "b", "c", "d"]
    network = FailingNetwork({"a", "c"}, tmp_path / "state")
    sandboxes = MadeUpSandboxes(tmp_path, network)
    sandboxes.may_go_on.set()

    async def make() -> list[HeldSandbox]:
        for uid in uids:
            await sandboxes.make(Sandbox(uid, "default", uid), has_network=True)
        return [held for uid in uids if (held := sandboxes.get(uid)) is not None]

    made = asyncio.run(make())
    with pytest.raises(OSError, match=r"a: .*a is busy; c: .*c is busy"):
        sandboxes.close()
    assert network.disconnected == ["b", "d"]
    assert not sandboxes.uids()
    for held in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(held.namespaces["net"])
    assert not list(tmp_path.glob(f"pods/*/{RECORD}"))


def test_a_sandbox_that_cannot_be_disconnected_is_tried_again(tmp_path: Path) -> None:
    network = FailingNetwork({"a"}, tmp_path / "state")
    sandboxes = MadeUpSandboxes(tmp_path, network)
    sandboxes.may_go_on.set()
    asyncio.run(sandboxes.make(Sandbox("a", "default", "a"), has_network=True))
    with pytest.raises(OSError, match="a is busy"):
        sandboxes.remove("a")
    network.failing.clear()
    sandboxes.remove("a")
    assert network.disconnected == ["a"]
    assert not sandboxes.uids()


@needs_root
def test_a_sandbox_that_is_made_while_the_node_stops_leaves_nothing(tmp_path: Path) -> None:
    sandboxes = SlowSandboxes(tmp_path, PodNetwork("node", tmp_path / "state"))

    async def main() -> None:
        making = asyncio.create_task(
            sandboxes.make(Sandbox("a", "default", "a"), has_network=False)
        )
        await asyncio.to_thread(sandboxes.begun.wait, 30)
        making.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert not making.done()
        sandboxes.may_go_on.set()
        await asyncio.wait([making])
        assert making.cancelled()

    asyncio.run(main())
    assert sandboxes.shm("a").is_mount()
    sandboxes.close()
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_what_a_cancelled_task_waits_for_is_done() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        async def work() -> str:
            await done
            raise ValueError("it failed")

        waiting = asyncio.create_task(until_done(work()))
        await asyncio.sleep(0)
        for _ in range(2):  # however often it is cancelled
            waiting.cancel()
            await asyncio.sleep(0)
        assert not waiting.done()
        done.set_result(None)
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        assert isinstance(caught.value.__cause__, ValueError)

    asyncio.run(main())
