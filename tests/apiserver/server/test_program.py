"""What the programs of the control plane have in common."""

import asyncio

import pytest

from kvstack.component.process.program import is_done_before


def test_work_that_is_done_before_the_end() -> None:
    async def story() -> None:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        assert await is_done_before(end, asyncio.sleep(0))
        assert not end.done()

    asyncio.run(story())


def test_work_that_the_end_breaks_off() -> None:
    async def story() -> None:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        doing = asyncio.Event()
        ended = []

        async def work() -> None:
            try:
                doing.set()
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        task = asyncio.create_task(is_done_before(end, work()))
        await doing.wait()
        assert not task.done()
        end.set_result(None)
        assert not await task
        assert ended

        # What is ended afterwards may wait: the caller was not cancelled.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()

    asyncio.run(story())


def test_what_the_work_raises_is_raised() -> None:
    async def story() -> None:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def fails() -> None:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await is_done_before(end, fails())

    asyncio.run(story())
