"""The disk port: one suite on the disk of this machine and on the simulated one."""

import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.storage import files as storage_files
from kvstore.storage.files import Files, OsFiles, write_all, write_file
from tests.sim.disk import SimFiles
from tests.sim.disk_faults import DiskFaults, PowerCut

SECTOR = 512


@pytest.fixture(params=["os", "sim"])
def files(request: pytest.FixtureRequest) -> Files:
    return OsFiles() if request.param == "os" else SimFiles(DiskFaults(random.Random(1)))


@pytest.fixture
def root(files: Files, tmp_path: Path) -> Path:
    files.make_directory(tmp_path / "root")
    return tmp_path / "root"


def make(files: Files, path: Path, data: bytes = b"") -> int:
    handle = files.open(path, create=True)
    write_all(files, handle, 0, data)
    return handle


def test_what_is_written_is_read(files: Files, root: Path) -> None:
    handle = make(files, root / "a", b"hello")
    assert files.write(handle, 7, b"x") == 1
    assert files.read(handle, 0, 100) == b"hello\0\0x"
    assert files.read(handle, 4, 2) == b"o\0"
    assert files.read(handle, 8, 10) == b""
    assert files.size_bytes(handle) == 8
    files.begin_writeback(handle, 0, 8)
    assert files.read(handle, 0, 8) == b"hello\0\0x"
    files.sync_data(handle)
    files.sync(handle)
    files.close(handle)
    again = files.open(root / "a")
    assert files.read(again, 0, 5) == b"hello"
    files.close(again)


def test_creating_keeps_what_is_there(files: Files, root: Path) -> None:
    files.close(make(files, root / "a", b"one"))
    handle = files.open(root / "a", create=True)
    assert files.read(handle, 0, 9) == b"one"
    files.close(handle)


def wait_until_freed() -> None:
    for thread in threading.enumerate():
        if thread.name == "free-blocks":
            thread.join(10.0)
            assert not thread.is_alive()


def test_removed_files_are_closed(files: Files, root: Path) -> None:
    handles = [make(files, root / name, b"x" * 100_000) for name in "ab"]
    for name in "ab":
        files.remove(root / name)
    files.close_removed(handles)
    files.close_removed([])
    wait_until_freed()
    for handle in handles:
        with pytest.raises(OSError):  # noqa: PT011  # no such handle, in each disk's words
            files.size_bytes(handle)
    files.close(make(files, root / "a", b"new"))


def test_blocks_of_removed_files_are_freed_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_files, "FREED_BYTES", 1000)
    monkeypatch.setattr(storage_files, "FREED_PAUSE_S", 0.0)
    files = OsFiles()
    shortened: list[int] = []
    truncate = os.ftruncate

    def noting(descriptor: int, size_bytes: int) -> None:
        shortened.append(size_bytes)
        truncate(descriptor, size_bytes)

    monkeypatch.setattr(os, "ftruncate", noting)
    handle = make(files, tmp_path / "a", b"x" * 2500)
    files.remove(tmp_path / "a")
    files.close_removed([handle])
    wait_until_freed()
    assert shortened == [1500, 500, 0]


def test_a_file_with_another_name_keeps_its_content(tmp_path: Path) -> None:
    """A backup may consist of hard links."""
    files = OsFiles()
    handle = make(files, tmp_path / "a", b"x" * 2500)
    os.link(tmp_path / "a", tmp_path / "backup")
    files.remove(tmp_path / "a")
    files.close_removed([handle])
    wait_until_freed()
    assert (tmp_path / "backup").read_bytes() == b"x" * 2500


def test_truncate_cuts_and_grows_with_zeros(files: Files, root: Path) -> None:
    handle = make(files, root / "a", b"abcdef")
    files.truncate(handle, 3)
    files.truncate(handle, 5)
    assert files.read(handle, 0, 9) == b"abc\0\0"
    files.close(handle)


def test_allocate_grows_and_never_shrinks(files: Files, root: Path) -> None:
    handle = make(files, root / "a", b"abc")
    files.allocate(handle, 5000)
    assert files.size_bytes(handle) == 5000
    files.allocate(handle, 10)
    assert files.read(handle, 0, 5000) == b"abc".ljust(5000, b"\0")
    end = files.data_end(handle)
    assert 3 <= end <= 5000
    assert not files.read(handle, end, 5000).strip(b"\0")
    files.close(handle)


def test_names(files: Files, root: Path) -> None:
    files.make_directory(root / "d" / "e")
    files.make_directory(root / "d")
    for name in ("b", "a"):
        write_file(files, root / "d" / name, name.encode(), 3)
    assert files.list_directory(root / "d") == ["a", "b", "e"]
    files.rename(root / "d" / "a", root / "d" / "b")
    files.remove_tree(root / "d" / "e")
    files.remove_tree(root / "d" / "e")
    files.sync_directory(root / "d")
    assert files.list_directory(root / "d") == ["b"]
    handle = files.open(root / "d" / "b")
    assert files.read(handle, 0, 9) == b"a\0\0"
    files.close(handle)
    files.rename(root / "d", root / "f")
    assert files.exists(root / "f" / "b")
    assert not files.exists(root / "d")
    files.remove(root / "f" / "b")
    assert files.list_directory(root / "f") == []


