"""Gives up what is kept for requests that may come, once it is old.

    late changes   older than KEPT_S: a watch that begins before them reads the store's history
    routes         that nobody asked for since the last round
    joined lists   of collections that have changed
    events         that are older than KEPT_S are kept compressed

All of it is bounded without this, too; but after a busy hour an idle server would hold the bounds.
"""

import asyncio
from collections import deque
from typing import Final

from kvstack.apiserver.http.routing import Router
from kvstack.apiserver.registry.registry import Registry

PERIOD_S: Final = 25.0
KEPT_S: Final = 75.0
"""At least; one period more at most."""
_PACKED_AT_ONCE: Final = 50
"""Records, which takes a few milliseconds."""


class Unused:
    """Looks from time to time."""

    def __init__(self, registry: Registry, router: Router) -> None:
        """Look after a registry and what leads to it."""
        self._registry: Final = registry
        self._router: Final = router
        self._revisions: Final[deque[int]] = deque(maxlen=round(KEPT_S / PERIOD_S) + 1)
        """Of the last rounds, the oldest first."""
        self._packed_until = -1
        """The revision up to which nothing is left to be given up."""

    async def look(self) -> None:
        """Do one round; others work in between."""
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
        """Compress what expires and is older than a revision."""
        for collection in list(self._registry.watch_cache.collections.values()):
            packed = _PACKED_AT_ONCE
            while packed == _PACKED_AT_ONCE:
                if packed := collection.pack(revision, _PACKED_AT_ONCE):
                    await asyncio.sleep(0)
