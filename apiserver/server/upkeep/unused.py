"""Trims caches of an idle server.

    late changes   older than KEPT_S: a watch that begins before them reads the store's history
    routes         that were not requested since the last round
    joined lists   of collections that have changed
    events         that are older than KEPT_S are compressed, if newer ones have not led to that

All of it is bounded anyway; but after a busy hour an idle server would keep the caches full.
"""

import asyncio
from collections import deque
from typing import Final

from kvstack.apiserver.http.routing import Router
from kvstack.apiserver.registry.collection import PACKED_AT_ONCE
from kvstack.apiserver.registry.registry import Registry

PERIOD_S: Final = 25.0
KEPT_S: Final = 75.0
"""Minimum age; the maximum is one period more."""


class Unused:
    """Trims caches periodically."""

    def __init__(self, registry: Registry, router: Router) -> None:
        self._registry: Final = registry
        self._router: Final = router
        self._revisions: Final[deque[int]] = deque(maxlen=round(KEPT_S / PERIOD_S) + 1)
        """Revisions of the last rounds, the oldest first."""
        self._packed_until = -1
        """The revision up to which everything was trimmed."""

    async def look(self) -> None:
        """Run one round; it yields to other tasks in between."""
        watch_cache, marks = self._registry.watch_cache, self._revisions
        if marks and watch_cache.revision < marks[-1]:
            marks.clear()  # the store was restored
        marks.append(watch_cache.revision)
        if len(marks) == marks.maxlen and marks[0] != self._packed_until:
            self._packed_until = marks[0]
            for each in watch_cache.collections.values():
                each.window.forget(marks[0])
            await self._pack(marks[0])
        self._registry.reads.forget_changed_lists()
        self._router.age()

    async def _pack(self, revision: int) -> None:
        """Compress expiring objects that are older than a revision."""
        for collection in list(self._registry.watch_cache.collections.values()):
            packed = PACKED_AT_ONCE
            while packed == PACKED_AT_ONCE:
                if packed := collection.pack(revision, PACKED_AT_ONCE):
                    await asyncio.sleep(0)
