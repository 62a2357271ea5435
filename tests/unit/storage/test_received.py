"""A received database file becomes a state beside the current one, and takes its place."""

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.backend import BUCKETS, Table
from kvstore.errors import CorruptionError, DataDirError
from kvstore.raft.model import ConfState, Entry, HardState
from kvstore.server.boot.bootstrap import Boot, Founding, boot
from kvstore.server.boot.data_dir import DataDir, prepare
from kvstore.storage.files import OsFiles
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import received_path
from kvstore.storage.snapshots.arrival import PipeArrival, report
from kvstore.storage.snapshots.received import prepare_received
from kvstore.storage.wal.record import WalSnapshot
from kvstore.storage.wal.wal import Wal
from kvstore.wire.gen import metadata_pb2
from tests.support.disks.etcd_db_files import Buckets, write, write_planned

INDEX = 77
WAIT_S = 60.0


def sample(
    index: int = INDEX, *, version: bytes = b"3.7.0", extra: bytes = b"", value: bytes = b"new"
) -> Buckets:
    """Return the buckets of an etcd that stands at an index."""
    buckets: Buckets = {name: [] for name in {*BUCKETS, extra} - {b""}}
    buckets[BUCKETS[Table.META]] = [
        (b"consistent_index", index.to_bytes(8, "big")),
        (b"storageVersion", version),
    ]
    buckets[BUCKETS[Table.KEY]] = [(b"%017d" % number, value) for number in range(1000)]
    return buckets


def write_db(
    path: Path, index: int = INDEX, *, version: bytes = b"3.7.0", extra: bytes = b""
) -> None:
    """Write an etcd database that stands at an index."""
    write(path, sample(index, version=version, extra=extra))


def write_planned_db(path: Path, index: int = INDEX) -> None:
    """Write one as a member of ours sends it: half a megabyte."""
    write_planned(path, sample(index, value=b"n" * 500))


