"""Volumes on the disk of a node, and in its memory."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet import mount_table
from kvstack.agents.kubelet.log_links import LogLinks
from kvstack.agents.kubelet.pods.environment import ConfigurationError
from kvstack.agents.kubelet.pods.files import File
from kvstack.agents.kubelet.volumes import directories
from tests.agents.kubelet.pods.test_worker import container, pod
from tests.agents.support.namespaces import has_namespaces

pytestmark = pytest.mark.skipif(not has_namespaces(), reason="mounts need root")

MAP = {"name": "v", "configMap": {"name": "m"}}
HELD = {"a": File(b"1", 0o400), "d/b": File(b"2", 0o644)}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "pod"
    yield place
    mount_table.take_away(place)


def kind_of(place: Path) -> str:
    """Return the kind of the file system that a place is on."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line for line in lines if line.split()[4] == str(place)]
    return found[-1].partition(" - ")[2] if found else ""


@pytest.mark.parametrize(
    ("volume", "is_in_memory"),
    [
        (MAP, False),
        ({"name": "v", "secret": {"secretName": "s"}}, True),
        ({"name": "v", "downwardAPI": {}}, True),
        ({"name": "v", "projected": {}}, True),
    ],
)
def test_what_is_secret_stays_in_memory(
    volume: dict[str, Any],
    is_in_memory: bool,  # noqa: FBT001
    directory: Path,
) -> None:
    place = directories.written(directory, volume, HELD, None)
    assert place.is_mount() is is_in_memory
    assert kind_of(place).startswith("tmpfs") is is_in_memory
    assert (place / "a").read_bytes() == b"1"
    again = directories.written(directory, volume, {**HELD, "a": File(b"3", 0o400)}, None)
    assert (again / "a").read_bytes() == b"3"
    assert len(mount_table.points_below(directory)) == is_in_memory
    directories.remove(directory)
    assert not directory.exists()


def test_a_volume_that_was_filled_on_the_disk_stays_there(directory: Path) -> None:
    place = directory / "volumes" / "kubernetes.io~secret" / "v"
    (place / "..1").mkdir(parents=True)
    (place / "..data").symlink_to("..1")
    directories.written(directory, {"name": "v", "secret": {}}, HELD, None)
    assert not place.is_mount()
    assert (place / "a").read_bytes() == b"1"


def test_what_did_not_change_is_not_written_again(directory: Path) -> None:
    place = directories.written(directory, MAP, HELD, 1234)
    before = os.readlink(place / "..data")
    assert before.startswith("..2")
    found = (place / "a").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (0, 1234, 0o440)
    directories.written(directory, MAP, HELD, 1234)
    assert os.readlink(place / "..data") == before
    owned = {"a": File(b"1", 0o600, 99)}
    directories.written(directory, MAP, owned, None)
    assert os.readlink(place / "..data") != before
    assert (place / "a").stat().st_uid == 99
    assert {each.name for each in place.iterdir()} == {
        *("a", "..data"),
        os.readlink(place / "..data"),
    }


def test_paths_that_lead_out_of_a_volume(directory: Path) -> None:
    for path in ("../x", "/x", "..x", "a/../../x"):
        with pytest.raises(ConfigurationError, match="invalid path"):
            directories.written(directory, MAP, {path: File(b"", 0o644)}, None)


def test_a_volume_in_memory_is_as_large_as_it_may_be(directory: Path) -> None:
    volume = {"name": "v", "emptyDir": {"medium": "Memory"}}
    place = directories.empty_directory(directory, volume, 1 << 20)
    found = os.statvfs(place)
    assert found.f_blocks * found.f_frsize == 1 << 20
    assert stat.S_IMODE(place.stat().st_mode) == 0o777
    (place / "kept").touch()
    assert directories.empty_directory(directory, volume, 1 << 20) == place
    assert (place / "kept").exists()
    mount_table.take_away(directory)  # as when the machine started anew
    assert directories.empty_directory(directory, volume, 1 << 20).is_mount()


@pytest.mark.parametrize(
    ("kind", "made", "problem"),
    [
        ("", "directory", ""),
        ("DirectoryOrCreate", "directory", ""),
        ("FileOrCreate", "file", ""),
        ("Directory", "", "is not a directory, unable to determine its type: stat "),
    ],
)
def test_places_of_the_node(kind: str, made: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    source = {"path": str(path), "type": kind}
    if problem:
        with pytest.raises(ConfigurationError, match=problem):
            directories.host_path(source)
        return
    assert directories.host_path(source) == path
    assert path.is_dir() is (made == "directory")


def test_places_of_the_node_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for kind, name, text in (
        ("DirectoryOrCreate", "file", "is not a directory, it's a File"),
        ("FileOrCreate", ".", "is not a file, it's a Directory"),
    ):
        with pytest.raises(ConfigurationError, match=f"hostPath type check failed: .* {text}"):
            directories.host_path({"path": str(tmp_path / name), "type": kind})


def test_files_of_variables_are_read_from_volumes(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    (volume / "env").write_text("A='1'\n")
    (volume / "large").write_text("x" * (1 << 17))
    (volume / "out").symlink_to("/etc/passwd")

    def read(path: str) -> dict[tuple[str, str], str | None]:
        reference = {"volumeName": "v", "path": path, "key": "A"}
        obj = {"env": [{"name": "X", "valueFrom": {"fileKeyRef": reference}}]}
        return directories.env_files(obj, {"v": (volume, False)})

    assert read("env") == {("v", "env"): "A='1'\n"}
    assert read("none") == {("v", "none"): None}
    assert not (volume / "none").exists()
    for path in ("large", "out", "../x"):
        with pytest.raises(ConfigurationError):
            read(path)


def test_logs_are_linked_to_by_their_containers(tmp_path: Path) -> None:
    links, log = LogLinks(tmp_path / "containers"), tmp_path / "0.log"
    log.touch()
    found = container("a")
    found.log = log
    links.make(pod(), found)
    links.make(pod(), found)
    (link,) = (tmp_path / "containers").iterdir()
    assert (link.name, link.readlink()) == ("p_n_a-a0.log", log)
    links.clean()
    assert link.is_symlink()
    log.unlink()
    links.clean()
    assert not link.is_symlink()
    found.id = "x" * 300
    links.make(pod(), found)
    (link,) = (tmp_path / "containers").iterdir()
    assert len(link.name) == 255
