"""Directories of local-path with a limit, on file systems with and without project quotas."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvstack.agents.standalone.local_path.directories import Directories
from kvstack.agents.standalone.local_path.quotas import Use

MIB = 1 << 20
NAMES = [f"pvc-0a1b2c3d-1111-4222-8333-44445555666{number}" for number in range(3)]
SYSTEMS = {"ext4": 64, "xfs": 320}
"""With their sizes in MiB."""
PROJECTS = ["-O", "quota,project", "-E", "quotatype=prjquota"]
NOBODY = 65534


@contextmanager
def mounted(directory: Path, kind: str, *, has_quotas: bool) -> Iterator[Path]:
    image, point = directory / f"{kind}.img", directory / kind
    with image.open("wb") as file:
        file.truncate(SYSTEMS[kind] * MIB)
    program = [f"mkfs.{kind}", "-q", *(PROJECTS if has_quotas and kind == "ext4" else ())]
    try:
        made = subprocess.run([*program, str(image)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip(f"there is no {program[0]}")
    assert made.returncode == 0, made.stderr
    point.mkdir()
    options = "loop,prjquota" if has_quotas else "loop"
    command = ["mount", "-t", kind, "-o", options, str(image), str(point)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        what = f"{kind} with quotas" if has_quotas else kind
        pytest.skip(f"no {what} can be mounted from a file: {done.stderr.strip()}")
    try:
        yield point
    finally:
        subprocess.run(["umount", point], check=True)


@pytest.fixture(params=SYSTEMS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    tmp_path.parent.chmod(0o755)
    tmp_path.chmod(0o755)
    with mounted(tmp_path, request.param, has_quotas=True) as point:
        yield point


def written(path: Path, mebibytes: int) -> int:
    """Write to a directory as somebody; return how many MiB were taken."""
    writes = f"head -c {MIB} /dev/zero >> {path}/f"
    script = f"i=0; while [ $i -lt {mebibytes} ] && {writes}; do i=$((i+1)); done; echo $i"
    done = subprocess.run(
        ["sh", "-c", script], user=NOBODY, capture_output=True, text=True, check=False
    )
    return int(done.stdout)


def test_a_directory_holds_as_much_as_its_claim_asks_for(disk: Path) -> None:
    directories = Directories(disk / "volumes")
    assert directories.quotas.problem() == ""
    first, second, third = NAMES
    directories.make(first, 4 * MIB)
    directories.make(second, 8 * MIB)
    directories.make(first, 4 * MIB)  # once more, after a crash
    directories.root.chmod(0o755)
    assert written(directories.path(first), 20) <= 4
    # The other one is not the same project, and grows with its claim.
    assert 4 <= written(directories.path(second), 20) <= 8
    directories.resize(second, 12 * MIB)
    use = directories.quotas.use_of(directories.path(second))
    assert use.bytes_max == 12 * MIB
    assert use.bytes > 4 * MIB
    assert written(directories.path(second), 20) >= 2
    size = os.statvfs(directories.path(first))
    assert size.f_blocks * size.f_frsize == 4 * MIB
    # What is gone leaves its number to the next one, which begins empty.
    project = directories.quotas.project_of(directories.path(first))
    directories.remove(first)
    directories.make(third, 4 * MIB)
    assert directories.quotas.project_of(directories.path(third)) == project
    use = directories.quotas.use_of(directories.path(third))
    assert use._replace(bytes=0) == Use(4 * MIB, 0, 1024, 1)
    assert use.bytes <= 4096


def test_many_empty_files_are_limited_too(disk: Path) -> None:
    directories = Directories(disk / "volumes")
    directories.make(NAMES[0], 4 * MIB)
    directories.root.chmod(0o755)
    script = f"cd {directories.path(NAMES[0])} && i=0; while : > $i; do i=$((i+1)); done"
    subprocess.run(["sh", "-c", script], user=NOBODY, capture_output=True, check=False)
    assert len(os.listdir(directories.path(NAMES[0]))) == 1023


def test_what_was_made_without_limits_stays_without(disk: Path) -> None:
    directories = Directories(disk / "volumes")
    path = directories.root / NAMES[0]
    path.mkdir(parents=True)
    (path / "file").touch()
    directories.make(NAMES[0], 4 * MIB)
    assert directories.quotas.project_of(path) == 0
    directories.remove(NAMES[0])
    assert not path.exists()


def test_without_project_quotas_nothing_is_limited(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    with mounted(tmp_path, "ext4", has_quotas=False) as point:
        directories = Directories(point / "volumes")
        assert directories.quotas.problem() == "its file system is not mounted with prjquota"
        directories.make(NAMES[0], MIB)
        (directories.path(NAMES[0]) / "f").write_bytes(b"x" * 2 * MIB)
        directories.resize(NAMES[0], MIB)
        directories.remove(NAMES[0])
        assert not directories.path(NAMES[0]).exists()
