"""The image of the machine's own files: what containers of it see, may write, and are.

Each story runs in a real container. The machine has, beside its own secrets, a directory with keys
that everybody may read: what hides it is the node alone.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.runtime.process import features
from kvstack.agents.kubelet.runtime.process.host_image import NOBODY, HostImage
from kvstack.agents.kubelet.runtime.process.images import Images
from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, ProcessOptions
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.process.user_ids import FIRST
from kvstack.agents.kubelet.runtime.runtime import (
    Container,
    ContainerConfig,
    Mount,
    Sandbox,
    Security,
    StartError,
)
from kvstack.component.clock import SystemClock
from tests.agents.kubelet.runtime.conformance.runtimes import (
    IMAGE,
    own_range,
    own_uid,
    require,
    write_archive,
)
from tests.agents.kubelet.runtime.conformance.test_runtimes import log, output
from tests.agents.support.cluster import eventually
from tests.agents.support.namespaces import has_namespaces

RESTRICTED = Security(1234, 1234, dropped=["ALL"], no_new_privileges=True, seccomp="RuntimeDefault")
EVERYBODY = pytest.mark.parametrize(
    "security", [Security(), Security(NOBODY, NOBODY), RESTRICTED], ids=["root", "nobody", "other"]
)
ROOT = Security(0)
ALLOWED = "allowed"

needs_namespaces = pytest.mark.skipif(not has_namespaces(), reason="needs root and namespaces")
needs_users = pytest.mark.skipif(
    not has_namespaces() or bool(features.user_namespaces() or features.idmapped_mounts(Path("/"))),
    reason=f"needs root and user namespaces: {features.user_namespaces()}",
)


class HostNode:
    """A runtime, its pods, and a directory of the machine that is not in /tmp."""

    def __init__(self, runtime: ProcessRuntime, directory: Path) -> None:
        self.runtime = runtime
        self.directory = directory
        self.key = directory / "data" / "pki" / "ca.key"
        self.open = directory / "open"
        self.uids: list[str] = []

    def sandbox(self, name: str, image: str = "host", space: str = "ns", **more: Any) -> Sandbox:
        uid = own_uid(name)
        (self.directory / "node" / "pods" / uid).mkdir(parents=True, exist_ok=True)
        self.uids.append(uid)
        logs = str(self.directory / "logs" / uid)
        hostname = "" if more.get("has_host_network") else name
        return Sandbox(uid, name, space, hostname, logs, images=[image], **more)

    async def start(self, sandbox: Sandbox, script: str, **more: Any) -> Container:
        await self.runtime.make_sandbox(sandbox)
        command = ["sh", "-c", script]
        more = {"name": "c", "attempt": 0, **more}
        config = ContainerConfig(sandbox, image=sandbox.images[0], command=command, **more)
        return await self.runtime.start(config)

    async def output(self, sandbox: Sandbox, script: str, **more: Any) -> list[str]:
        """Run a container to its end; return its log."""
        container = await self.start(sandbox, script, **more)
        await eventually(lambda: not container.is_running, within_s=30)
        return log(container)

    async def exec(self, container: Container, script: str) -> list[str]:
        command = ["sh", "-c", script]
        out, errors, _ = await output(await self.runtime.exec(container.id, command, tty=False))
        return (out + errors).decode().splitlines()

    async def clean(self) -> None:
        for uid in self.uids:
            for each in self.runtime.of_pod(uid):
                await self.runtime.stop(each.id, 0)
            await self.runtime.remove_pod(uid)


@pytest.fixture
def directory() -> Iterator[Path]:
    require("process")
    made = Path(tempfile.mkdtemp(prefix="kvstack-test-", dir="/opt"))
    made.chmod(0o755)
    try:
        (made / "data" / "pki").mkdir(parents=True)
        (made / "data" / "pki" / "ca.key").write_text("secret\n")
        (made / "open").mkdir()
        (made / "open" / "file").write_text("open\n")
        (made / "open" / "own").write_text("of root\n")
        (made / "open" / "own").chmod(0o600)
        yield made
    finally:
        shutil.rmtree(made)


Story = Callable[[HostNode], Coroutine[Any, Any, None]]


def run(directory: Path, *stories: Story, lives_on: bool = False, network: str = "host") -> None:
    """Run stories, each with a runtime that is opened anew."""

    async def main() -> None:
        images = directory / "images"
        images.mkdir(exist_ok=True)
        archive = images / "localhost%2Fbusybox:1.tar"
        await asyncio.to_thread(write_archive, archive)
        options = ProcessOptions(
            directory / "node",
            ends_with_node=not lives_on,
            node_ips=("192.0.2.7",),
            network=network,
            state=directory / "run",
            host_root_namespaces=(ALLOWED,),
            hidden=(directory / "data",),
        )
        uids: list[str] = []
        for number, story in enumerate(stories):
            found = Images(images, has_host=True)
            runtime = ProcessRuntime(options, found, SystemClock(), lambda _uid: None)
            await runtime.open()
            await runtime.use_ranges([own_range()])
            place = HostNode(runtime, directory)
            place.uids = uids
            try:
                await story(place)
            except BaseException:
                await place.clean()
                raise
            else:
                if number + 1 == len(stories):
                    await place.clean()
            finally:
                await runtime.close()

    asyncio.run(main())


SECRETS = "cat /etc/shadow /etc/gshadow /root/.ssh/* /proc/1/root/etc/shadow {key} 2>/dev/null"


@needs_users
@EVERYBODY
def test_secrets_are_not_seen(directory: Path, security: Security) -> None:
    async def story(host: HostNode) -> None:
        script = SECRETS.format(key=host.key) + f"; ls {host.key.parent.parent} /run; echo over"
        sandbox = host.sandbox("secrets")
        container = await host.start(sandbox, f"{script}; sleep 1000", security=security)
        await eventually(lambda: container.log.exists() and "over" in log(container))
        assert "secret" not in log(container)
        assert "root" not in "".join(log(container))
        asked = await host.exec(container, script)
        assert "over" in asked
        assert not any("secret" in each or "root:" in each for each in asked)

    run(directory, story)


@needs_users
@EVERYBODY
def test_files_of_the_machine_are_not_written(directory: Path, security: Security) -> None:
    async def story(host: HostNode) -> None:
        file, own = host.open / "file", host.open / "own"
        script = (
            f"chmod 777 {file} || echo no; echo x > {file} || echo no; cat {own} || echo no;"
            f"rm {file} || echo no; mknod /tmp/disk b 8 0 || echo no; cat {file}"
        )
        lines = await host.output(host.sandbox("files"), script, security=security)
        assert [each for each in lines if each in ("no", "open")] == ["no"] * 5 + ["open"]
        assert file.read_text() == "open\n"
        assert file.stat().st_mode & 0o777 == 0o644

    run(directory, story)


@needs_users
def test_what_root_of_a_pod_may_write(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        script = "id -u; pwd; touch /a ~/b /tmp/c d /var/tmp/e /run/f && echo all; echo $HOME"
        lines = await host.output(host.sandbox("own"), script, directory="/made/here")
        assert lines == ["0", "/made/here", "all", "/root"]
        lines = await host.output(
            host.sandbox("known"), "touch x && echo y", directory=str(host.open)
        )
        assert lines == ["y"]
        assert not (host.open / "x").exists()
        lines = await host.output(
            host.sandbox("somebody"), "touch ~/x && echo $HOME", security=Security(1234)
        )
        assert lines == ["/tmp"]

    run(directory, story)


@needs_users
def test_a_program_that_is_left_in_a_volume_is_nobodys(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        volume = host.directory / "volume"
        volume.mkdir()
        volume.chmod(0o777)
        mounts = [Mount(str(volume), "/v", is_host_path=True)]
        script = "cp /bin/sh /v/sh && chmod 4755 /v/sh; cat /v/key || echo no"
        (volume / "key").write_text("secret\n")
        (volume / "key").chmod(0o600)
        lines = await host.output(host.sandbox("suid"), script, mounts=mounts)
        assert "no" in lines
        assert "secret" not in lines
        assert (volume / "sh").stat().st_uid >= FIRST

    run(directory, story)


@needs_users
def test_processes_of_the_machine_are_left_alone(directory: Path) -> None:
    sleeping = subprocess.Popen(["sleep", "1000"])
    pid = sleeping.pid

    async def story(host: HostNode) -> None:
        script = (
            f"kill -9 {pid} || echo no; ls /proc/{pid}/root/ || echo no;"
            f"cat /proc/{pid}/environ || echo no; id -u"
        )
        lines = await host.output(host.sandbox("own-pids"), script)
        assert [each for each in lines if each in ("no", "0")] == ["no", "no", "no", "0"]
        lines = await host.output(host.sandbox("host-pids", has_host_pids=True), script)
        kept = [each for each in lines if each in ("no", str(NOBODY))]
        assert kept == ["no", "no", "no", str(NOBODY)]
        assert sleeping.poll() is None

    try:
        run(directory, story)
    finally:
        sleeping.kill()
        sleeping.wait()


RIGHTS = "id -u; id -G; grep -E 'CapBnd|NoNewPrivs' /proc/self/status; tail -1 /proc/self/uid_map"


def check_nobody(lines: list[str]) -> None:
    assert lines[:2] == [str(NOBODY), str(NOBODY)]
    assert lines[2:4] == ["CapBnd:\t0000000000000000", "NoNewPrivs:\t1"]
    assert lines[4].split() == ["0", "0", "4294967295"]


@needs_namespaces
@pytest.mark.parametrize("shared", ["has_host_network", "has_host_pids", "has_host_ipc"])
def test_who_shares_with_the_machine_is_nobody(directory: Path, shared: str) -> None:
    async def story(host: HostNode) -> None:
        shares: dict[str, Any] = {shared: True}
        check_nobody(await host.output(host.sandbox("shares", **shares), RIGHTS))

    run(directory, story)


@needs_namespaces
def test_without_user_namespaces_a_pod_is_nobody(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features, "user_namespaces", lambda: "not here")

    async def story(host: HostNode) -> None:
        assert host.runtime.unsupported("hostUsers")
        assert any("not here" in each for each in host.runtime.enforced()[1])
        script = f"{RIGHTS}; {SECRETS.format(key=host.key)}; touch ~/x x /tmp/y && echo all"
        lines = await host.output(host.sandbox("nobody"), script)
        check_nobody(lines[:5])
        assert lines[5:] == ["all"]
        for security, problem in (
            (ROOT, "runAsUser 0 is not allowed"),
            (Security(1), "runAsUser 1 is a user of this machine"),
            (Security(4321, 0), "group 0 is a group of this machine"),
            (Security(4321, groups=[0]), "group 0 is a group of this machine"),
            (Security(FIRST), f"runAsUser {FIRST} is a user"),
            (Security(is_privileged=True), "privileged is not allowed"),
        ):
            with pytest.raises(StartError, match=problem) as caught:
                await host.output(host.sandbox("refused"), "true", security=security)
            assert caught.value.reason == "CreateContainerConfigError"
        lines = await host.output(host.sandbox("number"), "id -u", security=Security(4321, 4321))
        assert lines == ["4321"]

    run(directory, story)


@needs_namespaces
def test_pods_of_allowed_namespaces_may_be_root_of_the_machine(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        script = f"tail -1 /proc/self/uid_map; cat {host.open / 'own'} {host.key} 2>/dev/null"
        whole = ["0", "0", "4294967295"]
        asks: dict[str, Any] = {"space": ALLOWED, "asks_for_root": True}
        lines = await host.output(host.sandbox("root", **asks), script, security=ROOT)
        assert lines[0].split() == whole
        assert "of root" in lines
        assert "secret" not in lines  # it is root, and is shown no more
        lines = await host.output(
            host.sandbox("privileged", **asks),
            f"{script}; mount -t tmpfs none /mnt && echo mounted",
            security=Security(is_privileged=True),
        )
        assert lines[0].split() == whole
        assert "mounted" in lines
        shown = host.sandbox("shown", space=ALLOWED, host_users=True)
        assert (await host.output(shown, script))[0].split() == whole
        check_nobody(
            await host.output(host.sandbox("quiet", space=ALLOWED, has_host_network=True), RIGHTS)
        )

    run(directory, story)


@needs_users
def test_pods_of_allowed_namespaces_have_user_namespaces_unless_they_ask(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        lines = await host.output(host.sandbox("plain", space=ALLOWED), "cat /proc/self/uid_map")
        assert int(lines[0].split()[1]) >= FIRST

    run(directory, story)


@needs_users
def test_what_is_hidden_stays_so_for_who_may_mount(directory: Path) -> None:
    """All mounts are taken apart, as far as that goes; and what is covered is moved away."""

    async def story(host: HostNode) -> None:
        data = host.key.parent.parent
        script = (
            f"umount -a 2>/dev/null; umount {data} /etc/shadow /proc/kcore 2>/dev/null;"
            f"rmdir {data} && echo gone; mv {data} /x; mount -t tmpfs none /mnt && echo mounted;"
            f"cat {host.key} /x/pki/ca.key /etc/shadow 2>/dev/null; true"
        )
        security = Security(is_privileged=True)
        lines = await host.output(host.sandbox("mounts"), script, security=security)
        assert "mounted" in lines  # in a mount namespace of its own
        assert "secret" not in lines
        assert not any("root:" in each for each in lines)

    run(directory, story)


@needs_namespaces
def test_it_is_no_volume(directory: Path) -> None:
    async def story(host: HostNode) -> None:
        mounts = [Mount("etc", "/v", is_read_only=True, image="host")]
        with pytest.raises(StartError, match="cannot be a volume"):
            await host.output(host.sandbox("volume", IMAGE), "true", mounts=mounts)

    run(directory, story)


@needs_users
def test_system_calls_are_filtered_unless_the_pod_says_otherwise(directory: Path) -> None:
    if not Path("/usr/bin/python3").exists() or os.uname().machine != "x86_64":
        pytest.skip("needs /usr/bin/python3 and the numbers of x86_64")
    program = (
        "import ctypes, errno, socket\n"
        "call = ctypes.CDLL(None, use_errno=True).syscall\n"
        "def tell(name, *given):\n"
        "    found = call(*given)\n"
        "    print(name, errno.errorcode[ctypes.get_errno()] if found < 0 else 'ok', flush=True)\n"
        "tell('unshare', 272, 0x10000000)\n"
        "tell('clone', 56, 0x10000000 | 17, 0, 0, 0, 0)\n"
        "tell('clone3', 435, 0, 0)\n"
        "tell('personality', 135, 0x0040000)\n"
        "tell('io_uring', 425, 0, 0)\n"
        "tell('newer', 469 + 1, 0, 0)\n"
        "tell('ptrace', 101, 0, 0, 0, 0)\n"
        "for family in (38, 40):\n"
        "    try:\n"
        "        socket.socket(family, socket.SOCK_SEQPACKET if family == 38 else 1)\n"
        "    except OSError as error:\n"
        "        print(family, errno.errorcode[error.errno])\n"
    )
    expected = [
        *("unshare EPERM", "clone EPERM", "clone3 ENOSYS", "personality EPERM"),
        *("io_uring EPERM", "newer ENOSYS", "ptrace ok", "38 EAFNOSUPPORT", "40 EAFNOSUPPORT"),
    ]

    async def story(host: HostNode) -> None:
        script = f"python3 - <<'X'\n{program}X"
        for number, security in enumerate((Security(), Security(seccomp="RuntimeDefault"))):
            sandbox = host.sandbox(f"filtered-{number}")
            assert await host.output(sandbox, script, security=security) == expected
        container = await host.start(host.sandbox("exec"), "sleep 1000")
        assert await host.exec(container, script) == expected
        lines = await host.output(
            host.sandbox("unconfined"),
            "grep Seccomp: /proc/self/status",
            security=Security(seccomp="Unconfined"),
        )
        assert lines == ["Seccomp:\t0"]

    run(directory, story)


HOST = Sandbox("u", "p", "ns", images=["a:1", "host"])


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"images": ["a:1"]}, False),
        ({"images": ["a:1"], "host_users": False}, True),
        ({"host_users": True}, False),
        ({"has_host_network": True}, False),
        ({"asks_for_root": True}, True),
        ({"asks_for_root": True, "namespace": ALLOWED}, False),
        ({"namespace": ALLOWED}, True),
    ],
)
def test_which_pods_have_user_namespaces(more: dict[str, Any], *, expected: bool) -> None:
    sandbox = Sandbox(**{**{name: getattr(HOST, name) for name in HOST.__slots__}, **more})
    assert HostImage((ALLOWED,), has_user_namespaces=True).wants_users(sandbox) is expected
    if more.get("host_users") is None:
        assert not HostImage((ALLOWED,)).wants_users(sandbox)
        other = HostImage((ALLOWED,), has_user_namespaces=True, is_there=False)
        assert not other.wants_users(sandbox)


@needs_users
def test_containers_outlive_their_node(directory: Path) -> None:
    """A later one finds their ids, and does not give them to others."""

    async def first(host: HostNode) -> None:
        await host.start(host.sandbox("lasting"), "sleep 1000")
        await host.start(host.sandbox("ending"), "sleep 1000")
        await host.runtime.stop(f"{own_uid('ending')}-c-0", 0)
        await host.runtime.remove_pod(own_uid("ending"))

    async def second(host: HostNode) -> None:
        (kept,) = host.runtime.of_pod(own_uid("lasting"))
        (row,) = await host.exec(kept, "cat /proc/self/uid_map")
        number = row.split()[1]
        assert int(number) >= FIRST
        beside = await host.output(host.sandbox("lasting"), "cat /proc/self/uid_map", name="beside")
        other = await host.output(host.sandbox("other"), "cat /proc/self/uid_map")
        assert beside[0].split()[1] == number
        assert int(other[0].split()[1]) >= FIRST
        assert other[0].split()[1] != number
        assert len(os.listdir(host.directory / "run" / "ids")) == 2

    async def third(host: HostNode) -> None:
        await host.clean()
        assert not os.listdir(host.directory / "run" / "ids")

    run(directory, first, second, third, lives_on=True, network=AUTOMATIC)
