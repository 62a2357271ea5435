"""What a container tries in order to get out, or at others: each from inside a real one.

baseline      the rights that a container has unless its pod says otherwise, as root
somebody      the same, as user 65534
restricted    what Pod Security's "restricted" asks for
"""

import asyncio
import ctypes
import itertools
import os
import resource
import stat
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.runtime.cgroups import ROOT as CGROUPS
from kvstack.agents.kubelet.runtime.process import specs
from kvstack.agents.kubelet.runtime.process.devices.groups import (
    CONTROLLER,
    PROGRAM,
    DeviceGroups,
)
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.process.shim import device_files
from kvstack.agents.kubelet.runtime.runtime import (
    ContainerConfig,
    Mount,
    Sandbox,
    Security,
    StartError,
)
from tests.agents.kubelet.runtime.conformance.runtimes import IMAGE, opened, own_uid, require
from tests.agents.kubelet.runtime.conformance.test_runtimes import World, log, output
from tests.agents.support.cluster import eventually

pytestmark = pytest.mark.slow

NOBODY = 65534
BASELINE = Security()
SOMEBODY = Security(NOBODY, NOBODY)
RESTRICTED = Security(
    NOBODY, NOBODY, dropped=["ALL"], no_new_privileges=True, seccomp="RuntimeDefault"
)
PRIVILEGED = Security(is_privileged=True)
EVERYBODY = pytest.mark.parametrize(
    "security", [BASELINE, SOMEBODY, RESTRICTED], ids=["baseline", "somebody", "restricted"]
)
NO_WAY = ""
_HERE, _RENAME_EXCHANGE = -100, 2
WAYS = pytest.mark.parametrize("way", [CONTROLLER, PROGRAM, NO_WAY])

Story = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require("process")
    return tmp_path_factory.mktemp("confinement")


def run(directory: Path, story: Story, way: str | None = None) -> None:
    """Run a story; way: by which alone devices are limited, None: by any."""

    async def main() -> None:
        ways = [CONTROLLER, PROGRAM] if way is None else [way] if way else []
        async with opened("process", directory, DeviceGroups(CGROUPS, ways=ways)) as runtime:
            assert isinstance(runtime, ProcessRuntime)
            if way != NO_WAY and runtime.devices.problem:
                by = "any" if way is None else way
                pytest.skip(f"devices cannot be limited (by {by}): {runtime.devices.problem}")
            world = World("process", runtime, directory)
            try:
                await story(world)
            finally:
                await world.clean()

    asyncio.run(main())


_numbers = itertools.count()


def confined(world: World, name: str, **more: Any) -> Sandbox:
    """Return a sandbox with a control group, and with a name that no other has had."""
    unique = f"{name}-{next(_numbers)}"
    return world.sandbox(unique, cgroup=f"kubepods/pod{own_uid(unique)}", **more)


async def lines(world: World, name: str, script: str, **more: Any) -> list[str]:
    """Return what a container with a control group of its own writes."""
    extra = {each: more.pop(each) for each in ("is_on_host", "has_host_pids") if each in more}
    sandbox = confined(world, name, **extra)
    return log(await world.ended(await world.start(sandbox, script, **more)))


def block_device() -> Path:
    """Return a block device of this machine that root can open."""
    for each in sorted(Path("/dev").iterdir()):
        if each.is_block_device():
            try:
                os.close(os.open(each, os.O_RDONLY))
            except OSError:
                continue
            return each
    pytest.skip("this machine has no block device that can be opened")


def number_of(device: Path) -> str:
    found = device.stat().st_rdev
    return f"{os.major(found)} {os.minor(found)}"


# Devices.


