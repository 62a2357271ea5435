"""Stores over the network: real etcd that holds what our API server wrote, and ours."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvstack.clusters.contents import Contents
from kvstack.clusters.sources.etcd import EtcdSource
from kvstack.clusters.sources.source import ReadOptions, Silent, SourceError
from kvstore import embed
from kvstore.client import Store, connect
from kvstore.client.errors import CompactedError
from kvstore.client.values import Delete, KeyValue, Put
from tests.apiserver.support.api_servers import ApiServer, SharedFiles
from tests.apiserver.support.requests import send
from tests.clusters.support.sources import objects_of
from tests.support.servers import etcd, etcdctl, free_ports, running


def read(url: str, **options: Any) -> Contents:
    return asyncio.run(EtcdSource([url]).read(ReadOptions(**options), Silent()))


@pytest.mark.slow
def test_an_etcd_that_our_api_server_wrote(tmp_path: Path) -> None:
    files = SharedFiles.make(tmp_path / "files")
    with running(etcd(tmp_path / "etcd")) as store:
        server = ApiServer(tmp_path / "api", files, [store.client_url])
        server.start()
        try:
            made = send(
                server,
                "POST",
                "/api/v1/namespaces/default/configmaps",
                {"metadata": {"name": "a"}, "data": {"x": "y"}},
            )
            contents = read(store.client_url)
            meta = made["metadata"]
            [kv] = [kv for kv in contents.rows if kv.key.endswith(b"configmaps/default/a")]
            assert str(kv.mod_revision) == meta["resourceVersion"]
            found = objects_of([kv])["/registry/configmaps/default/a"]
            assert found == made
            assert contents.origin.kind == "etcd"
            assert contents.origin.version == "3.5.1"
            assert not any(kv.key.startswith(b"/registry/masterleases") for kv in contents.rows)
            send(server, "DELETE", "/api/v1/namespaces/default/configmaps/a")
            past = read(store.client_url, at=str(contents.revision))
            assert past.rows == contents.rows
            whole = read(store.client_url, since_s=3600.0)
            assert whole.history is not None
            assert whole.history.readable_from == 1
            assert kv in whole.history.records
        finally:
            server.stop()


def test_an_etcd_that_is_not_there() -> None:
    (port,) = free_ports(1)
    source = EtcdSource([f"http://127.0.0.1:{port}"], reach_s=0.5)
    with pytest.raises(SourceError, match=f"127.0.0.1:{port}"):
        asyncio.run(source.read(ReadOptions(), Silent()))


@pytest.mark.slow
def test_an_etcd_whose_users_have_passwords(tmp_path: Path) -> None:
    def read_as(url: str, user: str) -> Contents:
        source = EtcdSource([url], user=user, reach_s=5.0)
        return asyncio.run(source.read(ReadOptions(), Silent()))

    with running(etcd(tmp_path / "etcd")) as store:
        for words in (
            ("put", "/registry/configmaps/a/b", '{"kind":"ConfigMap","apiVersion":"v1"}'),
            ("user", "add", "root:secret"),
            ("user", "grant-role", "root", "root"),
            ("user", "add", "other:secret"),
            ("auth", "enable"),
        ):
            etcdctl(store, *words)
        contents = read_as(store.client_url, "root:secret")
        assert [kv.key for kv in contents.rows] == [b"/registry/configmaps/a/b"]
        for user, reason in (
            ("root:wrong", "authentication failed, invalid user ID or password"),
            ("other:secret", "permission denied"),
            ("", "user name is empty"),
        ):
            with pytest.raises(SourceError) as refused:
                read_as(store.client_url, user)
            assert store.client_url in str(refused.value)
            assert reason in str(refused.value)
            assert "secret" not in str(refused.value)


# Random histories: the fork goes on as the source would.

KEYS = st.sampled_from([b"/registry/a/1", b"/registry/a/2", b"/registry/b/x/y", b"/other"])
PUTS = st.tuples(KEYS, st.sampled_from([b"", b"{}", b"k8s\0x", b"v" * 200]))
STEPS = st.lists(
    st.one_of(
        st.lists(st.one_of(PUTS, KEYS), min_size=1, max_size=3, unique_by=lambda e: str(e)[:18]),
        st.just("compact"),
    ),
    max_size=15,
)


@pytest.fixture(scope="module")
def source_member() -> Iterator[embed.Member]:
    with embed.start(client_urls=["http://127.0.0.1:0"]) as member:
        yield member


async def play(store: Store, steps: list[Any]) -> int:
    """Do steps; return the revision that was compacted at, 0: none."""
    compacted = 0
    for step in steps:
        if step == "compact":
            at = await store.current_revision()
            try:
                await store.compact(at)
            except CompactedError:
                continue
            compacted = at
            continue
        ops = {(each[0] if isinstance(each, tuple) else each): each for each in step}
        await store.txn(
            [], [Put(*each) if isinstance(each, tuple) else Delete(each) for each in ops.values()]
        )
    return compacted


async def state_of(store: Store, revision: int = 0) -> tuple[list[KeyValue], int]:
    found = await store.range(b"/registry/", b"/registry0", revision=revision)
    return list(found.kvs), found.revision


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, STEPS)
def test_any_history(source_member: embed.Member, before: list[Any], after: list[Any]) -> None:
    url = source_member.client_urls[0]

    async def begin() -> int:
        async with source_member.store() as store:
            await store.delete(b"/", b"0")
            return await play(store, [*before])

    compacted = asyncio.run(begin())
    for with_history in (False, True):
        contents = read(url, since_s=1e9 if with_history else None)

        async def compare(contents: Contents = contents) -> None:
            rows = contents.first_rows()
            with embed.start(first_rows=rows) as member:
                async with member.store() as fork, source_member.store() as source:
                    now, revision = await state_of(source)
                    assert await state_of(fork) == (now, revision)
                    assert contents.revision == revision
                    if contents.history is not None:
                        first = contents.history.readable_from
                        assert first >= compacted
                        for each in range(max(first, revision - 10), revision + 1):
                            assert (await state_of(fork, each))[0] == (
                                await state_of(source, each)
                            )[0]
                    elif revision > 1:
                        with pytest.raises(CompactedError):
                            await state_of(fork, revision - 1)

        asyncio.run(compare())

    # And from there on, the same.
    contents = read(url)

    async def goes_on() -> None:
        with embed.start(first_rows=contents.first_rows()) as member:
            async with member.store() as fork, source_member.store() as source:
                other = await source.get(b"/other")
                if other.kv is not None:  # it stays behind
                    await source.delete(b"/other")
                    await fork.put(b"/any", b"")
                steps = [
                    [each for each in step if b"/other" not in (each, each[0])] or [(b"/any", b"")]
                    for step in after
                    if step != "compact"
                ]
                await play(source, steps)
                await play(fork, steps)
                now, revision = await state_of(fork)
                assert (now, revision) == await state_of(source)

    asyncio.run(goes_on())


def test_over_the_network(source_member: embed.Member) -> None:
    async def main() -> None:
        async with connect(source_member.client_urls) as store:
            await store.put(b"/registry/a/1", b"{}")

    asyncio.run(main())
    with pytest.raises(SourceError, match="--at yesterday: a store is read at a revision"):
        read(source_member.client_urls[0], at="yesterday")
    with pytest.raises(SourceError, match="future revision"):
        read(source_member.client_urls[0], at="999999999")
