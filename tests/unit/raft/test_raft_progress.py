"""What a leader knows of a follower: probe, replicate, snapshot, and the window."""

import pytest

from kvstore.raft.model import RaftError
from kvstore.raft.progress import Progress, ProgressKind


def test_probe_sends_one_at_a_time() -> None:
    """While match is a guess one append is out at a time; its answer lets the next go."""
    progress = Progress(match=0, next=5, window=3)
    progress.sent_entries(0)
    assert not progress.is_paused
    progress.sent_entries(2)
    assert progress.is_paused
    assert progress.next == 5
    assert progress.acknowledged(6)
    assert not progress.is_paused
    assert (progress.match, progress.next) == (6, 7)


def test_replicate_streams_up_to_the_window() -> None:
    """Appends run ahead of the answers, a window of them, freed in order."""
    progress = Progress(match=4, next=5, window=2)
    progress.become_replicate()
    progress.sent_entries(3)
    assert progress.next == 8
    assert not progress.is_paused
    progress.sent_entries(1)
    assert progress.is_paused
    progress.free_inflight(6)
    assert progress.is_window_full
    progress.free_inflight(7)
    assert not progress.is_window_full
    progress.sent_entries(0)
    assert not progress.is_paused


def test_old_responses_change_nothing() -> None:
    """Answers come late and twice; match only grows."""
    progress = Progress(match=4, next=9, window=2)
    progress.become_replicate()
    assert not progress.acknowledged(4)
    assert not progress.rejected(4, 2)
    progress.become_probe()
    assert not progress.rejected(7, 2)
    assert (progress.match, progress.next) == (4, 5)


@pytest.mark.parametrize(
    ("hint", "expected"), [(9, 9), (6, 7), (3, 4), (0, 3)], ids=["none", "ends", "differs", "match"]
)
def test_rejected_probe_steps_back_to_the_hint(hint: int, expected: int) -> None:
    """The next try is after the hint, below the refused, never below what is known."""
    progress = Progress(match=2, next=10, window=2)
    progress.sent_entries(1)
    assert progress.rejected(9, hint)
    assert progress.next == expected
    assert not progress.is_paused


def test_rejected_stream_starts_over_at_match() -> None:
    """In replicate state match is certain: what followed was lost."""
    progress = Progress(match=2, next=3, window=2)
    progress.become_replicate()
    progress.sent_entries(5)
    assert progress.rejected(7, 5)
    assert progress.next == 3


def test_snapshot_pauses_until_reported() -> None:
    """After a snapshot appends start after it, or, if it failed, after match."""
    progress = Progress(match=2, next=3, window=2)
    progress.become_snapshot(10)
    assert progress.is_paused
    with pytest.raises(RaftError, match="SNAPSHOT"):
        progress.sent_entries(1)
    progress.become_probe()
    assert (progress.kind, progress.next) == (ProgressKind.PROBE, 11)
    progress.become_snapshot(20)
    progress.pending_snapshot = 0
    progress.become_probe()
    assert progress.next == 3


def test_the_commit_index_is_sent_once() -> None:
    """An empty append for the commit index alone goes out only if it can move anything."""
    progress = Progress(match=5, next=6, window=2)
    progress.become_replicate()
    assert progress.can_bump_commit(5)
    progress.sent_commit = 5
    assert not progress.can_bump_commit(5)
    assert not progress.can_bump_commit(9)  # the follower has nothing beyond 5 to commit
