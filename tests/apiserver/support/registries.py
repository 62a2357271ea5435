"""A registry over a store in memory, with objects as the server stores them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from tests.apiserver.support.memory_store import MemoryStore
from tests.apiserver.support.virtual_time import LoopClock

CONFIG_MAPS = GroupResource("", "configmaps")
PODS = GroupResource("", "pods")
NAMES = (
    "configmaps",
    "pods",
    "nodes",
    "namespaces",
    "events",
    "secrets",
    "deployments",
    "daemonsets",
    "horizontalpodautoscalers",
    "devicetaintrules",
    "apiservices",
    "networkpolicies",
    "customresourcedefinitions",
    "controllerrevisions",
)


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []

    def debug(self, msg: str, **fields: object) -> None:
        """Keep nothing."""

    def info(self, msg: str, **fields: object) -> None:
        """Keep a line."""
        self.lines.append(msg)

    def warning(self, msg: str, **fields: object) -> None:
        """Keep a line."""
        self.lines.append(msg)

    def error(self, msg: str, **fields: object) -> None:
        """Keep a line."""
        self.lines.append(f"error: {msg} {fields}")


class World(NamedTuple):
    """A registry and what it stands on."""

    store: MemoryStore
    registry: Registry
    clock: LoopClock
    log: Lines

    @property
    def config_maps(self) -> Collection:
        """Their collection."""
        return self.registry.collection(CONFIG_MAPS)

    async def create(self, name: str, namespace: str = "a", **more: Any) -> Record:
        """Store a ConfigMap; more: members of its metadata."""
        written = await self.registry.writes.create(
            self.config_maps, f"{namespace}/{name}", config_map(name, namespace, **more)
        )
        assert isinstance(written, Record)
        return written

    async def settle(self) -> None:
        """Let the copy catch up."""
        await self.registry.watch_cache.latest(3)


def config_map(name: str, namespace: str = "a", **more: Any) -> dict[str, Any]:
    """Return a ConfigMap as it is stored."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", **more}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": {"k": name}}


@asynccontextmanager
async def world(*, is_loaded: bool = True) -> AsyncIterator[World]:
    """Give a registry that follows its store."""
    store, clock, log = MemoryStore(), LoopClock(), Lines()
    table = load()
    rows = [each for each in table if each.name in NAMES and "beta" not in each.version]
    async with Registry(store, table, rows, clock, log) as registry:
        found = World(store, registry, clock, log)
        if is_loaded:
            await registry.watch_cache.reach(1, 1)
        yield found
