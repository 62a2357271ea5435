"""Paths below a directory: the same answers with openat2 and without it."""

import ctypes
import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.shim import rooted, syscalls

Find = Callable[..., int]
_HERE, _RENAME_EXCHANGE = -100, 2


def has_openat2() -> bool:
    here = rooted.open_root("/")
    try:
        os.close(syscalls.open_at(here, "proc", os.O_PATH, syscalls.RESOLVE_IN_ROOT))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return False
        raise
    finally:
        os.close(here)
    return True


@pytest.fixture(params=["openat2", "components"])
def find(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Find:
    if request.param == "openat2":
        if not has_openat2():
            pytest.skip("this kernel has no openat2")
    else:

        def missing(*_arguments: object) -> int:
            raise OSError(errno.ENOSYS, "no openat2")

        monkeypatch.setattr(syscalls, "open_at", missing)
    return rooted.find


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret").write_text("secret")
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "file").write_text("inside")
    (root / "outside").mkdir()
    for name, aim in (
        ("absolute", "/a/file"),
        ("up", "../../../../../../../../a/file"),
        ("relative", "a/../a/./file"),
        ("chain", "absolute"),
        ("loop", "loop"),
        ("dangling", "/none/file"),
        ("away", str(outside)),
        ("a/back", ".."),
    ):
        (root / name).symlink_to(aim)
    return root


@pytest.fixture
def root(tree: Path) -> Iterator[int]:
    held = rooted.open_root(str(tree))
    yield held
    os.close(held)


def failure(work: Callable[[], int]) -> int | None:
    """Return the number of the error of something; 0: it went well."""
    try:
        os.close(work())
    except OSError as error:
        return error.errno
    return 0


def where(held: int) -> str:
    try:
        return os.readlink(rooted.path_of(held))
    finally:
        os.close(held)


@pytest.mark.parametrize(
    "path",
    [
        *("a/file", "/a/file", "//a/./file", "absolute", "/up", "relative", "chain"),
        *("a/b/../file", "../../a/file", "a/back/a/file"),
    ],
)
def test_links_are_followed_within_the_root(tree: Path, root: int, find: Find, path: str) -> None:
    assert where(find(root, path)) == str(tree / "a" / "file")


def test_the_root_itself(tree: Path, root: int, find: Find) -> None:
    for path in ("", "/", ".", "..", "a/back"):
        assert where(find(root, path)) == str(tree)


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("loop", errno.ELOOP),
        ("dangling", errno.ENOENT),
        ("away/secret", errno.ENOENT),
        ("a/file/x", errno.ENOTDIR),
        ("none", errno.ENOENT),
    ],
)
def test_what_cannot_be_found(root: int, find: Find, path: str, number: int) -> None:
    assert failure(lambda: find(root, path)) == number


@pytest.mark.parametrize("path", ["absolute", "up", "../x", "away/secret", "a/../../root/a"])
def test_beneath_nothing_leads_out(root: int, find: Find, path: str) -> None:
    assert failure(lambda: find(root, path, beneath=True)) == errno.EXDEV


def test_beneath_links_inside_are_followed(tree: Path, root: int, find: Find) -> None:
    for path in ("relative", "/a/file", "a/back/a/file"):
        assert where(find(root, path, beneath=True)) == str(tree / "a" / "file")


@pytest.mark.parametrize(
    "path", ["proc/self/root/etc", "proc/self/cwd", "proc/thread-self/fd/0", "proc/self/exe"]
)
def test_links_that_the_kernel_makes_up_are_refused(find: Find, path: str) -> None:
    machine = rooted.open_root("/")
    try:
        assert failure(lambda: find(machine, path)) == errno.ELOOP
        assert where(find(machine, "/proc/self/status")).endswith("/status")
    finally:
        os.close(machine)


@pytest.mark.usefixtures("find")
def test_what_is_missing_is_made_within_the_root(tree: Path, root: int) -> None:
    outside = tree.parent / "outside"
    assert where(rooted.make(root, "x/y/z")) == str(tree / "x/y/z")
    assert where(rooted.make(root, "x/file", is_file=True)) == str(tree / "x/file")
    assert where(rooted.make(root, "dangling", is_file=True)) == str(tree / "none/file")
    inside = tree / str(outside).lstrip("/")
    assert where(rooted.make(root, "away/new")) == str(inside / "new")
    assert where(rooted.make(root, "../../up2")) == str(tree / "up2")
    assert (tree / "x/file").is_file()
    assert (tree / "none/file").is_file()
    assert sorted(each.name for each in outside.iterdir()) == ["deep", "secret"]
    assert failure(lambda: rooted.make(root, "away/other", beneath=True)) == errno.EXDEV


def test_modes_of_directories_do_not_depend_on_the_umask(tree: Path, root: int) -> None:
    old = os.umask(0o077)
    try:
        os.close(rooted.make(root, "open/below", mode=0o2777))
    finally:
        os.umask(old)
    for name in ("open", "open/below"):
        assert stat.S_IMODE((tree / name).stat().st_mode) == 0o2777


def test_only_regular_files_are_read(tree: Path, root: int) -> None:
    os.mkfifo(tree / "pipe")
    assert rooted.read(root, "absolute", 6) == b"inside"
    for path in ("pipe", "a", "none", "away/secret", "loop"):
        assert rooted.read(root, path, 100) is None
    with pytest.raises(OSError, match="a/file is larger than 5 bytes"):
        rooted.read(root, "a/file", 5)


def test_a_race_is_lost(tree: Path, root: int) -> None:
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "renameat2"):
        pytest.skip("this C library has no renameat2")
    outside = tree.parent / "outside"
    one, other = bytes(tree / "a"), bytes(tree / "away")
    ends = threading.Event()

    def swap() -> None:
        while not ends.is_set():
            assert libc.renameat2(_HERE, one, _HERE, other, _RENAME_EXCHANGE) == 0

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(500):
            os.close(rooted.walk(root, f"a/{number}/x", is_made=True))
    finally:
        ends.set()
        swapping.join()
    assert sorted(each.name for each in outside.iterdir()) == ["deep", "secret"]


def test_no_descriptor_is_left(root: int) -> None:
    before = os.listdir("/proc/self/fd")
    for path in ("a/b", "loop", "none/x", "away/secret", "a/file/x"):
        for beneath in (False, True):
            try:
                os.close(rooted.walk(root, path, beneath=beneath))
            except OSError:
                continue
    assert len(os.listdir("/proc/self/fd")) == len(before)
