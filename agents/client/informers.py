"""One informer per resource for a whole process: all users share it.

informers = Informers(api, clock, random, logger)
pods = informers.of(PODS)
await informers.synced()
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import Final, Self

from kvstack.agents.client.api import JSON, METADATA, METADATA_LIST, Api
from kvstack.agents.client.informer import Informer, Lighten
from kvstack.agents.client.reflector import WATCH_S
from kvstack.agents.client.resource_type import ResourceType
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

NOTHING: Final[Mapping[ResourceType, Lighten]] = MappingProxyType({})


class Informers:
    """Starts informers when they are first requested, and stops them together."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        *,
        watch_s: int = WATCH_S,
        lighten: Mapping[ResourceType, Lighten] = NOTHING,
    ) -> None:
        """watch_s: the minimum length of a watch; lighten: leaves out parts of whole objects."""
        self._watch_s = watch_s
        self._lighten = lighten
        self._api = api
        self._clock = clock
        self._random = random
        self._logger = logger
        self._informers: dict[tuple[ResourceType, bool], Informer] = {}
        self._followers: Counter[ResourceType] = Counter()
        self._tasks: dict[tuple[ResourceType, bool], asyncio.Task[None]] = {}

    def of(self, resource: ResourceType, *, metadata_only: bool = False) -> Informer:
        """Return the informer of a resource, which runs from now on."""
        key = (resource, metadata_only)
        informer = self._informers.get(key)
        if informer is None:
            informer = self._informers[key] = Informer(
                self._api,
                resource,
                self._clock,
                self._random,
                self._logger,
                accept=METADATA if metadata_only else JSON,
                list_accept=METADATA_LIST if metadata_only else JSON,
                watch_s=self._watch_s,
                lighten=None if metadata_only else self._lighten.get(resource),
            )
            name = f"informer of {resource}"
            self._tasks[key] = asyncio.get_running_loop().create_task(informer.run(), name=name)
        return informer

    def follow(self, resource: ResourceType) -> Informer:
        """Return an informer with metadata at least, until all who follow the resource leave it.

        One of whole objects serves as well, if there is one.
        """
        whole = self._informers.get((resource, False))
        if whole is not None and resource not in self._followers:
            return whole
        self._followers[resource] += 1
        return self.of(resource, metadata_only=True)

    async def leave(self, resource: ResourceType) -> None:
        """Stop following a resource; its informer ends with its last user."""
        if resource not in self._followers:
            return
        self._followers[resource] -= 1
        if not self._followers[resource]:
            del self._followers[resource]
            await self.drop(resource, metadata_only=True)

    async def drop(self, resource: ResourceType, *, metadata_only: bool = False) -> None:
        """End the informer of a resource that is no longer served."""
        key = (resource, metadata_only)
        if self._informers.pop(key, None) is not None:
            await _end([self._tasks.pop(key)])

    async def synced(self) -> None:
        """Wait until all requested informers are synced."""
        for informer in list(self._informers.values()):
            await informer.synced()

    def positions(self) -> Iterator[tuple[ResourceType, str]]:
        """Yield the followed resources, and up to which resourceVersion they are known."""
        for (resource, _), informer in self._informers.items():
            yield resource, informer.store.resource_version

    async def close(self) -> None:
        """End all."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        self._informers.clear()
        await _end(tasks)

    async def __aenter__(self) -> Self:
        """Start."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all."""
        await self.close()


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for done in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
            raise done
