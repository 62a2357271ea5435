"""What a node counts: batches, samples, and how often it may warn."""

import pytest

from kvstore.mvcc.event import PUT, Event
from kvstore.node.metering.counters import Figures, prefix_of
from kvstore.node.metering.heavy_hitters import HeavyHitters
from kvstore.node.metering.rate_limiter import INTERVAL_NS, LINES_MAX, Moderation
from kvstore.wire.internal import Field

MS = 1_000_000


def test_a_batch_shares_its_time_among_those_not_timed_alone() -> None:
    figures = Figures(slow_apply_ns=100 * MS)
    assert not figures.note_applied(Field.TXN, went_well=True, took_ns=4 * MS)
    figures.note_in_batch(Field.PUT, went_well=False)
    assert not figures.note_batch(10 * MS, 2, Field.PUT)
    assert figures.applied[Field.TXN, True].total == pytest.approx(0.004)
    assert figures.applied[Field.PUT, True].total == pytest.approx(2 * 0.002)
    assert figures.applied[Field.PUT, False].total == pytest.approx(0.002)
    assert figures.apply_ns == 10 * MS
    figures.note_batch(1 * MS, 1, Field.PUT)  # nothing of the last batch is left
    assert figures.applied[Field.PUT, True].total == pytest.approx(2 * 0.002 + 0.001)


def test_slow_applies() -> None:
    figures = Figures(slow_apply_ns=100 * MS)
    assert figures.note_applied(Field.TXN, went_well=True, took_ns=101 * MS)
    assert not figures.note_batch(102 * MS, 1, Field.PUT)  # the rest of it was quick
    assert figures.note_batch(102 * MS, 1, Field.PUT)
    assert figures.slow_applies == 2


def test_reads_share_their_time() -> None:
    figures = Figures()
    figures.ranges, figures.refused_ranges = 14, 3
    figures.note_reads(8 * MS, 10, 2)
    assert figures.range_seconds[True].total == pytest.approx(0.006)
    assert figures.range_seconds[False].total == pytest.approx(0.002)
    figures.note_reads(1 * MS, 14, 3)  # reads that were no ranges
    assert figures.read_ns == 9 * MS
    assert sum(figures.range_seconds[True].counts) == 3


@pytest.mark.parametrize(
    ("key", "prefix"),
    [
        (b"/registry/pods/default/a", b"/registry/pods/"),
        (b"/registry/pods", b"/registry/"),
        (b"/registry", b"/registr"),
        (b"app/config/x", b"app/config/"),
        (b"app/config", b"app/"),
        (b"user:0000001", b"user:"),
        (b"0123456789", b"01234567"),
        (b"/", b"/"),
        (b"//x", b"//"),
        (b"\xff\x00", b"\xff\x00"),
    ],
)
def test_prefixes(key: bytes, prefix: bytes) -> None:
    assert prefix_of(key) == prefix


def test_samples_of_a_turn_stand_for_all_of_it() -> None:
    figures = Figures()
    events = [
        Event(PUT, b"/%d/x/y" % (number % 4 == 0), b"", 1, number, None) for number in range(100)
    ]
    for _ in range(2000):
        figures.note_events(events)
    assert figures.events == figures.written.total == 200_000
    top = dict(figures.written.top(2))
    assert top[b"/0/x/"] == pytest.approx(150_000, rel=0.05)
    assert top[b"/1/x/"] == pytest.approx(50_000, rel=0.05)


def test_heavy_hitters_keep_the_frequent_and_never_count_too_little() -> None:
    counted = HeavyHitters(8)
    true = {b"big": 0, b"middle": 0}
    for number in range(10_000):
        counted.add(b"%d" % number, 1)
        if number % 2 == 0:
            counted.add(b"big", 3)
            true[b"big"] += 3
        if number % 4 == 0:
            counted.add(b"middle", 4)
            true[b"middle"] += 4
    top = counted.top(8)
    assert len(top) == 8
    assert [key for key, _ in top[:2]] == [b"big", b"middle"]
    assert sum(count for _, count in top) == counted.total == 35_000
    for key, count in true.items():
        assert count <= dict(top)[key] <= count + counted.total / 8


def test_moderation() -> None:
    moderation = Moderation()
    said = [moderation.admit("a", 5) for _ in range(LINES_MAX + 3)]
    assert said == [0] * LINES_MAX + [None] * 3
    assert moderation.admit("b", 5) == 0
    assert moderation.admit("a", 5 + INTERVAL_NS - 1) is None
    assert moderation.admit("a", 5 + INTERVAL_NS) == 4
    assert moderation.admit("a", 5 + INTERVAL_NS) == 0
