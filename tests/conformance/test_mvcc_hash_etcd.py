"""The store against real etcd 3.5.1: the same entries give the same HashKV and the same ranges.

Where 3.5.1 differs from 3.7, and how these tests allow for it:

- it removes the tombstone at the compacted revision, 3.7 keeps it: HashKV leaves such a tombstone
  out for that very reason, so the hashes are equal all the same;
- it refuses HashKV at the compacted revision itself: compared are the revisions above;
- it remembers no hashes of compactions: those are held against the model instead.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from kvstore.errors import COMPACTED
from kvstore.mvcc.hashing import HashJob, HashResult
from kvstore.mvcc.ranges import RangeResult
from kvstore.mvcc.store import Store
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support import raw_grpc
from tests.support.servers import etcd, running

pytestmark = pytest.mark.e2e

KEYS = [b"a", b"a/1", b"a/2", b"b", b"b\0", b"c" * 140, b"\xff\xfe", b"zz"]
VALUES = [b"", b"v", b"w" * 127, b"x" * 128, bytes(range(256)) * 70]
LEASE = 0x1234567890ABCDEF


class Etcd:
    """The calls the tests make on a real etcd."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def call(self, method: str, request: Message, response: type[Message]) -> Any:
        stub = raw_grpc.unary(self._channel, f"/etcdserverpb.{method}")
        return response.FromString(stub(request.SerializeToString(), timeout=10.0))

    def hash_kv(self, revision: int) -> tuple[int, int]:
        request = pb.HashKVRequest(revision=revision)
        answer = self.call("Maintenance/HashKV", request, pb.HashKVResponse)
        return answer.hash, answer.compact_revision

    def range_at(self, revision: int, limit: int) -> tuple[list[bytes], int, int]:
        request = pb.RangeRequest(key=b"\0", range_end=b"\0", revision=revision, limit=limit)
        answer = self.call("KV/Range", request, pb.RangeResponse)
        return [kv.SerializeToString() for kv in answer.kvs], answer.count, answer.header.revision


class Pair:
    """One entry at a time to both."""

    def __init__(self, real: Etcd) -> None:
        self.real = real
        self.store = Store(MemoryBackend())
        self.store.restore()

    def put(self, key: bytes, value: bytes, lease: int) -> None:
        request = pb.PutRequest(key=key, value=value, lease=lease)
        self.real.call("KV/Put", request, pb.PutResponse)
        self.store.put_one(key, value, lease)

    def txn(self, branches: list[list[tuple[bytes, bytes | None]]]) -> None:
        """Each branch becomes a nested txn: (key, value) puts, (key, None) deletes key to key/~."""
        self.store.begin()
        outer = pb.TxnRequest()
        for branch in branches:
            inner = outer.success.add().request_txn
            inner.SetInParent()  # a branch may be empty
            for key, value in branch:
                if value is None:
                    delete = inner.success.add().request_delete_range
                    delete.key, delete.range_end = key, key + b"/~"
                    self.store.delete_range(key, key + b"/~")
                else:
                    put = inner.success.add().request_put
                    put.key, put.value = key, value
                    self.store.put(key, value, 0)
        self.store.end()
        self.real.call("KV/Txn", outer, pb.TxnResponse)

    def delete(self, key: bytes, range_end: bytes) -> None:
        request = pb.DeleteRangeRequest(key=key, range_end=range_end)
        self.real.call("KV/DeleteRange", request, pb.DeleteRangeResponse)
        self.store.begin()
        self.store.delete_range(key, range_end)
        self.store.end()

    def compact(self, revision: int) -> None:
        request = pb.CompactionRequest(revision=revision, physical=True)
        self.real.call("KV/Compact", request, pb.CompactionResponse)
        assert self.store.compact(revision) is None
        while not self.store.compaction_step(3):
            pass

    def hash_kv(self, revision: int) -> tuple[int, int]:
        job = self.store.start_hash(revision)
        assert isinstance(job, HashJob)
        result: HashResult | None = None
        while result is None:
            result = job.step(5)
        return result.hash, result.compact_revision

    def compare(self) -> None:
        for revision in range(max(1, self.store.compacted + 1), self.store.revision + 1):
            assert self.hash_kv(revision) == self.real.hash_kv(revision), f"at {revision}"
            want = self.real.range_at(revision, 3)
            assert self.store.range(b"\0", b"\0", revision=revision, limit=3) == RangeResult(*want)


@pytest.fixture(scope="module")
def data_dirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("etcd")


@pytest.fixture
def pair(data_dirs: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with (
        running(etcd(data_dirs / request.node.name.replace("[", "-").strip("]"))) as server,
        grpc.insecure_channel(server.endpoint) as channel,
    ):
        yield Pair(Etcd(channel))


def run_entries(pair: Pair, rng: random.Random, count: int) -> None:
    for _ in range(count):
        kind = rng.randrange(10)
        if kind < 5:
            pair.put(rng.choice(KEYS), rng.choice(VALUES), rng.choice([0, 0, LEASE]))
        elif kind < 7:
            pair.delete(rng.choice(KEYS), rng.choice([b"", b"", b"b", b"\0"]))
        else:
            first = [(key, rng.choice(VALUES)) for key in rng.sample(KEYS, rng.randrange(4))]
            second: list[tuple[bytes, bytes | None]] = [(rng.choice(KEYS), None)]
            pair.txn([list(first), second])  # a put may be deleted again in the same entry


@pytest.mark.parametrize("seed", range(3))
def test_hashes_and_ranges_are_etcds(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    pair.real.call(
        "Lease/LeaseGrant", pb.LeaseGrantRequest(ID=LEASE, TTL=3600), pb.LeaseGrantResponse
    )
    pair.compare()
    for _ in range(4):
        run_entries(pair, rng, 25)
        pair.compare()
        pair.compact(rng.randint(max(pair.store.compacted + 1, 1), pair.store.revision))
        pair.compare()


def test_compacting_at_a_tombstone_and_an_emptied_store(pair: Pair) -> None:
    pair.put(b"a", b"1", 0)
    pair.put(b"b", b"1", 0)
    pair.delete(b"a", b"")
    pair.compact(pair.store.revision)
    pair.put(b"a", b"2", 0)
    pair.compare()
    pair.delete(b"\0", b"\0")
    pair.compare()
    pair.put(b"c", b"3", 0)
    pair.compact(pair.store.revision - 1)
    pair.compare()
    assert pair.store.start_hash(pair.store.compacted - 1) == COMPACTED
