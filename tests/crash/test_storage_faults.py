"""A write, sync, rename or commit fails: at every one of them, in a life that uses them all.

The rule: the node stops with an error that says so; what it had answered by then is on disk; the
next start finds the state of some moment between the last answer and the last request.
"""

import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from google.protobuf.message import Message

from kvstore.batch import Inbox
from kvstore.errors import DataDirError, StorageFatalError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.node.harness import CallError, Disk, Harness

FLAGS = ["--snapshot-count=8", "--snapshot-catchup-entries=4", "--max-wals=1"]
STEPS = 46
SEGMENT_BYTES = 2048
FOREVER_S = 1_000_000


def requests() -> Iterator[tuple[int, Message]]:
    """Return the requests of one client: every kind of write, some refused, long work between."""
    for number in range(STEPS):
        key = b"key%d" % (number % 7)
        match number % 9:
            case 0:
                grant = pb.LeaseGrantRequest(ID=100 + number, TTL=FOREVER_S)
                yield rpc.LEASE_GRANT, grant
            case 1:
                yield rpc.PUT, pb.PutRequest(key=key, value=b"leased", lease=99 + number)
            case 2:
                put = pb.RequestOp(request_put=pb.PutRequest(key=key, value=b"%d" % number))
                delete = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"key1"))
                yield rpc.TXN, pb.TxnRequest(success=[put, delete])
            case 3:
                yield rpc.DELETE_RANGE, pb.DeleteRangeRequest(key=key)
            case 4:
                yield rpc.COMPACT, pb.CompactionRequest(revision=number // 2, physical=True)
            case 5:
                yield rpc.DEFRAGMENT, pb.DefragmentRequest()
            case 6 if number % 2:
                yield rpc.LEASE_REVOKE, pb.LeaseRevokeRequest(ID=94 + number)
            case 7:
                yield rpc.PUT, pb.PutRequest(key=key, ignore_value=True)
            case _:
                yield rpc.PUT, pb.PutRequest(key=key, value=b"%d" % number * 100)


def state(harness: Harness) -> tuple[object, ...]:
    """Return everything a client can see of the state."""
    everything = pb.RangeRequest(key=b"\0", range_end=b"\0")
    found = harness.call(rpc.RANGE, everything)
    hashed = harness.call(rpc.HASH_KV, pb.HashKVRequest())
    leases = harness.call(rpc.LEASE_LEASES, pb.LeaseLeasesRequest())
    assert isinstance(found, pb.RangeResponse)
    assert isinstance(hashed, pb.HashKVResponse)
    assert isinstance(leases, pb.LeaseLeasesResponse)
    bound = []
    for lease in sorted(each.ID for each in leases.leases):
        asked = pb.LeaseTimeToLiveRequest(ID=lease, keys=True)
        response = harness.call(rpc.LEASE_TIME_TO_LIVE, asked)
        assert isinstance(response, pb.LeaseTimeToLiveResponse)
        bound.append((lease, response.grantedTTL, sorted(response.keys)))
    return (
        found.header.revision,
        [kv.SerializeToString() for kv in found.kvs],
        hashed.hash,
        hashed.compact_revision,
        bound,
    )


def live(harness: Harness, *, seen: list[tuple[object, ...]] | None = None) -> Iterator[int]:
    """Make the requests one by one; yield how many have been answered."""
    for answered, (method, request) in enumerate(requests(), start=1):
        with suppress(CallError):  # refused: that is an answer too
            harness.call(method, request)
        if seen is not None:
            seen.append(state(harness))
        yield answered


def history(data_dir: Path, disk: Disk) -> tuple[list[tuple[object, ...]], int]:
    """Run without a fault; return the state after each request and the number of disk calls."""
    harness = Harness(data_dir, disk, FLAGS, segment_bytes=SEGMENT_BYTES)
    seen = [state(harness)]
    for _ in live(harness, seen=seen):
        pass
    harness.close()
    return seen, len(disk.calls)


def test_every_storage_call_fails_in_turn(tmp_path: Path) -> None:
    states, _ = history(tmp_path / "good", Disk(in_memory=True))
    for short_write in (False, True):
        _fail_each(tmp_path, states, in_memory=True, short_write=short_write, stride=1)


def test_storage_calls_fail_over_lmdb(tmp_path: Path) -> None:
    states, _ = history(tmp_path / "good", Disk(in_memory=False))
    _fail_each(tmp_path, states, in_memory=False, short_write=False, stride=5)


def _fail_each(
    tmp_path: Path,
    states: list[tuple[object, ...]],
    *,
    in_memory: bool,
    short_write: bool,
    stride: int,
) -> None:
    data_dir = tmp_path / "bad"
    kinds: set[str] = set()
    fail_at = 0
    while True:
        disk = Disk(in_memory=in_memory, short_write=short_write)
        disk.fail_at = fail_at
        answered, failed = _until_it_fails(data_dir, disk)
        if not failed:
            shutil.rmtree(data_dir)
            break
        kinds.add(disk.calls[fail_at])
        disk.restart()
        _check_restart(data_dir, disk, states[answered : answered + 2])
        shutil.rmtree(data_dir)
        fail_at += stride
    assert kinds >= {"short_write" if short_write else "write", "commit", "truncate"}


def _until_it_fails(data_dir: Path, disk: Disk) -> tuple[int, bool]:
    """Run on a failing disk; return how many requests were answered, and whether it failed."""
    answered = 0
    harness = None
    try:
        harness = Harness(data_dir, disk, FLAGS, segment_bytes=SEGMENT_BYTES)
        for answered in live(harness):  # noqa: B007
            pass
        harness.close()
    except (StorageFatalError, DataDirError) as error:
        if "No space left on device" not in str(error):
            raise
        if harness is not None:
            harness.crash()
        return answered, True
    assert len(disk.calls) <= (disk.fail_at or 0)
    return answered, False


def _check_restart(data_dir: Path, disk: Disk, allowed: list[tuple[object, ...]]) -> None:
    harness = Harness(data_dir, disk, FLAGS, segment_bytes=SEGMENT_BYTES)
    found = state(harness)
    assert found in allowed, f"call {disk.fail_at} failed: {found[0]} is none of {allowed}"
    harness.call(rpc.PUT, pb.PutRequest(key=b"again", value=b"1"))
    after = state(harness)
    harness.crash()  # killed: the log has to bring back what was not committed
    disk.restart()
    again = Harness(data_dir, disk, FLAGS, segment_bytes=SEGMENT_BYTES)
    assert state(again) == after
    again.close()


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_commit_between_two_of_upkeeps_is_not_applied_twice(
    tmp_path: Path,
    in_memory: bool,  # noqa: FBT001
) -> None:
    disk = Disk(in_memory=in_memory)
    harness = Harness(tmp_path / "data", disk, ["--backend-batch-interval=1h"])
    for number in range(5):
        harness.call(rpc.PUT, pb.PutRequest(key=b"k%d" % number, value=b"1"))
        defragment = harness.start((rpc.DEFRAGMENT, pb.DefragmentRequest()))
        harness.call(rpc.PUT, pb.PutRequest(key=b"k", value=b"%d" % number))
        harness.wait(*defragment)
    before = state(harness)
    harness.crash()
    disk.restart()
    again = Harness(tmp_path / "data", disk)
    assert state(again) == before
    again.close()


def test_a_defragmentation_goes_on_when_its_client_goes_away(tmp_path: Path) -> None:
    harness = Harness(tmp_path / "data", Disk(in_memory=False))
    gone = harness.start((rpc.DEFRAGMENT, pb.DefragmentRequest()))
    harness.turn(Inbox(gone=gone))
    harness.call(rpc.DEFRAGMENT, pb.DefragmentRequest())
    harness.close()
