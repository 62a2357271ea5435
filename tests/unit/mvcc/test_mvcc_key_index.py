"""Entries of the key index: small for the usual key, whole histories for the rest."""

from array import array

import pytest

from kvstore.mvcc.key_index import SUB_LIMIT, KeyIndex, frozen, newest_at, thawed
from kvstore.mvcc.revision import revision_key


@pytest.fixture
def index() -> KeyIndex:
    """put a 2, put a 3, delete a 5, put a 9: the example of the module."""
    index = KeyIndex()
    index.put(b"a", 2, 0)
    index.put(b"a", 3, 0)
    index.delete(b"a", 5, 0)
    index.put(b"a", 9, 0)
    return index


def test_the_entry_is_laid_out_as_drawn(index: KeyIndex) -> None:
    assert index.live[b"a"] == array("q", (9, 1, 2, 0, 3, 0, 5, 1, 9, 0))
    assert not index.dead


def test_a_key_of_one_revision_is_one_number() -> None:
    index = KeyIndex()
    assert index.put(b"k", 7, 3) == (7, 1, None)
    assert index.live[b"k"] == 7 << 20 | 3
    assert index.current(b"k") == (7, 7, 1, revision_key(7, 3))
    assert index.put(b"k", 8, 1) == (7, 2, revision_key(7, 3))
    assert index.current(b"k") == (7, 8, 2, revision_key(8, 1))


def test_a_sub_revision_beyond_the_number_is_kept_whole() -> None:
    index = KeyIndex()
    index.put(b"k", 7, SUB_LIMIT)
    index.put(b"j", 7, SUB_LIMIT - 1)
    assert index.current(b"k") == (7, 7, 1, revision_key(7, SUB_LIMIT))
    assert index.current(b"j") == (7, 7, 1, revision_key(7, SUB_LIMIT - 1))
    assert index.compact_key(b"k", 7) == revision_key(7, SUB_LIMIT)
    assert index.current(b"k") == (7, 7, 1, revision_key(7, SUB_LIMIT))


def test_a_dead_key_takes_four_bytes_a_number_and_is_the_same(index: KeyIndex) -> None:
    index.delete(b"a", 12, 3)
    history = array("q", (0, 0, 2, 0, 3, 0, 5, 1, 9, 0, 12, 7))
    entry = index.dead[b"a"]
    assert isinstance(entry, bytes)
    assert len(entry) == 4 * (len(history) - 2)
    assert thawed(entry) == history
    index.put(b"a", 15, 0)
    assert index.live[b"a"] == array("q", (15, 1, *history[2:], 15, 0))


@pytest.mark.parametrize("numbers", [(1 << 32, 0, (1 << 32) + 1, 1), (5, 1 << 32, 9, 1)])
def test_a_dead_key_with_numbers_beyond_four_bytes_is_kept_whole(numbers: tuple[int, ...]) -> None:
    history = array("q", (0, 0, *numbers))
    assert frozen(history) is history
    assert thawed(history) is history
    fits = array("q", (0, 0, (1 << 32) - 2, 0, (1 << 32) - 1, 1))
    assert thawed(frozen(fits)) == fits


@pytest.mark.parametrize(
    ("main", "mod"), [(1, None), (2, 2), (3, 3), (4, 3), (5, None), (8, None), (9, 9), (100, 9)]
)
def test_what_a_key_was_at_a_revision(index: KeyIndex, main: int, mod: int | None) -> None:
    assert index.revkey_at(b"a", main) == (None if mod is None else revision_key(mod))


def test_the_newest_record_may_be_a_tombstone(index: KeyIndex) -> None:
    asked = [index.record_at(b"a", main) for main in (1, 4, 5, 8, 9)]
    tombstone = revision_key(5, tombstone=True)
    assert asked == [None, revision_key(3), tombstone, tombstone, revision_key(9)]
    index.put(b"once", 10, 0)
    assert [index.record_at(b"once", main) for main in (9, 10)] == [None, revision_key(10)]
    assert index.record_at(b"never", 10) is None


@pytest.mark.parametrize(
    ("main", "kept", "left"),
    [
        (1, None, (2, 0, 3, 0, 5, 1, 9, 0)),
        (2, revision_key(2), (2, 0, 3, 0, 5, 1, 9, 0)),
        (4, revision_key(3), (3, 0, 5, 1, 9, 0)),
        (5, revision_key(5, tombstone=True), (5, 1, 9, 0)),
        (6, None, None),
        (9, revision_key(9), None),
    ],
)
def test_compaction_keeps_the_newest_unless_an_older_tombstone(
    index: KeyIndex, main: int, kept: bytes | None, left: tuple[int, ...] | None
) -> None:
    for _ in range(2):  # asking again changes nothing
        assert index.compact_key(b"a", main) == kept
        want = 9 << 20 if left is None else array("q", (9, 1, *left))
        assert index.live[b"a"] == want


def test_a_dead_key_goes_with_its_tombstone() -> None:
    index = KeyIndex()
    index.put(b"a", 2, 0)
    index.delete(b"a", 3, 4)
    assert index.current(b"a") is None
    assert index.count(b"", None) == 0
    assert index.count_with_dead(b"", None) == 1
    assert index.compact_key(b"a", 3) == revision_key(3, 4, tombstone=True)
    assert index.compact_key(b"a", 4) is None
    assert index.count_with_dead(b"", None) == 0
    assert not index.dead


def test_versions_survive_a_compaction() -> None:
    index = KeyIndex()
    for main in range(2, 7):
        index.put(b"a", main, 0)
    index.compact_key(b"a", 6)
    assert index.current(b"a") == (2, 6, 5, revision_key(6))
    assert index.put(b"a", 7, 0) == (2, 6, revision_key(6))


def test_the_newest_pair_of_a_long_history() -> None:
    mains = list(range(10, 110, 5))
    history = array("q", (10, 20))
    for main in mains:
        history.extend((main, 0))
    for asked in range(5, 115):
        older = [main for main in mains if main <= asked]
        at = newest_at(history, asked)
        assert (history[at] if at else None) == (older[-1] if older else None)


def test_the_empty_key_of_a_bumped_revision_is_a_key() -> None:
    index = KeyIndex()
    index.restore(b"", 0, 0, 1000, 0)
    index.restored()
    assert index.compact_key(b"", 2000) == revision_key(1000)
    assert index.revkey_at(b"", 1500) == revision_key(1000)
    assert index.keys(b"\0", None) == []
