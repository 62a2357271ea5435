"""Stores of a member in this process: shared, stopped under, without sockets or questions."""

import asyncio
import threading

import pytest

from kvstore import embed
from kvstore.client import ClientOptions, Store, connect
from kvstore.client.errors import (
    OutcomeUnknownError,
    StoreError,
    UnauthenticatedError,
    UnavailableError,
)
from kvstore.client.values import Events, Interrupted, Started
from kvstore.errors import KvstoreError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb


def test_a_revision_that_is_known_is_not_asked_for() -> None:
    async def play(store: Store) -> None:
        async with store:
            put = await store.put(b"k", b"v")
            call = store._channel.call  # type: ignore[attr-defined]
            store._channel.call = None  # type: ignore[attr-defined]
            for _ in range(100):
                assert await store.current_revision() == put.revision
            store._channel.call = call  # type: ignore[attr-defined]
            for each in range(50):
                put = await store.put(b"k", b"%d" % each)
                assert await store.current_revision() == put.revision

    with embed.start() as member:
        asyncio.run(play(member.store()))


def test_what_one_acknowledges_every_other_sees() -> None:
    with embed.start(client_urls=["http://127.0.0.1:0"]) as member:
        seen: list[int] = []

        async def write() -> None:
            async with connect([member.client_urls[0]]) as store:
                for _ in range(100):
                    put = await store.put(b"k", b"v")
                    seen.append(put.revision)

        async def look(store: Store) -> None:
            async with store:
                while len(seen) < 100:
                    before = seen[-1] if seen else 0
                    assert await store.current_revision() >= before
                    await asyncio.sleep(0)

        writer = threading.Thread(target=lambda: asyncio.run(write()))
        writer.start()
        asyncio.run(look(member.store()))
        writer.join()


def test_many_stores_on_many_loops() -> None:
    with embed.start() as member:
        failures: list[BaseException] = []

        async def play(name: int) -> None:
            for turn in range(3):
                async with member.store() as one, member.store() as other:
                    watch = other.watch(b"%d" % name)
                    assert isinstance(await anext(watch), Started)
                    puts = [one.put(b"%d" % name, b"%d" % each) for each in range(20)]
                    await asyncio.gather(*puts)
                    count = 0
                    async for value in watch:
                        count += len(value.events) if isinstance(value, Events) else 0
                        if count == 20:
                            break
                    found = (await other.get(b"%d" % name)).kv
                    assert found is not None
                    assert found.version == 20 * (turn + 1)

        def run(name: int) -> None:
            try:
                asyncio.run(play(name))
            except BaseException as error:  # noqa: BLE001 - asserted by the test
                failures.append(error)

        threads = [threading.Thread(target=run, args=(each,)) for each in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def test_a_member_that_stops_answers_what_it_has_admitted() -> None:
    async def play() -> None:
        member = embed.start()
        async with member.store() as store:
            watch = store.watch(b"k")
            assert isinstance(await anext(watch), Started)
            calls = [asyncio.create_task(store.put(b"%d" % each, b"v")) for each in range(500)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # they are handed over
            await asyncio.to_thread(member.stop)
            results = await asyncio.gather(*calls, return_exceptions=True)
            errors = [each for each in results if isinstance(each, BaseException)]
            assert not [each for each in errors if not isinstance(each, StoreError)]
            assert not [each for each in errors if isinstance(each, OutcomeUnknownError)]
            assert len(errors) < 500
            with pytest.raises(UnavailableError, match="stopped"):
                await store.put(b"late", b"v", timeout_s=0.2)
            assert isinstance(await anext(watch), Interrupted)
        with pytest.raises(KvstoreError, match="stopped"):
            member.store()

    asyncio.run(play())


def test_a_user_in_the_same_process_is_no_root() -> None:
    async def play(member: embed.Member) -> None:
        async with member.store() as root:
            caller = root._caller  # type: ignore[attr-defined]
            for method, request in (
                (rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name="root", password="p")),
                (rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name="root")),
                (rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="root", role="root")),
                (rpc.AUTH_ENABLE, pb.AuthEnableRequest()),
            ):
                await caller.call(method, request.SerializeToString(), is_change=True)
            await root.put(b"k", b"v")
            async with member.store(ClientOptions(user="nobody", password="p")) as nobody:
                with pytest.raises(UnauthenticatedError):
                    await nobody.put(b"k", b"v")
                with pytest.raises(StoreError):
                    await anext(nobody.watch(b"k"))
            async with member.store(ClientOptions(user="root", password="p")) as named:
                await named.put(b"k", b"w")

    with embed.start(flags=["--bcrypt-cost=4"]) as member:
        asyncio.run(play(member))