@WAYS
@EVERYBODY
def test_block_devices_are_out_of_reach(directory: Path, security: Security, way: str) -> None:
    volume = directory / "volume"
    volume.mkdir(exist_ok=True)
    volume.chmod(0o777)
    device = block_device()
    script = (
        "for each in /tmp/disk /dev/disk /dev/shm/disk /volume/disk; do "
        f"rm -f $each; mknod $each b {number_of(device)} 2>/dev/null; chmod 666 $each 2>/dev/null;"
        f"dd if=$each of=/dev/null count=1 2>/dev/null && echo read $each; done;"
        f"dd if=/given/{device.name} of=/dev/null count=1 2>/dev/null && echo read given;"
        "mknod /tmp/mem c 1 1 2>/dev/null; dd if=/tmp/mem of=/dev/null count=1 2>/dev/null"
        " && echo read memory; echo end"
    )

    async def story(world: World) -> None:
        mounts = [Mount(str(volume), "/volume"), Mount("/dev", "/given")]
        found = await lines(world, "devices", script, security=security, mounts=mounts)
        assert found == ["end"]

    run(directory, story, way)


@WAYS
@EVERYBODY
def test_the_usual_devices_are_there(directory: Path, security: Security, way: str) -> None:
    script = (
        "echo x > /dev/null && head -c 3 /dev/zero | wc -c; head -c 3 /dev/urandom | wc -c;"
        "head -c 3 /dev/random | wc -c; echo x 2>/dev/null > /dev/full || echo full; tty -s;"
        "ls /dev | sort | tr '\\n' ' '"
    )
    names = "fd full mqueue null ptmx pts random shm stderr stdin stdout termination-log tty"

    async def story(world: World) -> None:
        found = await lines(world, "usual", script, security=security)
        assert found == ["3", "3", "3", "full", f"{names} urandom zero "]

    run(directory, story, way)


@WAYS
def test_device_files_can_be_made_where_they_cannot_be_used(directory: Path, way: str) -> None:
    script = (
        "mknod /tmp/null c 1 3 2>/dev/null && echo made; echo x 2>/dev/null > /tmp/null || echo no;"
        "mknod /dev/null2 c 1 3 2>/dev/null && echo x > /dev/null2 && echo used; echo end"
    )

    async def story(world: World) -> None:
        found = await lines(world, "made", script)
        assert found == (["made", "no", "used", "end"] if way else ["end"])

    run(directory, story, way)


@WAYS
def test_a_container_without_a_control_group_makes_no_device_files(
    directory: Path, way: str
) -> None:
    async def story(world: World) -> None:
        sandbox = world.sandbox(f"groupless{next(_numbers)}")
        script = f"mknod /tmp/disk b {number_of(block_device())} 2>/dev/null || echo refused"
        found = await world.start(sandbox, script, security=Security(added=["MKNOD"]))
        assert log(await world.ended(found)) == ["refused"]

    run(directory, story, way)


@WAYS
def test_a_device_that_is_a_volume_is_given(directory: Path, way: str) -> None:
    device = block_device()
    script = (
        "dd if=/dev/given of=/dev/null count=1 2>/dev/null && echo read;"
        "{ [ -e /dev/given ] && true >> /dev/given; } 2>/dev/null && echo opened to write;"
        "dd if=/dev/below of=/dev/null count=1 2>/dev/null && echo read below; echo end"
    )

    async def story(world: World) -> None:
        given = Mount(str(device), "/dev/given", is_read_only=True)
        below = Mount(str(device), "/dev/below", is_below=True)
        found = await lines(world, "given", script, mounts=[given])
        assert found == (["read", "end"] if way else ["end"])
        # A place in a volume may be what a container has made there.
        found = await lines(world, "below", script, mounts=[below])
        assert found == ["end"]

    run(directory, story, way)


