"""Stores over the network while servers die, stall, come back and forget: nothing lost or doubled.

Histories are checked against the store's own: what a watch told is compared with what a fresh watch
tells of the same revisions.
"""

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from kvstore.client import ClientOptions, Store, connect
from kvstore.client.errors import (
    OutcomeUnknownError,
    StoreTimeoutError,
    UnavailableError,
)
from kvstore.client.values import (
    Compacted,
    Compare,
    Event,
    Events,
    Interrupted,
    Progress,
    Put,
    Range,
    Restored,
    Resumed,
    Started,
    prefix_end,
)
from kvstore.client.watch import Watch
from tests.support.cluster.servers import Cluster, cluster
from tests.support.network.tcp_relay import TcpRelay
from tests.support.servers import Server, etcd, free_ports, ours, running
from tests.support.store_hosts import needs_crate

WAIT_S = 60.0
MAKERS = {"ours": ours, "etcd": etcd}
OPTIONS = ClientOptions(timeout_s=30.0, keepalive_interval_s=1.0, keepalive_timeout_s=1.0)


@pytest.fixture(params=["native", "grpcio"])
def options(request: pytest.FixtureRequest) -> ClientOptions:
    if why := needs_crate(request.param):
        pytest.skip(why)
    return replace(OPTIONS, transport=request.param)


