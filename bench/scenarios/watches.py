"""Ten thousand watches on as many keys over a hundred streams: what opening and holding them costs.

How fast and how late events come is measured by `fanout`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import grpc

from bench.loads.client import OPTIONS, bidi
from bench.loads.load import keys_of
from bench.procfs import memory
from bench.reporting.figures import Better, Measure
from bench.restarts import note_memory
from bench.run import Run, Scenario
from bench.servers import pair
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server

_WATCHES: Final = 10_000
_STREAMS: Final = 100
_STREAMS_PER_CHANNEL: Final = 10
_GATHER_TIMEOUT_S: Final = 60.0
_OPEN: Final = Measure("opening the watches", "s", Better.LOWER)
_PER_WATCH: Final = Measure("memory per watch", "KiB", Better.LOWER)


class Watchers:
    """The streams of one client."""

    def __init__(self) -> None:
        self.created = 0
        self.changed = asyncio.Event()

    def take(self, response: Any) -> None:  # noqa: ANN401
        """Note what a message brings."""
        self.created += response.created
        if response.canceled:
            raise RuntimeError(f"watch {response.watch_id} was cancelled: {response.cancel_reason}")
        self.changed.set()

    async def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait until done() holds; RuntimeError names what did not come."""
        async with asyncio.timeout(_GATHER_TIMEOUT_S):
            while not done():
                self.changed.clear()
                await self.changed.wait()
        if not done():
            raise RuntimeError(f"{what} did not come within {_GATHER_TIMEOUT_S:g} s")


def play(run: Run) -> None:
    """Fresh servers each round: memory that was used once would hide what is added."""
    for round_number in run.rounds():
        with pair(run.directory / f"round-{round_number}") as servers:
            for name in run.order(round_number):
                with run.step(f"round {round_number + 1}, {name}: watch"):
                    asyncio.run(_watch(run, name, servers[name]))


async def _watch(run: Run, name: str, server: Server) -> None:
    keys = list(keys_of(run.size(_WATCHES, 400)))
    before = memory(server.pid)
    async with AsyncExitStack() as stack:
        watchers, streams = Watchers(), []
        begin = time.perf_counter()
        for first in range(0, _STREAMS, _STREAMS_PER_CHANNEL):
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(server.endpoint, options=OPTIONS)
            )
            for number in range(first, first + _STREAMS_PER_CHANNEL):
                reading = _read(channel, keys[number::_STREAMS], watchers)
                streams.append(asyncio.ensure_future(reading))
        await watchers.until(lambda: watchers.created == len(keys), "all watches")
        run.figures.add(_OPEN, name, time.perf_counter() - begin)
        grown = memory(server.pid).rss_bytes - before.rss_bytes
        run.figures.add(_PER_WATCH, name, grown / len(keys) / 1024)
        note_memory(run, name, server, "with the watches", None)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)


async def _read(channel: Any, keys: list[bytes], watchers: Watchers) -> None:  # noqa: ANN401
    """Open one stream with a watch on each key, and take what comes."""

    async def requests() -> AsyncIterator[pb.WatchRequest]:
        for key in keys:
            yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key))
        await asyncio.Event().wait()  # the stream stays open both ways

    async for response in bidi(channel, "Watch", "Watch")(requests()):
        watchers.take(response)


SCENARIO: Final = Scenario(
    "watches",
    "10,000 watches",
    "one key each, 100 streams over 10 connections",
    3,
    play,
)
