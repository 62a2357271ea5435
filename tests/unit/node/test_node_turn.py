"""What a turn waits for, and when: the disk once, after all that can be done meanwhile."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from kvstore.errors import StorageFatalError
from kvstore.node.no_peers import NoPeers
from kvstore.raft.model import Entry, HardState
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import Disk, Harness

PUT = (rpc.PUT, pb.PutRequest(key=b"k", value=b"v"))
GET = (rpc.RANGE, pb.RangeRequest(key=b"k"))
NEWCOMER = (rpc.MEMBER_ADD, pb.MemberAddRequest(peerURLs=["http://10.0.0.9:2380"]))
LEASE_S = 5


class Steps:
    """The log and the links of a member, which note what they are told, and at which revision."""

    def __init__(self, harness: Harness) -> None:
        self.parts = harness.parts
        self.log = harness.parts.replication.log
        self.taken: list[tuple[str, int]] = []
        harness.parts.replication.log = self
        harness.parts.replication.peers = _Links(self)

    def note(self, name: str) -> None:
        self.taken.append((name, self.parts.state.store.revision))

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool) -> None:
        self.log.save(hard_state, entries, sync=sync)
        self.note("save" if sync else "save later")

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        self.log.start_save(hard_state, entries)
        self.note("start")

    def finish_save(self) -> None:
        self.log.finish_save()
        self.note("finish")


class _Links(NoPeers):
    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    @override
    def set_members(self, peers: Mapping[int, Sequence[str]]) -> None:
        self._steps.note(f"{len(peers)} peers")


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    alone = Harness(tmp_path / "data", Disk(in_memory=False))
    yield alone
    alone.close()


def test_a_put_is_applied_while_the_disk_works(harness: Harness) -> None:
    steps = Steps(harness)
    (call_id,) = harness.start(PUT)
    assert steps.taken == [("start", 1), ("finish", 2)]
    assert harness.answers[call_id][0] == 0
    harness.start(PUT, PUT)
    assert steps.taken[2:] == [("start", 2), ("finish", 4)]


def test_a_turn_without_entries_waits_for_nothing(harness: Harness) -> None:
    harness.start(PUT)
    steps = Steps(harness)
    (call_id,) = harness.start(GET)
    assert harness.answers[call_id][0] == 0
    assert steps.taken == []


def test_what_could_not_be_saved_is_not_answered(tmp_path: Path) -> None:
    disk = Disk(in_memory=False)
    harness = Harness(tmp_path / "data", disk)
    harness.start(PUT)
    steps = len(disk.calls)
    harness.start(PUT)
    assert disk.calls[steps : steps + 3] == ["write", "begin_writeback", "sync_data"]
    disk.fail_at = len(disk.calls) + 2
    with pytest.raises(StorageFatalError, match="cannot sync"):
        harness.start(PUT, GET)
    assert disk.calls[disk.fail_at] == "sync_data"
    assert harness.parts.state.store.revision == 4  # applied, but nobody was told
    assert len(harness.answers) == 2
    harness.crash()
    disk.restart()
    again = Harness(tmp_path / "data", disk)
    assert again.parts.state.store.revision == 3
    again.close()


def test_a_member_is_linked_once_its_addition_is_saved(harness: Harness) -> None:
    harness.clock.now_ns += 10_000_000_000
    steps = Steps(harness)
    harness.call(*NEWCOMER)
    assert steps.taken == [("start", 1), ("finish", 1), ("1 peers", 1)]


def test_what_the_server_proposes_makes_the_next_turn_due_at_once(harness: Harness) -> None:
    harness.call(rpc.LEASE_GRANT, pb.LeaseGrantRequest(ID=7, TTL=LEASE_S))
    harness.turn()
    assert harness.node.wake_ns > harness.clock.now_ns
    harness.clock.now_ns += LEASE_S * 1_000_000_000
    harness.turn()
    assert harness.parts.state.lessor.exists(7)
    assert harness.node.wake_ns <= harness.clock.now_ns
    harness.turn()
    assert not harness.parts.state.lessor.exists(7)
