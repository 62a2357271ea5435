"""What every Store does, whatever carries it and whoever serves it: reads, changes, leases."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest

from kvstore.client import ClientOptions, Store
from kvstore.client.errors import (
    ClosedError,
    CompactedError,
    FutureRevisionError,
    InvalidArgumentError,
    LeaseExistsError,
    LeaseNotFoundError,
    OutcomeUnknownError,
    StoreError,
    StoreTimeoutError,
    TooLargeError,
)
from kvstore.client.keep_alive import keep_alive
from kvstore.client.values import (
    FROM_KEY,
    Compare,
    Delete,
    DeleteResult,
    GetResult,
    Put,
    PutResult,
    Range,
    RangeResult,
    Relation,
    SortOrder,
    SortTarget,
    Target,
    Txn,
    TxnResult,
    prefix_end,
)
from tests.support.store_hosts import (
    KINDS,
    PROGRESS_FLAG,
    THREADED_KINDS,
    StoreHost,
    needs_crate,
    store_host,
)


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


def test_a_key_is_put_and_got(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        assert (await store.get(key)).kv is None
        first = await store.put(key, b"one")
        assert first.prev_kv is None
        second = await store.put(key, b"two", prev_kv=True)
        assert second.revision == first.revision + 1
        assert second.prev_kv == (key, b"one", first.revision, first.revision, 1, 0)
        found = await store.get(key)
        assert isinstance(found, GetResult)
        assert found.kv is not None
        assert found.kv == (key, b"two", first.revision, second.revision, 2, 0)
        assert found.kv.value == b"two"
        assert found.revision >= second.revision
        before = await store.get(key, revision=first.revision)
        assert before.kv == second.prev_kv
        assert before.revision >= second.revision
        local = await store.get(key, serializable=True)
        assert local.kv == found.kv

    there.play(play)


@pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), b"x" * 127, b"y" * 20_000])
def test_values_and_keys_are_any_bytes(there: StoreHost, key: bytes, value: bytes) -> None:
    async def play(store: Store) -> None:
        odd = key + value[:200] + b"\xff"
        await store.put(odd, value)
        found = (await store.get(odd)).kv
        assert found is not None
        assert (found.key, found.value) == (odd, value)

    there.play(play)


def test_ranges(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        end = prefix_end(key)
        names = [key + b"%02d" % each for each in range(10)]
        for each in names:
            await store.put(each, b"v" + each)
        everything = await store.range(key, end)
        assert isinstance(everything, RangeResult)
        assert [each.key for each in everything.kvs] == names
        assert (everything.more, everything.total) == (False, 10)
        first = await store.range(key, end, limit=3)
        assert [each.key for each in first.kvs] == names[:3]
        assert (first.more, first.total) == (True, 10)
        keys = await store.range(key, end, keys_only=True)
        assert {each.value for each in keys.kvs} == {b""}
        assert [each.mod_revision for each in keys.kvs] == [
            each.mod_revision for each in everything.kvs
        ]
        counted = await store.range(key, end, count_only=True)
        assert (counted.kvs, counted.total) == ([], 10)
        down = await store.range(
            key, end, sort_order=SortOrder.DESCENDING, sort_target=SortTarget.KEY, limit=2
        )
        assert [each.key for each in down.kvs] == names[:7:-1]
        by_value = await store.range(
            key, end, sort_order=SortOrder.ASCENDING, sort_target=SortTarget.VALUE
        )
        assert by_value.kvs == everything.kvs
        old = await store.range(key, end, revision=everything.kvs[4].mod_revision)
        assert [each.key for each in old.kvs] == names[:5]
        open_end = await store.range(names[8], FROM_KEY, limit=2, serializable=True)
        assert [each.key for each in open_end.kvs][:2] == names[8:]
        assert (await store.range(end, end + b"\0")).kvs == []

    there.play(play)


@pytest.mark.parametrize("page_keys", [1, 7, 10, 100])
def test_pages_are_of_one_revision(there: StoreHost, key: bytes, page_keys: int) -> None:
    async def play(store: Store) -> None:
        key_of = (key + b"%d/" % page_keys).__add__
        end = prefix_end(key_of(b""))
        for each in range(20):
            await store.put(key_of(b"%02d" % each), b"before")
        seen: list[bytes] = []
        sizes = []
        async with aclosing(store.pages(key_of(b""), end, page_keys=page_keys)) as pages:
            async for page in pages:
                sizes.append(len(page.kvs))
                seen += [each.key for each in page.kvs]
                assert {each.value for each in page.kvs} == {b"before"}
                await store.put(key_of(b"19"), b"after")
                await store.put(key_of(b"99"), b"after")
        assert seen == [key_of(b"%02d" % each) for each in range(20)]
        assert max(sizes) <= page_keys
        async with aclosing(store.pages(key_of(b"x"), end)) as pages:
            assert [each.kvs async for each in pages] == [[]]

    there.play(play)


def test_transactions_take_the_branch_their_compares_say(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        made = await store.txn([Compare.absent(key)], [Put(key, b"5"), Range(key)], [Range(key)])
        assert isinstance(made, TxnResult)
        assert made.succeeded
        put, found = made.results
        assert isinstance(put, PutResult)
        assert isinstance(found, RangeResult)
        assert found.kvs == [(key, b"5", made.revision, made.revision, 1, 0)]
        again = await store.txn([Compare.absent(key)], [Put(key, b"6")], [Range(key)])
        assert not again.succeeded
        assert isinstance(again.results[0], RangeResult)
        assert again.results[0].kvs == found.kvs
        held: set[tuple[Target, int | bytes]] = {
            (Target.VERSION, 1),
            (Target.CREATE_REVISION, made.revision),
            (Target.MOD_REVISION, made.revision),
            (Target.VALUE, b"5"),
            (Target.LEASE, 0),
        }
        for target, operand in held:
            assert (await store.txn([Compare(key, target, operand)], [])).succeeded, target
            unequal = Compare(key, target, operand, Relation.NOT_EQUAL)
            assert not (await store.txn([unequal], [])).succeeded, target
        for relation, operand, holds in (
            (Relation.GREATER, 0, True),
            (Relation.GREATER, 1, False),
            (Relation.LESS, 2, True),
            (Relation.LESS, 1, False),
        ):
            compare = Compare(key, Target.VERSION, operand, relation)
            assert (await store.txn([compare], [])).succeeded is holds

    there.play(play)


def test_transactions_do_everything_at_one_revision(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        a, b, c = key + b"a", key + b"b", key + b"c"
        end = prefix_end(key)
        await store.put(a, b"1")
        inner = Txn([Compare.mod_revision(c, 0)], [Put(c, b"3")], [])
        done = await store.txn(
            [Compare(key, Target.VERSION, 1, end=end)],
            [Put(b, b"2", prev_kv=True), Delete(a, prev_kv=True), inner, Range(key, end)],
        )
        assert done.succeeded
        put, deleted, nested, found = done.results
        assert isinstance(put, PutResult)
        assert put.prev_kv is None
        assert isinstance(deleted, DeleteResult)
        assert (deleted.deleted, deleted.prev_kvs[0].value) == (1, b"1")
        assert isinstance(nested, TxnResult)
        assert nested.succeeded
        assert isinstance(found, RangeResult)
        assert [(each.key, each.mod_revision) for each in found.kvs] == [
            (b, done.revision),
            (c, done.revision),
        ]
        kept = await store.txn([], [Put(b, b"", ignore_value=True, prev_kv=True)])
        assert isinstance(kept.results[0], PutResult)
        assert (await store.get(b)).kv.value == b"2"  # type: ignore[union-attr]

    there.play(play)


def test_deletes(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        for each in (b"a", b"b", b"c"):
            await store.put(key + each, each)
        gone = await store.delete(key + b"a", prev_kv=True)
        assert (gone.deleted, [each.value for each in gone.prev_kvs]) == (1, [b"a"])
        rest = await store.delete(key, prefix_end(key))
        assert (rest.deleted, rest.prev_kvs) == (2, [])
        assert rest.revision == gone.revision + 1
        nothing = await store.delete(key)
        assert (nothing.deleted, nothing.revision) == (0, rest.revision)

    there.play(play)


def test_what_cannot_be_is_reported_by_its_error(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        revision = (await store.put(key, b"v")).revision
        with pytest.raises(FutureRevisionError, match="future revision"):
            await store.get(key, revision=revision + 1_000_000)
        with pytest.raises(LeaseNotFoundError):
            await store.put(key, b"v", lease=4711)
        with pytest.raises(InvalidArgumentError, match="key is not provided"):
            await store.put(b"", b"v")
        with pytest.raises(InvalidArgumentError, match="duplicate key"):
            await store.txn([], [Put(key, b"1"), Put(key, b"2")])
        with pytest.raises(InvalidArgumentError, match="too many operations"):
            await store.txn([], [Range(key)] * 129)
        with pytest.raises(TooLargeError):
            await store.put(key, bytes(1_600_000))
        with pytest.raises(TooLargeError):
            await store.put(key, bytes(5_000_000))
        assert (await store.get(key)).kv.mod_revision == revision  # type: ignore[union-attr]

    there.play(play)


def test_compaction(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        first = (await store.put(key, b"1")).revision
        second = (await store.put(key, b"2")).revision
        assert await store.compact(second, physical=True) >= second
        with pytest.raises(CompactedError):
            await store.get(key, revision=first)
        assert (await store.get(key, revision=second)).kv is not None
        with pytest.raises(CompactedError):
            await store.compact(first)
        with pytest.raises(FutureRevisionError):
            await store.compact(second + 1_000_000)

    there.play(play)


def test_leases(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        lease = await store.lease_grant(60)
        assert lease.lease != 0
        assert lease.ttl_s == 60
        await store.put(key, b"v", lease=lease.lease)
        assert (await store.get(key)).kv.lease == lease.lease  # type: ignore[union-attr]
        alive = await asyncio.gather(*[store.lease_keep_alive(lease.lease) for _ in range(20)])
        assert {(each.lease, each.ttl_s) for each in alive} == {(lease.lease, 60)}
        with pytest.raises(LeaseExistsError):
            await store.lease_grant(60, lease=lease.lease)
        revision = await store.lease_revoke(lease.lease)
        assert revision > lease.revision
        assert (await store.get(key)).kv is None
        with pytest.raises(LeaseNotFoundError):
            await store.lease_keep_alive(lease.lease)
        with pytest.raises(LeaseNotFoundError):
            await store.lease_revoke(lease.lease)
        other = await store.lease_grant(30, lease=123_456)
        assert other.lease == 123_456
        await store.lease_revoke(123_456)

    there.play(play)


def test_a_lease_is_kept_until_it_is_over(
    there: StoreHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Often, of a lease that lives long: a short one may end before a busy machine renews it.
    monkeypatch.setattr("kvstore.client.keep_alive._RENEWALS", 600)

    async def play(store: Store) -> None:
        lease = (await store.lease_grant(60)).lease
        keeping = asyncio.create_task(keep_alive(store, lease, 60))
        renewed = 0
        once = store.lease_keep_alive

        async def counted(lease: int, *, timeout_s: float | None = None) -> object:
            nonlocal renewed
            found = await once(lease, timeout_s=timeout_s)
            renewed += 1
            if renewed == 3:
                await store.lease_revoke(lease)
            return found

        store.lease_keep_alive = counted  # type: ignore[assignment]
        with pytest.raises(LeaseNotFoundError):
            await keeping
        assert renewed == 3

    there.play(play)


def test_the_current_revision_is_asked_once_for_many(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        asked = 0
        call = store._channel.call  # type: ignore[attr-defined]

        async def counting(*arguments: object) -> bytes:
            nonlocal asked
            asked += 1
            return await call(*arguments)

        revision = (await store.put(key, b"v")).revision
        store._channel.call = counting  # type: ignore[attr-defined]
        found = await asyncio.gather(*[store.current_revision() for _ in range(300)])
        assert set(found) == {revision}
        assert asked <= 2
        revision = (await store.put(key, b"w")).revision
        assert await store.current_revision() == revision
        assert await store.current_revision(timeout_s=5) == revision

    there.play(play)


def test_status(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        revision = (await store.put(key, b"v")).revision
        status = await store.status()
        assert status.revision >= revision
        assert status.version == ("3.5.1" if there.is_etcd else "3.7.1")
        assert status.leader == status.member_id != 0
        assert status.cluster_id != 0
        assert status.raft_term > 0
        assert status.raft_index >= status.raft_applied_index > 0
        assert status.db_size >= status.db_size_in_use > 0
        assert status.is_learner is False
        assert status.errors == []

    there.play(play)


def test_large_values_and_answers(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        value = bytes(range(256)) * 4_000
        names = [key + b"%02d" % each for each in range(20)]
        await asyncio.gather(*[store.put(each, value) for each in names])
        found = await store.range(key, prefix_end(key))
        assert [each.value == value for each in found.kvs] == [True] * 20
        await store.delete(key, prefix_end(key))

    there.play(play)


def test_many_calls_at_a_time_get_their_own_answers(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        async def one(number: int) -> None:
            name = key + b"%d" % number
            await store.put(name, b"%d" % number)
            found = (await store.get(name)).kv
            assert found is not None
            assert found.value == b"%d" % number

        await asyncio.gather(*[one(each) for each in range(1000)])

    there.play(play)


@pytest.mark.parametrize("there", THREADED_KINDS, indirect=True)
def test_two_loops_in_two_threads(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        async def other() -> None:
            async with there.open() as second:
                for each in range(50):
                    await second.put(key + b"other", b"%d" % each)

        beside = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(other())))
        for each in range(50):
            await store.put(key + b"mine", b"%d" % each)
        await beside
        async with there.open() as same_loop:
            found = await same_loop.range(key, prefix_end(key))
        assert [each.version for each in found.kvs] == [50, 50]

    there.play(play)


def test_a_call_that_is_not_answered_in_time(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        await store.put(key, b"before")
        there.pause()
        try:
            with pytest.raises(StoreTimeoutError):
                await store.get(key, timeout_s=0.2)
            with pytest.raises(TimeoutError):
                await store.get(key, timeout_s=0.1)
            with pytest.raises(OutcomeUnknownError):
                await store.put(key, b"after", timeout_s=0.2)
            with pytest.raises(OutcomeUnknownError):
                await store.txn([], [Put(key, b"after")], timeout_s=0.1)
            with pytest.raises(StoreTimeoutError):
                await store.txn([], [Range(key)], timeout_s=0.1)
            if not there.is_embedded:
                with pytest.raises(StoreTimeoutError):
                    await store.current_revision(timeout_s=0.1)
        finally:
            there.resume()
        assert (await store.get(key)).kv is not None

    there.play(play)


def test_callers_can_be_cancelled(there: StoreHost, key: bytes) -> None:
    async def play(store: Store) -> None:
        await store.put(key, b"v")
        there.pause()
        try:
            tasks = [asyncio.create_task(store.get(key)) for _ in range(100)]
            asked = asyncio.create_task(store.current_revision())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            for each in tasks[:50]:
                each.cancel()
            results = await asyncio.gather(*tasks[:50], return_exceptions=True)
            assert {type(each) for each in results} == {asyncio.CancelledError}
            if not there.is_embedded:
                asked.cancel()
        finally:
            there.resume()
        assert {(await each).kv.value for each in tasks[50:]} == {b"v"}  # type: ignore[union-attr]
        await asyncio.gather(asked, return_exceptions=True)
        assert await store.current_revision() > 0

    there.play(play)


def test_a_closed_store_says_so(there: StoreHost, key: bytes) -> None:
    async def play() -> None:
        store = there.open()
        with pytest.raises(ClosedError):
            await store.get(key)
        async with store:
            await store.put(key, b"v")
            watch = store.watch(key)
            await anext(watch)
            there.pause()
            try:
                waiting = [asyncio.create_task(store.get(key)) for _ in range(3)]
                reading = asyncio.create_task(anext(watch))
                await asyncio.sleep(0.05)
                await store.__aexit__(None, None, None)
            finally:
                there.resume()
            results = await asyncio.gather(*waiting, reading, return_exceptions=True)
        assert {type(each) for each in results} == {ClosedError}
        with pytest.raises(ClosedError):
            await store.put(key, b"v")
        with pytest.raises(StoreError):
            await store.current_revision() if not there.is_embedded else await store.get(key)

    asyncio.run(play())


def test_metadata_goes_along(there: StoreHost, key: bytes) -> None:
    options = ClientOptions(metadata=(("client-api-version", "3.5"), ("x-trace", "a b")))

    async def play(store: Store) -> None:
        await store.put(key, b"v")
        assert (await store.get(key)).kv is not None

    there.play(play, options)
