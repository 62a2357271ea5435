"""Entries that need not stay in memory are dropped a bounded piece a turn."""

import errno
from pathlib import Path

import pytest
from typing_extensions import override

from kvstore.node.maintenance import checkpointer
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import Disk, Harness

CATCH_UP = 8
FLAGS = ["--snapshot-count=1000", f"--snapshot-catchup-entries={CATCH_UP}"]
LARGE = 1 << 20


def puts(harness: Harness, count: int, size_bytes: int) -> None:
    for number in range(count):
        harness.call(rpc.PUT, pb.PutRequest(key=b"k%d" % number, value=bytes(size_bytes)))


def in_memory(harness: Harness) -> int:
    raft = harness.parts.raft
    return raft.last_index - raft.first_index + 1


def settle(harness: Harness) -> list[int]:
    """Take turns as long as the node wants one at once; return the entries dropped in each."""
    dropped = []
    while harness.node.wake_ns <= harness.clock.now_ns:
        before = harness.parts.raft.first_index
        harness.turn()
        dropped.append(harness.parts.raft.first_index - before)
        assert len(dropped) < 100
    return dropped


def test_few_small_entries_are_dropped_at_once(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", Disk(in_memory=True), FLAGS)
    puts(harness, 4 * CATCH_UP, 10)
    assert CATCH_UP <= in_memory(harness) <= 2 * CATCH_UP + 1
    harness.close()


def test_a_member_alone_keeps_few_entries_for_others(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", Disk(in_memory=True), [])
    assert harness.parts.limits.snapshot_catchup_entries > 4 * checkpointer.ALONE_ENTRIES
    puts(harness, 3 * checkpointer.ALONE_ENTRIES, 10)
    assert in_memory(harness) <= 2 * checkpointer.ALONE_ENTRIES + 2
    harness.close()


def test_large_entries_are_dropped_over_several_turns(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", Disk(in_memory=True), FLAGS)
    freed: list[int] = []
    harness.parts.host.on_freed = freed.append
    harness.parts.limits.snapshot_catchup_entries = 64
    puts(harness, 128 - in_memory(harness), LARGE)
    assert freed == []
    puts(harness, 3, 10)
    dropped = settle(harness)
    assert in_memory(harness) <= 64 + 3
    assert len(freed) >= 4
    assert max(dropped) <= checkpointer.TRIM_BYTES // LARGE
    assert max(freed) <= checkpointer.TRIM_BYTES + LARGE + 1000
    assert sum(freed) > 50 * LARGE
    harness.close()


def test_entries_that_a_member_needs_stay(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", Disk(in_memory=True), FLAGS)
    harness.node._exchange.retained_index = lambda now_ns: 3
    puts(harness, 6 * CATCH_UP, 10)
    assert harness.parts.raft.first_index == 4
    assert settle(harness) == []
    harness.node._exchange.retained_index = lambda now_ns: None
    puts(harness, 1, 10)
    assert in_memory(harness) <= 2 * CATCH_UP + 2
    harness.close()


def test_what_is_not_committed_fits_into_the_space_that_is_kept_back(tmp_path: Path) -> None:
    disk = Disk(in_memory=True)
    harness = Harness(tmp_path / "data", disk, ["--backend-batch-interval=1h"])
    commits = disk.calls.count("commit")
    puts(harness, checkpointer.COMMIT_BYTES_MAX // LARGE - 1, LARGE)
    assert disk.calls.count("commit") == commits
    puts(harness, 1, LARGE)
    assert disk.calls.count("commit") == commits + 1
    puts(harness, 2, LARGE)
    assert disk.calls.count("commit") == commits + 1
    harness.close()


class Room:
    """A disk without space."""

    is_short = True
    shortage = "none"
    log_bytes = rows_bytes = 64 << 20
    has_raised = True

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        """Do nothing."""

    def check(self) -> bool:
        return self.is_short


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_snapshot_for_which_the_space_ends_is_tried_again(tmp_path: Path, operation: str) -> None:
    """The disk may be filled between a check and the snapshot, at any moment of it."""
    flags = ["--snapshot-count=10", f"--snapshot-catchup-entries={CATCH_UP}"]
    disk = FullForSnapshots(operation)
    harness = Harness(tmp_path / "data", disk, flags)
    snap = tmp_path / "data" / "member" / "snap"
    disk.is_full = True
    puts(harness, 30, 10)
    assert disk.refused > 0
    disk.is_full = False
    harness.clock.now_ns += 2 * checkpointer.SNAPSHOT_RETRY_NS
    puts(harness, 1, 10)
    [name] = [each.name for each in snap.iterdir()]
    assert name.endswith(".snap")
    assert not name.startswith("tmp")
    harness.close()


class FullForSnapshots(Disk):
    """A disk without space for one step of a snapshot file."""

    def __init__(self, operation: str) -> None:
        super().__init__(in_memory=True)
        self.operation = operation
        self.is_full = False
        self.refused = 0
        self._handles: set[int] = set()

    def _fail(self, operation: str, *, is_snapshot: bool) -> None:
        if self.is_full and is_snapshot and operation == self.operation:
            self.refused += 1
            raise OSError(errno.ENOSPC, "No space left on device")

    @override
    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        is_snapshot = path.name.endswith(".snap")
        self._fail("create", is_snapshot=is_snapshot and create)
        handle = super().open(path, write=write, create=create)
        if is_snapshot:
            self._handles.add(handle)
        return handle

    @override
    def close(self, handle: int) -> None:
        self._handles.discard(handle)
        super().close(handle)

    @override
    def write(self, handle: int, offset: int, data: bytes) -> int:
        self._fail("write", is_snapshot=handle in self._handles)
        return super().write(handle, offset, data)

    @override
    def sync(self, handle: int) -> None:
        self._fail("sync", is_snapshot=handle in self._handles)
        super().sync(handle)

    @override
    def rename(self, old: Path, new: Path) -> None:
        self._fail("rename", is_snapshot=new.name.endswith(".snap"))
        super().rename(old, new)

    @override
    def sync_directory(self, path: Path) -> None:
        self._fail("sync_directory", is_snapshot=path.name == "snap")
        super().sync_directory(path)


def test_no_snapshot_is_written_while_the_disk_is_too_full(tmp_path: Path) -> None:
    flags = ["--snapshot-count=10", f"--snapshot-catchup-entries={CATCH_UP}"]
    harness = Harness(tmp_path / "data", Disk(in_memory=True), flags)
    room = Room()
    harness.parts.host.room = room
    snap = tmp_path / "data" / "member" / "snap"
    before = list(snap.iterdir())
    delete = pb.DeleteRangeRequest(key=b"none")
    for _ in range(30):
        harness.call(rpc.DELETE_RANGE, delete)
    assert list(snap.iterdir()) == before
    room.is_short = False
    harness.call(rpc.DELETE_RANGE, delete)
    assert len(list(snap.iterdir())) == len(before) + 1
    harness.close()
