"""A store that begins with another one's rows goes on as that one would: random histories."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.backend import Table
from kvstore.client.values import KeyValue
from kvstore.errors import COMPACTED, DataDirError
from kvstore.mvcc.event import Event
from kvstore.mvcc.ranges import RangeResult
from kvstore.mvcc.revision import parse_revision_key
from kvstore.mvcc.store import Store
from kvstore.server.boot.first_rows import FirstRows, lay
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.gen import kv_pb2

KEYS = st.sampled_from([b"a", b"a\0", b"b", b"\xff", b"k" * 130])
VALUES = st.sampled_from([b"", b"1", b"x" * 127, b"z" * 130])
LEASES = st.sampled_from([0, 0, 7, 1 << 62])
TTLS = {7: 60, 1 << 62: 3600}
PUT = st.tuples(KEYS, VALUES, LEASES)
DELETION = st.tuples(KEYS, st.just(None), st.just(0))
STEPS = st.lists(st.lists(st.one_of(PUT, DELETION), max_size=4), max_size=12)
Step = list[tuple[bytes, bytes | None, int]]


def play(store: Store, steps: list[Step]) -> list[list[Event]]:
    """Apply a transaction a step, in which a key is written once."""
    played = []
    for step in steps:
        store.begin()
        written = set()
        for key, value, lease in step:
            if key in written:
                continue
            written.add(key)
            if value is None:
                store.delete_range(key, b"")
            else:
                store.put(key, value, lease)
        played.append(store.end())
    store.flush()
    return played


def source_of(steps: list[Step]) -> tuple[Store, MemoryBackend]:
    backend = MemoryBackend()
    store = Store(backend)
    store.restore()
    play(store, steps)
    return store, backend


def history_of(backend: MemoryBackend) -> Iterator[KeyValue]:
    for revkey, value in backend.scan(Table.KEY, b"", None, 1 << 20):
        main, _, _ = parse_revision_key(revkey)
        kv = kv_pb2.KeyValue.FromString(value)
        yield KeyValue(kv.key, kv.value, kv.create_revision, main, kv.version, kv.lease)


def state_of(store: Store) -> list[KeyValue]:
    found = store.range(b"\0", b"\0")
    assert isinstance(found, RangeResult)
    kvs = map(kv_pb2.KeyValue.FromString, found.kvs)
    rows = [
        KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)
        for kv in kvs
    ]
    return sorted(rows, key=lambda kv: kv.mod_revision)


def begun_with(rows: FirstRows) -> Store:
    backend = MemoryBackend()
    lay(rows, backend)
    store = Store(backend)
    store.restore()
    return store


@given(STEPS, st.integers(0, 6), STEPS)
def test_with_its_history(before: list[Step], back: int, after: list[Step]) -> None:
    source, backend = source_of(before)
    if source.revision - back > 0 and source.compact(source.revision - back) is None:
        while not source.compaction_step(100):
            pass
    readable_from = max(source.compacted, 1)
    store = begun_with(FirstRows(history_of(backend), source.revision, readable_from, TTLS))
    assert store.revision == source.revision
    for revision in range(1, source.revision + 1):
        if revision < readable_from:
            assert store.range(b"\0", b"\0", revision=revision) is COMPACTED
        else:
            assert store.range(b"\0", b"\0", revision=revision) == source.range(
                b"\0", b"\0", revision=revision
            )
    assert play(store, after) == play(source, after)
    assert state_of(store) == state_of(source)


@given(STEPS, STEPS)
def test_as_of_one_revision(before: list[Step], after: list[Step]) -> None:
    source, _ = source_of(before)
    revision = source.revision
    store = begun_with(FirstRows(state_of(source), revision, revision, TTLS))
    assert (store.revision, store.compacted) == (revision, revision)
    assert state_of(store) == state_of(source)
    events, expected = play(store, after), play(source, after)
    assert [[each._replace(prev=None) for each in step] for step in events] == [
        [each._replace(prev=None) for each in step] for step in expected
    ]
    assert state_of(store) == state_of(source)
    if revision > 1:
        assert store.range(b"a", b"", revision=revision - 1) is COMPACTED


ROW = KeyValue(b"k", b"v", 3, 5, 2, 0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (FirstRows([], 0, 0), "a store at revision 0 cannot be read from 0 on"),
        (FirstRows([], 5, 6), "a store at revision 5 cannot be read from 6 on"),
        (FirstRows([ROW], 4, 4), "key b'k' has revision 5, after one of 0 and in a store at 4"),
        (
            FirstRows([ROW, ROW._replace(mod_revision=4)], 9, 9),
            "key b'k' has revision 4, after one of 5",
        ),
        (FirstRows([ROW._replace(key=b"")], 9, 9), "a record of revision 5 has no key"),
        (
            FirstRows([ROW._replace(create_revision=6)], 9, 9),
            "create revision 6, not from 1 to mod revision 5",
        ),
        (
            FirstRows([ROW._replace(create_revision=0)], 9, 9),
            "create revision 0, not from 1 to mod revision 5",
        ),
        (FirstRows([ROW._replace(lease=7)], 9, 9), "has lease 7, which is not among the leases"),
        (FirstRows([ROW], 9, 5), "no record has revision 9"),
        (FirstRows([ROW], 9, 9, {7: 0}), "lease 7: TTL 0 s is not between 1 and"),
    ],
)
def test_rows_that_cannot_be(rows: FirstRows, message: str) -> None:
    with pytest.raises(DataDirError, match=message):
        lay(rows, MemoryBackend())