def test_an_open_file_outlives_its_name(files: Files, root: Path) -> None:
    handle = make(files, root / "a", b"one")
    files.remove(root / "a")
    assert files.read(handle, 0, 3) == b"one"
    files.close(handle)


def test_what_is_not_there(files: Files, root: Path) -> None:
    for act in (
        lambda: files.open(root / "a"),
        lambda: files.open(root / "a", write=True),
        lambda: files.open(root / "d" / "a", create=True),
        lambda: files.remove(root / "a"),
        lambda: files.rename(root / "a", root / "b"),
        lambda: files.list_directory(root / "d"),
        lambda: files.sync_directory(root / "d"),
    ):
        with pytest.raises(FileNotFoundError):
            act()


def test_a_directory_that_is_not_empty_does_not_give_way(files: Files, root: Path) -> None:
    files.make_directory(root / "d" / "e")
    files.make_directory(root / "f")
    with pytest.raises(OSError, match="not empty"):
        files.rename(root / "f", root / "d")


def test_the_lock_is_of_the_handle(files: Files, root: Path) -> None:
    first = make(files, root / "a")
    second = files.open(root / "a", write=True)
    assert files.try_lock(first)
    assert files.try_lock(first)
    assert not files.try_lock(second)
    files.close(first)
    assert files.try_lock(second)
    files.close(second)


def test_a_file_opened_for_reading_is_not_written(files: Files, root: Path) -> None:
    files.close(make(files, root / "a", b"one"))
    handle = files.open(root / "a")
    with pytest.raises(OSError, match=r"[Bb]ad file"):
        files.write(handle, 0, b"x")
    files.close(handle)


# What only the simulated disk can show.


@pytest.fixture
def disks() -> Iterator[SimFiles]:
    def endless() -> Iterator[SimFiles]:
        for seed in range(64):
            disk = SimFiles(DiskFaults(random.Random(seed)))
            disk.make_directory(Path("/d"))
            disk.sync_directory(Path("/"))
            yield disk

    return endless()


PATH = Path("/d/a")


def test_a_power_cut_takes_unsynced_sectors_only(disks: Iterator[SimFiles]) -> None:
    seen = set()
    for disk in disks:
        handle = make(disk, PATH, b"a" * 4 * SECTOR)
        disk.sync(handle)
        disk.sync_directory(PATH.parent)
        disk.write(handle, SECTOR, b"b" * 2 * SECTOR)
        disk.power_cut()
        data = disk.content(PATH)
        assert data[:SECTOR] == b"a" * SECTOR
        assert data[3 * SECTOR :] == b"a" * SECTOR
        seen.add((data[SECTOR], data[2 * SECTOR]))
    assert len(seen) == 4


def test_a_power_cut_takes_unsynced_names_from_the_last_on(disks: Iterator[SimFiles]) -> None:
    seen = set()
    for disk in disks:
        disk.close(make(disk, PATH))
        disk.rename(PATH, PATH.with_name("b"))
        disk.close(make(disk, PATH.with_name("c")))
        disk.power_cut()
        seen.add(tuple(disk.names(PATH.parent)))
    assert seen == {(), ("a",), ("b",), ("b", "c")}


def test_a_killed_process_loses_nothing_it_wrote(disks: Iterator[SimFiles]) -> None:
    disk = next(disks)
    assert disk.try_lock(make(disk, PATH, b"one"))
    disk.kill()
    assert disk.content(PATH) == b"one"
    assert disk.try_lock(disk.open(PATH, write=True))


def test_a_sync_that_fails_may_drop_what_it_was_for(disks: Iterator[SimFiles]) -> None:
    seen = set()
    for disk in disks:
        handle = make(disk, PATH, b"a" * SECTOR)
        disk.sync(handle)
        disk.write(handle, 0, b"b" * SECTOR)
        disk.faults.sync_fails_in = 1
        with pytest.raises(OSError, match="Input/output"):
            disk.sync_data(handle)
        disk.sync_data(handle)
        seen.add(disk.content(PATH)[:1])
    assert seen == {b"a", b"b"}


def test_a_full_disk_takes_whole_sectors_first(disks: Iterator[SimFiles]) -> None:
    seen = set()
    for disk in disks:
        handle = make(disk, PATH, b"a" * 100)
        disk.faults.is_full = True
        try:
            seen.add(disk.write(handle, 100, b"b" * 3 * SECTOR))
        except OSError:
            seen.add(0)
        with pytest.raises(OSError, match="No space"):
            make(disk, PATH.with_name("b"))
    assert seen == {0, SECTOR - 100, 2 * SECTOR - 100, 3 * SECTOR - 100}


def test_the_power_goes_at_the_call_it_is_armed_for(disks: Iterator[SimFiles]) -> None:
    disk = next(disks)
    handle = make(disk, PATH)
    disk.faults.cut_in = 2
    disk.sync(handle)
    with pytest.raises(PowerCut):
        disk.sync(handle)


def test_rot_is_healed_unless_it_was_written_over(disks: Iterator[SimFiles]) -> None:
    disk = next(disks)
    handle = make(disk, PATH, b"aaa")
    disk.sync(handle)
    disk.rot(PATH, 0, 1)
    disk.rot(PATH, 2, 2)
    assert disk.content(PATH) == b"`ac"
    disk.write(handle, 0, b"x")
    assert disk.heal()
    assert not disk.heal()
    assert disk.content(PATH) == b"xaa"
