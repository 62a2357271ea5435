"""The loads of kvload from Python: slow, but there wherever the store runs.

    python -m bench.loads.portable unary HOST:PORT --kind put --connections 10 --in-flight 1 ...

It has the options of kvload's `unary`, `watch` and `keepalive`, waits for a line as that does, and
prints the same line of JSON. One process on one core makes some thousand calls a second. With more
than one client the rates are therefore its own limit (`cpu_share` near 1), while the server's CPU
for each call is still the server's.

    put    one key        range  that key        cas  a key of each worker's own
    many   the keys from many_key(0) to many_key(MANY - 1), which must be there
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import grpc.aio

from bench.loads.client import OPTIONS
from bench.reporting.figures import percentile
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

KINDS: Final = ("put", "range", "cas", "many")
KEY: Final = b"portable"
MANY: Final = 1_000
_VALUE: Final = b"v" * 256
_LIMIT_S: Final = 30.0  # of one call, and of waiting for events
_WATCH_KEY: Final = b"portable-watched"


def many_key(number: int) -> bytes:
    """Return one of the keys that `many` reads."""
    return b"r-%06d" % number


class Tally:
    """What was done since begin()."""

    def __init__(self) -> None:
        self.done = 0
        self._times_s: list[float] = []
        self._begin_s = self._cpu_s = 0.0

    def begin(self) -> None:
        """Begin to count."""
        self._begin_s, self._cpu_s = time.perf_counter(), _cpu_s()

    def note(self, count: int, since_s: float) -> None:
        """Note so many answers or events that took as long as since since_s."""
        self.done += count
        self._times_s.append(time.perf_counter() - since_s)

    def report(self) -> str:
        """Return kvload's line of JSON; ValueError if nothing was done."""
        seconds = time.perf_counter() - self._begin_s
        times_ms = [each * 1000 for each in self._times_s]
        figures = {
            "done": self.done,
            "refused": 0,
            "rate": self.done / seconds,
            "p50_ms": percentile(times_ms, 0.5),
            "p99_ms": percentile(times_ms, 0.99),
            "max_ms": max(times_ms),
            "cpu_share": (_cpu_s() - self._cpu_s) / seconds,
        }
        return json.dumps(figures)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _wait_for_go() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


@asynccontextmanager
async def _channels(endpoint: str, count: int) -> AsyncIterator[list[grpc.aio.Channel]]:
    """Open so many connections."""
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(endpoint, options=OPTIONS))
            for _ in range(count)
        ]
        await asyncio.gather(*(channel.channel_ready() for channel in channels))
        yield channels


# Unary calls.


def _requests(kind: str, worker: int) -> tuple[int, Callable[[int], bytes]]:
    """Return the method, and the request that expects the worker's key at a mod revision."""
    if kind == "put":
        put = pb.PutRequest(key=KEY, value=_VALUE).SerializeToString()
        return rpc.PUT, lambda _: put
    if kind == "range":
        get = pb.RangeRequest(key=KEY).SerializeToString()
        return rpc.RANGE, lambda _: get
    if kind == "many":
        request = pb.RangeRequest(key=many_key(0), range_end=many_key(MANY))
        many = request.SerializeToString()
        return rpc.RANGE, lambda _: many
    key = b"%s-%d-%d" % (KEY, time.time_ns(), worker)  # never used before

    def swap(mod_revision: int) -> bytes:
        return pb.TxnRequest(
            compare=[pb.Compare(key=key, target=pb.Compare.MOD, mod_revision=mod_revision)],
            success=[pb.RequestOp(request_put=pb.PutRequest(key=key, value=_VALUE))],
        ).SerializeToString()

    return rpc.TXN, swap


def _check(kind: str, answer: bytes) -> int:
    """Return the revision that a swap made, else 0; RuntimeError for an answer that is wrong."""
    if kind == "put":
        return 0
    if kind == "cas":
        swapped = pb.TxnResponse.FromString(answer)
        if not swapped.succeeded:
            raise RuntimeError("a swap that nobody disturbs failed")
        return int(swapped.header.revision)
    expected = MANY if kind == "many" else 1
    if (count := len(pb.RangeResponse.FromString(answer).kvs)) != expected:
        raise RuntimeError(f"{count} of {expected} keys were read")
    return 0


async def _unary(options: argparse.Namespace, tally: Tally) -> None:
    async def work(channel: grpc.aio.Channel, worker: int, until_s: float) -> None:
        method, request_at = _requests(options.kind, worker)
        call: Any = channel.unary_unary(rpc.METHODS[method].path)
        revision = 0
        while (begin_s := time.perf_counter()) < until_s:
            answer = await call(request_at(revision), timeout=_LIMIT_S)
            tally.note(1, begin_s)
            revision = _check(options.kind, answer)

    async with _channels(options.endpoint, options.connections) as channels:
        await _wait_for_go()
        tally.begin()
        until_s = time.perf_counter() + options.seconds
        workers = range(options.connections * options.in_flight)
        await asyncio.gather(
            *(work(channels[each % len(channels)], each, until_s) for each in workers)
        )


