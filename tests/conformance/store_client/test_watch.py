"""What every Store's watches do, whatever carries them and whoever serves them."""

import asyncio
from collections.abc import Iterator

import pytest

from kvstore.client import ClientOptions, Store
from kvstore.client.errors import InvalidArgumentError
from kvstore.client.values import (
    FROM_KEY,
    Compacted,
    Delete,
    Event,
    EventKind,
    Events,
    Interrupted,
    Progress,
    Put,
    Resumed,
    Started,
    prefix_end,
)
from kvstore.client.watch import Watch
from tests.support.store_hosts import KINDS, PROGRESS_FLAG, StoreHost, needs_crate, store_host

WATCHES = 10_000
WAIT_S = 60.0


@pytest.fixture(scope="module", params=KINDS)
def there(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreHost]:
    if why := needs_crate(request.param):
        pytest.skip(why)
    with store_host(request.param, tmp_path_factory.mktemp("store"), PROGRESS_FLAG) as found:
        yield found


@pytest.fixture
def key(request: pytest.FixtureRequest) -> bytes:
    """A prefix of keys that no other test has."""
    return request.node.originalname.encode() + b"/"


async def events(watch: Watch, count: int) -> list[Event]:
    """Return the next so many events; what else comes is passed over."""
    found: list[Event] = []
    async with asyncio.timeout(WAIT_S):
        async for value in watch:
            if isinstance(value, Events):
                found += value.events
            if len(found) >= count:
                break
    assert len(found) == count
    return found


async def until(watch: Watch, kind: type) -> object:
    """Return the next value of a kind; what else comes is passed over."""
    async with asyncio.timeout(WAIT_S):
        async for value in watch:
            if isinstance(value, kind):
                return value
    raise AssertionError(f"the watch ended without {kind.__name__}")