@WAYS
def test_groups_below_are_as_strict(directory: Path, way: str) -> None:
    """A container with more rights than most makes a group, and cannot give itself devices."""
    if not way:
        pytest.skip("nothing limits devices")
    mounting = "-t cgroup -o devices" if way == CONTROLLER else "-t cgroup2"
    script = (
        f"mkdir /tmp/g; mount {mounting} none /tmp/g && mkdir /tmp/g/below && echo made;"
        "(echo 0 > /tmp/g/below/cgroup.procs && echo entered;"
        "[ -e /tmp/g/below/devices.allow ] &&"
        "{ echo 'b *:* rwm' > /tmp/g/below/devices.allow; } 2>/dev/null && echo allowed;"
        f"mknod /dev/disk b {number_of(block_device())};"
        "dd if=/dev/disk of=/dev/null count=1 2>/dev/null && echo read); rmdir /tmp/g/below"
    )

    async def story(world: World) -> None:
        security = Security(added=["SYS_ADMIN"])
        assert await lines(world, "nested", script, security=security) == ["made", "entered"]

    run(directory, story, way)


@WAYS
def test_a_privileged_container_has_all_devices(directory: Path, way: str) -> None:
    device = block_device()
    script = (
        f"dd if={device} of=/dev/null count=1 2>/dev/null && echo read;"
        f"mknod /tmp/disk b {number_of(device)}; dd if=/tmp/disk of=/dev/null count=1 2>/dev/null"
        " && echo read own"
    )

    async def story(world: World) -> None:
        found = await lines(world, "privileged", script, security=PRIVILEGED)
        assert found == ["read", "read own"]

    run(directory, story, way)


def test_a_privileged_container_has_a_directory_of_devices_of_its_own(directory: Path) -> None:
    """It may use the machine's devices; by accident it neither removes nor adds any."""
    before = {each.name for each in Path("/dev").iterdir()}
    device = block_device()
    mode = f"{stat.S_IMODE(Path('/dev/zero').stat().st_mode):o}"
    unique = f"kvstack-test-{os.getpid()}"
    script = (
        f"rm /dev/null && echo x > /dev/null && echo gone; echo x > /dev/{unique};"
        f"rm /dev/{device.name}; ls /dev/pts; ls /dev/shm | wc -l; stat -c %t:%T:%a /dev/zero;"
        "echo y > /dev/shm/mine; head -c 2 /dev/urandom | wc -c; tty -s; [ -e /dev/mqueue ]"
        " && readlink /dev/fd"
    )

    async def story(world: World) -> None:
        found = await lines(world, "own-dev", script, security=PRIVILEGED)
        assert found == ["gone", "ptmx", "0", f"1:5:{mode}", "2", "/proc/self/fd"]

    run(directory, story)
    assert {each.name for each in Path("/dev").iterdir()} == before
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert device.is_block_device()