@pytest.fixture(params=["ours", "etcd"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with running(MAKERS[request.param](tmp_path / "data")) as found:
        yield found


class Reader:
    """Reads a watch in a task and keeps what it told."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.events: list[Event] = []
        self.kinds: list[type] = []
        self.last: object = None
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for value in self.watch:
            self.kinds.append(type(value))
            self.last = value
            if isinstance(value, Events):
                self.events += value.events
            self._changed.set()
        self._changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait until done() holds."""
        async with asyncio.timeout(WAIT_S):
            while not done():
                if self._task.done():
                    await self._task
                    assert done(), f"the watch ended with {self.last}"
                    return
                self._changed.clear()
                await self._changed.wait()

    async def until_revision(self, revision: int) -> None:
        await self.until(lambda: self.revisions()[-1:] >= [revision])

    async def until_count(self, count: int) -> None:
        await self.until(lambda: len(self.events) >= count)

    async def until_kind(self, kind: type) -> None:
        await self.until(lambda: kind in self.kinds)

    def revisions(self) -> list[int]:
        return [each.kv.mod_revision for each in self.events]

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.watch.cancel()


async def history(store: Store, key: bytes, first: int, last: int) -> list[Event]:
    """Return what a fresh watch tells of the revisions from first to last."""
    reader = Reader(store.watch(key, prefix_end(key), start_revision=first))
    await reader.until_revision(last)
    await reader.stop()
    # A write of unknown outcome may be done later, by a server that was held up.
    return [each for each in reader.events if each.kv.mod_revision <= last]


async def write(store: Store, count: int, key: bytes = b"k/") -> int:
    """Put so many keys, again where it is not known what came of it; return the last revision."""
    revision = 0
    for each in range(count):
        while True:
            try:
                revision = (await store.put(key + b"%d" % (each % 7), b"%d" % each)).revision
                break
            except (OutcomeUnknownError, UnavailableError):
                continue
    return revision


def run(scenario: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await scenario

    asyncio.run(bounded())


def test_a_server_killed_and_restarted_under_a_watch(
    server: Server, options: ClientOptions
) -> None:
    async def play() -> None:
        async with connect([server.endpoint], options) as store:
            first = (await store.put(b"k/0", b"first")).revision
            reader = Reader(store.watch(b"k/", prefix_end(b"k/"), start_revision=first))
            for _ in range(3):
                writing = asyncio.create_task(write(store, 200))
                seen = len(reader.events)
                await reader.until_count(seen + 20)
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                last = await writing
                await reader.until_revision(last)
            assert reader.events == await history(store, b"k/", first, last)
            assert reader.kinds.count(Interrupted) == reader.kinds.count(Resumed) >= 3
            await reader.stop()

    run(play())


def test_a_server_stopped_and_started_loses_no_call(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with connect([server.endpoint], options) as store:
            await store.put(b"k", b"v")
            stopping = asyncio.create_task(asyncio.to_thread(server.restart))
            count = 0
            while not stopping.done():
                assert (await store.get(b"k")).kv is not None
                count += 1
            await stopping
            assert (await store.get(b"k")).kv is not None
            assert count > 0

    run(play())


def test_endpoints_that_are_down_are_passed_over(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        dead = [f"127.0.0.1:{port}" for port in free_ports(2)]
        async with connect([dead[0], server.endpoint, dead[1]], options) as store:
            for each in range(50):
                put = await store.put(b"k", b"%d" % each)
                assert put.revision == each + 2
            async with store.watch(b"k", start_revision=2) as watch:
                found: list[Event] = []
                while len(found) < 50:
                    value = await anext(watch)
                    found += value.events if isinstance(value, Events) else []

    run(play())


def test_nobody_can_be_reached(options: ClientOptions) -> None:
    async def play() -> None:
        dead = [f"127.0.0.1:{port}" for port in free_ports(2)]
        async with connect(dead, options) as store:
            with pytest.raises(UnavailableError, match="no endpoint could be reached"):
                await store.get(b"k", timeout_s=0.5)
            with pytest.raises(UnavailableError, match=dead[0]):
                await store.put(b"k", b"v", timeout_s=0.5)  # certainly not sent
            with pytest.raises(UnavailableError):
                await store.lease_keep_alive(7, timeout_s=0.5)
            watch = store.watch(b"k")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await anext(watch)

    run(play())


def test_whoever_is_not_reached_in_time_is_given_up(options: ClientOptions) -> None:
    """A limit for being reached holds however long the call itself may take."""

    async def play() -> None:
        hasty = replace(options, reach_s=0.3)
        async with connect([f"127.0.0.1:{free_ports(1)[0]}"], hasty) as store:
            time = asyncio.get_running_loop().time
            began = time()
            with pytest.raises(UnavailableError, match="no endpoint could be reached"):
                await store.get(b"k", timeout_s=20)
            with pytest.raises(UnavailableError):
                await store.put(b"k", b"v", timeout_s=20)
            assert time() - began < 10

    run(play())


def test_a_connection_lost_in_the_middle_of_calls(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
            connect([server.endpoint], options) as direct,
        ):
            await store.put(b"k", b"v")
            relay.stall()
            reads = [asyncio.create_task(store.get(b"k")) for _ in range(20)]
            changes = [asyncio.create_task(store.put(b"c%d" % each, b"v")) for each in range(20)]
            revision = asyncio.create_task(store.current_revision())
            await asyncio.sleep(0.1)
            relay.cut()
            relay.flow()
            found = await asyncio.gather(*reads)
            assert {each.kv.value for each in found if each.kv} == {b"v"}
            results = await asyncio.gather(*changes, return_exceptions=True)
            assert {type(each) for each in results} == {OutcomeUnknownError}
            assert await revision >= 2
            assert (await direct.range(b"c", b"d")).total in range(21)

    run(play())


def test_a_server_that_stalls_is_left_for_another(tmp_path: Path, options: ClientOptions) -> None:
    async def play(members: Cluster) -> None:
        leader = members.leader()
        stalled = next(each for each in members.members if each is not leader)
        async with connect(members.endpoints, options) as store:
            first = (await store.put(b"k/0", b"v")).revision
            readers = [
                Reader(store.watch(b"k/", prefix_end(b"k/"), start_revision=first))
                for _ in range(3)
            ]
            stalled.pause()
            try:
                last = await write(store, 30)
                for reader in readers:
                    await reader.until_revision(last)
                    await reader.stop()
            finally:
                stalled.resume()
            expected = await history(store, b"k/", first, last)
            assert [each.events for each in readers] == [expected] * 3

    with cluster(tmp_path, "ooo") as members:
        run(play(members))


@pytest.mark.parametrize("kinds", ["ooo", "eee"])
def test_leaders_lost_under_watches_and_changes(
    tmp_path: Path, kinds: str, options: ClientOptions
) -> None:
    async def play(members: Cluster) -> None:
        async with AsyncExitStack() as stack:
            stores = [
                await stack.enter_async_context(connect(members.endpoints, options))
                for _ in range(2)
            ]
            first = (await stores[0].put(b"k/0", b"first")).revision
            readers = [
                Reader(each.watch(b"k/", prefix_end(b"k/"), start_revision=first))
                for each in stores
            ]
            for _ in range(2):
                writing = [asyncio.create_task(write(each, 100)) for each in stores]
                leader = await asyncio.to_thread(members.leader)
                await asyncio.to_thread(leader.kill)
                last = max(await asyncio.gather(*writing))
                for reader in readers:
                    await reader.until_revision(last)
                await asyncio.to_thread(leader.start)
            last = await stores[0].current_revision()
            last = (await stores[0].put(b"k/0", b"last")).revision
            expected = await history(stores[1], b"k/", first, last)
            for reader in readers:
                await reader.until_revision(last)
                assert reader.events == expected
                await reader.stop()

    with cluster(tmp_path, kinds) as members:
        run(play(members))


@pytest.mark.parametrize("kinds", ["ooo"])
def test_changes_are_never_made_twice(tmp_path: Path, kinds: str, options: ClientOptions) -> None:
    """Counters: an acknowledged step is there once, an unknown one at most once."""

    async def count(store: Store, key: bytes, steps: int) -> tuple[int, int]:
        acknowledged = unknown = 0
        while acknowledged < steps:
            found = (await store.get(key)).kv
            seen, revision = (int(found.value), found.mod_revision) if found else (0, 0)
            try:
                done = await store.txn(
                    [Compare.mod_revision(key, revision)], [Put(key, b"%d" % (seen + 1))]
                )
            except OutcomeUnknownError:
                unknown += 1
            else:
                assert done.succeeded, "nobody else counts"
                acknowledged += 1
        return acknowledged, unknown

    async def play(members: Cluster) -> None:
        async with connect(members.endpoints, options) as store:
            counting = [asyncio.create_task(count(store, b"n%d" % n, 150)) for n in range(4)]
            for _ in range(2):
                leader = await asyncio.to_thread(members.leader)
                await asyncio.to_thread(leader.kill)
                await asyncio.to_thread(leader.start)
            for number, (acknowledged, unknown) in enumerate(await asyncio.gather(*counting)):
                found = (await store.get(b"n%d" % number)).kv
                assert found is not None
                assert acknowledged <= int(found.value) <= acknowledged + unknown
                assert found.version == int(found.value)

    with cluster(tmp_path, kinds) as members:
        run(play(members))


def test_a_compaction_while_a_watch_is_cut_off(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
            connect([server.endpoint], options) as direct,
        ):
            reader = Reader(store.watch(b"k"))
            await reader.until_kind(Started)
            await direct.put(b"k", b"1")
            await reader.until_count(1)
            await relay.refuse()
            for each in range(10):
                last = await direct.put(b"k", b"%d" % each)
            await direct.compact(last.revision)
            await relay.accept()
            await reader.until(lambda: isinstance(reader.last, Compacted))
            assert reader.last == Compacted(last.revision)
            assert len(reader.events) == 1

    run(play())


def test_a_watch_goes_on_where_it_was_cut(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
            connect([server.endpoint], options) as direct,
        ):
            readers = [Reader(store.watch(b"k/", prefix_end(b"k/"))) for _ in range(20)]
            for reader in readers:
                await reader.until_kind(Started)
            first = await direct.current_revision() + 1
            for at in range(10):
                writing = asyncio.create_task(write(direct, 30))
                await asyncio.sleep(0.01 * (at % 3))
                relay.cut()
                last = await writing
            for reader in readers:
                await reader.until_revision(last)
                assert reader.revisions() == list(range(first, last + 1))
                await reader.stop()

    run(play())


def test_a_watch_from_now_on_misses_nothing_after_its_start(
    server: Server, options: ClientOptions
) -> None:
    """Cut off before anything happened, it must know from where on it watches."""

    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
            connect([server.endpoint], options) as direct,
        ):
            reader = Reader(store.watch(b"k"))
            await reader.until_kind(Started)
            await relay.refuse()
            put = await direct.put(b"k", b"while it is away")
            await relay.accept()
            await reader.until_count(1)
            assert reader.events[0].kv.mod_revision == put.revision
            await reader.stop()

    run(play())


def test_progress_is_asked_again_after_a_break(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
        ):
            reader = Reader(store.watch(b"k"))
            await reader.until_kind(Started)
            relay.stall()
            reader.watch.request_progress()
            await asyncio.sleep(0.05)
            relay.cut()
            relay.flow()
            await reader.until_kind(Progress)
            await reader.stop()

    run(play())


def test_a_store_restored_to_an_older_state(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with connect([server.endpoint], options) as store:
            reader = Reader(store.watch(b"k/", prefix_end(b"k/")))
            last = await write(store, 20)
            await reader.until_revision(last)
            await asyncio.to_thread(server.kill)
            shutil.rmtree(server.data_dir)
            await asyncio.to_thread(server.start)
            await reader.until(lambda: isinstance(reader.last, Restored))
            assert isinstance(reader.last, Restored)
            assert reader.last.revision < last
            assert reader.watch.is_over

    run(play())


def test_time_limits_hold_while_everything_is_repeated(
    server: Server, options: ClientOptions
) -> None:
    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
        ):
            await store.put(b"k", b"v")
            await relay.refuse()
            time = asyncio.get_running_loop().time
            for limit_s in (0.1, 0.5):
                began = time()
                with pytest.raises((UnavailableError, StoreTimeoutError)):
                    await store.get(b"k", timeout_s=limit_s)
                with pytest.raises(UnavailableError):
                    await store.txn([], [Put(b"k", b"v")], timeout_s=limit_s)
                assert time() - began < 2 * limit_s + 2
            await relay.accept()
            assert (await store.txn([], [Range(b"k")])).succeeded

    run(play())


def test_keep_alives_survive_a_break(server: Server, options: ClientOptions) -> None:
    async def play() -> None:
        async with (
            TcpRelay(server.client_port) as relay,
            connect([relay.endpoint], options) as store,
        ):
            lease = (await store.lease_grant(60)).lease
            for _ in itertools.repeat(None, 3):
                assert (await store.lease_keep_alive(lease)).ttl_s == 60
                relay.stall()
                waiting = [asyncio.create_task(store.lease_keep_alive(lease)) for _ in range(5)]
                await asyncio.sleep(0.02)
                relay.cut()
                relay.flow()
                assert {each.ttl_s for each in await asyncio.gather(*waiting)} == {60}

    run(play())
