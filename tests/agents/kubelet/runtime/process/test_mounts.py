"""Mounts and what programs inherit, each in a process of its own; also as on older kernels."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.agents.support.namespaces import has_namespaces

_HEAD = """
import errno, os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kvstack.agents.kubelet.runtime.process.shim import cgroup_view, mounts, syscalls
from kvstack.agents.kubelet.runtime.process.shim.syscalls import *
place = sys.argv[2]
def flags(path): return os.statvfs(path).f_flag
def namespace():
    syscalls.unshare(CLONE_NEWNS)
    syscalls.mount("none", "/", "", MS_REC | MS_PRIVATE)
"""
needs_root = pytest.mark.skipif(not has_namespaces(), reason="mounts need root")


def run(program: str, path: Path) -> list[str]:
    root = str(Path(__file__).parents[5])
    command = [sys.executable, "-c", _HEAD + program, root, str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_root
@pytest.mark.parametrize("way", ["set_flags", "remount"])
def test_flags_of_mounts_below(way: str, tmp_path: Path) -> None:
    program = f"""
namespace()
for name in ("outer", "outer/in ner", "outerX"):
    os.makedirs(f"{{place}}/{{name}}", exist_ok=True)
    syscalls.mount("tmpfs", f"{{place}}/{{name}}", "tmpfs", MS_NOSUID)
    if name == "outer": os.mkdir(f"{{place}}/outer/in ner")
outer = f"{{place}}/outer"
mounts.{way}(outer, MS_NODEV, is_recursive=True)
mounts.{way}(outer, MS_RDONLY)
both = MS_NODEV | MS_NOSUID
print(flags(outer) & 15 == both | MS_RDONLY, flags(f"{{outer}}/in ner") & 15 == both)
print(flags(f"{{place}}/outerX") & 15 == MS_NOSUID)
"""
    assert run(program, tmp_path) == ["True True", "True"]


@needs_root
def test_version_2_shows_the_own_group_alone(tmp_path: Path) -> None:
    program = """
namespace()
os.makedirs(f"{place}/sys/fs/cgroup")
os.makedirs(f"{place}/group/below")
cgroup_view.mount_own(f"{place}/sys", {"": f"{place}/group"})
print(os.listdir(f"{place}/sys/fs/cgroup"))
try: os.mkdir(f"{place}/sys/fs/cgroup/x")
except OSError as error: print(error.strerror)
"""
    assert run(program, tmp_path) == ["['below']", "Read-only file system"]


@pytest.mark.parametrize("has_close_range", [True, False])
def test_programs_inherit_three_descriptors(has_close_range: bool, tmp_path: Path) -> None:  # noqa: FBT001
    program = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
if not {has_close_range}:
    syscalls._CLOSE_RANGE = 9999
for each in range(5):
    os.set_inheritable(os.open("/dev/null", os.O_RDONLY), True)
os.dup2(0, 200)
syscalls.close_on_exec()
os.execv("/bin/sh", ["sh", "-c", "ls /proc/$$/fd"])
"""
    found = {int(each) for each in run(program, tmp_path)}
    assert found & {*range(3, 9), 200} <= {10}  # a shell may keep one of its own
    assert {0, 1, 2} <= found