# Watches.


class _Watchers:
    """Streams of watchers of one key, and the puts they get events of."""

    def __init__(self, options: argparse.Namespace, tally: Tally) -> None:
        self._options = options
        self._tally = tally
        self._fan_out = options.streams * options.watchers
        self._created = 0
        self._sent = 0
        self._changed = asyncio.Event()

    async def read(self, channel: grpc.aio.Channel) -> None:
        """Open one stream and take what comes."""
        method = rpc.METHODS[rpc.WATCH]
        stream: Any = channel.stream_stream(method.path)()
        create = pb.WatchCreateRequest(key=_WATCH_KEY)
        for _ in range(self._options.watchers):
            await stream.write(pb.WatchRequest(create_request=create).SerializeToString())
        async for body in stream:
            message = pb.WatchResponse.FromString(body)
            if message.canceled:
                raise RuntimeError(f"a watch was cancelled: {message.cancel_reason}")
            self._created += message.created
            if message.events:
                put_s = float(message.events[-1].kv.value)
                self._tally.note(len(message.events), put_s)
            self._changed.set()

    async def until(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait until is_done(); RuntimeError says what did not come."""
        try:
            async with asyncio.timeout(_LIMIT_S):
                while not is_done():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise RuntimeError(f"{what} did not come within {_LIMIT_S:g} s") from None

    async def race(self, channel: grpc.aio.Channel) -> None:
        """Put, so many puts ahead of their events."""
        options, tally = self._options, self._tally
        put: Any = channel.unary_unary(rpc.METHODS[rpc.PUT].path)
        puts: list[asyncio.Future[Any]] = []

        def has_room() -> bool:
            return bool(self._sent < tally.done // self._fan_out + options.window)

        tally.begin()
        until_s = time.perf_counter() + options.seconds
        while time.perf_counter() < until_s:
            while has_room():
                value = b"%.9f" % time.perf_counter()
                request = pb.PutRequest(key=_WATCH_KEY, value=value.ljust(256)).SerializeToString()
                puts.append(asyncio.ensure_future(put(request, timeout=_LIMIT_S)))
                self._sent += 1
            await self.until(has_room, "an event")
        await asyncio.gather(*puts)
        await self.until(lambda: tally.done == self._sent * self._fan_out, "all events")

    async def all_created(self) -> None:
        """Wait until every watch is there."""
        await self.until(lambda: self._created == self._fan_out, "all watches")


async def _watch(options: argparse.Namespace, tally: Tally) -> None:
    watchers = _Watchers(options, tally)
    async with _channels(options.endpoint, options.connections + 1) as channels:
        *readers, writer = channels
        async with asyncio.TaskGroup() as group:
            reading = [
                group.create_task(watchers.read(readers[number % len(readers)]))
                for number in range(options.streams)
            ]
            await watchers.all_created()
            await _wait_for_go()
            await watchers.race(writer)
            for task in reading:
                task.cancel()


# Keep-alives.


async def _keep_alive(options: argparse.Namespace, tally: Tally) -> None:
    async def keep(channel: grpc.aio.Channel, lease: int, until_s: float) -> None:
        stream: Any = channel.stream_stream(rpc.METHODS[rpc.LEASE_KEEP_ALIVE].path)()
        request = pb.LeaseKeepAliveRequest(ID=lease).SerializeToString()
        sent_s: list[float] = []
        for _ in range(options.window):
            await stream.write(request)
            sent_s.append(time.perf_counter())
        while sent_s:
            if not pb.LeaseKeepAliveResponse.FromString(await stream.read()).TTL:
                raise RuntimeError(f"lease {lease} is gone")
            tally.note(1, sent_s.pop(0))
            if time.perf_counter() < until_s:
                await stream.write(request)
                sent_s.append(time.perf_counter())
        stream.cancel()

    async with _channels(options.endpoint, options.connections) as channels:
        await _wait_for_go()
        tally.begin()
        until_s = time.perf_counter() + options.seconds
        await asyncio.gather(
            *(
                keep(channels[each % len(channels)], each % options.leases + 1, until_s)
                for each in range(options.streams)
            )
        )


_COMMANDS: Final = {"unary": _unary, "watch": _watch, "keepalive": _keep_alive}


def main() -> None:
    """Load as the arguments say."""
    parser = argparse.ArgumentParser(prog="bench.loads.portable", description=__doc__)
    parser.add_argument("command", choices=_COMMANDS)
    parser.add_argument("endpoint")
    parser.add_argument("--kind", choices=KINDS, default="put")
    parser.add_argument("--rate", type=float, choices=[0.0], default=0.0, help="no fixed rates")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--distinct", type=int, choices=[0], default=0, help="one key")
    for name in ("connections", "in-flight", "streams", "watchers", "window", "leases"):
        parser.add_argument(f"--{name}", type=int, default=1)
    options = parser.parse_args()
    tally = Tally()
    asyncio.run(_COMMANDS[options.command](options, tally))
    print(tally.report())


if __name__ == "__main__":
    main()
