"""What may still be written while the disk is too full."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message as ProtoMessage

from kvstore.errors import NO_SPACE
from kvstore.node.disk_budget import (
    COMPACTION_BYTES,
    KEPT,
    KEPT_BY_ALARMS,
    KEPT_BY_COMPACTIONS,
    ROW_BYTES,
    DiskBudget,
)
from kvstore.node.waiters import PlainRun
from kvstore.raft.model import Entry
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, wrap
from tests.support.node.harness import CallError, Disk, Harness

KEYS = 100
EVERYTHING = pb.DeleteRangeRequest(key=b"k", range_end=b"l")
OP = pb.RequestOp(request_delete_range=EVERYTHING)
NEEDED_BYTES = KEYS * (ROW_BYTES + 2 * len(b"k00"))


class Room:
    """A disk that is short, with as much room as the test says."""

    shortage = "no space"
    has_raised = False

    def __init__(self) -> None:
        self.is_short = True
        self.log_bytes = KEPT.log_bytes + (1 << 20)
        self.rows_bytes = KEPT.rows_bytes + (1 << 20)

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        self.has_raised = has_raised

    def check(self) -> bool:
        return self.is_short


class Member:
    """A member with some keys, whose disk has become short."""

    def __init__(self, data_dir: Path) -> None:
        self.harness = Harness(data_dir, Disk(in_memory=True))
        granted = self.harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(TTL=3600))
        self.lease: int = granted.ID
        for number in range(KEYS):
            request = pb.PutRequest(key=b"k%02d" % number, lease=self.lease)
            self.harness.call(rpc.PUT, request)
        self.room = self.harness.parts.host.room = Room()

    def is_refused(self, method: int, request: ProtoMessage) -> bool:
        """Make a request; tell whether it is refused for lack of space, before the log."""
        last_index = self.harness.parts.raft.last_index
        try:
            self.harness.call(method, request)
        except CallError as error:
            is_unwritten = self.harness.parts.raft.last_index == last_index
            return is_unwritten and (error.code, error.text) == (NO_SPACE.code, NO_SPACE.text)
        return False

    def count(self) -> int:
        request = pb.RangeRequest(key=b"k", range_end=b"l", count_only=True)
        return int(self.harness.call(rpc.RANGE, request).count)

    def commit(self) -> None:
        """Wait until nothing is under way."""
        backend = self.harness.parts.state.backend
        while backend.pending_ops():
            self.harness.turn()


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    member = Member(tmp_path / "data")
    yield member
    member.harness.close()


NESTED = pb.TxnRequest(success=[pb.RequestOp(request_txn=pb.TxnRequest(success=[OP]))])


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        (rpc.DELETE_RANGE, EVERYTHING),
        (rpc.TXN, pb.TxnRequest(success=[OP])),
        (rpc.TXN, NESTED),
        (rpc.LEASE_REVOKE, None),
    ],
)
def test_what_is_deleted_has_to_fit(
    member: Member, method: int, request_: ProtoMessage | None
) -> None:
    request = request_ or pb.LeaseRevokeRequest(ID=member.lease)
    member.room.rows_bytes = KEPT.rows_bytes + NEEDED_BYTES - 1
    assert member.is_refused(method, request)
    assert member.count() == KEYS
    member.commit()
    member.room.rows_bytes += 1
    assert not member.is_refused(method, request)
    assert member.count() == 0


def test_what_was_admitted_counts_until_it_is_on_disk(member: Member) -> None:
    member.room.rows_bytes = KEPT.rows_bytes + NEEDED_BYTES // 2
    half = pb.DeleteRangeRequest(key=b"k", range_end=b"k50")
    other = pb.DeleteRangeRequest(key=b"k50", range_end=b"l")
    assert not member.is_refused(rpc.DELETE_RANGE, half)
    assert member.is_refused(rpc.DELETE_RANGE, other)
    member.commit()
    member.harness.turn()
    assert not member.is_refused(rpc.DELETE_RANGE, other)


def test_nothing_is_measured_while_a_run_of_writes_is_under_way(member: Member) -> None:
    parts = member.harness.parts
    member.commit()
    budget = DiskBudget(parts)
    budget.begin_turn()
    size_bytes = 1 << 19
    parts.replication.pending.runs.append(PlainRun(Field.PUT, [1], [b""], [b"k"], [b""]))
    assert budget.admits(Field.PUT, b"", size_bytes)
    budget.begin_turn()
    assert not budget.admits(Field.PUT, b"", size_bytes)
    parts.replication.pending.runs.clear()
    budget.begin_turn()
    assert budget.admits(Field.PUT, b"", size_bytes)


def test_the_log_keeps_some_for_alarms_and_for_itself(member: Member) -> None:
    member.room.log_bytes = KEPT.log_bytes
    assert member.is_refused(rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=b"none"))
    assert member.is_refused(rpc.COMPACT, pb.CompactionRequest(revision=1))
    member.harness.call(rpc.ALARM, pb.AlarmRequest())
    member.commit()
    member.room.log_bytes = KEPT_BY_ALARMS.log_bytes
    assert member.is_refused(rpc.ALARM, pb.AlarmRequest())


def test_a_compaction_may_have_what_deletes_leave(member: Member) -> None:
    member.room.rows_bytes = KEPT_BY_COMPACTIONS.rows_bytes + COMPACTION_BYTES
    assert member.is_refused(rpc.DELETE_RANGE, EVERYTHING)
    assert not member.is_refused(rpc.COMPACT, pb.CompactionRequest(revision=5))
    member.commit()
    member.room.rows_bytes -= 1
    assert member.is_refused(rpc.COMPACT, pb.CompactionRequest(revision=6))


def test_an_expired_lease_stays_until_its_keys_fit(member: Member) -> None:
    parts = member.harness.parts
    member.room.rows_bytes = KEPT.rows_bytes
    parts.state.lessor._leases[member.lease].expiry_ns = 0
    parts.state.lessor._expiries.set(member.lease, 0)
    for _ in range(3):
        member.harness.turn()
    assert member.count() == KEYS
    member.room.is_short = False
    retry_ns = parts.limits.request_timeout_ns
    member.harness.clock.now_ns += 2 * retry_ns
    for _ in range(4):
        member.harness.turn()
    assert member.count() == 0


def test_entries_of_others_have_to_fit_too(member: Member) -> None:
    """What a leader appends, and what is forwarded to one; tests/crash has a whole cluster."""
    data = wrap(Field.DELETE_RANGE, EVERYTHING.SerializeToString(), 4711)
    context = Entry(0, 1, 2, b"no request")
    budget = DiskBudget(member.harness.parts)
    member.commit()
    member.room.rows_bytes = KEPT.rows_bytes
    budget.begin_turn()
    assert budget.admits_entries([Entry(0, 1, 1, b""), context])
    assert not budget.admits_entries([context, Entry(0, 1, 1, data)])
    member.room.rows_bytes = KEPT.rows_bytes + NEEDED_BYTES
    budget.begin_turn()
    assert budget.admits_entries([context, Entry(0, 1, 1, data)])
    assert not budget.admits_entries([Entry(0, 1, 3, data)])
    assert not budget.admits_entries([Entry(0, 1, 3, bytes(2 << 20))])
