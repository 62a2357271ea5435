"""Which watchers match a key."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.watch.ranges import Ranges


def matched(ranges: Ranges[str], key: bytes) -> list[str]:
    found: list[str] = []
    for group in ranges.match(key):
        found += group if isinstance(group, dict) else [group]
    assert len(found) == len(set(found))
    return sorted(found)


def test_single_key_range_and_open_end() -> None:
    ranges: Ranges[str] = Ranges()
    ranges.add(b"b", None, "key")
    ranges.add(b"b", None, "key2")
    ranges.add(b"a", b"c", "range")
    ranges.add(b"b", b"", "from")
    assert matched(ranges, b"b") == ["from", "key", "key2", "range"]
    assert matched(ranges, b"a") == ["range"]
    assert matched(ranges, b"c") == ["from"]
    assert matched(ranges, b"") == []
    ranges.remove(b"b", None, "key")
    ranges.remove(b"b", b"", "from")
    assert matched(ranges, b"b") == ["key2", "range"]
    ranges.remove(b"b", None, "key2")
    ranges.remove(b"a", b"c", "range")
    assert matched(ranges, b"b") == []


@pytest.mark.parametrize("end", [None, b"", b"z"])
def test_removing_an_unknown_watcher_is_an_error(end: bytes | None) -> None:
    ranges: Ranges[str] = Ranges()
    with pytest.raises(KeyError):
        ranges.remove(b"a", end, "x")
    ranges.add(b"a", end, "y")
    with pytest.raises(KeyError):
        ranges.remove(b"a", end, "x")
    assert matched(ranges, b"a") == ["y"]


KEY = st.binary(max_size=2)
SPAN = st.one_of(
    st.tuples(KEY, st.none()),
    st.tuples(KEY, st.just(b"")),
    st.tuples(KEY, KEY).filter(lambda span: span[0] < span[1]),
)


@given(st.lists(SPAN, max_size=30), st.data())
def test_matches_are_those_of_testing_all(
    spans: list[tuple[bytes, bytes | None]], data: st.DataObject
) -> None:
    ranges: Ranges[str] = Ranges()
    there = {}
    for number, (start, end) in enumerate(spans):
        ranges.add(start, end, str(number))
        there[str(number)] = (start, end)
    for name in data.draw(
        st.lists(st.sampled_from(sorted(there)), unique=True) if there else st.just([])
    ):
        ranges.remove(*there.pop(name), name)
    for key in data.draw(st.lists(KEY, max_size=10)):
        assert matched(ranges, key) == look_at_all(there, key)


def look_at_all(there: dict[str, tuple[bytes, bytes | None]], key: bytes) -> list[str]:
    return sorted(
        name
        for name, (start, end) in there.items()
        if (key == start if end is None else start <= key and (not end or key < end))
    )


def test_thousands_of_ranges_over_many_blocks() -> None:
    rng = random.Random(7)
    ranges: Ranges[str] = Ranges()
    there: dict[str, tuple[bytes, bytes | None]] = {}
    for number in range(4000):
        start, end = sorted((rng.randbytes(3), rng.randbytes(3)))
        if number % 10:  # most are short, as prefixes are
            end = start + b"\xff"
        if start < end:
            ranges.add(start, end, str(number))
            there[str(number)] = (start, end)
    for name in rng.sample(sorted(there), 3000):
        ranges.remove(*there.pop(name), name)
        if len(there) % 100 == 0:
            key = rng.randbytes(4)
            assert matched(ranges, key) == look_at_all(there, key)
    for name, span in there.items():
        assert name in matched(ranges, span[0])
    for name in list(there):
        ranges.remove(*there.pop(name), name)
    assert ranges._blocks == ranges._firsts == ranges._greatest_ends == []
