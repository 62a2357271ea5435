"""Volumes on the disk of a node, and in its memory."""

import ctypes
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.disk.removal import remove_tree
from kvstack.agents.kubelet.disk.tree_walk import entries_below
from kvstack.agents.kubelet.logs.log_links import LogLinks
from kvstack.agents.kubelet.logs.pod_logs import PodLogs
from kvstack.agents.kubelet.pods.environment import ConfigurationError
from kvstack.agents.kubelet.pods.files import File
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.kubelet.runtime.runtime import Mount
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


def kind_of(path: Path) -> str:
    """Return the kind of the file system that a place is on."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    found = [line for line in lines if line.split()[4] == str(path)]
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


HOSTS = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
ALIASES = {
    "hostAliases": [
        {"ip": "123.45.67.89", "hostnames": ["foo.local", "bar.local"]},
        {"ip": "fd00::7", "hostnames": ["six.local"]},
    ]
}
OF_ALIASES = """
# Entries added by HostAliases.
123.45.67.89\tfoo.local\tbar.local
fd00::7\tsix.local
"""
NAMED = {"hostname": "host", "subdomain": "sub"}


@pytest.mark.parametrize(
    ("spec", "addresses", "text"),
    [
        ({}, ["10.0.0.5"], f"{HOSTS}10.0.0.5\tp\n"),
        ({}, ["10.0.0.5", "fd00::5"], f"{HOSTS}10.0.0.5\tp\nfd00::5\tp\n"),
        (NAMED, ["10.0.0.5"], f"{HOSTS}10.0.0.5\thost.sub.n.svc.cluster.local\thost\n"),
        (
            {"subdomain": "sub", **ALIASES},
            ["10.0.0.5", "fd00::5"],
            f"{HOSTS}10.0.0.5\tp.sub.n.svc.cluster.local\tp\n"
            f"fd00::5\tp.sub.n.svc.cluster.local\tp\n{OF_ALIASES}",
        ),
        ({"hostnameOverride": "other", **NAMED}, ["10.0.0.5"], f"{HOSTS}10.0.0.5\tother\n"),
        (ALIASES, [], f"{HOSTS}{OF_ALIASES}"),
    ],
)
def test_the_names_that_a_pod_knows(
    spec: dict[str, Any], addresses: list[str], text: str, directory: Path
) -> None:
    made = pod()
    made["spec"] |= spec
    before = os.umask(0o077)
    try:
        mount = directories.write_hosts(directory, made, addresses, "cluster.local")
    finally:
        os.umask(before)
    file = Path(mount.source)
    assert (mount.target, file.name, mount.is_read_only) == ("/etc/hosts", "etc-hosts", False)
    assert file.read_text() == text
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_a_pod_on_its_nodes_network_knows_the_nodes_names(directory: Path) -> None:
    made = pod()
    made["spec"] |= {"hostNetwork": True, **NAMED, **ALIASES}
    mount = directories.write_hosts(directory, made, ["192.0.2.7"], "cluster.local")
    head = "# Kubernetes-managed hosts file (host network).\n"
    of_node = Path("/etc/hosts").read_text()
    assert Path(mount.source).read_text() == f"{head}{of_node}{OF_ALIASES}"


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
def test_paths_of_the_node(kind: str, made: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    source = {"path": str(path), "type": kind}
    if problem:
        with pytest.raises(ConfigurationError, match=problem):
            directories.host_path(source)
        return
    assert directories.host_path(source) == path
    assert path.is_dir() is (made == "directory")


def test_paths_of_the_node_that_are_something_else(tmp_path: Path) -> None:
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
    os.mkfifo(volume / "pipe")
    assert read("pipe") == {("v", "pipe"): None}


def sub_paths(volume: Path, path: str) -> Path:
    mount = {"name": "v", "mountPath": "/v", "subPath": path}
    (found,) = directories.mounts(pod(), {"volumeMounts": [mount]}, {"v": (volume, False)}, {}, {})
    assert found.is_below
    return Path(found.source)


def test_volumes_that_are_images() -> None:
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/all"},
            {"name": "v", "mountPath": "/part", "subPath": "etc"},
        ]
    }
    images = {"v": ("r/i:1", "sha256:1")}
    assert directories.mounts(pod(), container, {}, {}, images) == [
        Mount("", "/all", is_read_only=True, image="r/i:1", image_id="sha256:1"),
        Mount("etc", "/part", is_read_only=True, image="r/i:1", image_id="sha256:1"),
    ]


def test_paths_in_volumes(tmp_path: Path) -> None:
    volume, outside = tmp_path / "v", tmp_path / "outside"
    for each in (volume / "real", outside):
        each.mkdir(parents=True)
    volume.chmod(0o777)
    (volume / "link").symlink_to("real")
    (volume / "named").symlink_to(volume / "real")
    (volume / "out").symlink_to(outside)
    assert sub_paths(volume, "real/a/b") == volume / "real" / "a" / "b"
    assert stat.S_IMODE((volume / "real" / "a").stat().st_mode) == 0o777
    assert sub_paths(volume, "link/c") == volume / "real" / "c"
    assert sub_paths(volume, "named/d") == volume / "real" / "d"
    (volume / "loop").symlink_to("loop")
    for path in ("out", "out/x", "loop/x", "../outside", "/x"):
        with pytest.raises(ConfigurationError, match="lead"):
            sub_paths(volume, path)
    assert not list(outside.iterdir())


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Exchange two names all the time, as a container of the volume may."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "renameat2"):
        pytest.skip("this C library has no renameat2")
    ends = threading.Event()

    def swap() -> None:
        while not ends.is_set():
            assert libc.renameat2(-100, bytes(one), -100, bytes(other), 2) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        yield
    finally:
        ends.set()
        swapping.join()


def test_races_in_volumes_are_lost(tmp_path: Path) -> None:
    """A link that takes the place of a file or directory meanwhile is not followed."""
    volume, outside = tmp_path / "v", tmp_path / "outside"
    for each in (volume / "a", outside):
        each.mkdir(parents=True)
    (outside / "env").write_text("SECRET=1")
    (outside / "env").chmod(0o600)
    (volume / "a" / "env").write_text("A=1")
    (volume / "link").symlink_to(outside)
    texts = set()
    reference = {"volumeName": "v", "path": "a/env", "key": "A"}
    obj = {"env": [{"name": "X", "valueFrom": {"fileKeyRef": reference}}]}
    with exchanging(volume / "a", volume / "link"):
        for number in range(300):
            try:
                sub_paths(volume, f"a/{number}")
            except ConfigurationError as error:
                assert "leads out" in str(error)  # noqa: PT017
            try:
                found = directories.env_files(obj, {"v": (volume, False)})
                texts.add(found["v", "a/env"])
            except ConfigurationError as error:
                assert "leads out" in str(error)  # noqa: PT017
            directories.give_to_group(volume, 4711, "Always")
    assert texts <= {"A=1", None}
    assert [each.name for each in outside.iterdir()] == ["env"]
    for each in (outside, outside / "env"):
        assert each.stat().st_gid != 4711
    assert stat.S_IMODE((outside / "env").stat().st_mode) == 0o600
    assert 4711 in {each.lstat().st_gid for each in volume.iterdir()}


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


def test_only_the_nodes_own_logs_are_removed(tmp_path: Path) -> None:
    logs = tmp_path / "pods"
    one, other = PodLogs(tmp_path / "one"), PodLogs(tmp_path / "other")
    for owner, name in ((one, "n_a_1"), (one, "n_b_2"), (other, "n_c_3")):
        (logs / name / "c").mkdir(parents=True)
        (logs / name / "c" / "0.log").touch()
        owner.claim(logs / name)
        owner.claim(logs / name)
    (logs / "n_d_4").mkdir()  # of a kubelet of somebody else
    one.remove_others(logs, {"2"})
    assert {each.name for each in logs.iterdir()} == {"n_b_2", "n_c_3", "n_d_4"}
    one.remove_others(logs, ())
    assert {each.name for each in logs.iterdir()} == {"n_c_3", "n_d_4"}
    assert not list((tmp_path / "one").iterdir())
    PodLogs(tmp_path / "none").remove_others(logs, ())


DEPTH = 3000
"""Deeper than Python calls, and than descriptors may be open."""


def nest(top: Path, target: Path) -> None:
    """Make directories in directories, some with a link to a target."""
    held = os.open(top, os.O_RDONLY)
    for number in range(DEPTH):
        os.mkdir("d", dir_fd=held)
        if number % 1000 == 1:
            os.symlink(target, "link", dir_fd=held)
        below = os.open("d", os.O_RDONLY, dir_fd=held)
        os.close(held)
        held = below
    os.close(held)


def test_a_directory_is_walked_however_deep_it_is(tmp_path: Path) -> None:
    outside, top = tmp_path / "outside", tmp_path / "top"
    for each in (outside, top):
        each.mkdir()
    (outside / "kept").write_bytes(bytes(1 << 20))
    nest(top, outside)
    found = size_of(top)
    assert found.inodes == DEPTH + DEPTH // 1000
    assert found.bytes < 1 << 25
    assert size_of(outside).bytes >= 1 << 20
    directories.give_to_group(top, os.getgid(), "Always")
    assert (top / "d" / "d").stat().st_mode & stat.S_ISGID
    assert not outside.stat().st_mode & stat.S_ISGID
    remove_tree(top)


def test_a_walk_notices_that_a_directory_was_moved(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "else").mkdir()
    held = os.open(tmp_path / "a", os.O_RDONLY)
    seen = []

    def walk() -> None:
        for _, name, _ in entries_below(held):
            seen.append(name)
            if name == "b":
                (tmp_path / "a" / "b" / "c").mkdir()
            if name == "c":
                (tmp_path / "a" / "b").rename(tmp_path / "else" / "b")

    with pytest.raises(OSError, match="moved while it was walked"):
        walk()
    os.close(held)
    assert seen == ["b", "c"]


def test_a_directory_is_removed_however_deep_it_is(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(outside)
    for number in range(2500):
        (top / f"file-{number}").touch()
    nest(top, outside)
    remove_tree(top)
    assert not top.exists()
    assert (outside / "kept").exists()
    remove_tree(top)
    (tmp_path / "link").symlink_to(outside)
    remove_tree(tmp_path / "link")
    assert [each.name for each in tmp_path.iterdir()] == ["outside"]
