"""The rebuilt index: recognized and parsed records must give the same result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.backend import Row, Table
from kvstore.errors import CorruptionError
from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.rebuild import NO_SHAPE, make_shape, rebuild
from kvstore.mvcc.records import Records
from kvstore.mvcc.revision import parse_revision_key, revision_key
from kvstore.storage.memory_backend import MemoryBackend
from kvstore.wire.splice import encode_kv, encode_tombstone, parse_kv


def rebuilt(rows: list[Row]) -> tuple[KeyIndex, dict[bytes, int], int]:
    backend = MemoryBackend()
    backend.append(Table.KEY, rows)
    return rebuild(Records(backend))


def carefully(rows: list[Row]) -> tuple[KeyIndex, dict[bytes, int]]:
    index, leases = KeyIndex(), {}
    for revkey, kv in rows:
        main, sub, tombstone = parse_revision_key(revkey)
        key, create, _, version, _, lease = parse_kv(kv)
        index.restore(key, create, version, main, sub << 1 | tombstone)
        leases[key] = lease
    return index, {key: lease for key, lease in leases.items() if lease}


RECORDS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c" * 127, b"d" * 128]),
        st.integers(0, 4),  # 0: tombstone, else version
        st.sampled_from([0, 1, 125, 126, 127, 128, 129, 16383, 16384]),
        st.sampled_from([0, 0, 0, 5]),
        st.integers(0, 3),  # create = mod - this
        st.sampled_from([1, 1, 1, 126, 1 << 14, 1 << 40]),
    ),
    max_size=20,
)


@given(RECORDS, st.integers(2, 200))
def test_recognized_and_parsed_records_agree(
    records: list[tuple[bytes, int, int, int, int, int]], main: int
) -> None:
    rows: list[Row] = []
    for sub, (key, version, size, lease, age, gap) in enumerate(records):
        if version:
            kv = encode_kv(key, max(1, main - age), main, version, b"v" * size, lease)
            rows.append((revision_key(main, sub), kv))
        else:
            rows.append((revision_key(main, sub, tombstone=True), encode_tombstone(key)))
        main += gap
    index, leases, last = rebuilt(rows)
    want, want_leases = carefully(rows)
    assert (index.live, index.dead, leases) == (want.live, want.dead, want_leases)
    assert last == (main - records[-1][5] if records else 0)
    assert index.keys(b"", None) == sorted(index.live)


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 300, 16383, 16384, 1 << 21])
def test_a_shape_fits_the_records_it_was_made_for(size: int) -> None:
    kv = encode_kv(b"key", 300, 300, 1, b"v" * size, 0)
    shape = make_shape(len(kv), 3, 2)
    assert shape.cut is not None
    head, key, tag_2, create, tag_3, mod, tail = shape.cut(kv)
    assert (head, tail) == (shape.head, shape.tail)
    assert (key, tag_2, create, tag_3, mod) == (b"key", b"\x10", b"\xac\x02", b"\x18", b"\xac\x02")


@pytest.mark.parametrize("size", [0, 1, 12, 14, 15, 143])
def test_sizes_no_usual_record_has_have_no_shape(size: int) -> None:
    assert make_shape(size, 3, 2) == NO_SHAPE


def test_a_record_that_only_looks_usual_is_parsed() -> None:
    usual = encode_kv(b"k", 5, 5, 1, b"value", 0)
    swapped = usual[:3] + b"\x18\x05\x10\x05" + usual[7:]  # the same fields in another order
    index, _, _ = rebuilt([(revision_key(5), swapped)])
    assert index.current(b"k") == (5, 5, 1, revision_key(5))


def test_a_zero_length_record_is_the_empty_key() -> None:
    index, leases, last = rebuilt(
        [(revision_key(2), encode_kv(b"a", 2, 2, 1, b"", 9)), (revision_key(1010), b"")]
    )
    assert leases == {b"a": 9}
    assert last == 1010
    assert index.current(b"") == (0, 1010, 0, revision_key(1010))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((revision_key(3), b"\x0a\x05ab"), revision_key(3).hex()),
        ((revision_key(3, tombstone=True), b"\x0a\x05ab"), revision_key(3, tombstone=True).hex()),
        ((b"short", b""), b"short".hex()),
        (
            (revision_key(3, 1 << 62), encode_kv(b"a", 3, 3, 1, b"", 0)),
            revision_key(3, 1 << 62).hex(),
        ),
    ],
)
def test_a_broken_record_stops_the_start_and_is_named(row: Row, message: str) -> None:
    with pytest.raises(CorruptionError, match=message):
        rebuilt([row])
