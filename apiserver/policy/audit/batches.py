"""Batching of events: requests do not wait for the sink.

    up to `size` events, or what has come within `wait_s` ──► throttled ──► sink

Events that find the buffer full are lost, and counted.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.audit.sinks import Errors, Sink

STOP_S: Final = 30.0
"""How long `stop` waits for buffered events."""


class Batching(NamedTuple):
    """Settings of a buffer."""

    buffer: int = 10_000
    size: int = 400
    wait_s: float = 30.0
    throttles: bool = True
    qps: float = 10.0
    burst: int = 15


class Buffered:
    """A sink that buffers events."""

    name = "buffered"

    def __init__(
        self, to: Sink, errors: Errors, batching: Batching, *, is_parallel: bool = False
    ) -> None:
        """is_parallel: without waiting for the previous batch."""
        self._to: Final = to
        self._errors: Final = errors
        self._batching: Final = batching
        self._is_parallel: Final = is_parallel
        self._events: deque[Object] = deque()
        self._arrived = asyncio.Event()
        self._full = asyncio.Event()
        self._is_stopping = False
        self._tokens = float(batching.burst)
        self._tokens_at: float | None = None
        self._task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def process(self, events: Sequence[Object]) -> bool:
        """Buffer events."""
        room = self._batching.buffer - len(self._events)
        if len(events) > room:
            self._errors.add(self.name, "audit buffer queue blocked", len(events) - room)
        self._events.extend(events[: max(room, 0)])
        self._arrived.set()
        if len(self._events) >= self._batching.size:
            self._full.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="audit batches")
        return True

    async def stop(self) -> None:
        """Flush the buffer, up to a time limit."""
        self._is_stopping = True
        self._arrived.set()
        self._full.set()
        if self._task is not None:
            try:
                async with asyncio.timeout(STOP_S):
                    await self._task
                    await asyncio.gather(*self._sending)
            except TimeoutError:
                self._errors.add(self.name, "timed out on stop", len(self._events))
        await self._to.stop()

    async def _run(self) -> None:
        batching = self._batching
        while self._events or not self._is_stopping:
            self._arrived.clear()
            if not self._events:
                await self._arrived.wait()
                continue
            if batching.size > 1 and len(self._events) < batching.size and not self._is_stopping:
                await self._wait_for_more(batching.wait_s)
            await self._throttle()
            count = min(batching.size, len(self._events))
            batch = [self._events.popleft() for _ in range(count)]
            if self._is_parallel:
                task = asyncio.create_task(self._send(batch), name="audit batch")
                self._sending.add(task)
                task.add_done_callback(self._sending.discard)
            else:
                await self._send(batch)

    async def _wait_for_more(self, wait_s: float) -> None:
        self._full.clear()
        try:
            async with asyncio.timeout(wait_s):
                await self._full.wait()
        except TimeoutError:
            pass  # then the batch is complete

    async def _throttle(self) -> None:
        batching = self._batching
        if not batching.throttles:
            return
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            since = now if self._tokens_at is None else self._tokens_at
            came = (now - since) * batching.qps
            self._tokens = min(self._tokens + came, float(batching.burst))
            self._tokens_at = now
            if self._tokens >= 1 or self._is_stopping:
                self._tokens -= 1
                return
            await asyncio.sleep((1 - self._tokens) / batching.qps)

    async def _send(self, batch: list[Object]) -> None:
        found = self._to.process(batch)
        if not isinstance(found, bool):
            await found
