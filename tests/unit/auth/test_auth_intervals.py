import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstore.auth.intervals import Intervals

ALL = [(b"\0", b"\0")]


@pytest.mark.parametrize(
    ("granted", "key", "end", "covered"),
    [
        ([], b"a", b"", False),
        ([(b"a", b"")], b"a", b"", True),
        ([(b"a", b"")], b"a\0", b"", False),
        ([(b"a", b"")], b"a", b"a\0", True),  # the interval of one key
        ([(b"a", b"")], b"a", b"b", False),
        ([(b"a", b"c")], b"b", b"", True),
        ([(b"a", b"c")], b"c", b"", False),
        ([(b"a", b"c"), (b"c", b"e")], b"b", b"d", True),  # over the seam
        ([(b"a", b"c"), (b"d", b"e")], b"b", b"e", False),
        ([(b"a", b"d"), (b"b", b"c")], b"a", b"d", True),
        ([(b"a", b"c")], b"a", b"\0", False),  # an open range needs an open permission
        ([(b"a", b"\xff")], b"a", b"\0", False),
        ([(b"b", b"\0")], b"b", b"\0", True),
        ([(b"b", b"\0")], b"a", b"\0", False),
        ([(b"b", b"\0")], b"zzz", b"", True),
        (ALL, b"\0", b"\0", True),
        (ALL, b"a", b"", True),
        ([(b"a", b"c")], b"b", b"a", True),  # a range without a key: what etcd's search finds
        ([(b"a", b"c")], b"d", b"a", False),
        ([(b"c", b"\0"), (b"a", b"\0"), (b"b", b"\0")], b"e", b"b", True),
        ([(b"b", b""), (b"c", b""), (b"a", b"\0")], b"d", b"b", False),
        ([(b"", b"\0")], b"a", b"", False),  # rows no etcd would write now
        ([(b"c", b"a")], b"b", b"", False),
    ],
)
def test_a_range_is_covered_if_all_its_keys_are(
    granted: list[tuple[bytes, bytes]], key: bytes, end: bytes, *, covered: bool
) -> None:
    assert Intervals(granted).covers(key, end) is covered


def test_touching_intervals_become_one() -> None:
    granted = [(b"x", b"\0"), (b"c", b"e"), (b"a", b"c"), (b"k", b""), (b"d", b"d\0"), (b"y", b"")]
    assert Intervals(granted).spans() == [(b"a", b"e"), (b"k", b"k\0"), (b"x", None)]


_KEYS = [bytes([each]) for each in range(1, 9)]
_SPAN = st.tuples(st.sampled_from(_KEYS), st.sampled_from([b"", b"\0", *_KEYS]))


def _keys(key: bytes, end: bytes) -> set[bytes]:
    """All keys of a range, as far as a small world has any; b"end" stands for what comes after."""
    if not end:
        return {key}
    inside = {each for each in _KEYS if each >= key and (end == b"\0" or each < end)}
    return inside | ({b"end"} if end == b"\0" else set())


@settings(max_examples=300, derandomize=True, database=None)
@given(st.lists(_SPAN, max_size=5), _SPAN)
def test_it_agrees_with_sets_of_keys(
    granted: list[tuple[bytes, bytes]], asked: tuple[bytes, bytes]
) -> None:
    # Between two keys of the small world lie others: a single key there is all up to the next.
    whole = [(key, end or bytes([key[0] + 1])) for key, end in granted]
    allowed: set[bytes] = set()
    for span in whole:
        allowed |= _keys(*span)
    wanted = _keys(*asked)
    if wanted and all(_keys(*span) for span in whole):
        assert Intervals(whole).covers(*asked) is (wanted <= allowed)


_SPANS = st.lists(_SPAN, max_size=12)


@settings(max_examples=300, derandomize=True, database=None)
@given(_SPANS, _SPAN)
def test_if_all_ranges_contain_keys_etcds_tree_agrees(
    granted: list[tuple[bytes, bytes]], asked: tuple[bytes, bytes]
) -> None:
    def holds_keys(span: tuple[bytes, bytes]) -> bool:
        return not span[1] or span[1] == b"\0" or span[1] > span[0]

    intervals = Intervals([span for span in granted if holds_keys(span)])
    if holds_keys(asked):
        assert intervals._covers_as_etcd(*asked) is intervals.covers(*asked)
