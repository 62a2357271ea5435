"""What counting costs: the calls of a turn, the usual one and one whose replies come later.

pytest bench/micro/test_metrics.py --benchmark-only
"""

from itertools import count

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstore.batch import Inbox, Outbox
from kvstore.server.metrics.calls import CallCounters, SlowCalls, columns_of
from kvstore.wire import rpc

CALLS = 500
STAGES = (0, 0, 0, 0)


def _refuse_slow_calls(slow: SlowCalls) -> None:
    raise AssertionError(slow)


@pytest.mark.parametrize("late_turns", [0, 2])
def test_count_puts(benchmark: BenchmarkFixture, late_turns: int) -> None:
    calls = CallCounters(10**18, _refuse_slow_calls)
    firsts = count(1, CALLS)
    waiting: list[list[tuple[int, int, bytes]]] = []

    def turn() -> None:
        first = next(firsts)
        ids = range(first, first + CALLS)
        inbox = Inbox(calls=[(each, rpc.PUT, b"x" * 270) for each in ids])
        waiting.append([(each, 0, b"x" * 28) for each in ids])
        replies = waiting.pop(0) if len(waiting) > late_turns else []
        out = Outbox(replies=replies)
        begin(inbox, out)

    def begin(inbox: Inbox, out: Outbox) -> None:
        calls.count_arrivals(columns_of(inbox), 1, STAGES)
        calls.count_answers(out, 2)

    benchmark(turn)
    assert calls.open_calls == len(waiting) * CALLS


@pytest.mark.parametrize("streams", ["watches", "mixed"])
def test_count_deliveries(benchmark: BenchmarkFixture, streams: str) -> None:
    calls = CallCounters(10**18, _refuse_slow_calls)
    opened = [(1, rpc.WATCH)]
    if streams == "mixed":
        opened.append((2, rpc.LEASE_KEEP_ALIVE))
    calls.count_arrivals(columns_of(Inbox(opened=opened)), 1, STAGES)
    out = Outbox(deliveries=[(1, b"x" * 20, b"y" * 300)] * 1000)
    benchmark(calls.count_answers, out, 2)
    assert calls.sent[rpc.WATCH] % 1000 == 0
