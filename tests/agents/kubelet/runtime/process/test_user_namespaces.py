"""`hostUsers: false` for any image: root of the pod has its files, and nothing of the machine."""

import os
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC
from kvstack.agents.kubelet.runtime.process.user_ids import (
    BLOCKS_MAX,
    FIRST,
    NoIdsError,
    UserIds,
    release_all,
)
from kvstack.agents.kubelet.runtime.runtime import ConnectError, Mount, Security, StartError
from tests.agents.kubelet.runtime.conformance.runtimes import IMAGE
from tests.agents.kubelet.runtime.conformance.test_runtimes import log, output
from tests.agents.kubelet.runtime.process.test_host_image import (
    HostNode,
    directory,
    needs_users,
    run,
)
from tests.agents.support.cluster import eventually
from tests.support.waiting import answered

__all__ = ["directory"]


@needs_users
def test_root_owns_the_image_and_volumes(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        volume = host.directory / "volume"
        volume.mkdir()
        (volume / "own").write_text("own\n")
        (volume / "own").chmod(0o600)
        mounts = [
            Mount(str(volume), "/v"),
            Mount(str(volume), "/h", is_host_path=True),
            Mount(str(volume / "own"), "/file", is_read_only=True),
        ]
        script = (
            "id -u; ls -lnd / /etc /bin/busybox /v /dev /dev/shm /tmp | awk '{print $3 $4}' | uniq;"
            "cat /v/own /h/own /file; (echo x > /file) 2>/dev/null || echo read-only;"
            "echo a > /v/a; chown 1234 /v/a; echo more >> /etc/passwd && echo written;"
            "touch /dev/shm/x && echo shm; echo out > /dev/stdout; echo bye > /dev/termination-log;"
            "sysctl kernel.shm_rmid_forced; mknod /tmp/x b 8 0 2>/dev/null || echo no devices"
        )
        sandbox = host.sandbox(
            "owner", IMAGE, host_users=False, sysctls={"kernel.shm_rmid_forced": "1"}
        )
        container = await host.start(sandbox, script, mounts=mounts)
        await eventually(lambda: not container.is_running)
        assert log(container) == [
            *("0", "00", "own", "own", "own", "read-only", "written", "shm", "out"),
            *("kernel.shm_rmid_forced = 1", "no devices"),
        ]
        assert container.message == "bye\n"
        assert (volume / "a").stat().st_uid == 1234
        upper = next((host.directory / "node").glob("pods/*/containers/c/0/layer/upper"))
        assert (upper / "etc" / "passwd").stat().st_uid == FIRST

    run(directory, story)


@needs_users
def test_a_file_system_without_idmapped_mounts_is_named(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        sandbox = host.sandbox("sysfs", IMAGE, host_users=False)
        mounts = [Mount("/sys/kernel", "/v", is_host_path=True)]
        with pytest.raises(StartError, match="file system of /sys/kernel has no idmapped mounts"):
            await host.start(sandbox, "true", mounts=mounts)

    run(directory, story)


@needs_users
def test_pods_have_ids_of_their_own(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        rows = []
        for name in ("one", "other"):
            sandbox = host.sandbox(name, IMAGE, host_users=False)
            container = await host.start(sandbox, "sleep 1000")
            rows += await host.exec(container, "cat /proc/self/uid_map /proc/self/gid_map")
        assert [each.split() for each in rows] == [
            *([["0", str(FIRST), "65536"]] * 2),
            *([["0", str(FIRST + 65536), "65536"]] * 2),
        ]
        sandbox = host.sandbox("high", IMAGE, host_users=False)
        with pytest.raises(StartError, match="id 70000 is not in the user namespace"):
            await host.start(sandbox, "true", security=Security(70000))

    run(directory, story)


@needs_users
def test_terminals_shared_processes_and_commands(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        sandbox = host.sandbox("shared", IMAGE, host_users=False, shares_pids=True)
        container = await host.start(
            sandbox, "tty; read line; echo got $line", has_tty=True, has_stdin=True
        )
        session = await host.runtime.attach(container.id)
        await session.write(b"it\n")
        await eventually(lambda: not container.is_running)
        session.close()
        assert log(container)[-1].strip() == "got it"
        other = await host.start(sandbox, "sleep 1000", name="other", security=Security(1234))
        command = ["sh", "-c", "id -u; tty && echo on > $(tty); test -d /proc/1 && echo one"]
        running = await host.runtime.exec(other.id, command, tty=True)
        lines = (await output(running))[0].decode().split()
        assert lines[0] == "1234"
        assert lines[1].startswith("/dev/pts/")
        assert lines[2:] == ["on", "one"]

    run(directory, story)


@needs_users
def test_root_has_its_power_over_the_network_of_its_pod(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        if not host.runtime.has_network:
            pytest.skip("networks cannot be made here")
        sandbox = host.sandbox("web", IMAGE, host_users=False)
        script = "ip link set lo mtu 1400 && cat /sys/class/net/lo/mtu; nc -l -p 80 -e echo hello"
        security = Security(added=["NET_ADMIN"])
        container = await host.start(sandbox, script, security=security)
        await eventually(lambda: container.log.exists() and "1400" in log(container))

        async def port_answer() -> bytes:
            try:
                reader, writer = await host.runtime.connect(sandbox.uid, 80)
            except (ConnectError, OSError):
                return b""  # it does not listen yet
            try:
                return await reader.read()
            finally:
                writer.close()

        assert await answered(port_answer) == b"hello\n"

    run(directory, story, network=AUTOMATIC)


def test_blocks_of_ids(tmp_path: Path) -> None:
    one, other = UserIds(tmp_path, "node-a"), UserIds(tmp_path, "node-b")
    assert [one.take("x"), other.take("y"), one.take("x"), one.take("z")] == [
        *(FIRST, FIRST + 65536, FIRST, FIRST + 2 * 65536)
    ]
    assert (one.first("x"), one.first("y"), other.first("y")) == (FIRST, 0, FIRST + 65536)
    again = UserIds(tmp_path, "node-a")
    again.open(["z", "unknown"])
    assert (again.first("x"), again.first("z")) == (0, FIRST + 2 * 65536)
    assert again.take("new") == FIRST  # that of x, which is gone
    again.release("new")
    again.release("new")
    assert other.take("w") == FIRST
    release_all(tmp_path, "node-b")
    assert os.listdir(tmp_path / "ids") == ["2"]
    release_all(tmp_path / "none", "node-b")


def test_all_blocks_are_taken(tmp_path: Path) -> None:
    (tmp_path / "ids").mkdir()
    for number in range(BLOCKS_MAX):
        os.symlink("other/pod", tmp_path / "ids" / str(number))
    with pytest.raises(NoIdsError, match="all 4096 blocks"):
        UserIds(tmp_path, "node-a").take("x")
