"""A disk that fails at every call in turn: nothing acknowledged is lost, nothing is tried again."""

import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typing_extensions import override

from kvstore.errors import StorageFatalError
from kvstore.raft.model import ConfState, Entry, HardState
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, WalSnapshot
from kvstore.storage.wal.wal import Wal
from tests.support.disks.fault_files import FaultFiles

META = b"\x08\x01\x10\x02"
SEGMENT_BYTES = 2048
ROUNDS = 12
SNAPSHOT_AT = 9


def entry(index: int) -> Entry:
    return Entry(0, 1, index, b"%d" % index * 300)


class Written:
    """What was acknowledged before the disk failed."""

    def __init__(self) -> None:
        self.created = False
        self.index = 0
        self.snapshot = INITIAL_SNAPSHOT


def write(directory: Path, files: FaultFiles, done: Written) -> None:
    """Create a log and write to it, over several cuts."""
    wal = Wal.create(directory, META, files, SEGMENT_BYTES)
    done.created = True
    try:
        for index in range(1, ROUNDS + 1):
            if index % 2:
                wal.save(HardState(1, 1, index), [entry(index)], sync=True)
            else:
                wal.start_save(HardState(1, 1, index), [entry(index)])
                wal.finish_save()
            done.index = index
            if index == SNAPSHOT_AT:
                snapshot = WalSnapshot(index, 1, ConfState((1,)))
                wal.save_snapshot(snapshot)
                done.snapshot = snapshot
                wal.release_to(index)
                wal.purge(1)
        wal.close()
    except StorageFatalError:
        calls = len(files.calls)
        with pytest.raises(StorageFatalError, match="accepts no more writes"):
            wal.save(HardState(1, 1, ROUNDS), [entry(ROUNDS)], sync=True)
        with pytest.raises(StorageFatalError, match="accepts no more writes"):
            wal.start_save(HardState(1, 1, ROUNDS), [entry(ROUNDS)])
        with pytest.raises(StorageFatalError, match="accepts no more writes"):
            wal.finish_save()
        with pytest.raises(StorageFatalError, match="accepts no more writes"):
            wal.save_snapshot(WalSnapshot(1, 1, ConfState((1,))))
        assert len(files.calls) == calls  # not even asked
        raise
    finally:
        wal._release_handles()


def test_every_call_fails_once(tmp_path: Path) -> None:
    undisturbed = FaultFiles()
    write(tmp_path / "undisturbed", undisturbed, Written())
    kinds = set(undisturbed.calls)
    assert {"write", "sync_data", "sync", "allocate", "rename", "truncate", "remove"} <= kinds
    for number, name in enumerate(undisturbed.calls):
        for short_write in {False, name == "write"}:
            directory = tmp_path / f"{number}-{short_write}"
            files, done = FaultFiles(number, short_write=short_write), Written()
            error = failure(partial(write, directory, files, done))
            assert "No space left on device" in error, (number, name)
            check_acknowledged(directory, done)


def failure(operation: Callable[[], object]) -> str:
    try:
        operation()
    except StorageFatalError as error:
        return str(error)
    return ""


def check_acknowledged(directory: Path, done: Written) -> None:
    """Open the log on a sound disk: everything acknowledged is in it, and it goes on."""
    if not done.created:
        if Wal.exists(directory):
            Wal.open(directory, INITIAL_SNAPSHOT)[0].close()
        else:
            Wal.create(directory, META, segment_bytes=SEGMENT_BYTES).close()
        return
    start = done.snapshot
    wal, replay = Wal.open(directory, start, segment_bytes=SEGMENT_BYTES)
    last = start.index + len(replay.entries)
    assert done.index <= last <= done.index + 1
    assert replay.entries == [entry(index) for index in range(start.index + 1, last + 1)]
    assert replay.hard_state.commit >= done.index
    for index in range(last + 1, last + 5):
        wal.save(HardState(1, 1, index), [entry(index)], sync=True)
    wal.close()
    wal, replay = Wal.open(directory, start)
    assert start.index + len(replay.entries) == last + 4
    wal.close()


