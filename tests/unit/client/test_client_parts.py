"""Small parts of the client: shared questions, time limits of many, endpoints."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kvstack.component.call_deadlines import Deadlines
from kvstack.component.errors import ConfigError
from kvstore.client.endpoints import Endpoint, parse_endpoint
from kvstore.client.errors import ClosedError, UnavailableError
from kvstore.client.question import SharedQuestion
from tests.apiserver.support.virtual_time import run


class Asked:
    """Counts questions and answers each when it is told to."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future[int]] = []
        self.count = 0

    async def __call__(self) -> int:
        self.count += 1
        self.open.append(asyncio.get_running_loop().create_future())
        return await self.open[-1]


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(bounded())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_those_who_come_meanwhile_share_the_next_question() -> None:
    async def scenario() -> None:
        asked = Asked()
        question = SharedQuestion(asked)
        first = [asyncio.ensure_future(question.answer()) for _ in range(3)]
        await settle()
        later = [asyncio.ensure_future(question.answer()) for _ in range(4)]
        await settle()
        assert asked.count == 1
        asked.open[0].set_result(10)
        assert await asyncio.gather(*first) == [10] * 3
        await settle()
        assert asked.count == 2
        assert not any(each.done() for each in later)
        asked.open[1].set_result(11)
        assert await asyncio.gather(*later) == [11] * 4
        again = asyncio.ensure_future(question.answer())
        await settle()
        asked.open[2].set_result(12)
        assert await again == 12

    play(scenario)


def test_a_question_that_fails_fails_for_those_who_shared_it() -> None:
    async def scenario() -> None:
        asked = Asked()
        question = SharedQuestion(asked)
        first = [asyncio.ensure_future(question.answer()) for _ in range(3)]
        await settle()
        later = asyncio.ensure_future(question.answer())
        await settle()
        asked.open[0].set_exception(UnavailableError("nobody"))
        results = await asyncio.gather(*first, return_exceptions=True)
        assert {type(each) for each in results} == {UnavailableError}
        assert len({id(each) for each in results}) == 3
        await settle()
        asked.open[1].set_result(5)
        assert await later == 5

    play(scenario)


def test_a_cancelled_caller_does_not_disturb_others() -> None:
    async def scenario() -> None:
        asked = Asked()
        question = SharedQuestion(asked)
        tasks = [asyncio.ensure_future(question.answer()) for _ in range(3)]
        await settle()
        tasks[0].cancel()
        await settle()
        asked.open[0].set_result(3)
        assert await asyncio.gather(*tasks[1:]) == [3, 3]

    play(scenario)


def test_an_error_of_ours_is_not_kept_back() -> None:
    async def broken() -> int:
        raise ZeroDivisionError

    async def scenario() -> None:
        question = SharedQuestion(broken)
        with pytest.raises(ZeroDivisionError):
            await question.answer()
        asked = SharedQuestion(Asked())
        waiting = asyncio.ensure_future(asked.answer())
        await settle()
        asked.close()
        with pytest.raises(ClosedError):
            await waiting

    play(scenario)


def test_deadlines_end_what_is_still_open() -> None:
    async def scenario() -> None:
        calls: set[int] = set()
        due: list[int] = []

        def end(call: int) -> None:
            due.append(call)
            calls.discard(call)

        deadlines = Deadlines(asyncio.get_running_loop(), calls, end)
        for call in range(6):
            calls.add(call)
            deadlines.add(call, 0.05 if call % 2 else 0.15)
        calls.discard(1)
        calls.discard(2)
        await asyncio.sleep(0.1)
        assert due == [3, 5]
        await asyncio.sleep(0.1)
        assert due == [3, 5, 0, 4]
        calls.add(9)
        deadlines.add(9, 0.01)
        await asyncio.sleep(0.05)
        assert due[-1] == 9
        deadlines.add(10, 0.01)
        deadlines.close()
        await asyncio.sleep(0.05)
        assert due[-1] == 9

    run(scenario())


def test_deadlines_keep_little_of_what_is_over() -> None:
    async def scenario() -> None:
        calls: set[int] = {-1}
        deadlines = Deadlines(asyncio.get_running_loop(), calls, calls.discard)
        deadlines.add(-1, 60.0)  # the oldest stays open
        for call in range(20_000):
            calls.add(call)
            deadlines.add(call, 60.0)
            calls.discard(call)
        assert len(deadlines._queues[60.0]) < 5_000
        deadlines.close()

    play(scenario)


@pytest.mark.parametrize(
    ("text", "with_tls", "expected"),
    [
        ("10.0.0.1:2379", False, ("10.0.0.1", 2379, False, "10.0.0.1:2379", "10.0.0.1")),
        ("10.0.0.1:2379", True, ("10.0.0.1", 2379, True, "10.0.0.1:2379", "10.0.0.1")),
        ("host", False, ("host", 2379, False, "host:2379", "host")),
        ("http://host:1", True, ("host", 1, False, "host:1", "host")),
        (
            "https://Host.example.:1/x",
            False,
            ("host.example", 1, True, "host.example:1", "host.example"),
        ),
        ("[::1]:5", False, ("::1", 5, False, "[::1]:5", "::1")),
        ("https://[fe80::1]:5", False, ("fe80::1", 5, True, "[fe80::1]:5", "fe80::1")),
        ("unix:/run/kv.sock", False, ("/run/kv.sock", None, False, "localhost", "kv.sock")),
        ("unix:///run/kv.sock", True, ("/run/kv.sock", None, False, "localhost", "kv.sock")),
        ("unixs://localhost:m1", False, ("localhost:m1", None, True, "localhost", "localhost")),
        ("unix:kv", False, ("kv", None, False, "localhost", "kv")),
    ],
)
def test_endpoints(text: str, with_tls: bool, expected: tuple[object, ...]) -> None:  # noqa: FBT001
    assert parse_endpoint(text, with_tls=with_tls) == Endpoint(text, *expected)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "http://", "ftp://x:1", "x:port", "x:99999", "unix:", "[::1"])
def test_what_is_no_endpoint(text: str) -> None:
    with pytest.raises(ConfigError, match="endpoint"):
        parse_endpoint(text, with_tls=False)
