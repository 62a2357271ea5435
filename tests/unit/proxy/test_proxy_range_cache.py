"""What the proxy keeps of reads, held against a plain model: nothing older than a write."""

from hypothesis import given
from hypothesis import strategies as st

from kvstore.proxy.range_cache import RangeCache

NOBODY = ""
KEYS = [bytes([each]) for each in b"abcd"]
ENDS = [b"", b"\0", b"b", b"c", b"e"]


def keep(cache: RangeCache, name: bytes, start: bytes, end: bytes, revision: int = 0) -> None:
    cache.keep(cache.begin((NOBODY, name), (start, end), revision), b"answer of " + name)


def has(cache: RangeCache, name: bytes) -> bool:
    found = cache.get((NOBODY, name))
    assert found in {None, b"answer of " + name}
    return found is not None


def covers(start: bytes, end: bytes, key: bytes) -> bool:
    if not end:
        return key == start
    return key >= start and (end == b"\0" or key < end)


def is_empty(start: bytes, end: bytes) -> bool:
    return bool(end) and end != b"\0" and end <= start


@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(ENDS)), max_size=8),
    st.tuples(st.sampled_from(KEYS), st.sampled_from(ENDS)),
)
def test_a_write_takes_what_it_meets_and_nothing_else(
    reads: list[tuple[bytes, bytes]], write: tuple[bytes, bytes]
) -> None:
    cache = RangeCache()
    points = [each + tail for each in (b"", *KEYS, b"e") for tail in (b"", b"\0", b"x")]
    for number, (start, end) in enumerate(reads):
        keep(cache, b"%d" % number, start, end)
    cache.invalidate(write)
    for number, (start, end) in enumerate(reads):
        shared = any(covers(start, end, each) and covers(*write, each) for each in points)
        if shared:
            assert not has(cache, b"%d" % number)
        elif not is_empty(start, end) and not is_empty(*write):
            assert has(cache, b"%d" % number)


def test_a_read_under_way_while_its_key_is_written_is_not_kept() -> None:
    cache = RangeCache()
    reading = cache.begin((NOBODY, b"r"), (b"a", b"c"), 0)
    other = cache.begin((NOBODY, b"o"), (b"x", b""), 0)
    cache.invalidate((b"b", b""))
    cache.keep(reading, b"old")
    cache.keep(other, b"answer of o")
    assert not has(cache, b"r")
    assert has(cache, b"o")


def test_one_user_is_not_given_what_another_read() -> None:
    cache = RangeCache()
    cache.keep(cache.begin(("ann", b"r"), (b"a", b""), 0), b"hers")
    assert cache.get(("bob", b"r")) is None
    assert cache.get(("ann", b"r")) == b"hers"


def test_reads_at_a_revision_outlive_writes_but_not_compactions() -> None:
    cache = RangeCache()
    keep(cache, b"5", b"a", b"", 5)
    cache.invalidate((b"a", b""))
    assert has(cache, b"5")
    cache.compact(7)
    keep(cache, b"6", b"a", b"", 6)
    assert not has(cache, b"6")
    assert cache.compacted == 7


def test_the_least_recently_used_go_first() -> None:
    cache = RangeCache(entries_max=2)
    for name in (b"1", b"2"):
        keep(cache, name, name, b"")
    assert has(cache, b"1")
    keep(cache, b"3", b"3", b"")
    assert [has(cache, each) for each in (b"1", b"2", b"3")] == [True, False, True]
    assert len(cache) == 2
    small = RangeCache(bytes_max=25)
    for name in (b"1", b"2", b"3"):
        keep(small, name, name, b"\0")
    assert [has(small, each) for each in (b"1", b"2", b"3")] == [False, True, True]
