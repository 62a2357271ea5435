"""Rates, durations and sizes of the status page."""

import pytest

from kvstore.server.ui.history import SAMPLES_MAX, History, Sample, percentile_ms
from kvstore.server.ui.prefix_sizes import ROUNDS_MAX, PrefixSizes

BOUNDS = (0.001, 0.002, 0.004)


def sample(at_ms: int, puts: int, syncs: list[int] | None = None) -> Sample:
    return Sample(at_ms, {"puts": puts}, syncs or [0, 0, 0, 0], [0, 0, 0, 0], 100, 80)


def test_rates_are_differences_by_time() -> None:
    history = History()
    assert history.rates() == {}
    assert history.ages_s() == history.db_bytes() == []
    for at_ms, puts in ((0, 10), (1000, 20), (6000, 20), (8000, 70)):
        history.add(sample(at_ms, puts))
    assert history.rates() == {"puts": [10.0, 0.0, 25.0]}
    assert history.ages_s() == [7.0, 2.0, 0.0]
    assert history.db_bytes() == [100, 100, 100]


def test_history_is_bounded() -> None:
    history = History()
    for number in range(3 * SAMPLES_MAX):
        history.add(sample(number * 1000, number))
    assert len(history.ages_s()) == SAMPLES_MAX - 1


def test_durations_are_those_of_the_last_minute() -> None:
    history = History()
    assert history.sync_ms(BOUNDS) == {"p50": None, "p99": None}
    history.add(sample(0, 0, [0, 0, 0, 0]))
    history.add(sample(100_000, 0, [0, 0, 500, 0]))
    history.add(sample(150_000, 0, [100, 0, 500, 0]))
    assert history.sync_ms(BOUNDS) == {"p50": 0.5, "p99": 0.99}


@pytest.mark.parametrize(
    ("counts", "share", "found_ms"),
    [
        ([0, 0, 0, 0], 0.5, None),
        ([10, 0, 0, 0], 0.5, 0.5),
        ([0, 10, 0, 0], 1.0, 2.0),
        ([5, 0, 5, 0], 0.75, 3.0),
        ([0, 0, 0, 3], 0.99, 4.0),
    ],
)
def test_percentiles(counts: list[int], share: float, found_ms: float | None) -> None:
    assert percentile_ms(counts, BOUNDS, share) == found_ms


def test_sizes_are_scaled_to_all_keys() -> None:
    sizes = PrefixSizes()
    assert sizes.top(5, 1000) == []
    sizes.add([(b"/a/b/%d" % number, 100) for number in range(3)] + [(b"/a/c/x", 700)])
    (first, second) = sizes.top(5, 4000)
    assert first == (b"/a/c/", 1000, 700_000)
    assert second == (b"/a/b/", 3000, 300_000)
    assert sizes.top(1, 4000) == [first]


def test_old_rounds_are_forgotten() -> None:
    sizes = PrefixSizes()
    sizes.add([(b"/old/x/1", 1)])
    offsets = {sizes.next_offset() for _ in range(ROUNDS_MAX)}
    assert len(offsets) == ROUNDS_MAX
    for _ in range(ROUNDS_MAX):
        sizes.add([(b"/new/x/1", 1)])
    assert [each.prefix for each in sizes.top(5, 10)] == [b"/new/x/"]