def test_a_repair_that_fails_can_be_done_again(tmp_path: Path) -> None:
    wal = Wal.create(tmp_path / "wal", META, segment_bytes=1 << 14)
    for index in range(1, 4):
        wal.save(HardState(1, 1, index - 1), [entry(index)], sync=True)
    path, end = wal.tail_path, wal.tail_offset
    wal.save(None, [Entry(0, 1, 4, b"x" * 3000)], sync=True)
    wal.close()
    with path.open("r+b") as file:
        file.seek(-(-end // 512) * 512 + 512)
        file.write(bytes(512))
    torn, sound = path.read_bytes(), FaultFiles()
    Wal.open(tmp_path / "wal", INITIAL_SNAPSHOT, sound)[0].close()
    assert {"create", "write", "truncate", "sync", "sync_directory"} <= set(sound.calls)
    assert sound.calls[-2:] == ["allocate", "sync_data"]  # space that is missing; close
    for number in range(len(sound.calls) - 2):
        path.write_bytes(torn)
        opening = partial(Wal.open, tmp_path / "wal", INITIAL_SNAPSHOT, FaultFiles(number))
        assert "No space left on device" in failure(opening)
        wal, replay = Wal.open(tmp_path / "wal", INITIAL_SNAPSHOT)
        wal.close()
        assert replay.entries == [entry(1), entry(2), entry(3)]
    assert path.with_name(path.name + ".broken").read_bytes() == torn


def test_a_full_disk_is_reported_by_path(tmp_path: Path) -> None:
    files = FaultFiles()
    wal = Wal.create(tmp_path / "wal", META, files, SEGMENT_BYTES)
    files.fail_at = len(files.calls)
    expected = (
        rf"cannot write 640 bytes to {tmp_path}/wal/0000000000000000-0000000000000000\.wal "
        r"at offset 64: No space left on device"
    )
    with pytest.raises(StorageFatalError, match=expected):
        wal.save(None, [Entry(0, 1, 1, b"x" * 610)], sync=True)
    wal.close()


class NoNextSegment(FaultFiles):
    """A disk that has room for what is allocated, and for nothing new."""

    full = False

    @override
    def allocate(self, handle: int, size_bytes: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().allocate(handle, size_bytes)


def test_a_failed_preallocation_is_reported_and_tried_again(tmp_path: Path) -> None:
    files = NoNextSegment()
    wal = Wal.create(tmp_path / "wal", META, files, SEGMENT_BYTES)
    files.full = True
    expected = f"cannot preallocate {tmp_path}/wal/0.tmp: No space left on device"
    wal.save(None, [Entry(0, 1, 1, b"x" * 1200)], sync=True)
    assert wal.preallocation_error == expected
    assert wal.make_room() == expected
    files.full = False
    wal.save(None, [Entry(0, 1, 2, b"x" * 1200)], sync=True)  # the cut tries again
    assert wal.preallocation_error is None
    assert wal.tail_path.name == "0000000000000001-0000000000000003.wal"
    files.full = True
    wal.save(None, [Entry(0, 1, 3, b"x" * 1200)], sync=True)
    wal.save(None, [Entry(0, 1, 4, b"x" * 1200)], sync=True)  # into the segment that was ready
    assert wal.tail_path.name == "0000000000000002-0000000000000005.wal"
    assert "cannot preallocate" in wal.make_room()
    wal.save(None, [Entry(0, 1, 5, b"x" * 1200)], sync=True)
    with pytest.raises(StorageFatalError, match=r"cannot preallocate .*0\.tmp: No space left"):
        wal.save(None, [Entry(0, 1, 6, b"x" * 1200)], sync=True)
    wal.close()
    wal, replay = Wal.open(tmp_path / "wal", INITIAL_SNAPSHOT)
    assert len(replay.entries) == 6
    wal.close()


def test_room_is_made_when_there_is_space_again(tmp_path: Path) -> None:
    files = NoNextSegment()
    wal = Wal.create(tmp_path / "wal", META, files, SEGMENT_BYTES)
    wal.save(None, [Entry(0, 1, 1, b"x")], sync=True)
    wal.close()
    os.truncate(wal.tail_path, 512)  # as a copy without the preallocated end
    files.full = True
    wal, replay = Wal.open(tmp_path / "wal", INITIAL_SNAPSHOT, files, SEGMENT_BYTES)
    assert len(replay.entries) == 1
    assert str(wal.tail_path) in wal.make_room()
    files.full = False
    assert wal.make_room() == ""
    assert wal.tail_path.stat().st_size == SEGMENT_BYTES
    wal.close()


def test_a_torn_tail_is_repaired_on_a_full_disk(tmp_path: Path) -> None:
    """The copy of the torn tail takes the space of the segment that a killed process left."""
    wal = Wal.create(tmp_path / "wal", META, segment_bytes=1 << 14)
    wal.save(None, [Entry(0, 1, 1, b"x")], sync=True)
    end = wal.tail_offset
    wal.save(None, [Entry(0, 1, 2, b"x" * 3000)], sync=True)
    wal.keeps_next = True
    wal.close()
    with wal.tail_path.open("r+b") as file:
        file.seek(-(-end // 512) * 512 + 512)
        file.write(bytes(512))

    class Full(NoNextSegment):
        @override
        def write(self, handle: int, offset: int, data: bytes) -> int:
            if (tmp_path / "wal" / "0.tmp").exists():
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(handle, offset, data)

    files = Full()
    files.full = True
    wal, replay = Wal.open(tmp_path / "wal", INITIAL_SNAPSHOT, files, 1 << 14)
    assert replay.repair is not None
    assert replay.repair.broken_path.exists()
    assert [each.index for each in replay.entries] == [1]
    assert wal.make_room()
    wal.close()
