"""Streams to the cluster that clients with the same credentials share.

    client streams, token A ─┐
    client streams, token A ─┴─► one link ─► one stream to the cluster
    client streams, token B ───► another

A link is made for the first client that needs it, and its task is cancelled when it is idle.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from kvstack.component.logger import Logger
from kvstore.batch import Metadata

KEYS: Final = ("token", "authorization", "hasleader")  # the metadata that distinguishes links


class Link(Protocol):
    """One shared stream."""

    @property
    def is_idle(self) -> bool:
        """Whether no client uses it."""
        ...

    async def run(self) -> None:
        """Keep the stream open until cancelled, or until the cluster refuses it."""
        ...


L = TypeVar("L", bound=Link)


class Links(Generic[L]):
    """All links of one service."""

    def __init__(self, make: Callable[[Metadata], L], name: str, logger: Logger) -> None:
        """make returns the link for some metadata; name is for tasks and the log."""
        self._make = make
        self._name = name
        self._logger = logger
        self._links: dict[tuple[str, ...], tuple[L, asyncio.Task[None]]] = {}

    def get(self, metadata: Metadata) -> L:
        """Return the link for a client's metadata, made and started if there is none."""
        key = tuple(metadata.get(each, "") for each in KEYS)
        found = self._links.get(key)
        if found is not None and not found[1].done():
            return found[0]
        link = self._make({name: metadata[name] for name in KEYS if name in metadata})
        task = asyncio.create_task(link.run(), name=self._name)
        task.add_done_callback(self._on_end)
        self._links[key] = (link, task)
        return link

    def release(self, link: L) -> None:
        """End a link if it is idle."""
        if not link.is_idle:
            return
        for key, (each, task) in list(self._links.items()):
            if each is link:
                task.cancel()
                del self._links[key]

    async def close(self) -> None:
        """End every link."""
        tasks = [task for _, task in self._links.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error(f"a {self._name} failed", error=repr(error))
