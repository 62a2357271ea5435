"""Writing, cutting, reopening, releasing and purging the log."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore.errors import CorruptionError, DataDirError, StorageFatalError
from kvstore.raft.model import ConfState, Entry, HardState
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, WalSnapshot
from kvstore.storage.wal.scan import read_last_snapshot, read_snapshots
from kvstore.storage.wal.wal import Wal
from tests.support.disks.fault_files import FaultFiles

META = b"\x08\x01\x10\x02"
CONF = ConfState((1,))


def entry(index: int, term: int = 1, size: int = 20) -> Entry:
    return Entry(0, term, index, b"%d" % index * size)


def names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


NEXT = ["create", "truncate", "allocate"]  # the next segment, by the first save to one


def reopen(directory: Path, start: WalSnapshot = INITIAL_SNAPSHOT) -> tuple[Wal, list[Entry]]:
    wal, replay = Wal.open(directory, start)
    return wal, replay.entries


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "wal"


def test_create_makes_one_preallocated_private_segment(directory: Path) -> None:
    assert not Wal.exists(directory)
    wal = Wal.create(directory, META)
    path = directory / "0000000000000000-0000000000000000.wal"
    assert wal.tail_path == path
    assert names(directory) == [path.name]
    assert names(directory.parent) == ["wal"]
    assert path.stat().st_size == 64_000_000
    assert path.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert Wal.exists(directory)
    wal.close()


def test_create_refuses_a_directory_in_use(directory: Path) -> None:
    directory.mkdir()
    (directory / "0.tmp").touch()
    (directory / "notes").touch()
    with pytest.raises(DataDirError, match="cannot create a write-ahead log beside notes"):
        Wal.create(directory, META)
    (directory / "notes").unlink()
    Wal.create(directory, META, segment_bytes=4096).close()
    with pytest.raises(DataDirError, match=r"beside 0000000000000000-0000000000000000\.wal"):
        Wal.create(directory, META)


def test_what_was_saved_comes_back(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 0), [], sync=True)
    wal.save(HardState(1, 1, 2), [entry(1), Entry(1, 1, 2, b""), entry(3)], sync=True)
    wal.save(HardState(1, 1, 3), [], sync=False)
    wal.save(None, [], sync=False)
    wal.save(HardState(), [], sync=False)
    wal.close()
    wal.close()
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT)
    assert replay.metadata == META
    assert replay.hard_state == HardState(1, 1, 3)
    assert replay.entries == [entry(1), Entry(1, 1, 2, b""), entry(3)]
    assert replay.snapshots == [INITIAL_SNAPSHOT]
    assert replay.repair is None
    wal.save(HardState(2, 1, 3), [entry(4, 2)], sync=True)
    wal.close()
    assert reopen(directory)[1][-1] == entry(4, 2)


def test_one_write_and_one_sync_a_save_and_a_lone_state_waits_for_the_next(directory: Path) -> None:
    files = FaultFiles()
    wal = Wal.create(directory, META, files, segment_bytes=1 << 20)
    files.calls.clear()
    offset, syncs = wal.tail_offset, wal.sync_count
    wal.save(HardState(1, 1, 1), [entry(index) for index in range(1, 500)], sync=True)
    assert files.calls == ["write", "sync_data", *NEXT]
    assert wal.written_bytes == wal.tail_offset > offset
    assert wal.sync_count == syncs + 1
    assert wal.last_sync_ns > 0
    files.calls.clear()
    wal.save(HardState(1, 1, 2), [], sync=False)
    assert files.calls == []
    wal.save(None, [entry(500)], sync=False)
    assert files.calls == ["write", "sync_data"]  # entries never wait
    wal.save(HardState(1, 1, 500), [], sync=False)
    wal.close()
    reopened, replay = Wal.open(directory, INITIAL_SNAPSHOT)
    reopened.close()
    assert replay.hard_state == HardState(1, 1, 500)
    assert len(replay.entries) == 500


def test_a_save_in_two_steps(directory: Path) -> None:
    files = FaultFiles()
    wal = Wal.create(directory, META, files, segment_bytes=1 << 20)
    files.calls.clear()
    syncs = wal.sync_count
    wal.start_save(HardState(1, 1, 1), [entry(1), entry(2)])
    assert (files.calls, wal.sync_count) == (["write", "begin_writeback"], syncs)
    wal.finish_save()
    wal.finish_save()
    assert files.calls == ["write", "begin_writeback", "sync_data", *NEXT]
    assert wal.sync_count == sum(wal.sync_seconds.counts) == syncs + 1
    files.calls.clear()
    wal.start_save(None, [entry(3)])
    wal.save(HardState(1, 1, 3), [entry(4)], sync=True)  # makes both durable
    wal.finish_save()
    assert files.calls == ["write", "begin_writeback", "write", "sync_data"]
    wal.close()
    reopened, replay = Wal.open(directory, INITIAL_SNAPSHOT)
    reopened.close()
    assert replay.hard_state == HardState(1, 1, 3)
    assert replay.entries == [entry(index) for index in range(1, 5)]


def test_a_save_in_two_steps_cuts_in_the_second(directory: Path) -> None:
    files = FaultFiles()
    wal = Wal.create(directory, META, files, segment_bytes=2048)
    wal.start_save(HardState(1, 1, 1), [entry(1, size=1200)])
    assert names(directory) == ["0000000000000000-0000000000000000.wal"]
    wal.finish_save()
    assert "0.tmp" in names(directory)
    files.calls.clear()
    wal.start_save(HardState(1, 1, 2), [entry(2, size=1200)])
    wal.finish_save()
    assert files.calls == [
        "write", "begin_writeback",
        "truncate", "sync_data", "write", "sync", "rename", "sync_directory", *NEXT,
    ]  # fmt: skip
    wal.save(None, [entry(3)], sync=True)
    wal.close()
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT, segment_bytes=2048)
    wal.close()
    assert [each.index for each in replay.entries] == [1, 2, 3]


def test_a_full_segment_is_cut_and_the_next_one_is_ready(directory: Path) -> None:
    files = FaultFiles()
    wal = Wal.create(directory, META, files, segment_bytes=2048)
    wal.save(HardState(1, 1, 1), [entry(1, size=1200)], sync=True)
    assert names(directory) == ["0.tmp", "0000000000000000-0000000000000000.wal"]
    first, files.calls = wal.tail_path, []
    wal.save(HardState(1, 1, 2), [entry(2, size=1200)], sync=True)
    assert files.calls == [
        "write", "truncate", "sync_data", "write", "sync", "rename", "sync_directory", *NEXT,
    ]  # fmt: skip
    assert wal.tail_path.name == "0000000000000001-0000000000000003.wal"
    assert wal.tail_path.stat().st_size == 2048
    assert first.stat().st_size == 2576  # cut where its records end
    for index in range(3, 9):
        wal.save(HardState(1, 1, index), [entry(index, size=2000)], sync=True)
    wal.close()
    assert [name for name in names(directory) if name.endswith("tmp")] == []
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT, segment_bytes=2048)
    assert [each.index for each in replay.entries] == list(range(1, 9))
    assert replay.hard_state == HardState(1, 1, 8)
    wal.close()


def test_what_a_killed_process_preallocated_is_used(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 1), [entry(1)], sync=True)
    wal.keeps_next = True
    wal.close()
    left = (directory / "0.tmp").stat()
    files = FaultFiles()
    wal, _ = Wal.open(directory, INITIAL_SNAPSHOT, files, segment_bytes=1 << 16)
    files.calls.clear()
    wal.save(HardState(1, 1, 2), [entry(2)], sync=True)
    assert files.calls == ["write", "sync_data", "create", "allocate"]
    kept = (directory / "0.tmp").stat()
    assert (kept.st_ino, kept.st_size) == (left.st_ino, 1 << 16)
    wal.close()
    assert "0.tmp" not in names(directory)


def test_a_written_leftover_is_emptied(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    (directory / "0.tmp").write_bytes(b"x" * (1 << 16))
    wal.save(HardState(1, 1, 1), [entry(1)], sync=True)
    assert (directory / "0.tmp").read_bytes() == bytes(1 << 16)
    wal.close()


def test_the_state_of_the_save_that_cut_opens_the_next_segment(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1024)
    wal.save(HardState(3, 7, 1), [entry(1, 3, size=1100)], sync=True)
    wal.close()
    # Alone, the second segment still knows the state: the first one may be purged.
    start = WalSnapshot(2, 3, CONF)
    wal, _ = reopen(directory)
    wal.save(None, [entry(2, 3)], sync=True)
    wal.save_snapshot(start)
    wal.close()
    (directory / "0000000000000000-0000000000000000.wal").unlink()
    wal, replay = Wal.open(directory, start)
    assert replay.hard_state == HardState(3, 7, 1)
    assert (replay.metadata, replay.entries, replay.snapshots) == (META, [], [])
    wal.close()


def test_later_entries_replace_a_conflicting_tail(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 2), [entry(1), entry(2), entry(3), entry(4)], sync=True)
    wal.save(HardState(2, 1, 2), [entry(3, 2)], sync=True)
    wal.close()
    wal, entries = reopen(directory)
    assert entries == [entry(1), entry(2), entry(3, 2)]
    wal.close()


def test_a_tail_may_give_way_to_entries_of_an_earlier_term(directory: Path) -> None:
    """A leader cut off in term 3 wrote what the others, in term 4, replace by their term 2."""
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 2), [entry(1), entry(2)], sync=True)
    wal.save(HardState(3, 1, 2), [entry(3, 3), entry(4, 3), entry(5, 3)], sync=True)
    wal.save(HardState(4, 0, 2), [entry(3, 2), entry(4, 4)], sync=True)
    wal.close()
    wal, entries = reopen(directory)
    assert entries == [entry(1), entry(2), entry(3, 2), entry(4, 4)]
    wal.close()


def test_what_was_replaced_before_a_snapshot_does_not_come_back_after_it(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 2), [entry(index) for index in range(1, 9)], sync=True)
    wal.save(HardState(2, 0, 2), [entry(3, 2), entry(4, 2)], sync=True)  # 5 to 8 are no more
    wal.save(HardState(2, 0, 4), [], sync=True)
    start = WalSnapshot(4, 2, CONF)
    wal.save_snapshot(start)
    wal.close()
    wal, entries = reopen(directory, start)
    assert entries == []
    wal.close()


def test_what_a_received_snapshot_replaced_is_no_part_of_the_log(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 2), [entry(1), entry(2)], sync=True)
    wal.save(HardState(3, 1, 2), [entry(index, 3) for index in range(3, 9)], sync=True)
    start = WalSnapshot(5, 2, CONF)  # of a log that held another entry 5
    wal.save_snapshot(start)
    wal.save(HardState(4, 0, 5), [], sync=True)
    wal.close()
    wal, entries = reopen(directory, start)
    assert entries == []
    wal.save(HardState(4, 0, 6), [entry(6, 4)], sync=True)
    wal.close()
    wal, entries = reopen(directory, start)
    assert entries == [entry(6, 4)]
    wal.close()


def test_a_snapshot_of_ones_own_leaves_what_follows_it(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1 << 16)
    wal.save(HardState(1, 1, 4), [entry(index) for index in range(1, 7)], sync=True)
    wal.save_snapshot(WalSnapshot(4, 1, CONF))
    wal.close()
    wal, entries = reopen(directory, WalSnapshot(4, 1, CONF))
    assert entries == [entry(5), entry(6)]
    wal.close()


def test_replay_begins_after_the_start_snapshot(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1024)
    for index in range(1, 10):
        wal.save(HardState(1, 1, index), [entry(index, size=300)], sync=True)
        if index % 3 == 0:
            wal.save_snapshot(WalSnapshot(index, 1, CONF))
    wal.save_snapshot(WalSnapshot(12, 1, CONF))  # ahead of the commit: not valid yet
    wal.close()
    valid = [INITIAL_SNAPSHOT, *(WalSnapshot(index, 1, CONF) for index in (3, 6, 9))]
    assert read_snapshots(directory) == valid
    assert read_last_snapshot(directory) == valid[-1]
    for start in valid:
        wal, replay = Wal.open(directory, start)
        assert [each.index for each in replay.entries] == list(range(start.index + 1, 10))
        assert set(replay.snapshots) <= set(valid)
        wal.close()
    with pytest.raises(CorruptionError, match="the snapshot at index 6 has term 1, not 2"):
        Wal.open(directory, WalSnapshot(6, 2, CONF))
    with pytest.raises(CorruptionError, match="no snapshot at index 5, term 1"):
        Wal.open(directory, WalSnapshot(5, 1, CONF))


def test_entries_are_written_where_they_have_blocks(directory: Path) -> None:
    """What crosses the end of a segment would need space that others may have taken."""
    size_bytes = 64 << 10
    wal = Wal.create(directory, META, segment_bytes=size_bytes)
    wal.save(HardState(1, 1, 1), [entry(1, size=40_000)], sync=True)
    assert wal.room_bytes == 2 * size_bytes - wal.tail_offset
    first = wal.tail_path
    wal.start_save(HardState(1, 1, 2), [entry(2, size=20_000), entry(3, size=20_000)])
    wal.finish_save()
    assert wal.tail_path.name == "0000000000000001-0000000000000002.wal"
    assert first.stat().st_size < size_bytes
    assert wal.tail_offset < size_bytes
    wal.save(None, [entry(4, size=100_000)], sync=True)  # fits nowhere: then it goes on here
    assert wal.tail_path.name == "0000000000000002-0000000000000005.wal"
    wal.close()
    wal, replay = Wal.open(directory, INITIAL_SNAPSHOT, segment_bytes=size_bytes)
    wal.close()
    assert [each.index for each in replay.entries] == [1, 2, 3, 4]
    assert replay.hard_state == HardState(1, 1, 2)


def test_a_second_owner_is_refused_by_name(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=4096)
    with pytest.raises(DataDirError, match=r"-0000000000000000\.wal: locked by another process"):
        Wal.open(directory, INITIAL_SNAPSHOT)
    code = (
        "import sys, pathlib\n"
        "from kvstore.storage.wal.wal import Wal\n"
        "from kvstore.storage.wal.record import WalSnapshot\n"
        "Wal.open(pathlib.Path(sys.argv[1]), WalSnapshot(0, 0))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], capture_output=True, text=True, check=False
    )
    assert "locked by another process" in done.stderr
    assert read_snapshots(directory) == [INITIAL_SNAPSHOT]  # looking needs no lock
    wal.close()
    reopen(directory)[0].close()


def test_release_and_purge_leave_what_is_needed(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=512)
    for index in range(1, 7):  # a segment an entry: first indexes 0, 2, 3, 4, 5, 6, 7
        wal.save(HardState(1, 1, index), [entry(index, size=600)], sync=True)
    firsts = [name[17:33].lstrip("0") for name in names(directory) if name.endswith(".wal")]
    assert firsts == ["", "2", "3", "4", "5", "6", "7"]
    assert wal.purge(1) == []  # all are locked
    wal.save_snapshot(WalSnapshot(4, 1, CONF))
    wal.release_to(4)  # the one from 3 on still holds what 4 stands on
    assert wal.purge(0) == []
    assert [path.name[17:33].lstrip("0") for path in wal.purge(6)] == [""]
    assert [path.name[17:33].lstrip("0") for path in wal.purge(1)] == ["2"]
    wal.close()
    wal, entries = reopen(directory, WalSnapshot(4, 1, CONF))
    assert [each.index for each in entries] == [5, 6]
    wal.release_to(100)
    assert len(wal.purge(1)) == 4
    wal.close()


def test_a_missing_segment_is_refused(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=512)
    for index in range(1, 5):
        wal.save(HardState(1, 1, index), [entry(index, size=600)], sync=True)
    wal.close()
    found = names(directory)
    (directory / found[2]).rename(directory / "aside")
    expected = rf"{found[3]}: expected segment 2 after {found[1]}, found 3"
    with pytest.raises(CorruptionError, match=expected):
        Wal.open(directory, INITIAL_SNAPSHOT)
    with pytest.raises(CorruptionError, match=expected):
        read_snapshots(directory)
    (directory / "aside").rename(directory / found[2])
    (directory / found[0]).unlink()
    with pytest.raises(CorruptionError, match="the oldest segment begins at index 2"):
        Wal.open(directory, INITIAL_SNAPSHOT)


def test_a_directory_without_a_log_is_refused(directory: Path) -> None:
    for make in (lambda: None, directory.mkdir):
        make()
        with pytest.raises(DataDirError, match="no write-ahead log segment here"):
            Wal.open(directory, INITIAL_SNAPSHOT)
        with pytest.raises(DataDirError, match="no write-ahead log segment here"):
            read_snapshots(directory)


@pytest.mark.parametrize(
    ("saves", "text"),
    [
        ([(None, [entry(1), entry(3)])], "expected entry 2, found 3: a gap"),
        (
            [(HardState(1, 1, 2), [entry(1), entry(2)]), (None, [entry(2, 2)])],
            "entry 2 was committed and is written again",
        ),
        ([(None, [entry(1, 3), entry(2, 2)])], "entry 2 of term 2 follows term 3"),
        ([(HardState(1, 1, 2), [entry(1)])], "index 2 was committed, the log ends at 1"),
        ([(HardState(3, 1, 0), []), (HardState(2, 1, 0), [])], "term 2 after term 3"),
        ([(None, [entry(1, 1 << 60)])], f"entry 1 of term {1 << 60} follows term 0"),
        ([(None, [Entry(9, 1, 1, b"")])], "record of type 2 is unreadable: entry 1 of type 9"),
    ],
)
def test_a_log_no_raft_can_have_written_is_refused(
    directory: Path, saves: list[tuple[HardState | None, list[Entry]]], text: str
) -> None:
    wal = Wal.create(directory, META, segment_bytes=4096)
    for state, entries in saves:
        wal.save(state, entries, sync=True)
    wal.close()
    with pytest.raises(CorruptionError, match=text) as caught:
        Wal.open(directory, INITIAL_SNAPSHOT)
    assert "0000000000000000-0000000000000000.wal: corrupt at offset" in str(caught.value)


def test_two_kinds_of_metadata_are_a_conflict(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=512)
    wal._metadata = b"\x08\x07\x10\x02"
    wal.save(HardState(1, 1, 1), [entry(1, size=600)], sync=True)
    wal.close()
    expected = "metadata was 08011002, found 08071002: a conflict"
    with pytest.raises(CorruptionError, match=expected):
        Wal.open(directory, INITIAL_SNAPSHOT)


def test_a_closed_log_takes_nothing(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=4096)
    wal.close()
    with pytest.raises(StorageFatalError, match="the write-ahead log is closed"):
        wal.save(None, [entry(1)], sync=True)
    with pytest.raises(StorageFatalError, match="the write-ahead log is closed"):
        wal.save_snapshot(WalSnapshot(1, 1, CONF))


def test_leftovers_of_a_crash_do_not_leak_into_the_next_segment(directory: Path) -> None:
    wal = Wal.create(directory, META, segment_bytes=1024)
    wal.close()
    (directory / "0.tmp").write_bytes(b"\xff" * 5000)
    wal, _ = Wal.open(directory, INITIAL_SNAPSHOT, segment_bytes=1024)
    wal.save(HardState(1, 1, 1), [entry(1, size=1200)], sync=True)
    wal.close()
    wal, entries = reopen(directory)
    assert entries == [entry(1, size=1200)]
    wal.close()
