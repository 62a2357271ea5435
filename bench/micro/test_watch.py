"""What it costs to tell watchers: the fan-out, and finding who is meant.

`pytest bench/micro/test_watch.py` prints the table; inside the whole test run each body runs once.
"""

import random
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstore.batch import AnyDelivery
from kvstore.watch.hub import Hub
from kvstore.watch.ranges import Ranges
from kvstore.watch.stream import WatchLimits
from tests.support.models.watch_history import MemoryHistory, create, header_of


def fan_out(revisions: int) -> Callable[[], object]:
    """One turn's puts of one key, 256 B, to 10 streams of 100 watchers."""
    store = MemoryHistory()
    hub = Hub(store, header_of, WatchLimits(backlog_high_bytes=1 << 60), random.Random(1))
    out = list[AnyDelivery]()
    for stream_id in range(10):
        hub.open(stream_id, 0)
        for _ in range(100):
            hub.request(stream_id, create(key=b"key"), 0, out)

    def turn() -> None:
        events = [each for _ in range(revisions) for each in store.put(b"key", b"x" * 256)]
        out.clear()
        hub.publish(events, out)
        hub.step(0, {}, 1000, 1 << 20, out)

    return turn


def match(range_count: int) -> Callable[[], object]:
    """A key among distinct prefixes and 100 000 single keys."""
    ranges: Ranges[int] = Ranges()
    for number in range(range_count):
        prefix = b"/registry/%05d" % number
        ranges.add(prefix + b"/", prefix + b"0", number)
    for number in range(100_000):
        ranges.add(b"/registry/%05d/key" % number, None, range_count + number)
    return lambda: ranges.match(b"/registry/05000/key")


BODIES: dict[str, Callable[[], Callable[[], object]]] = {
    "fan-out to 1000, 1 revision": lambda: fan_out(1),
    "fan-out to 1000, 10 revisions": lambda: fan_out(10),
    "match among 100 ranges": lambda: match(100),
    "match among 10 000 ranges": lambda: match(10_000),
}


@pytest.mark.parametrize("name", BODIES)
def test_cost(name: str, benchmark: BenchmarkFixture) -> None:
    benchmark.pedantic(BODIES[name](), rounds=10, iterations=100, warmup_rounds=1)
