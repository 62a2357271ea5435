"""Filling a server: transactions of 100 puts, several in flight, the same bytes for each server.

    load(run, name, server, keys_of(1_000_000), 1_000_000, VALUE)

Such entries are a hundred times as large as usual ones, and a server keeps thousands of entries in
memory for members that lag. `settle` writes enough small ones to push them out and to let the
last snapshot of the log be a usual one: what is measured after is the data, not the loading.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final

import grpc

from bench.loads.client import OPTIONS, TIMEOUT_S, unary
from bench.run import Run
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server

PUTS_PER_TXN: Final = 100
IN_FLIGHT: Final = 16
VALUE: Final = b"v" * 256
SETTLE_PUTS: Final = 20_001  # two snapshots of the log, at --snapshot-count=10000
SETTLE_IN_FLIGHT: Final = 64
SETTLE_KEY: Final = b"~settle"

Tell = Callable[[int], None]  # called with the number done since the last call


def no_one(_count: int) -> None:
    """Report nothing."""


def keys_of(count: int, *, first: int = 0) -> Iterator[bytes]:
    """Yield keys of 8 bytes, spread over the key space, each once."""
    for number in range(first, first + count):
        yield (number * 0x9E3779B97F4A7C15 & 0x7FFFFFFFFFFFFFFF).to_bytes(8, "big")


def load(
    run: Run, name: str, server: Server, keys: Iterable[bytes], count: int, value: bytes
) -> float:
    """Put count keys and settle; return the seconds the puts took."""
    with run.step(f"{name}: put {count}", count) as tell:
        begin = time.perf_counter()
        fill(server.endpoint, keys, value, tell)
        seconds = time.perf_counter() - begin
    settling = run.size(SETTLE_PUTS, 200)
    with run.step(f"{name}: settle the log", settling) as tell:
        settle(server.endpoint, settling, tell)
    return seconds


def fill(endpoint: str, keys: Iterable[bytes], value: bytes, tell: Tell = no_one) -> None:
    """Put every key, a key as often as it comes (but once a transaction)."""
    rows = iter(keys)

    def requests() -> Iterator[pb.TxnRequest]:
        while batch := list(islice(rows, PUTS_PER_TXN)):
            yield _txn(batch, value)

    asyncio.run(call_all(endpoint, "KV", "Txn", requests(), IN_FLIGHT, tell, PUTS_PER_TXN))


def settle(endpoint: str, puts: int, tell: Tell = no_one) -> None:
    """Push the large entries of `fill` out of the log that a server keeps in memory."""
    requests = (pb.PutRequest(key=SETTLE_KEY, value=b"x") for _ in range(puts))
    asyncio.run(call_all(endpoint, "KV", "Put", requests, SETTLE_IN_FLIGHT, tell))


async def call_all(
    endpoint: str,
    service: str,
    name: str,
    requests: Iterator[Any],
    in_flight: int,
    tell: Tell = no_one,
    weight: int = 1,
) -> None:
    """Make unary calls over one connection, in_flight at a time, until requests end.

    tell is called with weight for each answer.
    """
    async with grpc.aio.insecure_channel(endpoint, options=OPTIONS) as channel:
        call = unary(channel, service, name)

        async def work() -> None:
            for request in requests:  # shared by all workers: each takes the next
                await call(request, timeout=TIMEOUT_S)
                tell(weight)

        await asyncio.gather(*(work() for _ in range(in_flight)))


def _txn(keys: list[bytes], value: bytes) -> pb.TxnRequest:
    return pb.TxnRequest(
        success=[pb.RequestOp(request_put=pb.PutRequest(key=key, value=value)) for key in keys]
    )