class Arriving(NamedTuple):
    """A file on its way, and the pipe that tells how far it has come."""

    path: Path
    arrival: PipeArrival
    telling: int

    def grow(self, data: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(data)
        os.write(self.telling, report(self.path.stat().st_size))

    def end(self) -> None:
        os.write(self.telling, report(self.path.stat().st_size, is_complete=True))
        self.break_off()

    def break_off(self) -> None:
        os.close(self.telling)


def in_thread(action: Callable[[], None], failures: list[BaseException]) -> threading.Thread:
    """Run action in a thread of its own; what it raises is appended to failures."""

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A received file."""
    path = tmp_path / "received.db"
    write_db(path)
    return path


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """A member directory with a state."""
    directory = tmp_path / "member"
    backend = LmdbBackend(directory)
    backend.put(Table.KEY, b"old", b"old")
    backend.put(Table.MEMBERS, b"old", b"old")
    backend.close()
    return directory


def test_the_received_state_replaces_the_current_one(member: Path, db: Path) -> None:
    backend = LmdbBackend(member)
    prepare_received(member, INDEX, db)
    assert db.exists()
    backend.put(Table.KEY, b"uncommitted", b"old")
    assert backend.take_received(INDEX)
    assert backend.pending_ops() == 0
    assert backend.get(Table.KEY, b"old") is None
    assert backend.get(Table.KEY, b"uncommitted") is None
    assert backend.get(Table.MEMBERS, b"old") is None
    assert len(backend.scan(Table.KEY, b"", None, 2000)) == 1000
    backend.put(Table.KEY, b"zz", b"after")
    backend.commit()
    backend.abandon()
    again = LmdbBackend(member)
    assert again.get(Table.KEY, b"zz") == b"after"
    assert not again.take_received(INDEX)
    again.close()
    assert sorted(each.name for each in member.iterdir()) == ["lmdb", "lmdb.lock"]


def test_nothing_is_taken_that_was_not_received(member: Path) -> None:
    backend = LmdbBackend(member)
    assert not backend.take_received(INDEX)
    assert backend.get(Table.KEY, b"old") == b"old"
    backend.close()


def test_a_defragmentation_under_way_ends(member: Path, db: Path) -> None:
    backend = LmdbBackend(member)
    prepare_received(member, INDEX, db)
    backend.start_defragment()
    assert backend.take_received(INDEX)
    assert not backend.defragmenting()
    backend.start_defragment()
    while not backend.step_defragment():
        pass
    assert len(backend.scan(Table.KEY, b"", None, 2000)) == 1000
    backend.close()


def test_what_is_not_taken_is_dropped_up_to_an_index(member: Path, db: Path) -> None:
    backend = LmdbBackend(member)
    prepare_received(member, INDEX, db)
    backend.drop_received(INDEX - 1)
    assert received_path(member, INDEX).exists()
    backend.drop_received(INDEX)
    assert not received_path(member, INDEX).exists()
    backend.close()


def test_what_was_being_made_is_cleared_at_a_start_and_what_is_complete_stays(
    member: Path, db: Path
) -> None:
    prepare_received(member, INDEX, db)
    prepare_received(member, INDEX, db)  # nothing to do
    (member / f"lmdb.receiving.{99:016x}").mkdir()
    backend = LmdbBackend(member)
    assert not (member / f"lmdb.receiving.{99:016x}").exists()
    assert backend.take_received(INDEX)
    backend.close()


@pytest.mark.parametrize("cut", ["before", "between", "after"])
def test_a_swap_that_was_cut_off_leaves_one_state_or_the_other(
    member: Path, db: Path, cut: str
) -> None:
    prepare_received(member, INDEX, db)
    if cut != "before":
        (member / "lmdb").rename(member / "lmdb.old")
    if cut == "after":
        received_path(member, INDEX).rename(member / "lmdb")
    backend = LmdbBackend(member)
    assert (backend.get(Table.KEY, b"old") is None) == (cut == "after")
    assert backend.take_received(INDEX) == (cut != "after")
    assert len(backend.scan(Table.KEY, b"", None, 2000)) == 1000
    backend.close()


def test_files_that_do_not_belong_are_refused_and_leave_nothing(
    tmp_path: Path, member: Path
) -> None:
    path = tmp_path / "bad.db"
    write_db(path, INDEX + 1)
    with pytest.raises(CorruptionError, match="snapshot at index 77, but is at index 78"):
        prepare_received(member, INDEX, path)
    write_db(path, version=b"3.8.0")
    with pytest.raises(DataDirError, match=r"storageVersion is 3\.8\.0"):
        prepare_received(member, INDEX, path)
    write_db(path, extra=b"strange")
    with pytest.raises(DataDirError, match="strange"):
        prepare_received(member, INDEX, path)
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptionError):
        prepare_received(member, INDEX, path)
    assert sorted(each.name for each in member.iterdir()) == ["lmdb", "lmdb.lock"]


@pytest.fixture
def arriving(tmp_path: Path) -> Iterator[Arriving]:
    """A file of which nothing has come yet."""
    reading, writing = os.pipe()
    path = tmp_path / "arriving.db"
    path.touch()
    yield Arriving(path, PipeArrival(reading), writing)
    os.close(reading)


@pytest.mark.parametrize("write_whole", [write_db, write_planned_db])
def test_a_file_is_taken_while_it_arrives(
    tmp_path: Path, member: Path, arriving: Arriving, write_whole: Callable[[Path], None]
) -> None:
    """Also one whose root comes last, as etcd's may."""
    write_whole(tmp_path / "whole.db")
    data = (tmp_path / "whole.db").read_bytes()
    failures: list[BaseException] = []
    taker = in_thread(
        lambda: prepare_received(member, INDEX, arriving.path, arriving.arrival), failures
    )
    for start in range(0, len(data), 10_000):
        arriving.grow(data[start : start + 10_000])
    assert taker.is_alive()
    assert not received_path(member, INDEX).exists()
    arriving.end()
    taker.join(WAIT_S)
    assert failures == []
    backend = LmdbBackend(member)
    assert backend.take_received(INDEX)
    assert len(backend.scan(Table.KEY, b"", None, 2000)) == 1000
    backend.close()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_a_file_that_breaks_off_leaves_nothing(
    tmp_path: Path, member: Path, arriving: Arriving, share: float
) -> None:
    write_planned_db(tmp_path / "whole.db")
    data = (tmp_path / "whole.db").read_bytes()
    arriving.grow(data[: int(len(data) * share)])
    arriving.break_off()
    with pytest.raises(DataDirError, match="truncated"):
        prepare_received(member, INDEX, arriving.path, arriving.arrival)
    assert sorted(each.name for each in member.iterdir()) == ["lmdb", "lmdb.lock"]


def test_a_file_that_ends_before_its_last_page_leaves_nothing(
    tmp_path: Path, member: Path, arriving: Arriving
) -> None:
    write_planned_db(tmp_path / "whole.db")
    arriving.grow((tmp_path / "whole.db").read_bytes()[:-4096])
    arriving.end()
    with pytest.raises(CorruptionError):
        prepare_received(member, INDEX, arriving.path, arriving.arrival)
    assert sorted(each.name for each in member.iterdir()) == ["lmdb", "lmdb.lock"]


def test_a_file_of_another_index_is_refused_by_its_first_pages(
    tmp_path: Path, member: Path, arriving: Arriving
) -> None:
    write_planned_db(tmp_path / "whole.db", INDEX + 1)
    arriving.grow((tmp_path / "whole.db").read_bytes()[: 3 * 4096])
    with pytest.raises(CorruptionError, match="snapshot at index 77, but is at index 78"):
        prepare_received(member, INDEX, arriving.path, arriving.arrival)
    assert sorted(each.name for each in member.iterdir()) == ["lmdb", "lmdb.lock"]


def test_what_a_killed_process_left_is_made_anew(member: Path, db: Path) -> None:
    build = member / f"lmdb.receiving.{INDEX:016x}"
    left = LmdbBackend(build)
    left.put(Table.KEY, b"zzz", b"left")
    left.close()
    prepare_received(member, INDEX, db)
    backend = LmdbBackend(member)
    assert backend.take_received(INDEX)
    assert backend.get(Table.KEY, b"zzz") is None
    backend.close()


class Cut(NamedTuple):
    """A member whose process ended somewhere in taking the snapshot at INDEX."""

    paths: DataDir
    start: Callable[[], Boot]


@pytest.fixture
def cut(tmp_path: Path, db: Path) -> Cut:
    """A member that had applied 2 entries; the received state is ready, nothing is recorded."""
    paths = prepare(tmp_path / "data", None, LineLogger([], "info"))
    metadata = metadata_pb2.Metadata(NodeID=7, ClusterID=8).SerializeToString()
    wal = Wal.create(paths.wal, metadata)
    wal.save(HardState(1, 0, 2), [Entry(0, 1, index, b"") for index in (1, 2, 3)], sync=True)
    wal.close()
    backend = LmdbBackend(paths.member)
    backend.put(Table.META, b"consistent_index", (2).to_bytes(8, "big"))
    backend.close()
    prepare_received(paths.member, INDEX, db)

    def start() -> Boot:
        founding = Founding("m", dict, "token", is_new=True)
        return boot(paths, founding, LineLogger([], "info"), files=OsFiles())

    return Cut(paths, start)


def record(paths: DataDir, *, with_commit: bool) -> None:
    last = WalSnapshot(0, 0)
    wal, _ = Wal.open(paths.wal, last)
    wal.save_snapshot(WalSnapshot(INDEX, 2, ConfState((7,))))
    if with_commit:
        wal.save(HardState(2, 0, INDEX), [], sync=True)
    wal.close()


def ends_at(booted: Boot) -> tuple[int, int, list[int]]:
    """Return (applied, snapshot, entries) of a start, and end it."""
    raft = booted.raft
    booted.backend.close()
    booted.wal.close()
    return raft.applied, raft.snapshot_index, [entry.index for entry in raft.entries]


@pytest.mark.parametrize("with_record", [False, True])
def test_before_the_commit_index_is_saved_a_start_goes_on_with_the_old_state(
    cut: Cut, *, with_record: bool
) -> None:
    if with_record:
        record(cut.paths, with_commit=False)
    assert ends_at(cut.start()) == (2, 0, [1, 2, 3])
    assert not received_path(cut.paths.member, INDEX).exists()
    assert ends_at(cut.start()) == (2, 0, [1, 2, 3])


def test_once_the_commit_index_is_saved_a_start_takes_the_new_state(cut: Cut) -> None:
    record(cut.paths, with_commit=True)
    assert ends_at(cut.start()) == (INDEX, INDEX, [])
    assert ends_at(cut.start()) == (INDEX, INDEX, [])


def test_a_record_that_was_never_completed_does_no_harm_later(cut: Cut) -> None:
    record(cut.paths, with_commit=False)
    booted = cut.start()
    # The log goes on by itself, past the index of the record; the database is not there yet.
    entries = [Entry(0, 2, index, b"") for index in range(4, INDEX + 3)]
    booted.wal.save(HardState(2, 0, INDEX + 1), entries, sync=True)
    booted.backend.abandon()
    booted.wal.close()
    applied, snapshot, found = ends_at(cut.start())
    assert (applied, snapshot) == (2, 0)
    assert found == list(range(1, INDEX + 3))


def test_without_the_received_state_a_completed_record_is_refused(cut: Cut) -> None:
    record(cut.paths, with_commit=True)
    shutil.rmtree(received_path(cut.paths.member, INDEX))
    with pytest.raises((DataDirError, CorruptionError)):
        cut.start()
