"""What the store costs per entry, per record at start and per record hashed or compacted.

`pytest bench/micro/test_mvcc.py` prints the table; N records are behind every line.
"""

import random

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstore.mvcc.hashing import HashJob
from kvstore.mvcc.key_order import KeyOrder
from kvstore.mvcc.rebuild import rebuild
from kvstore.mvcc.records import Records
from kvstore.mvcc.store import Store
from kvstore.storage.memory_backend import MemoryBackend

N = 5000
VALUE = b"x" * 256
KEYS = [each.to_bytes(8, "big") for each in random.Random(8).sample(range(1 << 60), N)]


def filled(rounds: int) -> tuple[MemoryBackend, Store]:
    backend = MemoryBackend()
    store = Store(backend)
    for _ in range(rounds):
        for key in KEYS:
            store.put_one(key, VALUE, 0)
    store.flush()
    return backend, store


@pytest.mark.parametrize("rounds", [0, 1, 2], ids=["fresh", "second", "third"])
def test_put(benchmark: BenchmarkFixture, rounds: int) -> None:
    def put_all(store: Store) -> None:
        for key in KEYS:
            store.put_one(key, VALUE, 0)

    def setup() -> tuple[tuple[Store], dict[str, object]]:
        return (filled(rounds)[1],), {}

    benchmark.pedantic(put_all, setup=setup, rounds=3)


def test_order_of_fresh_keys(benchmark: BenchmarkFixture) -> None:
    def add_all() -> KeyOrder:
        order = KeyOrder()
        for key in KEYS:
            order.add(key)
        return order

    assert len(benchmark(add_all)) == N


@pytest.mark.parametrize("rounds", [1, 2], ids=["usual", "histories"])
def test_rebuild(benchmark: BenchmarkFixture, rounds: int) -> None:
    backend, _ = filled(rounds)
    index, _, last = benchmark(lambda: rebuild(Records(backend)))
    assert (len(index.live), last) == (N, rounds * N + 1)


def test_range(benchmark: BenchmarkFixture) -> None:
    _, store = filled(1)
    result = benchmark(lambda: store.range(b"\0", b"\0", limit=1000))
    assert result[1] == N


def test_range_of_the_past(benchmark: BenchmarkFixture) -> None:
    _, store = filled(1)
    for key in KEYS[:100]:
        store.put_one(key, VALUE, 0)
    result = benchmark(lambda: store.range(b"\0", b"\0", limit=1000, revision=N + 1))
    assert result[1] == N


def test_hash(benchmark: BenchmarkFixture) -> None:
    _, store = filled(2)

    def hash_all() -> int:
        job = store.start_hash(0)
        assert isinstance(job, HashJob)
        while True:
            result = job.step(1000)
            if result is not None:
                return result.hash

    assert benchmark(hash_all) > 0


def test_compaction(benchmark: BenchmarkFixture) -> None:
    def compact(store: Store) -> None:
        store.compact(store.revision)
        while not store.compaction_step(1000):
            pass

    def setup() -> tuple[tuple[Store], dict[str, object]]:
        return (filled(2)[1],), {}

    benchmark.pedantic(compact, setup=setup, rounds=3)
