"""Stores of users: tokens got and renewed, what is refused, watches that outlive a token."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstore.client import ClientOptions, Store
from kvstore.client.errors import PermissionDeniedError, UnauthenticatedError
from kvstore.client.values import Events, Put, Started, prefix_end
from kvstore.client.watch import Watch
from kvstore.wire import rpc
from kvstore.wire.gen import auth_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.store_hosts import THREADED_KINDS, StoreHost, needs_crate, store_host

FLAGS = ("--bcrypt-cost=4", "--auth-token-ttl=2")
ROOT = ClientOptions(user="root", password="secret", revision_key=b"a/")
ALICE = ClientOptions(user="alice", password="pass", revision_key=b"a/")


@pytest.fixture(params=THREADED_KINDS)
def there(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHost]:
    if why := needs_crate(request.param):
        pytest.skip(why)
    with store_host(request.param, tmp_path, *FLAGS) as found:
        found.play(enable)
        yield found


async def ask(store: Any, method: int, request: Any) -> Any:
    body = await store._caller.call(method, request.SerializeToString(), is_change=True)
    return rpc.METHODS[method].response.FromString(body)


async def enable(store: Store) -> None:
    """Let root do everything and alice write below a/ and read below r/."""
    for name, password in (("root", "secret"), ("alice", "pass")):
        await ask(store, rpc.AUTH_USER_ADD, pb.AuthUserAddRequest(name=name, password=password))
    for role in ("root", "a"):
        await ask(store, rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name=role))
    for key, kind in ((b"a/", auth_pb2.Permission.READWRITE), (b"r/", auth_pb2.Permission.READ)):
        permission = auth_pb2.Permission(permType=kind, key=key, range_end=prefix_end(key))
        granted = pb.AuthRoleGrantPermissionRequest(name="a", perm=permission)
        await ask(store, rpc.AUTH_ROLE_GRANT_PERMISSION, granted)
    await ask(
        store, rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="root", role="root")
    )
    await ask(store, rpc.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest(user="alice", role="a"))
    await ask(store, rpc.AUTH_ENABLE, pb.AuthEnableRequest())


async def next_events(watch: Watch) -> Events:
    async with asyncio.timeout(20):
        async for value in watch:
            if isinstance(value, Events):
                return value
    raise AssertionError("the watch ended")


def test_a_user_may_what_its_roles_say(there: StoreHost) -> None:
    async def play(store: Store) -> None:
        assert (await store.put(b"a/k", b"v")).revision > 1
        found = (await store.get(b"a/k")).kv
        assert found is not None
        assert found.value == b"v"
        assert await store.current_revision() > 1
        with pytest.raises(PermissionDeniedError):
            await store.put(b"r/k", b"v")
        with pytest.raises(PermissionDeniedError):
            await store.get(b"b/k")
        with pytest.raises(PermissionDeniedError):
            await store.txn([], [Put(b"a/k", b"v"), Put(b"b/k", b"v")])
        await asyncio.gather(*[store.put(b"a/%d" % each, b"v") for each in range(100)])

    async def put_elsewhere(store: Store) -> None:
        await store.put(b"b/k", b"v")

    there.play(play, ALICE)
    there.play(put_elsewhere, ROOT)


def test_who_cannot_be(there: StoreHost) -> None:
    async def play(store: Store) -> None:
        with pytest.raises(UnauthenticatedError):
            await store.get(b"a/k")
        with pytest.raises(UnauthenticatedError):
            await store.put(b"a/k", b"v")
        watch = store.watch(b"a/k")
        with pytest.raises((UnauthenticatedError, PermissionDeniedError)):
            await anext(watch)

    there.play(play, ClientOptions(user="alice", password="wrong"))
    there.play(play, ClientOptions(user="nobody", password="pass"))
    there.play(play, ClientOptions(token="made.up.token"))
    if not there.is_embedded:  # there, nobody is root
        there.play(play, ClientOptions())


def test_the_process_itself_has_every_right(there: StoreHost) -> None:
    if not there.is_embedded:
        pytest.skip("another process has none")

    async def play(store: Store) -> None:
        async with store.watch(b"b/k") as watch:
            assert isinstance(await anext(watch), Started)
            await store.put(b"b/k", b"v")
            assert len((await next_events(watch)).events) == 1
        assert (await store.get(b"b/k")).kv is not None
        await store.compact(2)

    there.play(play)


def test_tokens_are_renewed_once_for_all_that_were_refused(there: StoreHost) -> None:
    async def play(store: Store) -> None:
        await store.put(b"a/k", b"v")
        asked = 0
        call = store._channel.call  # type: ignore[attr-defined]

        async def counting(method: int, *arguments: Any) -> Any:
            nonlocal asked
            asked += method == rpc.AUTHENTICATE
            return await call(method, *arguments)

        store._channel.call = counting  # type: ignore[attr-defined]
        await expire_tokens(there)
        results = await asyncio.gather(*[store.put(b"a/%d" % n, b"v") for n in range(50)])
        assert len(results) == 50
        assert asked == 1
        forged = (("token", "forged.1"),)
        store._caller.tokens.metadata = forged  # type: ignore[attr-defined]
        assert (await store.get(b"a/k")).kv is not None
        assert asked == 2

    there.play(play, ALICE)


def test_watches_of_a_user(there: StoreHost) -> None:
    async def play(store: Store) -> None:
        async with (
            store.watch(b"a/", prefix_end(b"a/")) as mine,
            store.watch(b"b/k") as theirs,
            store.watch(b"r/k") as readable,
        ):
            assert isinstance(await anext(mine), Started)
            with pytest.raises(PermissionDeniedError):
                await anext(theirs)
            assert isinstance(await anext(readable), Started)
            put = await store.put(b"a/k", b"v")
            assert (await next_events(mine)).events[0].kv.mod_revision == put.revision

    there.play(play, ALICE)


def test_a_watch_outlives_its_token(there: StoreHost) -> None:
    """A stream does not refresh its token: a watch added later must not be refused for that."""

    async def play(store: Store) -> None:
        async with store.watch(b"a/k") as first:
            assert isinstance(await anext(first), Started)
            session = store._watches  # type: ignore[attr-defined]
            await expire_tokens(there)
            session._opened_at -= 3600  # the stream is old
            async with store.watch(b"a/other") as second:
                async with asyncio.timeout(20):
                    assert isinstance(await anext(second), Started)
                await store.put(b"a/k", b"v")
                await store.put(b"a/other", b"v")
                assert len((await next_events(first)).events) == 1
                assert len((await next_events(second)).events) == 1

    there.play(play, ALICE)


async def expire_tokens(there: StoreHost) -> None:
    """Make every token of alice worthless: her password is set anew."""
    async with there.open(ROOT) as root:
        change = pb.AuthUserChangePasswordRequest(name="alice", password="pass")
        await ask(root, rpc.AUTH_USER_CHANGE_PASSWORD, change)


def test_a_restarted_server_knows_no_token(there: StoreHost) -> None:
    if there.server is None:
        pytest.skip("it ends with its process")
    server = there.server

    async def play(store: Store) -> None:
        async with store.watch(b"a/k") as watch:
            assert isinstance(await anext(watch), Started)
            await store.put(b"a/k", b"1")
            await next_events(watch)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await store.put(b"a/k", b"2", timeout_s=30)
            assert (await next_events(watch)).events[0].kv.value == b"2"
            lease = (await store.lease_grant(60)).lease
            assert (await store.lease_keep_alive(lease)).ttl_s == 60

    there.play(play, ALICE)
