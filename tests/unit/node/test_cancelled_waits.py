"""A wait that is cancelled in the moment it is answered ends with the cancellation.

`asyncio.wait_for` returns the answer instead before Python 3.12: a task that was told to end goes
on, and whoever waits for its end waits in vain.
"""

import asyncio

import pytest

from kvstore.batch import Outbox
from kvstore.runtime.local_client import LocalClient
from kvstore.server.metrics.gatherer import Gatherer
from kvstore.wire import rpc


def test_a_question_to_the_driver() -> None:
    async def scenario() -> None:
        gatherer = Gatherer(lambda: None)
        asking = asyncio.create_task(gatherer.read(lambda: 1, 5.0))
        await asyncio.sleep(0)
        gatherer.run_all()
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(scenario())


def test_a_call_of_the_process() -> None:
    async def scenario() -> None:
        client = LocalClient(asyncio.get_running_loop(), lambda: None)
        calling = asyncio.create_task(client.call(rpc.RANGE, b"", timeout_s=5.0))
        await asyncio.sleep(0)
        client.drain(Outbox(replies=[(-1, 0, b"")]))
        await asyncio.sleep(0)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling

    asyncio.run(scenario())
