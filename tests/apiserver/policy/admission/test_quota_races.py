"""Quotas hold whoever writes: three API servers admit pods on one store, at the same time."""

import asyncio
from random import Random
from typing import Any

import pytest
from typing_extensions import override

from kvstack.apimachinery.objects.core.group_resources import PODS, QUOTAS
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.policy.admission.plugins.resource_quota import ResourceQuota
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from tests.apiserver.policy.admission.requests import admission_request
from tests.apiserver.support.memory_store import MemoryStore
from tests.apiserver.support.registries import Lines
from tests.apiserver.support.virtual_time import LoopClock, run

SERVERS = 3
RESOURCES = {("", "pods"), ("", "resourcequotas"), ("", "namespaces")}


class SlowStore(MemoryStore):
    """A store whose answers take their time, each another one."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random

    @override
    async def txn(self, *arguments: Any, **options: Any) -> Any:
        await asyncio.sleep(self._random.random() * 0.01)
        found = await super().txn(*arguments, **options)
        await asyncio.sleep(self._random.random() * 0.01)
        return found

    @override
    async def current_revision(self, *, timeout_s: float | None = None) -> int:
        await asyncio.sleep(self._random.random() * 0.01)
        return await super().current_revision(timeout_s=timeout_s)


def quota(name: str, **hard: str) -> dict[str, Any]:
    return {
        "kind": "ResourceQuota",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": dict.fromkeys(hard, "0")},
    }


def pod(name: str, cpu: int) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "a", "uid": f"uid-{name}"},
        "spec": {"containers": [container]},
    }


async def admitted(registry: Registry, plugin: ResourceQuota, obj: dict[str, Any]) -> bool:
    """Create a pod as the verb does: charged, then stored."""
    try:
        waiting = plugin.validate(admission_request(obj))
        if waiting is not None:
            await waiting
    except ApiError as error:
        if error.code not in (403, 409):
            raise
        return False
    pods = registry.collection(PODS)
    written = await registry.writes.create(pods, f"a/{obj['metadata']['name']}", obj)
    assert isinstance(written, Record)
    return True


@pytest.mark.parametrize("seed", range(6))
def test_quotas_are_never_exceeded(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        store, clock = SlowStore(random), LoopClock()
        table = load()
        rows = [each for each in table if (each.group, each.name) in RESOURCES]
        registries = [Registry(store, table, rows, clock, Lines()) for _ in range(SERVERS)]
        for each in registries:
            await each.__aenter__()
            await each.watch_cache.latest(3)
        first = registries[0]
        quotas = first.collection(QUOTAS)
        for obj in (quota("count", pods="17"), quota("cpu", **{"requests.cpu": "3"})):
            await first.writes.create(quotas, f"a/{obj['metadata']['name']}", obj)
        for each in registries:
            await each.watch_cache.latest(3)
        plugins = [ResourceQuota(each.view, each.live, clock) for each in registries]

        async def writer(number: int) -> list[int]:
            found = []
            for turn in range(4):
                which = random.randrange(SERVERS)
                cpu = random.choice((50, 100, 400))
                obj = pod(f"p-{number}-{turn}", cpu)
                if await admitted(registries[which], plugins[which], obj):
                    found.append(cpu)
            return found

        done = await asyncio.gather(*(writer(number) for number in range(15)))
        stored = [cpu for each in done for cpu in each]
        assert 0 < len(stored) <= 17
        assert sum(stored) <= 3000
        await first.watch_cache.latest(3)
        used = {
            each["metadata"]["name"]: each["status"]["used"]
            for each in first.view.list(QUOTAS, "a")
        }
        assert int(used["count"]["pods"]) >= len(stored)
        assert len(list(first.view.list(GroupResource("", "pods"), "a"))) == len(stored)
        for each in registries:
            await each.__aexit__(None, None, None)

    run(main())
