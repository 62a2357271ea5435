"""HashKV of a file is the store's own, at every revision, also before a due compaction is done."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import DataDirError
from kvstore.mvcc.hashing import HashJob, HashResult
from kvstore.mvcc.store import Store
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.util.hashing import hash_kv

STEPS = 60
KEYS = [b"a", b"b", b"c", b"d"]


class _Frozen:
    """The rows of a backend as they were."""

    path = Path("memory")
    size_bytes = 0

    def __init__(self, backend: MemoryBackend) -> None:
        self._rows = {BUCKETS[t]: backend.scan(t, b"", None, 1 << 30) for t in Table}

    def buckets(self) -> list[bytes]:
        return list(BUCKETS)

    def scan(self, bucket: bytes) -> Iterator[Row]:
        return iter(self._rows[bucket])


def _store_hash(backend: MemoryBackend, revision: int) -> HashResult:
    """Return what a server says that starts on these rows."""
    store = Store(backend)
    store.restore()
    job = store.start_hash(revision)
    assert isinstance(job, HashJob)
    result = None
    while result is None:
        result = job.step(3)
    return result


def _copy(backend: MemoryBackend) -> MemoryBackend:
    copy = MemoryBackend()
    for table in Table:
        copy.append(table, backend.scan(table, b"", None, 1 << 30))
    return copy


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("swept", [True, False])
def test_every_revision_hashes_as_the_store_says(seed: int, swept: bool) -> None:  # noqa: FBT001
    rng = Random(seed)
    backend = MemoryBackend()
    store = Store(backend)
    for step in range(STEPS):
        store.begin()
        key = rng.choice(KEYS)
        if rng.random() < 0.3:
            store.delete_range(key, b"")
        else:
            store.put(key, b"%d" % step, 0)
        store.end()
    store.flush()
    compact_at = rng.randrange(0, store.revision + 1)
    if compact_at:
        assert store.compact(compact_at) is None
        while swept and not store.compaction_step(5):
            pass
    frozen = _Frozen(backend)
    for revision in (0, *range(max(compact_at, 1), store.revision + 1)):
        assert hash_kv(frozen, revision) == _store_hash(_copy(backend), revision)
    with pytest.raises(DataDirError, match="future revision"):
        hash_kv(frozen, store.revision + 1)
    if compact_at > 1:
        with pytest.raises(DataDirError, match=f"compacted.*{compact_at} to {store.revision}"):
            hash_kv(frozen, compact_at - 1)
