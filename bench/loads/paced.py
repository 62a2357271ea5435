"""Puts at a fixed rate while something else goes on: how long does a client wait?

A put is due at its time whether or not the ones before it have been answered, and its latency
counts from then. A server that stands still for a second is thus charged with every put that came
in that second, and not only with the one that was on its way. A put that is refused (a server that
stands still for long answers with a timeout) counts with its latency, and as refused.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

import grpc

from bench.loads.client import OPTIONS, TIMEOUT_S, unary
from kvstore.wire.gen import rpc_pb2 as pb

RATE: Final = 300  # puts a second: far below either server's limit, and below this client's
_VALUE: Final = b"p" * 256
_KEYS: Final = 512


class Paced(NamedTuple):
    """What the puts saw, and how long the action took."""

    seconds: float
    latencies_ms: list[float]
    refused: int


def during(endpoint: str, action: Callable[[], object]) -> Paced:
    """Put at RATE from before action begins until it has returned; raises what it raises."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        return asyncio.run(_during(endpoint, action, pool))


async def _during(endpoint: str, action: Callable[[], object], pool: ThreadPoolExecutor) -> Paced:
    async with grpc.aio.insecure_channel(endpoint, options=OPTIONS) as channel:
        put = unary(channel, "KV", "Put")
        latencies_ms: list[float] = []
        refused = 0

        async def one(number: int, due: float) -> None:
            nonlocal refused
            key = b"paced-%d" % (number % _KEYS)
            try:
                await put(pb.PutRequest(key=key, value=_VALUE), timeout=TIMEOUT_S)
            except grpc.aio.AioRpcError:
                refused += 1
            latencies_ms.append((time.perf_counter() - due) * 1000)

        await one(0, time.perf_counter())  # connects
        if refused:
            raise RuntimeError(f"{endpoint} refuses puts")
        latencies_ms.clear()
        begin = time.perf_counter()
        future = pool.submit(_timed, action)
        puts = await _put_until(future, begin, one)
        await asyncio.gather(*puts)
        return Paced(future.result(), latencies_ms, refused)


async def _put_until(
    future: "Future[float]", begin: float, one: Callable[[int, float], Awaitable[None]]
) -> "list[asyncio.Future[None]]":
    """Start puts on time until future is done; return them all."""
    puts: list[asyncio.Future[None]] = []
    while not future.done():
        due = begin + len(puts) / RATE
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        puts.append(asyncio.ensure_future(one(len(puts), due)))
    return puts


def _timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
