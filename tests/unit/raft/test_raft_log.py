"""The log of one member: its indexes, its limits, and its invariants."""

import pytest

from kvstore.raft.log import ENTRY_OVERHEAD_BYTES, Log
from kvstore.raft.model import ConfState, Entry, EntryType, RaftError, Snapshot, SnapshotMetadata


def entries(first: int, *terms: int, data: bytes = b"") -> list[Entry]:
    return [Entry(EntryType.NORMAL, term, index, data) for index, term in enumerate(terms, first)]


def log_of(*terms: int) -> Log:
    log = Log()
    log.append(entries(1, *terms))
    return log


def test_terms_are_known_from_the_offset_on() -> None:
    """The entry before the first is known by its term: appends are checked against it."""
    log = Log(offset=3, offset_term=2)
    log.append(entries(4, 2, 5))
    assert [log.term_at(index) for index in range(2, 7)] == [None, 2, 2, 5, None]
    assert (log.first_index, log.last_index, log.last_term) == (4, 5, 5)
    assert Log(offset=3, offset_term=2).last_term == 2


@pytest.mark.parametrize(
    ("index", "term", "expected"),
    [(3, 2, True), (2, 2, False), (9, 1, False), (1, 3, True), (4, 2, True)],
)
def test_up_to_date(index: int, term: int, expected: bool) -> None:  # noqa: FBT001
    """The log with the later last term is more up-to-date; in one term, the longer (Raft 5.4.1)."""
    assert log_of(1, 1, 2).is_up_to_date(index, term) is expected


def test_bounded_gives_at_least_one() -> None:
    """A limit cuts a run of entries, but never down to nothing."""
    log = Log()
    log.append(entries(1, 1, 1, 1, data=bytes(10)))
    size = 10 + ENTRY_OVERHEAD_BYTES
    assert len(log.bounded(1, 3, 2 * size)) == 2
    assert len(log.bounded(1, 3, 2 * size - 1)) == 1
    assert len(log.bounded(1, 3, 1)) == 1
    assert [entry.index for entry in log.bounded(2, 3, 1 << 20)] == [2, 3]
    assert log.bounded(4, 3, 1) == []


def test_conflict_is_the_first_that_differs() -> None:
    """Only entries that conflict are replaced: a late append must not cut what followed it."""
    log = log_of(1, 1, 2, 2)
    assert log.find_conflict(entries(1, 1, 1, 2)) == 3
    assert log.find_conflict(entries(2, 1, 2, 2, 2)) == 3
    assert log.find_conflict(entries(2, 1, 3)) == 1
    assert log.find_conflict(entries(5, 2)) == 0
    log.offset, log.offset_term = 2, 1
    log.entries = log.entries[2:]
    assert log.find_conflict(entries(1, 1, 1, 2)) == 3


def test_committed_entries_are_never_replaced() -> None:
    """What is committed stays (Raft 5.4): replacing it, or leaving a gap, is refused."""
    log = log_of(1, 1, 2)
    log.commit_to(2)
    with pytest.raises(RaftError, match="entries from 2 on cannot follow committed 2"):
        log.replace_from(entries(2, 3))
    with pytest.raises(RaftError, match="entries from 5 on"):
        log.replace_from(entries(5, 3))
    log.replace_from(entries(3, 3, 3))
    assert [log.term_at(index) for index in range(1, 5)] == [1, 1, 3, 3]


def test_replaced_entries_are_saved_again() -> None:
    """stable never covers an entry that is not the one on disk."""
    log = log_of(1, 1, 1)
    log.saved(3, 1)
    assert log.unstable() == []
    log.replace_from(entries(2, 2, 2))
    assert log.stable == 1
    log.saved(3, 1)  # reports an older save
    assert log.stable == 1
    assert log.unstable() == entries(2, 2, 2)


def test_nothing_unsaved_is_applied() -> None:
    """An entry a quorum has committed is applied here only once it is saved here."""
    log = log_of(1, 1, 1)
    log.commit_to(3)
    log.saved(2, 1)
    assert log.applicable_index == 2
    with pytest.raises(RaftError, match="applied 4 is not between 0 and committed 3"):
        log.applied_to(4)
    log.applied_to(2)
    assert log.applied_term == 1
    with pytest.raises(RaftError):
        log.applied_to(1)


