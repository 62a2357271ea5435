"""What a node counts: batches, samples, and how often it may warn."""

import pytest

from kvstore.mvcc.event import PUT, Event
from kvstore.node.metering.counters import Counters, prefix_of
from kvstore.node.metering.heavy_hitters import HeavyHitters
from kvstore.node.metering.rate_limiter import INTERVAL_NS, LINES_MAX, RateLimiter
from kvstore.wire.internal import Field

MS = 1_000_000


def test_a_batch_shares_its_time_among_requests_not_timed_alone() -> None:
    counters = Counters(slow_apply_ns=100 * MS)
    assert not counters.note_applied(Field.TXN, succeeded=True, took_ns=4 * MS)
    counters.note_in_batch(Field.PUT, succeeded=False)
    assert not counters.note_batch(10 * MS, 2, Field.PUT)
    assert counters.applied[Field.TXN, True].total == pytest.approx(0.004)
    assert counters.applied[Field.PUT, True].total == pytest.approx(2 * 0.002)
    assert counters.applied[Field.PUT, False].total == pytest.approx(0.002)
    assert counters.apply_ns == 10 * MS
    counters.note_batch(1 * MS, 1, Field.PUT)  # nothing of the last batch is left
    assert counters.applied[Field.PUT, True].total == pytest.approx(2 * 0.002 + 0.001)


def test_slow_applies() -> None:
    counters = Counters(slow_apply_ns=100 * MS)
    assert counters.note_applied(Field.TXN, succeeded=True, took_ns=101 * MS)
    assert not counters.note_batch(102 * MS, 1, Field.PUT)  # the rest of it was quick
    assert counters.note_batch(102 * MS, 1, Field.PUT)
    assert counters.slow_applies == 2


def test_reads_share_their_time() -> None:
    counters = Counters()
    counters.ranges, counters.refused_ranges = 14, 3
    counters.note_reads(8 * MS, 10, 2)
    assert counters.range_seconds[True].total == pytest.approx(0.006)
    assert counters.range_seconds[False].total == pytest.approx(0.002)
    counters.note_reads(1 * MS, 14, 3)  # reads that were no ranges
    assert counters.read_ns == 9 * MS
    assert sum(counters.range_seconds[True].counts) == 3


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
    counters = Counters()
    events = [
        Event(PUT, b"/%d/x/y" % (number % 4 == 0), b"", 1, number, None) for number in range(100)
    ]
    for _ in range(2000):
        counters.note_events(events)
    assert counters.events == counters.written.total == 200_000
    top = dict(counters.written.top(2))
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


def test_rate_limiter() -> None:
    rate_limiter = RateLimiter()
    said = [rate_limiter.admit("a", 5) for _ in range(LINES_MAX + 3)]
    assert said == [0] * LINES_MAX + [None] * 3
    assert rate_limiter.admit("b", 5) == 0
    assert rate_limiter.admit("a", 5 + INTERVAL_NS - 1) is None
    assert rate_limiter.admit("a", 5 + INTERVAL_NS) == 4
    assert rate_limiter.admit("a", 5 + INTERVAL_NS) == 0
