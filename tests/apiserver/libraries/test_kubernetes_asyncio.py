"""The asyncio sibling of the official client: calls, watches, an election."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes_asyncio")

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("apiserver-libraries")]

TIMEOUT_S = 60.0


def played(kubeconfig: Path, play: Callable[[Any], Awaitable[None]]) -> None:
    """Run a coroutine with a connected client."""

    async def run() -> None:
        connected = await config.new_client_from_config(str(kubeconfig))
        async with connected:
            await asyncio.wait_for(play(connected), TIMEOUT_S)

    asyncio.run(run())


def secret(name: str, **data: str) -> Any:
    return client.V1Secret(metadata=client.V1ObjectMeta(name=name), string_data=data)


def test_a_secret_lives_and_ends(kubeconfig: Path, namespace: str) -> None:
    async def play(api: Any) -> None:
        core = client.CoreV1Api(api)
        made = await core.create_namespaced_secret(namespace, secret("s", key="value"))
        assert made.data == {"key": "dmFsdWU="}
        found = await core.patch_namespaced_secret("s", namespace, {"stringData": {"k": "v"}})
        assert found.data == {"key": "dmFsdWU=", "k": "dg=="}
        await core.delete_namespaced_secret("s", namespace)
        with pytest.raises(ApiException) as gone:
            await core.read_namespaced_secret("s", namespace)
        assert gone.value.status == 404

    played(kubeconfig, play)


def test_many_calls_at_once(kubeconfig: Path, namespace: str) -> None:
    async def play(api: Any) -> None:
        core = client.CoreV1Api(api)
        names = [f"s{number:03}" for number in range(100)]
        await asyncio.gather(
            *(core.create_namespaced_secret(namespace, secret(name)) for name in names)
        )
        found = await core.list_namespaced_secret(namespace)
        assert [each.metadata.name for each in found.items] == names

    played(kubeconfig, play)


def test_a_watch_sees_what_another_writes(kubeconfig: Path, namespace: str) -> None:
    async def play(api: Any) -> None:
        core = client.CoreV1Api(api)
        begin = (await core.list_namespaced_secret(namespace)).metadata.resource_version

        async def write() -> None:
            for number in range(10):
                await core.create_namespaced_secret(namespace, secret(f"s{number}"))

        writing = asyncio.create_task(write())
        names = []
        async with watch.Watch() as stream:
            async for event in stream.stream(
                core.list_namespaced_secret, namespace, resource_version=begin
            ):
                names.append(event["object"].metadata.name)
                if len(names) == 10:
                    break
        await writing
        assert names == [f"s{number}" for number in range(10)]

    played(kubeconfig, play)
