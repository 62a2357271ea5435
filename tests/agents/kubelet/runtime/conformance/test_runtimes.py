"""What every runtime does: one story a test, on each of them.

A story that looks into containers runs where something runs in them (`run`); what a kubelet is told
of them, and what it may ask for, is the same everywhere (`run_on_any`).
"""

import asyncio
import os
import re
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.runtime.cgroups import ROOT as CGROUPS
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.cri.cri_runtime import CriRuntime
from kvstack.agents.kubelet.runtime.cri.image_mounts import image_mount_problem
from kvstack.agents.kubelet.runtime.process import shims
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.kubelet.runtime.runtime import (
    ConnectError,
    Container,
    ContainerConfig,
    ImageMissingError,
    Limits,
    Mount,
    Runtime,
    Sandbox,
    Security,
    Session,
    StartError,
    UpdateError,
)
from kvstack.component.clock import SystemClock
from tests.agents.kubelet.runtime.conformance.runtimes import (
    HOLLOW,
    IMAGE,
    close,
    opened,
    own_uid,
    require,
)
from tests.agents.support.cluster import eventually
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=["process", "cri", HOLLOW])
def kind_and_root(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    kind: str = request.param
    require(kind)
    directory = tmp_path_factory.mktemp(kind)
    yield kind, directory
    close(directory)


class World:
    """A runtime, and pods to be made on it."""

    def __init__(self, kind: str, runtime: Runtime, directory: Path) -> None:
        self.kind = kind
        self.runtime = runtime
        self.directory = directory
        self.uids: list[str] = []

    def sandbox(self, name: str, *, is_on_host: bool = False, **more: Any) -> Sandbox:
        uid = own_uid(name)
        (self.directory / "pods" / uid).mkdir(parents=True, exist_ok=True)
        self.uids.append(uid)
        logs = str(self.directory / "logs" / f"ns_{name}_{uid}")
        hostname = "" if is_on_host else f"host-{name}"
        return Sandbox(uid, name, "ns", hostname, logs, has_host_network=is_on_host, **more)

    async def start(
        self, sandbox: Sandbox, script: str, attempt: int = 0, name: str = "c", **more: Any
    ) -> Container:
        await self.runtime.make_sandbox(sandbox)
        image = await self.runtime.find_image(IMAGE)
        command = ["sh", "-c", script]
        config = ContainerConfig(sandbox, name, attempt, IMAGE, image.id, command=command, **more)
        return await self.runtime.start(config)

    async def ended(self, container: Container) -> Container:
        uid = container.pod_uid

        def ended_container() -> Container | None:
            for each in self.runtime.of_pod(uid):
                if each.id == container.id and not each.is_running:
                    return each
            return None

        done: Container = await eventually(ended_container, within_s=30)
        return done

    async def clean(self) -> None:
        for uid in self.uids:
            for each in self.runtime.of_pod(uid):
                await self.runtime.stop(each.id, 0)
            await self.runtime.stop_sandbox(uid)
            await self.runtime.remove_pod(uid)


Story = Callable[[World], Coroutine[Any, Any, None]]


def run(kind_and_root: tuple[str, Path], story: Story) -> None:
    if kind_and_root[0] == HOLLOW:
        pytest.skip("nothing runs in hollow containers")
    run_on_any(kind_and_root, story)


def run_on_any(kind_and_root: tuple[str, Path], story: Story) -> None:
    kind, directory = kind_and_root

    async def main() -> None:
        async with opened(kind, directory) as runtime:
            world = World(kind, runtime, directory)
            try:
                await story(world)
            finally:
                await world.clean()

    asyncio.run(main())


async def command(world: World, container: Container, name: str) -> tuple[bytes, bytes, int]:
    return await output(await world.runtime.exec(container.id, [name], tty=False))


async def output(session: Session) -> tuple[bytes, bytes, int]:
    found = {1: b"", 2: b""}
    try:
        while (piece := await session.read())[0]:
            found[piece[0]] += piece[1]
        code = await session.wait()
    finally:
        session.close()
    return found[1], found[2], code


def log(container: Container) -> list[str]:
    if not container.log.exists():
        return []
    return [line.split(" ", 3)[3] for line in container.log.read_text().splitlines()]


def test_a_container_runs_to_its_end(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        script = (
            "echo out; echo err >&2; hostname; echo $A $FROM_IMAGE; pwd;"
            "echo bye > /dev/termination-log; exit 3"
        )
        started = await world.start(world.sandbox("one"), script, environment={"A": "1"})
        assert (started.name, started.attempt, started.spec_image) == ("c", 0, IMAGE)
        done = await world.ended(started)
        assert (done.exit_code, done.reason, done.message) == (3, "Error", "bye\n")
        # An engine may see the end of a short one before it has noted its start.
        assert abs(done.finished_s - done.started_s) < 60
        assert sorted(log(done)) == sorted(["out", "err", "host-one", "1 yes", "/tmp"])

    run(kind_and_root, story)


def test_what_is_known_of_a_container(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("known")
        first = await world.start(sandbox, "trap '' TERM; sleep 1000")
        other = await world.start(sandbox, "sleep 1000", name="other")
        runtime = world.runtime
        found = {each.id: each for each in runtime.of_pod(sandbox.uid)}
        assert found.keys() == {first.id, other.id}
        assert (first.pod_uid, first.name, first.attempt) == (sandbox.uid, "c", 0)
        assert (first.spec_image, first.is_running) == (IMAGE, True)
        assert first.image_id
        assert abs(first.started_s - SystemClock().now_s()) < 60
        await runtime.stop(first.id, 0)
        done = await world.ended(first)
        assert (done.exit_code, done.reason) == (137, "Error")
        assert done.started_s - 1 <= done.finished_s
        assert all(each.container.id != first.id for each in await runtime.usage())
        with pytest.raises(StartError):
            await command(world, first, "true")
        again = await world.start(sandbox, "sleep 1000", attempt=1)
        known = [each for each in runtime.of_pod(sandbox.uid) if each.name == "c"]
        assert [(each.attempt, each.is_running) for each in known] == [(0, False), (1, True)]
        assert again.id != first.id
        await runtime.stop(first.id, 0)  # it has ended: nothing happens
        assert [each.exit_code for each in known[:1]] == [137]

    run_on_any(kind_and_root, story)


def test_a_sandbox_is_there_until_it_is_stopped(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        runtime = world.runtime
        if not runtime.has_network:
            pytest.skip("networks cannot be made here")
        one, other = world.sandbox("until-one"), world.sandbox("until-other")
        assert not runtime.has_sandbox(one.uid)
        assert not runtime.addresses(one.uid)
        for each in (one, other):
            assert not await runtime.make_sandbox(each)
            assert not await runtime.make_sandbox(each)  # it is there already
            assert runtime.has_sandbox(each.uid)
        addresses = [runtime.addresses(each.uid)[0] for each in (one, other)]
        assert len(set(addresses)) == 2
        assert all(ip_address(each).is_private for each in addresses)
        assert {one.uid, other.uid} <= set(runtime.pod_uids())
        with pytest.raises(ConnectError, match="connection refused"):
            await refused_by(runtime, one.uid, 81)
        await runtime.stop_sandbox(one.uid)
        assert not runtime.has_sandbox(one.uid)
        assert runtime.has_sandbox(other.uid)

    run_on_any(kind_and_root, story)


async def refused_by(runtime: Runtime, uid: str, port: int) -> None:
    """Connect with a port where nothing is; an engine may only break the connection off."""
    reader, writer = await runtime.connect(uid, port)
    try:
        if not await reader.read():
            raise ConnectError("connection refused")
    finally:
        writer.close()


def test_a_container_is_asked_to_end_and_then_killed(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        polite = await world.start(
            world.sandbox("polite"),
            "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.1; done",
        )
        await eventually(lambda: polite.log.exists() and "up" in log(polite))
        await world.runtime.stop(polite.id, 20)
        done = await world.ended(polite)
        assert (done.exit_code, log(done)) == (5, ["up", "bye"])
        deaf = await world.start(world.sandbox("deaf"), "trap '' TERM; sleep 1000")
        await world.runtime.stop(deaf.id, 1)
        assert (await world.ended(deaf)).exit_code == 137

    run(kind_and_root, story)


def test_commands(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        found = await world.start(world.sandbox("exec"), "sleep 1000", environment={"A": "1"})
        session = await world.runtime.exec(
            found.id, ["sh", "-c", "echo $A; hostname; echo no >&2; exit 4"], tty=False
        )
        assert await output(session) == (b"1\nhost-exec\n", b"no\n", 4)
        session = await world.runtime.exec(found.id, ["cat"], tty=False)
        await session.write(b"through")
        session.close_input()
        assert await output(session) == (b"through", b"", 0)
        session = await world.runtime.exec(
            found.id, ["sh", "-c", "test -t 0 && tty && echo on > $(tty)"], tty=True
        )
        assert re.fullmatch(rb"/dev/pts/\d+\r\non\r\n", (await output(session))[0])
        with pytest.raises(StartError, match="not found"):
            await command(world, found, "nothing-of-this-name")

    run(kind_and_root, story)


def test_talking_to_the_first_process(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("attach")
        script = "while read line; do echo got $line; done; echo over"
        found = await world.start(sandbox, script, has_stdin=True, has_stdin_once=True)
        session = await world.runtime.attach(found.id)
        await session.write(b"a\n")
        assert await session.read() == (1, b"got a\n")
        session.close_input()
        done = await world.ended(found)
        session.close()
        assert log(done) == ["got a", "over"]

    run(kind_and_root, story)


def test_a_container_on_a_terminal(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        script = "tty; read line; echo got $line"
        found = await world.start(
            world.sandbox("tty"),
            script,
            has_tty=True,
            has_stdin=True,
            security=Security(1234, 1234),
        )
        session = await world.runtime.attach(found.id)
        await session.write(b"it\n")
        done = await world.ended(found)
        session.close()
        lines = [line.strip() for line in log(done)]
        assert any(line.startswith("/dev/pts/") for line in lines)
        assert lines[-1] == "got it"

    run(kind_and_root, story)


def test_mounts_users_and_rights(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        shared = world.directory / "shared"
        shared.mkdir(exist_ok=True)
        shared.chmod(0o777)
        mounts = [Mount(str(shared), "/rw"), Mount(str(shared), "/ro", is_read_only=True)]
        script = (
            "id -u; id -g; echo x > /rw/file; cat /ro/file;"
            "echo y 2>/dev/null > /ro/file || echo refused;"
            "touch /tmp/z 2>/dev/null || echo still; grep NoNewPrivs /proc/self/status"
        )
        security = Security(1234, 1234, no_new_privileges=True, has_read_only_root=True)
        found = await world.start(world.sandbox("rights"), script, mounts=mounts, security=security)
        done = await world.ended(found)
        assert log(done) == ["1234", "1234", "x", "refused", "still", "NoNewPrivs:\t1"]
        user = found.user
        if world.kind == "process" or user is not None:  # engines before 2.0 do not say
            assert user is not None
            assert (user.user, user.group, user.groups) == (1234, 1234, [1234])
        found = await world.start(
            world.sandbox("caps"),
            "grep CapEff /proc/self/status; mount -t tmpfs none /tmp 2>/dev/null || echo refused",
            security=Security(dropped=["ALL"], added=["CHOWN"], seccomp="RuntimeDefault"),
        )
        done = await world.ended(found)
        assert log(done) == ["CapEff:\t0000000000000001", "refused"]

    run(kind_and_root, story)


def test_a_volume_replaces_the_nodes_own_file(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        own = world.directory / "own-resolv.conf"
        own.write_text("nameserver 192.0.2.7\n")
        sandbox = world.sandbox("own-names", servers=["192.0.2.1"])
        mounts = [Mount(str(own), "/etc//resolv.conf")]
        done = await world.ended(await world.start(sandbox, "cat /etc/resolv.conf", mounts=mounts))
        assert log(done) == ["nameserver 192.0.2.7"]

    run(kind_and_root, story)


def test_mounts_below_a_mount_are_only_to_be_read(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        if world.runtime.unsupported("recursiveReadOnly"):
            pytest.skip("this runtime cannot do it")
        outer = world.directory / "outer"
        inner = outer / "inner"
        inner.mkdir(parents=True)
        syscalls.mount("tmpfs", str(inner), "tmpfs")
        try:
            mounts = [
                Mount(str(outer), "/some", is_read_only=True),
                Mount(str(outer), "/all", is_read_only=True, is_recursive=True),
            ]
            script = (
                "for each in /some /some/inner /all /all/inner; do "
                "touch $each/x 2>/dev/null && echo $each; done; true"
            )
            found = await world.start(world.sandbox("below"), script, mounts=mounts)
            assert log(await world.ended(found)) == ["/some/inner"]
        finally:
            syscalls.unmount(str(inner), syscalls.MNT_DETACH)

    run(kind_and_root, story)


def test_paths_in_volumes_have_no_links(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        if world.kind != "process":
            pytest.skip("engines are given paths")
        volume = world.directory / "linked"
        (volume / "real").mkdir(parents=True)
        (volume / "link").symlink_to("real")
        sandbox = world.sandbox("links")
        mounts = [Mount(str(volume / "real"), "/v", is_below=True)]
        found = await world.start(sandbox, "touch /v/x", mounts=mounts)
        await world.ended(found)
        assert (volume / "real" / "x").exists()
        mounts = [Mount(str(volume / "link"), "/v", is_below=True)]
        with pytest.raises(StartError, match="leads over a link"):
            await world.start(sandbox, "touch /v/x", attempt=1, mounts=mounts)

    run(kind_and_root, story)


def test_images_are_mounted_as_volumes(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        mounts = [
            Mount("", "/image", is_read_only=True, image=IMAGE),
            Mount("etc", "/part", is_read_only=True, image=IMAGE),
        ]
        script = (
            "ls /image; grep -c somebody /part/passwd; "
            "touch /image/x 2>/dev/null || echo refused; "
            "/image/bin/busybox true 2>/dev/null || echo no program"
        )
        sandbox = world.sandbox("image")
        runtime = world.runtime
        if isinstance(runtime, CriRuntime) and image_mount_problem(
            runtime.name, runtime.version, has_sub_path=True
        ):
            with pytest.raises(StartError, match=r"needs containerd 2\.[12] or later"):
                await world.start(sandbox, script, mounts=mounts)
            return
        found = await world.start(sandbox, script, mounts=mounts)
        lines = log(await world.ended(found))
        assert {"bin", "etc"} <= set(lines)
        # Whether programs in it can be run is the engine's matter: those of containerd can.
        refusals = ["refused", "no program"] if world.kind == "process" else ["refused"]
        assert lines[lines.index("1") :] == ["1", *refusals]
        missing = "ErrImagePull" if world.kind == "process" else "CreateContainerError"
        for image, path, reason in (
            ("localhost/none:1", "", missing),
            (IMAGE, "none", "CreateContainerError"),
            (IMAGE, "../..", "CreateContainerError"),
        ):
            mount = Mount(path, "/image", is_read_only=True, image=image)
            with pytest.raises(StartError) as refused:
                await world.start(sandbox, "true", attempt=1, mounts=[mount])
            assert refused.value.reason == reason

    run(kind_and_root, story)


def test_what_runs_is_found_again(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("again")
        found = await world.start(sandbox, "sleep 1000")
        ended = await world.start(sandbox, "exit 7", attempt=1)
        await world.ended(ended)
        async with opened(world.kind, world.directory) as other:
            containers = {each.id: each for each in other.of_pod(sandbox.uid)}
            assert containers[found.id].is_running
            assert containers[ended.id].exit_code == 7
            assert sandbox.uid in other.pod_uids()
            session = await other.exec(found.id, ["hostname"], tty=False)
            assert (await output(session))[0] == b"host-again\n"
            await other.stop(found.id, 0)
        await world.ended(found)

    run(kind_and_root, story)


def test_a_container_whose_start_was_not_recorded_does_not_run_twice(
    kind_and_root: tuple[str, Path],
) -> None:
    """As a kubelet leaves it that is killed while it starts one."""

    async def story(world: World) -> None:
        if world.kind != "process":
            return  # an engine records what it starts
        sandbox = world.sandbox("half")
        script = f"sleep 1001.{os.getpid()}"
        first = await world.start(sandbox, script)
        (record,) = (world.directory / "pods" / sandbox.uid).glob("containers/*/*/record.json")
        record.unlink()
        async with opened(world.kind, world.directory) as other:
            assert not [each for each in commands() if script in each]
            assert not any(each.is_running for each in other.of_pod(sandbox.uid))
            assert sandbox.uid in other.pod_uids()
        assert (await world.ended(first)).exit_code == 137

    run(kind_and_root, story)


class KilledError(Exception):
    """Stands for the end of the kubelet's process."""


def test_a_container_ends_whose_node_was_killed_before_it_had_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its shim finds that nobody reads that the container has started."""
    script = f"sleep 1000.{os.getpid()}"

    async def story(world: World) -> None:
        def unread(descriptor: int) -> bytes:
            os.close(descriptor)
            raise KilledError

        with monkeypatch.context() as patched:
            patched.setattr(shims, "_read_all", unread)
            with pytest.raises(KilledError):
                await world.start(world.sandbox("unread"), script)
        async with opened(world.kind, world.directory):
            assert not [each for each in commands() if script in each]

    run_on_any(("process", tmp_path), story)


def commands() -> Iterator[str]:
    """Yield the command lines of all processes."""
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                yield (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it is gone


def test_limits_and_use(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        if world.runtime.unsupported("limits"):
            pytest.skip("control groups cannot be made here")
        sandbox = world.sandbox("limits", cgroup=f"kubepods/besteffort/pod{own_uid('limits')}")
        script = "x=0123456789abcdef; while :; do x=$x$x; done"
        found = await world.start(sandbox, script, limits=Limits(memory_bytes=32 << 20))
        done = await world.ended(found)
        assert (done.exit_code, done.reason) == (137, "OOMKilled")
        busy = await world.start(sandbox, "while :; do :; done", attempt=1)

        async def used() -> bool:
            usage = await world.runtime.usage()
            return any(each.container.id == busy.id and each.cpu_ns > 0 for each in usage)

        await answered(used)

    run(kind_and_root, story)


def test_limits_change_while_a_container_runs(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        if world.runtime.unsupported("limits"):
            pytest.skip("control groups cannot be made here")
        group = f"kubepods/burstable/pod{own_uid('resized')}"
        narrow, wide = Limits(memory_bytes=16 << 20), Limits(memory_bytes=256 << 20)
        sandbox = world.sandbox("resized", cgroup=group, limits=wide)
        script = "read line; x=0123456789abcdef; while [ ${#x} -lt 40000000 ]; do x=$x$x; done"
        found = await world.start(sandbox, script, limits=narrow, has_stdin=True)
        await world.runtime.update(found.id, wide)
        known = getattr(world.runtime, "_running", {})
        running = known.get(found.id)
        session = await world.runtime.attach(found.id)
        await session.write(b"go\n")
        done = await world.ended(found)
        session.close()
        assert (done.exit_code, done.reason) == (0, "Completed")
        # What has ended is not limited, and that is no error of a node of processes.
        if world.kind == "process":
            await world.runtime.update(found.id, narrow)
            await eventually(lambda: found.id not in known)
            known[found.id] = running  # its group is removed before it is forgotten
            await world.runtime.update(found.id, narrow)
            del known[found.id]
            with pytest.raises(UpdateError):
                await world.runtime.limit_pod(f"kubepods/burstable/pod{own_uid('none')}", wide)

    run(kind_and_root, story)


def test_the_control_group_of_a_pod_goes_with_all_in_it(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        if world.runtime.unsupported("limits"):
            pytest.skip("control groups cannot be made here")
        group = f"kubepods/burstable/pod{own_uid('group')}"
        sandbox = world.sandbox("group", cgroup=group, limits=Limits(cpu_shares=512))
        found = await world.start(sandbox, "sleep 1000")
        below = CGROUPS / ("" if Cgroups().version == 2 else "memory") / group / "stray"
        below.mkdir()
        stray = await asyncio.create_subprocess_exec("sleep", "1000")
        (below / "cgroup.procs").write_text(str(stray.pid))
        await world.runtime.stop(found.id, 0)
        assert below.exists()
        await world.runtime.stop_sandbox(sandbox.uid)
        controllers = sorted(CGROUPS.iterdir())
        assert not [each for each in (CGROUPS, *controllers) if (each / group).exists()]
        assert await stray.wait() == -signal.SIGKILL

    run(kind_and_root, story)


def test_images_that_are_not_there(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        is_hollow = world.kind == HOLLOW
        none, nowhere = "localhost/none:1", "127.0.0.1:1/none:1"
        with pytest.raises(ImageMissingError):
            await world.runtime.find_image("missing/none:1" if is_hollow else none)
        with pytest.raises(StartError) as refused:
            await world.runtime.pull_image("missing/none:1" if is_hollow else nowhere, ())
        assert refused.value.reason == "ErrImagePull"
        await world.start(world.sandbox("images"), "sleep 1000")
        names = [name for each in await world.runtime.images() for name in each.names]
        assert IMAGE in names

    run_on_any(kind_and_root, story)


def test_logs_go_on_in_a_new_file(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("rotated")
        script = "while read line; do echo $line; done"
        found = await world.start(sandbox, script, has_stdin=True)
        session = await world.runtime.attach(found.id)
        await session.write(b"one\n")
        await eventually(lambda: log(found) == ["one"])
        found.log.rename(found.log.with_name("old.log"))
        await world.runtime.reopen_log(found.id)
        await eventually(found.log.exists)
        await session.write(b"two\n")
        await eventually(lambda: log(found) == ["two"])
        session.close()

    run(kind_and_root, story)


def test_removed_pods_leave_nothing(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("gone")
        found = await world.start(sandbox, "sleep 1000 & sleep 1000")
        await world.runtime.stop(found.id, 0)
        await world.runtime.stop_sandbox(sandbox.uid)
        await world.runtime.remove_container(found.id)
        assert not world.runtime.of_pod(sandbox.uid)
        await world.runtime.remove_pod(sandbox.uid)
        assert sandbox.uid not in world.runtime.pod_uids()

    run_on_any(kind_and_root, story)


def test_a_container_ends_though_commands_were_left_in_it(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        found = await world.start(world.sandbox("left"), "sleep 1000")
        sessions = [
            await world.runtime.exec(found.id, ["sleep", "1000"], tty=False) for _ in range(3)
        ]
        sessions[0].close()
        await world.runtime.stop(found.id, 0)
        assert (await world.ended(found)).exit_code == 137
        for each in sessions[1:]:
            each.close()

    run(kind_and_root, story)


ANSWER = "while :; do echo {} | nc -l -p 8080; done"
ASK = 'until out=$(nc 127.0.0.1 8080 </dev/null) && [ -n "$out" ]; do sleep 0.05; done; echo "$out"'


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def read_port(runtime: Runtime, uid: str, port: int) -> bytes:
    """Return what a port of a pod says."""
    return await heard(lambda: runtime.connect(uid, port))


async def heard(connect: Callable[[], Coroutine[Any, Any, Streams]]) -> bytes:
    """Return what a port says once it listens, which ANSWER does not between two answers."""

    async def answer() -> bytes:
        try:
            reader, writer = await connect()
        except (ConnectError, OSError):
            return b""
        try:
            return await reader.read()
        finally:
            writer.close()

    return await answered(answer)


async def is_refused(runtime: Runtime, uid: str, port: int) -> bool:
    """Whether nothing is at a port; an engine may say so only after it took the connection."""
    try:
        reader, writer = await runtime.connect(uid, port)
    except ConnectError as error:
        return "connection refused" in str(error)
    try:
        return not await reader.read()
    finally:
        writer.close()


def test_each_pod_has_an_address_of_its_own(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        if not world.runtime.has_network:
            pytest.skip("networks cannot be made here")
        one, other = world.sandbox("net-one"), world.sandbox("net-other")
        for each, text in ((one, "one"), (other, "other")):
            await world.start(each, ANSWER.format(text))
        addresses = [world.runtime.addresses(each.uid)[0] for each in (one, other)]
        assert len(set(addresses)) == 2
        assert all(ip_address(each).is_private for each in addresses)
        # The same port in each, as their containers and as the node see it.
        assert await read_port(world.runtime, one.uid, 8080) == b"one\n"
        assert await read_port(world.runtime, other.uid, 8080) == b"other\n"
        assert await heard(lambda: asyncio.open_connection(addresses[0], 8080)) == b"one\n"
        beside = await world.start(one, "sleep 1000", name="beside")
        session = await world.runtime.exec(
            beside.id, ["sh", "-c", f"{ASK}; ls /sys/class/net"], tty=False
        )
        found = (await output(session))[0].decode().split()
        assert found[0] == "one"
        assert {"eth0", "lo"} <= set(found[1:])
        assert "docker0" not in found
        assert await is_refused(world.runtime, one.uid, 81)
        assert world.runtime.has_sandbox(one.uid)
        for container in world.runtime.of_pod(other.uid):
            await world.runtime.stop(container.id, 0)
        await world.runtime.stop_sandbox(other.uid)
        assert not world.runtime.has_sandbox(other.uid)

    run(kind_and_root, story)


def test_a_pod_of_the_hosts_network_has_its_interfaces(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("on-host", is_on_host=True)
        before = {each for each in os.listdir("/sys/class/net") if not each.startswith("kv")}
        found = await world.start(sandbox, "hostname; ls /sys/class/net")
        done = await world.ended(found)
        name, *interfaces = log(done)
        assert name == socket.gethostname()
        # Those of other nodes and their pods, kv…, come and go meanwhile.
        assert "lo" in before
        assert before & set(os.listdir("/sys/class/net")) <= set(interfaces)

    run(kind_and_root, story)


def test_containers_of_a_pod_share_memory_and_names(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("shared")
        await world.start(sandbox, "echo shared > /dev/shm/x; sleep 1000")
        script = "until test -s /dev/shm/x; do sleep 0.05; done; cat /dev/shm/x; hostname"
        other = await world.start(sandbox, script, name="other")
        assert log(await world.ended(other)) == ["shared", "host-shared"]
        apart = await world.start(world.sandbox("apart"), "ls /dev/shm")
        assert log(await world.ended(apart)) == []

    run(kind_and_root, story)


def test_a_sandbox_is_found_again(kind_and_root: tuple[str, Path]) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox("kept")
        await world.start(sandbox, ANSWER.format("kept"))
        addresses = world.runtime.addresses(sandbox.uid)
        async with opened(world.kind, world.directory) as later:
            assert later.has_sandbox(sandbox.uid)
            assert list(later.addresses(sandbox.uid)) == list(addresses)
            assert not await later.make_sandbox(sandbox)
            assert await read_port(later, sandbox.uid, 8080) == b"kept\n"

    run(kind_and_root, story)