def test_devices_in_directories_and_links_to_them_are_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "dev", tmp_path / "copy"
    (source / "net").mkdir(parents=True)
    target.mkdir()
    os.mknod(source / "net" / "tun", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.chown(source / "net" / "tun", 1, 2)
    (source / "disk").symlink_to("net/tun")
    for name in ("pts", "shm", "fd"):
        (source / name).mkdir()
        os.mknod(source / name / "0", stat.S_IFCHR, os.makedev(1, 3))
    (source / "termination-log").touch()
    device_files.copy(str(source), str(target))
    found = (target / "net" / "tun").stat()
    assert (found.st_rdev, found.st_uid, found.st_gid) == (os.makedev(1, 3), 1, 2)
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert os.readlink(target / "disk") == "net/tun"
    assert sorted(each.name for each in target.iterdir()) == ["disk", "net"]


@pytest.mark.parametrize("is_on_host", [False, True], ids=["own network", "host's network"])
def test_only_the_mounts_of_dev_have_devices(directory: Path, is_on_host: bool) -> None:  # noqa: FBT001
    volume = directory / "mounted"
    volume.mkdir(exist_ok=True)

    async def story(world: World) -> None:
        found = await lines(
            world,
            "nodev",
            "cat /proc/mounts",
            is_on_host=is_on_host,
            mounts=[Mount(str(volume), "/volume"), Mount("/", "/host", propagation="None")],
        )
        shown = [each.split(" ") for each in found]
        assert {"/", "/dev", "/proc", "/sys", "/volume", "/host"} <= {each[1] for each in shown}
        with_devices = {each[1] for each in shown if "nodev" not in each[3].split(",")}
        usual = ("full", "null", "pts", "random", "tty", "urandom", "zero")
        hidden = {each for each in with_devices if each.startswith("/proc/")}
        assert with_devices - hidden == {"/dev", *(f"/dev/{each}" for each in usual)}
        # What hides them is /dev/null.
        assert {each[0] for each in shown if each[1] in hidden} <= {"devtmpfs", "tmpfs"}

    run(directory, story)


# Control groups.


@EVERYBODY
@pytest.mark.parametrize("is_on_host", [False, True], ids=["own network", "host's network"])
def test_limits_cannot_be_changed(directory: Path, security: Security, is_on_host: bool) -> None:  # noqa: FBT001
    script = (
        "find /sys/fs/cgroup -name '*kubepods*' -o -name 'pod*';"
        "for each in $(find /sys/fs/cgroup -type f); do "
        "{ true >> $each; } 2>/dev/null && echo opened $each; done;"
        "for each in $(find /sys/fs/cgroup -type d); do "
        "mkdir $each/below 2>/dev/null && echo made $each/below; done;"
        "for each in $(mount | cut -d ' ' -f 3); do "
        "mount -o remount,rw $each 2>/dev/null && echo remounted $each; done;"
        "umount /sys/fs/cgroup 2>/dev/null && echo unmounted;"
        "grep -c kubepods /proc/self/cgroup;"
        "find /sys/fs/cgroup -name cgroup.procs | grep -q . && echo sees its own"
    )

    async def story(world: World) -> None:
        found = await lines(world, "limits", script, security=security, is_on_host=is_on_host)
        assert found == ["0", "sees its own"]

    run(directory, story)


def test_commands_see_the_same_groups(directory: Path) -> None:
    script = "readlink /proc/self/ns/cgroup; cat /proc/self/cgroup; ls /sys/fs/cgroup"

    async def story(world: World) -> None:
        sandbox = confined(world, "see")
        container = await world.start(sandbox, f"{script}; sleep 1000")
        session = await world.runtime.exec(container.id, ["sh", "-c", script], tty=False)
        out, errors, code = await output(session)
        assert (errors, code) == (b"", 0)
        await eventually(lambda: out.decode().splitlines() == log(container))
        assert f"{os.readlink('/proc/self/ns/cgroup')}\n" not in out.decode()

    run(directory, story)


def test_a_privileged_container_changes_groups(directory: Path) -> None:
    name = f"kv-test-{os.getpid()}"
    script = (
        "each=$(find /sys/fs/cgroup -maxdepth 3 -name kubepods | head -n 1);"
        f"mkdir $each/{name} && rmdir $each/{name} && echo changed"
    )

    async def story(world: World) -> None:
        assert await lines(world, "changes", script, security=PRIVILEGED) == ["changed"]

    run(directory, story)


# Descriptors.


@pytest.mark.parametrize("has_tty", [False, True], ids=["pipes", "terminal"])
@EVERYBODY
def test_only_0_1_and_2_are_inherited(directory: Path, security: Security, has_tty: bool) -> None:  # noqa: FBT001
    # The one beside them is that of the directory, which ls itself has opened.
    listing = ["ls", "/proc/self/fd"]

    async def story(world: World) -> None:
        sandbox = confined(world, "fds")
        container = await world.start(
            sandbox, "ls /proc/self/fd; sleep 1000", security=security, has_tty=has_tty
        )
        sessions = [await world.runtime.exec(container.id, listing, tty=has_tty) for _ in range(5)]
        for session in sessions:
            out, errors, code = await output(session)
            assert (out.split(), errors, code) == ([b"0", b"1", b"2", b"3"], b"", 0)
        await eventually(lambda: " ".join(log(container)).split() == ["0", "1", "2", "3"])

    run(directory, story)


def test_the_terminal_is_the_containers_whatever_it_put_in_dev(directory: Path) -> None:
    script = (
        "rm /dev/ptmx; ln -s /tmp/elsewhere /dev/ptmx; mkfifo /tmp/elsewhere;"
        "readlink /proc/self/fd/0; stat -c %t:%T /dev/console; sleep 99"
    )

    async def story(world: World) -> None:
        sandbox = confined(world, "terminal")
        container = await world.start(sandbox, script, has_tty=True)
        session = await world.runtime.exec(container.id, ["readlink", "/proc/self/fd/1"], tty=True)
        out, _, code = await output(session)
        assert (out.strip(), code) == (b"/dev/pts/1", 0)
        wanted = ["/dev/pts/0", "88:0"]
        await eventually(lambda: [each.strip() for each in log(container)] == wanted)

    run(directory, story)


# Paths.


def test_mounts_stay_in_the_container_whatever_links_there_are(directory: Path) -> None:
    outside, volume = directory / "outside", directory / "with-links"
    for each in (outside, volume):
        each.mkdir()
    (volume / "absolute").symlink_to(outside)
    (volume / "relative").symlink_to("../" * 20 + str(outside))
    (volume / "file").symlink_to(outside / "file")

    async def story(world: World) -> None:
        targets = ["/v/absolute/a", "/v/relative/b", "/v/file", f"{outside}/../c"]
        mounts = [Mount(str(volume), "/v")]
        mounts += [Mount("/etc/hosts", each) for each in targets]
        found = await lines(
            world,
            "links",
            f"cd /v/absolute && ls; cd {outside.parent} && ls",
            mounts=mounts,
            directory="/v/absolute/made",
            termination_path="/v/relative/message",
        )
        assert found == ["a", "b", "file", "made", "message", "c", "outside"]
        assert not list(outside.iterdir())

    run(directory, story)


def test_a_race_for_the_target_of_a_mount_is_lost(directory: Path) -> None:
    """Another container of the volume replaces directories by links, as fast as it can."""
    outside, volume = directory / "race-outside", directory / "race-volume"
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "renameat2"):
        pytest.skip("this C library has no renameat2")
    for each in (outside, volume, volume / "a"):
        each.mkdir()
    (volume / "link").symlink_to(outside)
    ends = threading.Event()
    one, other = bytes(volume / "a"), bytes(volume / "link")

    def swap() -> None:
        while not ends.is_set():
            assert libc.renameat2(_HERE, one, _HERE, other, _RENAME_EXCHANGE) == 0

    async def story(world: World) -> None:
        sandbox = confined(world, "race")
        mounts = [Mount(str(volume), "/v")]
        mounts += [Mount("/etc/hosts", f"/v/a/{number}/file") for number in range(30)]
        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            for attempt in range(5):
                await world.ended(await world.start(sandbox, "true", attempt, mounts=mounts))
        finally:
            ends.set()
            swapping.join()
        assert not list(outside.iterdir())

    run(directory, story)


