"""What this machine lacks, found out without the code under test: what excuses skips.

Each function takes the match of a skip's reason with its pattern and says whether what the test
needs is missing here. A trial makes what the test would make, in namespaces of its own, and leaves
nothing behind.
"""

import ctypes
import importlib.util
import os
import platform
import re
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kvstore.transport import native
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import RELEASES, is_kept
from tests.support.programs import is_static

Lacks = Callable[[re.Match[str]], bool]

_CGROUPS: Final = Path("/sys/fs/cgroup")
_CHROMIUM: Final = ("chromium", "chromium-browser", "google-chrome")
_OPENAT2: Final = 437
_TRIAL_S: Final = 60
_IMAGE_BYTES: Final = 320 << 20  # of which a file has few; xfs takes no less
_PROJECTS: Final = ("-O", "quota,project", "-E", "quotatype=prjquota")


def by(condition: Callable[[], bool]) -> Lacks:
    """Return a function that asks a condition, whatever the reason says."""
    return lambda _: condition()


def nothing(_: re.Match[str]) -> bool:
    """Allow the skip on any machine: one case of a test does not apply."""
    return True


def fails(*command: str) -> bool:
    """Whether a command cannot be run here, or fails."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, timeout=_TRIAL_S)
    except (OSError, subprocess.TimeoutExpired):
        return True
    return done.returncode != 0


# Programs and packages.


def program(*names: str) -> Lacks:
    """Return a function for skips that need all of these programs."""
    return lambda _: not all(map(shutil.which, names))


def named_program(match: re.Match[str]) -> bool:
    """Whether the program or the file that a reason names is missing."""
    name = match["name"]
    return not Path(name).exists() if name.startswith("/") else shutil.which(name) is None


def named_package(match: re.Match[str]) -> bool:
    """Whether the Python package that a reason names is missing."""
    return importlib.util.find_spec(match["name"]) is None


def named_variable(match: re.Match[str]) -> bool:
    """Whether the environment variable that a reason names is not set."""
    return not os.environ.get(match["name"])


def cargo() -> bool:
    """Whether there is no cargo, where PATH or rustup has it."""
    return shutil.which("cargo") is None and not Path("~/.cargo/bin/cargo").expanduser().exists()


def chromium() -> bool:
    """Whether there is no browser."""
    return not any(map(shutil.which, _CHROMIUM))


def crate() -> bool:
    """Whether the crate is not built."""
    return not native.is_available()


def clients(match: re.Match[str]) -> bool:
    """Whether a release of kubectl and helm, which could not be fetched, is not kept here."""
    named = [name for name, each in RELEASES.items() if each.package in match[0]]
    assert named, f"a package that no release has: {match[0]}"
    return not is_kept(named[0])


def compose() -> bool:
    """Whether docker has no Compose."""
    return fails("docker", "compose", "version")


def engine() -> bool:
    """Whether no engine of docker answers."""
    return fails("docker", "version")


def old_certificates() -> bool:
    """Whether openssl makes certificates of version 3 alone, as it does from 3.2 on."""
    done = subprocess.run(["openssl", "version"], check=True, capture_output=True, text=True)
    found = re.match(r"OpenSSL (\d+)\.(\d+)", done.stdout)
    return found is None or (int(found[1]), int(found[2])) >= (3, 2)


def empty_user_ids() -> bool:
    """Whether the library makes no certificate with an empty user id."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    try:
        x509.NameAttribute(NameOID.USER_ID, "")
    except ValueError:
        return True
    return False


# The user.


def root() -> bool:
    """Whether the tests are not run by root."""
    return os.geteuid() != 0


def no_root() -> bool:
    """Whether the tests are run by root."""
    return os.geteuid() == 0


def namespaces() -> bool:
    """Whether no namespaces can be made."""
    return not has_namespaces()


def user_namespaces() -> bool:
    """Whether no user namespaces can be made, or the kernel maps no ids of mounts."""
    return fails("unshare", "-U", "true") or _kernel() < (5, 12)


