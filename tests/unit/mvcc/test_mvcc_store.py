"""Entries, reads and history of the store, on both backends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.backend import Backend, Table
from kvstore.errors import COMPACTED, FUTURE_REVISION, CorruptionError
from kvstore.mvcc.ranges import RangeResult
from kvstore.mvcc.revision import revision_key
from kvstore.mvcc.store import Event, Store
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.splice import encode_kv, parse_kv


@pytest.fixture(params=["memory", "lmdb"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    backend: Backend = MemoryBackend() if request.param == "memory" else LmdbBackend(tmp_path)
    yield backend
    backend.close()


@pytest.fixture
def store(backend: Backend) -> Store:
    store = Store(backend)
    assert store.restore() == []
    return store


def keys(result: object) -> list[bytes]:
    assert isinstance(result, RangeResult)
    return [parse_kv(kv)[0] for kv in result.kvs]


def test_a_fresh_store_is_at_revision_1(store: Store) -> None:
    assert (store.revision, store.compacted, store.key_count) == (1, -1, 0)
    assert store.range(b"a", b"\0") == RangeResult([], 0, 1)


def test_a_put_makes_etcds_bytes(store: Store, backend: Backend) -> None:
    event = store.put_one(b"foo", b"bar", 0)
    kv = bytes.fromhex("0a03666f6f1002180220012a03626172")
    assert event == Event(0, b"foo", kv, 2, 0, None)
    assert backend.scan(Table.KEY, b"", None, 9) == []
    store.flush()
    assert backend.scan(Table.KEY, b"", None, 9) == [(revision_key(2), kv)]


def test_a_deletion_makes_etcds_bytes(store: Store, backend: Backend) -> None:
    store.put_one(b"b", b"", 0)
    store.begin()
    (event,) = store.delete_range(b"b", b"")
    assert store.end() == [event]
    assert event == Event(1, b"b", bytes.fromhex("0a01621803"), 3, 0, revision_key(2))
    store.flush()
    assert backend.last(Table.KEY) == (revision_key(3, tombstone=True), bytes.fromhex("0a0162"))


def test_all_writes_of_an_entry_share_one_revision(store: Store) -> None:
    store.put_one(b"b", b"old", 0)
    store.begin()
    assert store.txn_revision == 2
    store.put(b"a", b"1", 0)
    assert (store.revision, store.txn_revision) == (2, 3)
    store.delete_range(b"b", b"")
    store.put(b"c", b"1", 0)
    assert keys(store.range(b"a", b"z")) == [b"a", b"c"]
    assert keys(store.range(b"a", b"z", revision=2)) == [b"b"]
    assert store.range(b"a", b"z", revision=4) == FUTURE_REVISION
    assert [(each.type, each.key, each.main, each.sub) for each in store.end()] == [
        (0, b"a", 3, 0),
        (1, b"b", 3, 1),
        (0, b"c", 3, 2),
    ]
    assert store.revision == 3


def test_an_entry_without_changes_has_no_revision(store: Store) -> None:
    store.begin()
    assert store.delete_range(b"a", b"\0") == []
    assert store.end() == []
    assert store.revision == 1


def test_writers_and_watchers_see_different_previous_values(store: Store) -> None:
    store.put_one(b"k", b"before", 0)
    store.begin()
    store.put(b"k", b"within", 0)
    (reply,) = store.delete_range(b"k", b"")
    watched = store.end()
    assert reply.prev == revision_key(3, 0)
    assert [each.prev for each in watched] == [revision_key(2), revision_key(2)]
    assert store.history(3, 4, 10, 1000) == (watched, 4)


def test_writes_need_an_open_entry(store: Store) -> None:
    for write in (
        lambda: store.put(b"k", b"", 0),
        lambda: store.delete_range(b"k", b""),
        store.end,
    ):
        with pytest.raises(RuntimeError, match="outside begin"):
            write()
    store.begin()
    with pytest.raises(RuntimeError, match="within an entry"):
        store.begin()


def test_versions_and_creation_start_again_after_a_deletion(store: Store) -> None:
    store.put_one(b"k", b"", 0)
    store.put_one(b"k", b"", 0)
    assert store.current(b"k") == (2, 3, 2, revision_key(3))
    store.begin()
    store.delete_range(b"k", b"")
    store.end()
    assert store.current(b"k") is None
    assert store.kv(b"k") is None
    event = store.put_one(b"k", b"", 0)
    assert event.prev is None
    assert store.kv(b"k") == event.kv == encode_kv(b"k", 5, 5, 1, b"", 0)


def test_range_bounds(store: Store) -> None:
    for key in (b"\0", b"a", b"ab", b"b", b"\xff"):
        store.put_one(key, b"", 0)
    assert keys(store.range(b"a", b"")) == [b"a"]
    assert keys(store.range(b"a", b"b")) == [b"a", b"ab"]
    assert keys(store.range(b"ab", b"\0")) == [b"ab", b"b", b"\xff"]
    assert keys(store.range(b"\0", b"\0")) == [b"\0", b"a", b"ab", b"b", b"\xff"]
    assert keys(store.range(b"b", b"a")) == []
    assert store.range(b"x", b"") == RangeResult([], 0, 6)


def test_limit_cuts_the_values_and_not_the_count(store: Store) -> None:
    for key in (b"a", b"b", b"c"):
        store.put_one(key, b"", 0)
    for revision in (0, 4):
        result = store.range(b"a", b"z", limit=2, revision=revision)
        assert (keys(result), result[1]) == ([b"a", b"b"], 3)
    past = store.range(b"a", b"z", limit=1, revision=3)
    assert (keys(past), past[1]) == ([b"a"], 2)
    past = store.range(b"a", b"z", limit=1, revision=3, with_count=False)
    assert (keys(past), past[1]) == ([b"a"], 1)
    assert store.range(b"a", b"z", limit=-1, revision=-5)[1] == 3


def test_keys_only_leaves_out_value_and_lease(store: Store) -> None:
    store.put_one(b"a", b"value", 77)
    store.put_one(b"a", b"value", 77)
    bare = encode_kv(b"a", 2, 3, 2, b"", 0)
    for revision in (0, 3):
        assert store.range(b"a", b"b", keys_only=True, revision=revision).kvs == [bare]  # type: ignore[union-attr]
    assert store.range(b"a", b"", keys_only=True).kvs == [bare]  # type: ignore[union-attr]


@pytest.mark.parametrize("changed", [0, 3, 399])
def test_counts_of_the_past_either_way(store: Store, changed: int) -> None:
    """Few changes since are counted back, many make the range be walked: the same number."""
    names = [b"%04d" % n for n in range(400)]
    for name in names:
        store.put_one(name, b"", 0)
    pinned = store.revision
    for name in names[:changed]:
        store.begin()
        store.delete_range(name, b"")
        store.put(b"new" + name, b"", 0)
        store.end()
    store.put_one(names[-1], b"again", 0)
    assert store.range(b"0", b"\0", revision=pinned, limit=1)[1] == 400
    assert store.range(b"0001", b"0003", revision=pinned, count_only=True)[1] == 2
    assert store.range(b"0", b"\0", count_only=True)[1] == 400


def test_history_stops_between_revisions(store: Store) -> None:
    store.put_one(b"a", b"", 0)
    store.begin()
    for key in (b"b", b"c", b"d"):
        store.put(key, b"x" * 100, 0)
    store.end()
    store.put_one(b"e", b"", 0)

    def read(start: int, end: int, rows: int, size: int) -> tuple[list[bytes], int]:
        events, following = store.history(start, end, rows, size)
        return [event.key for event in events], following

    assert read(2, 5, 100, 10_000) == ([b"a", b"b", b"c", b"d", b"e"], 5)
    assert read(2, 5, 1, 10_000) == ([b"a"], 3)
    assert read(2, 5, 2, 10_000) == ([b"a", b"b", b"c", b"d"], 4)
    assert read(3, 5, 1, 10_000) == ([b"b", b"c", b"d"], 4)
    assert read(3, 5, 100, 1) == ([b"b", b"c", b"d"], 4)
    assert read(5, 9, 100, 100) == ([], 9)
    assert read(4, 4, 100, 100) == ([], 4)


def test_history_before_the_compaction_is_the_callers_error(store: Store) -> None:
    for _ in range(3):
        store.put_one(b"a", b"", 0)
    store.compact(3)
    with pytest.raises(ValueError, match="history from 2, but compacted up to 3"):
        store.history(2, 4, 1, 1)
    events, _ = store.history(3, 5, 10, 1000)
    assert [(event.main, event.prev) for event in events] == [(3, None), (4, revision_key(3))]


def test_values_by_revision_key(store: Store) -> None:
    first = store.put_one(b"a", b"1", 0)
    second = store.put_one(b"a", b"2", 0)
    assert second.prev is not None
    assert store.value_of(second.prev) == first.kv
    store.flush()
    assert store.value_of(second.prev) == first.kv
    store.compact(3)
    assert store.compaction_step(100)
    assert store.value_of(second.prev) is None


def test_reads_at_compacted_and_future_revisions(store: Store) -> None:
    for _ in range(3):
        store.put_one(b"a", b"", 0)
    assert store.compact(5) == FUTURE_REVISION
    assert store.compact(3) is None
    assert store.compact(3) == COMPACTED
    assert store.compact(-1) == COMPACTED
    for end in (b"", b"b"):
        assert store.range(b"a", end, revision=2) == COMPACTED
        assert store.range(b"a", end, revision=2, count_only=True) == COMPACTED
        assert keys(store.range(b"a", end, revision=3)) == [b"a"]
        assert store.range(b"a", end, revision=5) == FUTURE_REVISION


def test_restart_brings_everything_back(store: Store, backend: Backend) -> None:
    store.put_one(b"leased", b"", 7)
    store.put_one(b"released", b"", 7)
    store.put_one(b"released", b"", 0)
    store.put_one(b"dead", b"", 7)
    store.begin()
    store.delete_range(b"dead", b"")
    store.end()
    store.flush()
    again = Store(backend)
    assert again.restore() == [(b"leased", 7)]
    assert (again.revision, again.key_count) == (6, 2)
    assert again.history(2, 9, 99, 9999) == store.history(2, 9, 99, 9999)


def test_the_revision_survives_the_removal_of_every_record(backend: Backend, store: Store) -> None:
    store.put_one(b"a", b"", 0)
    store.begin()
    store.delete_range(b"a", b"")
    store.end()
    store.compact(3)
    while not store.compaction_step(100):
        pass
    backend.clear(Table.KEY)  # as a member before 3.5.16 would have left it
    again = Store(backend)
    again.restore()
    assert (again.revision, again.compacted, again.compaction_pending) == (3, 3, False)


def test_a_bumped_revision_as_etcdutl_leaves_it(backend: Backend) -> None:
    store = Store(backend)
    store.put_one(b"a", b"", 0)
    store.flush()
    backend.append(Table.KEY, [(revision_key(1010), b"")])
    backend.put(Table.META, b"scheduledCompactRev", revision_key(1010))
    store = Store(backend)
    store.restore()
    assert (store.revision, store.compacted, store.compaction_pending) == (1010, 1010, True)
    assert store.compaction_step(100)
    assert keys(store.range(b"\0", b"\0")) == [b"a"]
    assert store.range(b"a", b"", revision=5) == COMPACTED
    assert store.put_one(b"a", b"", 0).main == 1011


def test_a_lost_record_is_corruption(store: Store, backend: Backend) -> None:
    store.put_one(b"a", b"", 0)
    store.flush()
    backend.delete(Table.KEY, revision_key(2))
    with pytest.raises(CorruptionError, match=revision_key(2).hex()):
        store.range(b"a", b"")
    with pytest.raises(CorruptionError):
        store.range(b"a", b"b")
