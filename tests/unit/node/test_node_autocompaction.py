"""When automatic compaction happens, and at which revision."""

from itertools import pairwise

import pytest

from kvstore.node.maintenance.autocompaction import (
    AutoCompaction,
    Periodic,
    Revisions,
    auto_compaction,
)

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS


def _run(
    compaction: AutoCompaction, hours: float, step_ns: int, *, leads: bool = True
) -> list[tuple[int, int]]:
    """One revision a second; return (second, revision) of every compaction, all of which happen."""
    done, compacted, now_ns = [], 0, 0
    while now_ns <= hours * HOUR_NS:
        asked = compaction.step(now_ns, now_ns // SECOND_NS + 1, compacted, leads=leads)
        if asked:
            done.append((now_ns // SECOND_NS, asked))
            compacted = asked
        now_ns += step_ns
    return done


def test_a_short_period_compacts_once_a_period() -> None:
    done = _run(Periodic(600 * SECOND_NS, 0), 1, SECOND_NS)
    assert [second for second, _ in done] == [600, 1200, 1800, 2400, 3000, 3600]
    # One sample more than the period has is kept, so that never less than the period is.
    assert [revision for _, revision in done] == [1, 541, 1141, 1741, 2341, 2941]


def test_a_long_period_waits_for_it_once_and_then_compacts_every_hour() -> None:
    done = _run(Periodic(5 * HOUR_NS, 0), 8, 60 * SECOND_NS)
    assert [second / 3600 for second, _ in done] == [5, 6, 7, 8]
    assert [second - revision + 1 for second, revision in done] == [18000, 18360, 18360, 18360]


def test_a_member_that_does_not_lead_samples_all_the_same() -> None:
    compaction = Periodic(600 * SECOND_NS, 0)
    assert _run(compaction, 1, SECOND_NS, leads=False) == []
    assert compaction.step(3660 * SECOND_NS, 3661, 0, leads=True) == 3001


def test_an_idle_store_is_not_compacted_twice_at_one_revision() -> None:
    compaction = Periodic(10 * SECOND_NS, 0)
    asked = [compaction.step(s * SECOND_NS, 7, 7 if s > 10 else 0, leads=True) for s in range(60)]
    assert [s for s, revision in enumerate(asked) if revision] == [10]


def test_a_lost_compaction_is_requested_again_at_the_next_sample() -> None:
    compaction = Periodic(600 * SECOND_NS, 0)
    asked = [s for s in range(800) if compaction.step(s * SECOND_NS, s + 1, 0, leads=True)]
    assert asked == [600, 660, 720, 780]


def test_a_number_of_revisions_is_kept() -> None:
    done = _run(Revisions(100, 0), 0.5, SECOND_NS)
    assert [second for second, _ in done] == [300, 600, 900, 1200, 1500, 1800]
    assert all(revision == second + 1 - 100 for second, revision in done)
    assert all(later > earlier for (_, earlier), (_, later) in pairwise(done))


def test_too_few_revisions_are_not_compacted() -> None:
    compaction = Revisions(1000, 0)
    assert compaction.step(300 * SECOND_NS, 1000, 0, leads=True) == 0
    assert compaction.step(600 * SECOND_NS, 1005, 0, leads=True) == 5


@pytest.mark.parametrize(("mode", "retention"), [("periodic", 0), ("revision", 0)])
def test_zero_is_off(mode: str, retention: int) -> None:
    compaction = auto_compaction(mode, retention, 0)
    assert compaction.next_ns is None
    assert compaction.step(10**18, 10**6, 0, leads=True) == 0


def test_the_mode_decides() -> None:
    assert isinstance(auto_compaction("revision", 5, 0), Revisions)
    assert isinstance(auto_compaction("periodic", 5, 0), Periodic)