def locked_memory() -> bool:
    """Whether little memory may be locked."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return os.geteuid() != 0 and soft != resource.RLIM_INFINITY


# The kernel.


def networks() -> bool:
    """Whether no network namespace with interfaces can be made."""
    script = "ip link add kv0 type bridge && ip link add kv1 type veth peer name kv2"
    return root() or fails("unshare", "-n", "sh", "-c", script)


def networks_of_pods() -> bool:
    """Whether pods have no networks: their addresses are translated by nft or iptables."""
    return networks() or not (shutil.which("nft") or shutil.which("iptables-restore"))


def tun() -> bool:
    """Whether there are no network namespaces with TUN devices."""
    return networks() or not Path("/dev/net/tun").exists()


def memory_file_systems() -> bool:
    """Whether no tmpfs can be mounted."""
    return root() or fails("unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt")


def loop_devices() -> bool:
    """Whether there is no free loop device."""
    if root() or fails("losetup", "--find"):
        return True
    done = subprocess.run(["losetup", "--find"], check=True, capture_output=True, text=True)
    return not Path(done.stdout.strip()).exists()


def named_file_system(match: re.Match[str]) -> bool:
    """Whether the file system that a reason names, with quotas or without, cannot be mounted."""
    name, has_quotas = match["name"], bool(match["quotas"])
    more = _PROJECTS if has_quotas and name == "ext4" else ()
    options = "loop,prjquota" if has_quotas else "loop"
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory) / "image"
        with image.open("wb") as file:
            file.truncate(_IMAGE_BYTES)
        return fails(f"mkfs.{name}", "-q", *more, str(image)) or fails(
            "unshare", "-m", "mount", "-t", name, "-o", options, str(image), directory
        )


def groups() -> bool:
    """Whether no control groups that limit memory can be made."""
    if root():
        return True
    if not (_CGROUPS / "cgroup.controllers").exists():
        return not os.access(_CGROUPS / "memory", os.W_OK)
    is_given_on = "memory" in (_CGROUPS / "cgroup.subtree_control").read_text().split()
    is_inner = (_CGROUPS / "cgroup.type").exists() and (_CGROUPS / "cgroup.procs").read_text()
    has_memory = "memory" in (_CGROUPS / "cgroup.controllers").read_text().split()
    return not (os.access(_CGROUPS, os.W_OK) and has_memory and (is_given_on or not is_inner))


def groups_of_version_2() -> bool:
    """Whether control groups of version 2 are not mounted."""
    roots = (_CGROUPS, _CGROUPS / "unified")
    return not any((each / "cgroup.controllers").exists() for each in roots)


def device_controller() -> bool:
    """Whether the controller that limits devices, of version 1, is not mounted or not ours."""
    return root() or not os.access(_CGROUPS / "devices", os.W_OK)


def device_programs() -> bool:
    """Whether the kernel takes no programs that limit devices."""
    has_bpf = Path("/proc/sys/kernel/unprivileged_bpf_disabled").exists()
    return root() or not has_bpf or groups_of_version_2()


def named_way_to_limit(match: re.Match[str]) -> bool:
    """Whether devices of containers cannot be limited in the way that a reason names, or in any."""
    ways = {"devices": device_controller(), "program": device_programs()}
    return ways.get(match["name"], all(ways.values()))


def openat2() -> bool:
    """Whether the kernel does not know openat2, or a filter forbids it."""
    libc = ctypes.CDLL(None, use_errno=True)
    how = ctypes.create_string_buffer(24)
    descriptor = libc.syscall(_OPENAT2, -1, b"/", how, len(how))
    if descriptor < 0:
        return True
    os.close(descriptor)
    return False


def named_function(match: re.Match[str]) -> bool:
    """Whether the C library lacks the function that a reason names."""
    return not hasattr(ctypes.CDLL(None), match["name"])


def processor_waits() -> bool:
    """Whether the kernel does not say how long a process waited for a processor."""
    return not Path("/proc/self/schedstat").exists()


def block_devices() -> bool:
    """Whether no block device can be opened."""
    return not any(each.is_block_device() and _opens(each) for each in Path("/dev").iterdir())


def python_and_x86_64() -> bool:
    """Whether there is no Python of the system, or the processor is another one."""
    return not Path("/usr/bin/python3").exists() or platform.machine() != "x86_64"


def static_busybox() -> bool:
    """Whether there is no busybox that needs no libraries."""
    return not is_static(Path("/bin/busybox"))


# Addresses.


def ipv6_of_python() -> bool:
    """Whether Python was built without IPv6."""
    return not socket.has_ipv6


def ipv6() -> bool:
    """Whether the kernel has no IPv6, or it is turned off."""
    path = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6")
    return not path.exists() or path.read_text().strip() != "0"


def loopback_of_ipv6() -> bool:
    """Whether ::1 is not an address of this machine."""
    with socket.socket(socket.AF_INET6) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            return True
    return False


def own_address() -> bool:
    """Whether this machine has no way out, and so no address of its own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return True
        return str(probe.getsockname()[0]).startswith("127.")


def _kernel() -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    assert found is not None
    return tuple(map(int, found.groups()))


def _opens(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        return False
    return True