@pytest.mark.parametrize(
    "target", ["/proc", "/proc/sys/kernel", "/proc/self/attr", "/proc/1/../self/fd"]
)
def test_nothing_is_mounted_in_proc(directory: Path, target: str) -> None:
    async def story(world: World) -> None:
        with pytest.raises(StartError, match=r"inside /proc|kernel makes up|No such file"):
            await lines(world, "proc", "true", mounts=[Mount(str(directory), target)])
        found = await lines(
            world, "info", "cat /proc/uptime", mounts=[Mount("/dev/null", "/proc/uptime")]
        )
        assert found == []

    run(directory, story)


def test_what_tells_of_the_machine_is_hidden(directory: Path) -> None:
    script = (
        "for each in interrupts kcore keys timer_list; do "
        "[ -e /proc/$each ] && stat -c %t:%T /proc/$each; done | sort -u;"
        "ls /sys/firmware | wc -l; echo x 2>/dev/null > /proc/sys/kernel/hostname || echo refused;"
        "echo x 2>/dev/null > /proc/sysrq-trigger || echo refused; touch /sys/x 2>/dev/null"
    )

    async def story(world: World) -> None:
        assert await lines(world, "hidden", script) == ["1:3", "0", "refused", "refused"]

    run(directory, story)


@pytest.mark.parametrize("working", ["/proc/self/cwd", "/proc/self/fd/0", "/proc/1/root/tmp"])
def test_the_working_directory_is_in_the_container(directory: Path, working: str) -> None:
    async def story(world: World) -> None:
        with pytest.raises(StartError, match=r"symbolic links|Permission denied"):
            await lines(world, "cwd", "pwd", directory=working, has_host_pids=True)

    run(directory, story)


