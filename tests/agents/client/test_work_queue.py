"""The queue of keys: each once, never twice at the same time; and how long failed ones wait."""

import asyncio
import sys

import pytest

from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.rate_limiter import TokenBucket
from kvstack.agents.client.work_queue import QueueClosedError, WorkQueue
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock


def waiting(*script: str) -> list[str]:
    """Carry out lines such as `after a 2`; return the keys that `get` gave, in order."""

    async def body() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(SimClock())
        given: list[str] = []
        for line in script:
            verb, *rest = line.split()
            if verb == "add":
                queue.add(rest[0])
            elif verb == "done":
                queue.done(rest[0])
            elif verb == "after":
                queue.add_after(rest[0], float(rest[1]))
            elif verb == "sleep":
                await asyncio.sleep(float(rest[0]))
            elif len(queue):
                given.append(await queue.get())
            else:
                given.append("")
        queue.close()
        return given

    return run(body())


@pytest.mark.parametrize(
    ("script", "given"),
    [
        (["add a", "add b", "get", "get"], ["a", "b"]),
        (["add a", "add a", "get", "get"], ["a", ""]),
        # Added while it is worked on: once more afterwards, and only once.
        (
            ["add a", "get", "add a", "add a", "get", "done a", "get", "done a", "get"],
            ["a", "", "a", ""],
        ),
        # It goes behind those that wait.
        (["add a", "get", "add b", "add a", "done a", "get", "get"], ["a", "b", "a"]),
        # The earlier of several times wins.
        (["after a 2", "after a 1", "sleep 1.1", "get", "done a", "sleep 2", "get"], ["a", ""]),
        (["after a 1", "after a 2", "sleep 1.1", "get", "done a", "sleep 2", "get"], ["a", ""]),
        (["after a 2", "sleep 1", "get", "sleep 1.1", "get"], ["", "a"]),
        (["after a 0", "get"], ["a"]),
        # A time that comes while the key is worked on is not lost.
        (["add a", "get", "after a 1", "sleep 2", "get", "done a", "get"], ["a", "", "a"]),
        (["after a 2", "after b 1", "sleep 3", "get", "get"], ["b", "a"]),
    ],
)
def test_which_key_is_given_out(script: list[str], given: list[str]) -> None:
    assert waiting(*script) == given


def test_a_worker_that_waits_is_woken_by_each_way_in() -> None:
    async def body() -> None:
        queue: WorkQueue[str] = WorkQueue(SimClock(), FailureBackOff(SimClock(), 1.0, 60.0))
        for add in (queue.add, lambda key: queue.add_after(key, 1), queue.add_rate_limited):
            getting = asyncio.ensure_future(queue.get())
            await asyncio.sleep(0)
            add("a")
            assert await asyncio.wait_for(getting, 2) == "a"
            queue.done("a")

    run(body())


def test_a_worker_that_is_cancelled_leaves_its_turn_to_another() -> None:
    async def body() -> None:
        queue: WorkQueue[str] = WorkQueue(SimClock())
        first, second = (asyncio.ensure_future(queue.get()) for _ in range(2))
        await asyncio.sleep(0)
        queue.add("a")
        first.cancel()
        assert await asyncio.wait_for(second, 1) == "a"

    run(body())


def test_a_closed_queue_gives_out_what_waits_and_then_ends() -> None:
    async def body() -> None:
        queue: WorkQueue[str] = WorkQueue(SimClock())
        queue.add("a")
        queue.close()
        queue.add("b")
        queue.add_after("c", 1)
        assert await queue.get() == "a"
        with pytest.raises(QueueClosedError):
            await queue.get()

    run(body())


@pytest.mark.parametrize(
    ("base_s", "max_s", "waits"),
    [
        (0.005, 1000.0, [0.005, 0.01, 0.02, 0.04]),
        (1.0, 60.0, [1, 2, 4, 8, 16, 32, 60, 60]),
        (0.2, 1000.0, [0.2, 0.4, 0.8]),
        (15.0, 15.0, [15, 15, 15]),
    ],
)
def test_each_failure_of_a_key_waits_twice_as_long(
    base_s: float, max_s: float, waits: list[float]
) -> None:
    async def body() -> None:
        back_off = FailureBackOff(SimClock(), base_s, max_s)
        assert [back_off.next_s("a") for _ in waits] == pytest.approx(waits)
        assert back_off.failures("a") == len(waits)
        assert back_off.next_s("b") == pytest.approx(base_s)
        back_off.forget("a")
        assert back_off.failures("a") == 0
        assert back_off.next_s("a") == pytest.approx(base_s)

    run(body())


def test_many_failures_do_not_overflow() -> None:
    async def body() -> None:
        back_off = FailureBackOff(SimClock())
        assert [back_off.next_s("a") for _ in range(2000)][-1] == 1000.0

    run(body())


def test_all_keys_share_a_bucket() -> None:
    async def body() -> None:
        clock = SimClock()
        back_off = FailureBackOff(clock, bucket=TokenBucket(clock, 10.0, 100))
        waits = [back_off.next_s(str(number)) for number in range(103)]
        assert waits[:100] == [0.005] * 100
        assert waits[100:] == pytest.approx([0.1, 0.2, 0.3])

    run(body())


def test_a_queue_that_was_long_holds_little_afterwards() -> None:
    async def main() -> None:
        queue: WorkQueue[int] = WorkQueue(SimClock())
        for key in range(10_000):
            queue.add(key)
        for _ in range(10_000):
            queue.done(await queue.get())
        sets = [each for each in vars(queue).values() if isinstance(each, set)]
        assert sets
        assert max(map(sys.getsizeof, sets)) < 1_000

    run(main())