def test_changes_come_as_they_happen(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        before = (await store.put(key + b"old", b"x")).revision
        async with store.watch(key, prefix_end(key)) as watch:
            assert await anext(watch) == Started(before)
            put = await store.put(key + b"a", b"1")
            value = await anext(watch)
            assert isinstance(value, Events)
            assert value.revision == put.revision
            [event] = value.events
            assert event.kind == EventKind.PUT
            assert event.kv == (key + b"a", b"1", put.revision, put.revision, 1, 0)
            assert event.prev_kv is None
            gone = await store.delete(key + b"a")
            [event] = await events(watch, 1)
            assert event.kind == EventKind.DELETE
            assert (event.kv.key, event.kv.mod_revision) == (key + b"a", gone.revision)
        with pytest.raises(StopAsyncIteration):
            await anext(watch)

    there.play(play)


def test_one_key_and_open_ends(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        revision = (await store.put(key + b"b", b"0")).revision
        async with (
            store.watch(key + b"b", start_revision=revision + 1) as one,
            store.watch(key + b"b", FROM_KEY, start_revision=revision + 1) as rest,
        ):
            for name in (b"a", b"b", b"c"):
                await store.put(key + name, b"1")
            assert [each.kv.key for each in await events(one, 1)] == [key + b"b"]
            assert [each.kv.key for each in await events(rest, 2)] == [key + b"b", key + b"c"]

    there.play(play)


def test_history_comes_first(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        revisions = [(await store.put(key, b"%d" % each)).revision for each in range(50)]
        async with store.watch(key, start_revision=revisions[10]) as watch:
            await store.put(key, b"now")
            found = await events(watch, 41)
        assert [each.kv.mod_revision for each in found[:-1]] == revisions[10:]
        assert found[-1].kv.value == b"now"

    there.play(play)


def test_previous_values_and_filters(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        revision = (await store.put(key, b"0")).revision + 1
        async with (
            store.watch(key, start_revision=revision, prev_kv=True) as both,
            store.watch(key, start_revision=revision, no_put=True) as deletions,
            store.watch(key, start_revision=revision, no_delete=True, prev_kv=True) as puts,
        ):
            await store.put(key, b"1")
            await store.delete(key)
            await store.put(key, b"2")
            found = await events(both, 3)
            assert [each.prev_kv.value if each.prev_kv else None for each in found] == [
                b"0", b"1", None,
            ]  # fmt: skip
            assert [each.kind for each in await events(deletions, 1)] == [EventKind.DELETE]
            found = await events(puts, 2)
            assert [each.kv.value for each in found] == [b"1", b"2"]
            assert found[0].prev_kv is not None

    there.play(play)


def test_the_events_of_a_revision_come_together(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        await store.put(key + b"gone", b"x")
        async with store.watch(key, prefix_end(key)) as watch:
            await until(watch, Started)
            ops = [Put(key + b"%02d" % each, b"v") for each in range(50)]
            done = await store.txn([], [*ops, Delete(key + b"gone")])
            value = await anext(watch)
            assert isinstance(value, Events)
            assert len(value.events) == 51
            assert {each.kv.mod_revision for each in value.events} == {done.revision}

    there.play(play)


def test_large_events_arrive_whole(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        value = bytes(range(256)) * 4_000
        revision = 0
        for each in range(12):
            put = await store.put(key + b"%02d" % each, value)
            revision = revision or put.revision
        ops = [Put(key + b"t%02d" % each, value[:100_000]) for each in range(12)]
        done = await store.txn([], ops)
        async with store.watch(key, prefix_end(key), start_revision=revision) as watch:
            batches = []
            count = 0
            while count < 24:
                found = await anext(watch)
                if isinstance(found, Events):
                    batches.append(found.events)
                    count += len(found.events)
        assert count == 24
        together = [each for each in batches if each[-1].kv.mod_revision == done.revision]
        assert len(together) == 1
        assert all(each.kv.value == value for batch in batches for each in batch[:-12])
        await store.delete(key, prefix_end(key))

    there.play(play)


def test_progress_on_request(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        async with store.watch(key) as watch, store.watch(key + b"other") as other:
            await until(watch, Started)
            await until(other, Started)
            revision = (await store.put(key + b"elsewhere", b"v")).revision
            watch.request_progress()
            value = await until(watch, Progress)
            assert isinstance(value, Progress)
            if there.is_etcd and value.revision < revision:
                pytest.skip("etcd 3.5.1 answers before it has looked")
            assert value.revision >= revision
            await store.put(key, b"v")
            assert len(await events(watch, 1)) == 1
            watch.request_progress()
            assert (await until(watch, Progress)).revision > revision  # type: ignore[attr-defined]

    there.play(play)


def test_progress_now_and_then(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        async with store.watch(key, progress_notify=True) as watch:
            revision = (await store.put(key + b"elsewhere", b"v")).revision
            while (await until(watch, Progress)).revision < revision:  # type: ignore[attr-defined]
                pass

    there.play(play)


def test_a_compacted_start_is_a_value(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        first = (await store.put(key, b"1")).revision
        last = (await store.put(key, b"2")).revision
        await store.compact(last)
        async with store.watch(key, start_revision=first) as watch:
            value = await until(watch, Compacted)
            assert value == Compacted(last)
            assert watch.is_over
            assert [each async for each in watch] == []
        async with store.watch(key, start_revision=last) as watch:
            [event] = await events(watch, 1)
            assert event.kv.value == b"2"

    there.play(play)


def test_a_slow_reader_costs_bounded_memory_and_no_event(there: StoreHost, key: bytes) -> None:
    limit = 256 << 10

    async def play(store: Store) -> None:
        async with (
            store.watch(key, prefix_end(key)) as slow,
            store.watch(key, prefix_end(key)) as quick,
        ):
            await until(slow, Started)
            await until(quick, Started)
            value = bytes(4_000)
            revisions = []
            for each in range(400):
                put = await store.put(key + b"%03d" % each, value)
                revisions.append(put.revision)
                [event] = await events(quick, 1)
                assert event.kv.mod_revision == put.revision
                assert slow.queued_bytes < limit + 20_000
            seen: list[int] = []
            kinds = []
            while len(seen) < 400:
                found = await anext(slow)
                kinds.append(type(found))
                if isinstance(found, Events):
                    seen += [each.kv.mod_revision for each in found.events]
                assert slow.queued_bytes < limit + 4 * (1 << 20)
            assert seen == revisions
            assert Interrupted in kinds
            assert Resumed in kinds

    there.play(play, ClientOptions(watch_bytes_max=limit))


def test_a_slow_reader_may_meet_a_compaction(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        async with store.watch(key) as slow:
            await until(slow, Started)
            for _ in range(100):
                put = await store.put(key, bytes(4_000))
            await store.compact(put.revision)
            values = [each async for each in slow]
        assert values[-1] == Compacted(put.revision)
        found = [e for each in values if isinstance(each, Events) for e in each.events]
        assert 0 < len(found) < 100
        assert [each.kv.version for each in found] == list(range(1, len(found) + 1))

    there.play(play, ClientOptions(watch_bytes_max=100_000))


def test_a_watch_can_be_cancelled_while_it_is_read(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        watch = store.watch(key)
        await until(watch, Started)
        reading = asyncio.create_task(anext(watch))
        await asyncio.sleep(0)
        watch.cancel()
        with pytest.raises(StopAsyncIteration):
            await reading
        other = store.watch(key)
        await until(other, Started)
        reading = asyncio.create_task(anext(other))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await store.put(key, b"v")
        assert len(await events(other, 1)) == 1  # the reader was cancelled, the watch was not
        other.cancel()
        other.cancel()

    there.play(play)


def test_a_watch_that_cannot_be_is_an_error(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        with pytest.raises(InvalidArgumentError, match="-1"):
            store.watch(key, start_revision=-1)

    there.play(play)


def test_ten_thousand_watches(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        names = [key + b"%05d" % each for each in range(WATCHES)]
        revision = (await store.put(key, b"v")).revision
        watches = [store.watch(each, start_revision=revision + 1) for each in names]
        for watch in watches:
            await until(watch, Started)
        ends = [
            store.txn([], [Put(each, b"v") for each in names[at : at + 100]], timeout_s=WAIT_S)
            for at in range(0, WATCHES, 100)
        ]
        await asyncio.gather(*ends)
        for name, watch in zip(names, watches, strict=True):
            [event] = await events(watch, 1)
            assert event.kv.key == name
        for watch in watches:
            watch.cancel()
        async with store.watch(key) as one:
            await until(one, Started)
            await store.put(key, b"w")
            assert len(await events(one, 1)) == 1

    there.play(play)


def test_many_watches_of_one_key_see_the_same(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        watches = [store.watch(key) for _ in range(500)]
        for watch in watches:
            await until(watch, Started)
        revisions = [(await store.put(key, b"%d" % each)).revision for each in range(10)]
        for watch in watches:
            found = await events(watch, 10)
            assert [each.kv.mod_revision for each in found] == revisions
            watch.cancel()

    there.play(play)
