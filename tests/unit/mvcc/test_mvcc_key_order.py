"""Keys in order: chunks split, sort late and vanish without a trace in what is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.mvcc import key_order
from kvstore.mvcc.key_order import KeyOrder

KEYS = st.binary(max_size=2)
BOUNDS = st.one_of(st.none(), KEYS)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_order, "CHUNK_KEYS", 4)


def check(order: KeyOrder, keys: set[bytes], start: bytes, end: bytes | None, limit: int) -> None:
    want = sorted(key for key in keys if start <= key and (end is None or key < end))
    assert order.count(start, end) == len(want)
    assert order.keys(start, end) == want
    assert order.keys(start, end, limit) == (want[:limit] if limit else want)
    assert list(order.walk(start, end)) == want
    assert len(order) == len(keys)


@given(
    st.sets(KEYS, max_size=30),
    st.lists(st.tuples(KEYS, KEYS, BOUNDS, st.integers(0, 9)), max_size=60),
)
def test_reads_as_a_sorted_set(
    first: set[bytes], steps: list[tuple[bytes, bytes, bytes | None, int]]
) -> None:
    order, keys = KeyOrder(first), set(first)
    check(order, keys, b"", None, 0)
    for key, start, end, limit in steps:
        if key in keys:
            order.remove(key)
            keys.remove(key)
        else:
            order.add(key)
            keys.add(key)
        if limit < 6:  # sometimes several changes between two reads
            check(order, keys, start, end, limit)
    check(order, keys, b"", None, 0)


def test_many_ascending_then_none() -> None:
    order = KeyOrder()
    keys = [b"%03d" % n for n in range(100)]
    for key in keys:
        order.add(key)
    assert order.keys(b"", None) == keys
    for key in keys:
        order.remove(key)
    assert order.count(b"", None) == 0
    order.add(b"")
    assert order.keys(b"", None) == [b""]


def test_removing_an_absent_key_is_an_error() -> None:
    order = KeyOrder([b"a", b"c"])
    with pytest.raises(KeyError, match="b"):
        order.remove(b"b")
    with pytest.raises(KeyError, match="d"):
        order.remove(b"d")


def test_an_empty_or_turned_range_holds_nothing() -> None:
    order = KeyOrder([b"%02d" % n for n in range(20)])
    assert order.count(b"10", b"10") == 0
    assert order.count(b"15", b"03") == 0
    assert order.keys(b"15", b"03") == []
