"""Load by the project's own client, or by grpc.aio: in a process of its own, whose CPU is counted.

    python -m bench.loads.store_load 127.0.0.1:2379 --client native --kind get --seconds 2

`native` is a Store on the crate, `grpc.aio` is that library as its users write it: a stub with the
messages of protobuf. Both run on one asyncio loop and do the same: get a key, put one, put one if
it is not there, or read the events of a watch. It prints what was done as one line of JSON; CPU is
that of the whole process from the first call that counts to the last.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

import grpc.aio

from kvstore.client import ClientOptions, Store, connect
from kvstore.client.values import Compare, Events, Put, Range, prefix_end
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server

KINDS: Final = ("get", "put", "create", "watch")
CLIENTS: Final = ("native", "grpc.aio")
VALUE: Final = b"v" * 256
_WARM_S: Final = 0.3
_LIMIT_S: Final = 10.0
_PREFIX: Final = b"store-load/"

Call = Callable[[int, int], Awaitable[object]]  # (worker, number)


class Loaded(NamedTuple):
    """What one load came to."""

    done: int  # calls, or events
    seconds: float
    cpu_s: float  # of the loading process

    @property
    def rate(self) -> float:
        """How many a second."""
        return self.done / self.seconds

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU each."""
        return self.cpu_s / self.done * 1e6


def run(server: Server, client: str, kind: str, in_flight: int, seconds: float) -> Loaded:
    """Load a server from a process of its own; RuntimeError with its words if it fails."""
    command = [
        sys.executable, "-m", "bench.loads.store_load", server.endpoint, "--client", client,
        "--kind", kind, "--in-flight", str(in_flight), "--seconds", str(seconds),
    ]  # fmt: skip
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        raise RuntimeError(f"store_load: {found.stderr[-2000:]}")
    return Loaded(**json.loads(found.stdout))


def _key(worker: int, number: int) -> bytes:
    return _PREFIX + b"%d.%d.%d" % (time.time_ns(), worker, number)


def _of_store(store: Store, kind: str) -> Call:
    async def get(worker: int, _: int) -> object:
        return (await store.get(_PREFIX + b"%d" % worker)).kv

    async def put(worker: int, _: int) -> object:
        return await store.put(_PREFIX + b"%d" % worker, VALUE)

    async def create(worker: int, number: int) -> object:
        key = _key(worker, number)
        return await store.txn([Compare.absent(key)], [Put(key, VALUE)], [Range(key)])

    return {"get": get, "put": put, "create": create}[kind]


def _of_stub(channel: grpc.aio.Channel, kind: str) -> Call:
    def stub(number: int) -> Any:  # noqa: ANN401  # grpcio has no types for it
        method = rpc.METHODS[number]
        return channel.unary_unary(
            method.path, method.request.SerializeToString, method.response.FromString
        )

    ranges, puts, txns = stub(rpc.RANGE), stub(rpc.PUT), stub(rpc.TXN)

    async def get(worker: int, _: int) -> object:
        request = pb.RangeRequest(key=_PREFIX + b"%d" % worker)
        found = await ranges(request, timeout=_LIMIT_S)
        return found.kvs[0] if found.kvs else None

    async def put(worker: int, _: int) -> object:
        request = pb.PutRequest(key=_PREFIX + b"%d" % worker, value=VALUE)
        return await puts(request, timeout=_LIMIT_S)

    async def create(worker: int, number: int) -> object:
        key = _key(worker, number)
        request = pb.TxnRequest(
            compare=[pb.Compare(key=key, target=pb.Compare.MOD, mod_revision=0)],
            success=[pb.RequestOp(request_put=pb.PutRequest(key=key, value=VALUE))],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=key))],
        )
        return await txns(request, timeout=_LIMIT_S)

    return {"get": get, "put": put, "create": create}[kind]


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def _load(call: Call, in_flight: int, seconds: float) -> Loaded:
    done = 0

    async def work(worker: int, until: float) -> None:
        nonlocal done
        number = 0
        while time.perf_counter() < until:
            await call(worker, number)
            number += 1
            done += 1

    async def together(time_s: float) -> None:
        until = time.perf_counter() + time_s
        await asyncio.gather(*[work(each, until) for each in range(in_flight)])

    await together(min(_WARM_S, seconds))
    done = 0
    begin, cpu_s = time.perf_counter(), _cpu_s()
    await together(seconds)
    return Loaded(done, time.perf_counter() - begin, _cpu_s() - cpu_s)


async def _fill(store: Store, count: int) -> tuple[bytes, int]:
    """Put so many keys under a prefix of its own; return it and the first revision."""
    prefix = _key(0, 0) + b"/"
    first = 0
    for at in range(0, count, 100):
        puts = [Put(prefix + b"%06d" % each, VALUE) for each in range(at, at + 100)]
        done = await store.txn([], puts)
        first = first or done.revision
    return prefix, first


async def _watch_store(endpoint: str, count: int) -> Loaded:
    async with connect([endpoint], ClientOptions(transport="native")) as store:
        prefix, first = await _fill(store, count)
        begin, cpu_s, seen = time.perf_counter(), _cpu_s(), 0
        async with store.watch(prefix, prefix_end(prefix), start_revision=first) as watch:
            async for value in watch:
                if isinstance(value, Events):
                    for event in value.events:
                        seen += event.kv.version
                if seen == count:
                    break
        return Loaded(seen, time.perf_counter() - begin, _cpu_s() - cpu_s)


async def _watch_stub(endpoint: str, count: int) -> Loaded:
    async with connect([endpoint], ClientOptions(transport="native")) as store:
        prefix, first = await _fill(store, count)
    async with grpc.aio.insecure_channel(
        endpoint, [("grpc.max_receive_message_length", -1)]
    ) as channel:
        method = rpc.METHODS[rpc.WATCH]
        begin, cpu_s, seen = time.perf_counter(), _cpu_s(), 0
        stream = channel.stream_stream(
            method.path, method.request.SerializeToString, method.response.FromString
        )()
        create = pb.WatchCreateRequest(
            key=prefix, range_end=prefix_end(prefix), start_revision=first
        )
        await stream.write(pb.WatchRequest(create_request=create))
        async for response in cast("AsyncIterator[pb.WatchResponse]", stream):
            for event in response.events:
                kv = event.kv  # with the fields that the Store's events have
                _ = (kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)
                seen += kv.version
            if seen == count:
                break
        stream.cancel()
        return Loaded(seen, time.perf_counter() - begin, _cpu_s() - cpu_s)


async def _play(options: argparse.Namespace) -> Loaded:
    is_native = options.client == "native"
    if options.kind == "watch":
        count = max(int(options.seconds * 50_000) // 100, 1) * 100
        return await (_watch_store if is_native else _watch_stub)(options.endpoint, count)
    if is_native:
        chosen = ClientOptions(transport="native", timeout_s=_LIMIT_S)
        async with connect([options.endpoint], chosen) as store:
            return await _load(_of_store(store, options.kind), options.in_flight, options.seconds)
    async with grpc.aio.insecure_channel(options.endpoint) as channel:
        return await _load(_of_stub(channel, options.kind), options.in_flight, options.seconds)


def main() -> None:
    """Load as the arguments say."""
    parser = argparse.ArgumentParser(prog="bench.loads.store_load", description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("--client", choices=CLIENTS, required=True)
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=2.0)
    print(json.dumps(asyncio.run(_play(parser.parse_args()))._asdict()))


if __name__ == "__main__":
    main()
