"""Compaction in slices, its marks, its queue, and hashes that run beside it."""

import pytest
from google_crc32c import extend

from kvstore.backend import BUCKETS, Table
from kvstore.errors import COMPACTED, FUTURE_REVISION
from kvstore.mvcc.hashing import HashJob, HashResult
from kvstore.mvcc.record_hash import HashCache, RecordHash
from kvstore.mvcc.revision import revision_key
from kvstore.mvcc.store import Store
from kvstore.storage.memory_backend import MemoryBackend

SCHEDULED = b"scheduledCompactRev"
FINISHED = b"finishedCompactRev"


@pytest.fixture
def backend() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def store(backend: MemoryBackend) -> Store:
    """Ten puts of one key, revisions 2 to 11."""
    store = Store(backend)
    store.restore()
    for n in range(10):
        store.put_one(b"k", b"%d" % n, 0)
    return store


def mains(backend: MemoryBackend) -> list[int]:
    return [int.from_bytes(key[:8], "big") for key, _ in backend.scan(Table.KEY, b"", None, 1000)]


def finish(job: object) -> HashResult:
    assert isinstance(job, HashJob)
    for _ in range(1000):
        result = job.step(2)
        if result is not None:
            return result
    raise AssertionError("the hash job does not end")


def test_a_slice_reads_no_more_rows_than_its_limit(store: Store, backend: MemoryBackend) -> None:
    assert store.compact(9) is None
    assert store.compacted == 9
    assert backend.get(Table.META, SCHEDULED) == revision_key(9)
    assert backend.get(Table.META, FINISHED) is None
    assert not store.compaction_step(3)
    assert mains(backend) == [5, 6, 7, 8, 9, 10, 11]
    assert not store.compaction_step(3)
    assert mains(backend) == [8, 9, 10, 11]
    assert store.compaction_step(3)
    assert mains(backend) == [9, 10, 11]
    assert backend.get(Table.META, FINISHED) == revision_key(9)
    assert store.compaction_step(3)


def test_an_interrupted_compaction_goes_on_after_a_restart(
    store: Store, backend: MemoryBackend
) -> None:
    store.compact(9)
    store.compaction_step(3)
    again = Store(backend)
    again.restore()
    assert (again.revision, again.compacted, again.compaction_pending) == (11, 9, True)
    while not again.compaction_step(3):
        pass
    assert mains(backend) == [9, 10, 11]
    assert again.compaction_hashes() == []  # it has not seen the records removed before
    again.compact(10)
    again.compaction_step(100)
    assert [each.hash_revision for each in again.compaction_hashes()] == [10]


def test_only_the_newest_waiting_compaction_is_kept(store: Store, backend: MemoryBackend) -> None:
    for at in range(3, 11):
        store.compact(at)
    store.compaction_step(100)
    assert backend.get(Table.META, FINISHED) == revision_key(3)
    assert store.compaction_step(100)
    assert backend.get(Table.META, FINISHED) == revision_key(10)
    assert [each.hash_revision for each in store.compaction_hashes()] == [3]


def test_a_hash_job_blocks_later_compactions(store: Store, backend: MemoryBackend) -> None:
    want = finish(store.start_hash(11))
    job = store.start_hash(11)
    assert isinstance(job, HashJob)
    assert job.step(2) is None
    store.compact(11)
    assert not store.compaction_step(100)
    assert len(mains(backend)) == 10
    assert finish(job) == want
    assert store.compaction_step(100)
    assert mains(backend) == [11]


def test_history_at_the_compacted_revision_changes_nothing(store: Store) -> None:
    """Watchers may read there before the records are removed."""
    store.compact(11)
    assert store.compaction_step(100)
    store.put_one(b"other", b"", 0)
    want = finish(store.start_hash(12))
    job = store.start_hash(12)
    store.put_one(b"k", b"", 0)
    store.compact(13)
    events, _ = store.history(13, 14, 10, 1000)
    assert [event.main for event in events] == [13]
    assert finish(job) == want


def test_a_closed_hash_job_unblocks_compaction(store: Store) -> None:
    job = store.start_hash(0)
    assert isinstance(job, HashJob)
    store.compact(11)
    assert not store.compaction_step(100)
    job.close()
    job.close()
    assert store.compaction_step(100)
    with pytest.raises(RuntimeError, match="ended"):
        job.step(1)


