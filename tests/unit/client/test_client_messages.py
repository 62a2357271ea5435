"""Messages of a stream for whoever awaits them, and a loop for callers that have none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kvstore.client.blocking import OwnLoop
from kvstore.client.codec.messages import Messages
from kvstore.client.errors import CallFailedError
from kvstore.wire import rpc
from tests.support.fake_channel import FakeChannel


def opened() -> tuple[Messages, FakeChannel]:
    channel, messages = FakeChannel(), Messages()
    messages.stream = channel.open(rpc.SNAPSHOT, None, messages)
    return messages, channel


def test_messages_come_in_order_and_are_done_with_when_taken() -> None:
    async def scenario() -> None:
        messages, channel = opened()
        stream = channel.streams[0]
        stream.tell(b"one")
        stream.tell(b"two", b"tail")
        assert stream.done_bytes == 0
        assert await anext(messages) == b"one"
        assert stream.done_bytes == 3
        assert await anext(messages) == b"twotail"
        reading = asyncio.create_task(anext(messages))
        await asyncio.sleep(0)
        stream.tell(b"late")
        assert await reading == b"late"
        stream.tell(b"last")
        stream.break_off(None)
        assert [each async for each in messages] == [b"last"]
        assert messages.is_over
        assert messages.failure is None

    asyncio.run(scenario())


def test_an_end_that_is_none_in_peace_is_raised_after_what_came() -> None:
    async def scenario() -> None:
        messages, channel = opened()
        channel.streams[0].tell(b"one")
        channel.streams[0].break_off(CallFailedError(14, "gone", True))
        assert await anext(messages) == b"one"
        for _ in range(2):
            with pytest.raises(CallFailedError, match="gone"):
                await anext(messages)

    asyncio.run(scenario())


def test_what_is_given_up_ends() -> None:
    async def scenario() -> None:
        messages, channel = opened()
        channel.streams[0].tell(b"one")
        messages.cancel()
        assert channel.streams[0].is_cancelled
        assert [each async for each in messages] == []
        other, _ = opened()
        reading = asyncio.create_task(anext(other))
        await asyncio.sleep(0)
        other.cancel()
        with pytest.raises(StopAsyncIteration):
            await reading

    asyncio.run(scenario())


def test_a_loop_of_ones_own() -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def context() -> AsyncIterator[str]:
        seen.append("entered")
        yield "value"
        seen.append("left")

    async def count(to: int) -> AsyncIterator[int]:
        for each in range(to):
            await asyncio.sleep(0)
            yield each

    with OwnLoop() as loop:
        assert loop.enter(context()) == "value"
        assert list(loop.iterate(count(3))) == [0, 1, 2]
        assert next(loop.iterate(count(3))) == 0  # and the rest is dropped
        assert loop.run(asyncio.sleep(0, "result")) == "result"
    assert seen == ["entered", "left"]
    loop.close()