def test_commit_never_falls_and_never_leads() -> None:
    """The commit index only grows, and not beyond the log."""
    log = log_of(1, 1)
    assert log.commit_to(2)
    assert not log.commit_to(1)
    assert log.committed == 2
    with pytest.raises(RaftError, match="cannot commit 3: the log ends at 2"):
        log.commit_to(3)


@pytest.mark.parametrize(
    ("terms", "index", "term", "expected"),
    [
        ((1, 3, 3, 3, 5, 5, 5, 5, 5), 6, 2, (1, 1)),
        ((1, 3, 3, 4, 4, 5, 5, 5, 6), 8, 3, (3, 3)),
        ((1, 1), 2, 5, (2, 1)),
        ((4, 4), 2, 3, (0, 0)),
        ((), 0, 3, (0, 0)),
    ],
)
def test_conflict_hint(
    terms: tuple[int, ...], index: int, term: int, expected: tuple[int, int]
) -> None:
    """Terms only grow along a log, so all entries of greater terms can be skipped at once
    (Raft 5.3, the optimization of its last paragraph).
    """
    assert log_of(*terms).conflict_hint(index, term) == expected


def test_conflict_hint_stops_at_what_is_compacted() -> None:
    """Where the log is no longer known it may agree: the term is then 0."""
    log = Log(offset=5, offset_term=4)
    assert log.conflict_hint(5, 3) == (4, 0)


def test_restore_waits_to_be_applied() -> None:
    """A received snapshot replaces the whole log, and nothing is applied before it is."""
    log = log_of(1, 1, 1)
    log.saved(3, 1)
    log.commit_to(2)
    log.applied_to(1)
    snapshot = Snapshot(SnapshotMetadata(ConfState((1,)), 10, 4))
    log.restore(snapshot)
    assert (log.first_index, log.last_index, log.committed, log.applied) == (11, 10, 10, 1)
    assert log.applicable_index == 1
    log.append(entries(11, 4))
    log.commit_to(11)
    assert log.applicable_index == 1
    log.saved(11, 4)
    log.snapshot_applied(snapshot)
    assert (log.applied, log.applied_term) == (10, 4)
    assert log.applicable_index == 11


def test_compaction_is_bounded_by_what_is_applied_and_saved() -> None:
    """Only what is applied can be forgotten, and its last term stays known."""
    log = log_of(1, 2, 2)
    log.commit_to(3)
    log.saved(3, 2)
    log.applied_to(2)
    with pytest.raises(RaftError, match="cannot compact to 3: only 2"):
        log.compact(3)
    assert log.compact(2) == 0
    assert log.compact(1) == 0
    assert (log.offset, log.offset_term, log.entries) == (2, 2, entries(3, 2))


def test_compaction_may_be_bounded_by_bytes() -> None:
    """To free many large entries at once takes long."""
    log = Log()
    log.append([Entry(0, term, index, bytes(100)) for index, term in enumerate((1, 1, 2, 3, 3), 1)])
    log.commit_to(5)
    log.saved(5, 3)
    log.applied_to(5)
    assert log.compact(4, 250) == 300
    assert (log.offset, log.offset_term, len(log.entries)) == (3, 2, 2)
    assert log.compact(5, 100) == 100
    assert log.compact(5, 100) == 100
    assert (log.offset, log.offset_term, log.entries) == (5, 3, [])


def test_conf_changes_are_found_between_applied_and_committed() -> None:
    """A member does not campaign while a change of members waits to be applied."""
    log = Log()
    log.append([Entry(EntryType.CONF_CHANGE, 1, 1, b""), *entries(2, 1)])
    assert not log.has_unapplied_conf_change()
    log.commit_to(2)
    assert log.has_unapplied_conf_change()
    log.saved(2, 1)
    log.applied_to(1)
    assert not log.has_unapplied_conf_change()