def test_a_hash_job_finishes_the_compaction_before_it(store: Store, backend: MemoryBackend) -> None:
    """Everything deleted: nothing is kept, so what is left of the past would count."""
    store.begin()
    store.delete_range(b"k", b"")
    store.end()
    store.put_one(b"other", b"", 0)
    store.begin()
    store.delete_range(b"other", b"")
    store.end()
    store.compact(13)
    result = finish(store.start_hash(14))
    assert mains(backend) == [13, 14]
    crc = extend(0, b"key")
    for revkey, kv in backend.scan(Table.KEY, b"", None, 10):
        crc = extend(extend(crc, revkey), kv)
    assert result[:4] == (crc, 13, 14, 14)


def test_a_state_emptied_at_the_hashed_revision_has_two_hashes(store: Store) -> None:
    """A member that has compacted there returns one, another member the other; each knows both."""
    store.compact(4)
    while not store.compaction_step(100):
        pass
    store.begin()
    store.delete_range(b"k", b"")
    store.end()
    before = finish(store.start_hash(12))
    store.compact(12)
    while not store.compaction_step(100):
        pass
    after = store.start_hash(12)
    assert isinstance(after, HashResult)
    assert before.compact_revision == after.compact_revision == 4
    assert (before.hash, before.alternative) == (after.alternative, after.hash)
    assert before.hash != after.hash


def test_a_state_with_something_in_it_has_one_hash(store: Store) -> None:
    store.put_one(b"other", b"", 0)
    store.compact(4)
    store.begin()
    store.delete_range(b"k", b"")
    store.end()
    before = finish(store.start_hash(13))
    store.compact(13)
    while not store.compaction_step(100):
        pass
    after = store.start_hash(13)
    assert isinstance(after, HashResult)
    assert (before.hash, before.alternative, after.alternative) == (after.hash, None, None)


def test_jobs_on_both_sides_of_two_compactions_all_end(store: Store) -> None:
    first = store.start_hash(0)
    store.compact(3)
    second = store.start_hash(0)
    store.compact(5)
    third = store.start_hash(0)
    store.compact(7)
    results = [finish(job) for job in (first, second, third)]
    assert [each.compact_revision for each in results] == [-1, 3, 5]
    while not store.compaction_step(100):
        pass
    assert store.compacted == 7


def test_the_hash_of_a_compaction_answers_from_then_on(store: Store) -> None:
    before = finish(store.start_hash(5))
    store.compact(5)
    assert finish(store.start_hash(5)).compact_revision == 5
    assert store.start_hash(5) == before  # 5 is done, so it is remembered
    store.compact(8)
    store.compaction_step(100)
    assert store.start_hash(5) == before
    assert store.start_hash(4) == COMPACTED
    assert store.start_hash(12) == FUTURE_REVISION
    store.put_one(b"k", b"", 0)
    cached = store.start_hash(5)
    assert isinstance(cached, HashResult)
    assert (cached.revision, cached.compact_revision) == (12, -1)


def test_ten_hashes_are_cached() -> None:
    cache = HashCache()
    for at in (5, 3, *range(6, 16)):
        cache.add(HashResult(at * 7, -1, at, at))
    assert [each.hash_revision for each in cache.newest_first()] == list(range(15, 5, -1))
    assert cache.get(5) is None
    assert cache.get(15) == HashResult(105, -1, 15, 15)


def test_if_nothing_is_kept_everything_is_hashed() -> None:
    """etcd skips what is not kept only if something is kept at all."""
    rows = [(revision_key(2), b"a"), (revision_key(3), b"b")]
    nothing_kept, one_kept = RecordHash(5, 5), RecordHash(5, 5)
    for at, (revkey, kv) in enumerate(rows):
        nothing_kept.add(revkey, kv, is_kept=False)
        one_kept.add(revkey, kv, is_kept=at == 1)
        nothing_kept.flush()
        one_kept.flush()
    assert nothing_kept.value() == extend(extend(0, b"key"), b"".join(sum(rows, ())))
    assert one_kept.value() == extend(extend(0, b"key"), b"".join(rows[1]))


def test_the_hash_of_everything(store: Store, backend: MemoryBackend) -> None:
    backend.put(Table.META, b"consistent_index", b"local")
    backend.put(Table.META, b"term", b"local")
    backend.put(Table.META, b"storageVersion", b"local")
    backend.put(Table.LEASE, b"lease", b"row")
    store.compact(4)
    job = store.hash_all()
    result = job.step(2)
    store.put_one(b"later", b"", 0)
    while result is None:
        result = job.step(2)
    crc = 0
    for table in Table:
        crc = extend(crc, BUCKETS[table])
        for key, value in backend.scan(table, b"", None, 1000):
            if key in (b"consistent_index", b"term", b"storageVersion"):
                continue
            if table == Table.KEY and key >= revision_key(12):
                continue
            crc = extend(extend(crc, key), value)
    assert result == crc
    assert mains(backend)[0] == 4  # the compaction before it was finished first