def test_a_command_does_not_wait_for_what_a_container_made_of_its_accounts(
    directory: Path,
) -> None:
    async def story(world: World) -> None:
        script = "rm /etc/passwd; mkfifo /etc/passwd; ln -s /dev/zero /etc/group; echo ok; sleep 99"
        container = await world.start(confined(world, "accounts"), script)
        await eventually(lambda: log(container) == ["ok"])
        session = await world.runtime.exec(container.id, ["echo", "here"], tty=False)
        assert await output(session) == (b"here\n", b"", 0)

    run(directory, story)


def test_the_program_that_starts_containers_cannot_be_changed(directory: Path) -> None:
    """A container can let its program be executed again, as its own, and reach the file by it."""
    volume = directory / "script"
    volume.mkdir()
    real = Path(sys.executable).resolve()
    (volume / "own").write_text(
        "#!/proc/self/exe -IS\nimport os\n"
        f"print(os.stat('/proc/self/exe').st_ino == {real.stat().st_ino})\n"
        "mode = os.stat('/proc/self/exe').st_mode\n"
        "try:\n os.chmod('/proc/self/exe', mode)\n"
        "except OSError as error:\n print(error.strerror)\n"
    )
    (volume / "own").chmod(0o755)
    # Its libraries: an attacker would bring his own.
    places = [
        each for each in ("/lib", "/lib64", "/usr", str(real.parent.parent)) if Path(each).exists()
    ]
    mounts = [Mount(each, each, is_read_only=True) for each in dict.fromkeys(places)]

    async def story(world: World) -> None:
        sandbox = confined(world, "first")
        image = await world.runtime.find_image(IMAGE)
        config = ContainerConfig(
            sandbox,
            "c",
            0,
            IMAGE,
            image.id,
            command=["/script/own"],
            mounts=[*mounts, Mount(str(volume), "/script")],
        )
        await world.runtime.make_sandbox(sandbox)
        done = await world.ended(await world.runtime.start(config))
        assert log(done) == ["True", "Read-only file system"]

    run(directory, story)


def test_the_directories_of_pods_are_closed_to_others(directory: Path) -> None:
    async def story(world: World) -> None:
        await lines(world, "closed", "true")
        assert stat.S_IMODE((directory / "pods").stat().st_mode) == 0o750
        unpacked = directory / "images" / ".unpacked"
        assert stat.S_IMODE(unpacked.stat().st_mode) == 0o700

    run(directory, story)


# The limit of open files.


def test_a_container_has_the_limit_that_its_node_was_started_with(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(specs, "original_limit", lambda: 321)  # a node raises its own

    async def story(world: World) -> None:
        script = "ulimit -Sn; ulimit -Hn"
        soft, hard = await lines(world, "limits", script)
        assert soft == "321"
        assert hard == str(resource.getrlimit(resource.RLIMIT_NOFILE)[1])

    run(directory, story)
