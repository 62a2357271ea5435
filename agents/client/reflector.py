"""Keeps a sink up to date with all objects of a resource, for ever: list, watch, and retry.

    watch with initial events ─► replace(all objects) ─► apply(events) … ends ─► watch on
       └► refused: list in pages ─► replace ─► watch       └► 410: from the beginning

Rules (client-go's reflector): a watch that ends is started again at the last resourceVersion, also
of bookmarks; after 410, and after a resourceVersion that the server has not reached (its store was
restored, say), all objects are read again. After a failure, or a watch that ends at once without an
event, it waits for 0.8 s, twice as long each time up to 30 s, with jitter.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Final, Protocol

from kvstack.agents.client.api import JSON, Api, Event
from kvstack.agents.client.back_off import RetryBackOff
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import INITIAL_EVENTS_END_ANNOTATION
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

WATCH_S: Final = 300
"""The minimum length of a watch; the maximum is twice that."""
_PAGE: Final = 500
_BASE_S: Final = 0.8
_MAX_S: Final = 30.0
_RESET_S: Final = 120.0
_SHORT_S: Final = 1.0
"""A watch that ends within that without an event is a failure: it is not retried at once."""
_AHEAD: Final = "ResourceVersionTooLarge"


class Sink(Protocol):
    """Receives objects and changes."""

    def replace(self, objects: list[Object], resource_version: str) -> None:
        """Replace all objects."""
        ...

    def apply(self, events: list[Event]) -> None:
        """Apply ADDED, MODIFIED, DELETED and BOOKMARK, in order."""
        ...


class Reflector:
    """Follows one resource, or those objects of it that selectors select."""

    def __init__(
        self,
        api: Api,
        resource: ResourceType,
        sink: Sink,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        accept: str = JSON,
        list_accept: str = JSON,
        watch_s: int = WATCH_S,
        lighten: Callable[[Object], None] | None = None,
    ) -> None:
        """Does not start before `run`.

        random: random numbers from 0 to 1. lighten: called with each object of a whole as it comes,
        to drop what the sink will not keep: until the whole is there, all of them are held.
        """
        self._api = api
        self._resource = resource
        self._sink = sink
        self._clock = clock
        self._random = random
        self._logger = logger
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._accept = accept
        self._list_accept = list_accept
        self._lighten = lighten
        self._watch_s = watch_s
        self._resource_version = ""  # empty: begin from the whole
        self._lists = False  # the server sent no initial events when it was last asked
        self._back_off = RetryBackOff(
            clock, random, base_s=_BASE_S, max_s=_MAX_S, jitter=1.0, reset_s=_RESET_S
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                if self._resource_version:
                    await self._watch()
                elif self._lists:
                    await self._list()
                else:
                    await self._watch_list()
            except ApiError as error:
                if not self._goes_on_at_once(error):
                    await self._wait(error)
            except UnreachableError as error:
                await self._wait(error)

    def _goes_on_at_once(self, error: ApiError) -> bool:
        """Choose what to ask for after a refusal; return whether to ask for it at once."""
        if self._resource_version:
            if error.is_gone or _is_ahead(error):
                self._resource_version = ""
            return error.is_gone
        is_too_many = error.code == HTTPStatus.TOO_MANY_REQUESTS
        if self._lists or error.is_gone or is_too_many or _is_ahead(error):
            return False
        self._lists = True  # an older server, or one that cannot do it now
        return True

    async def _wait(self, error: Exception) -> None:
        wait_s = self._back_off.next_s()
        self._logger.debug(
            "a watch failed",
            resource=str(self._resource),
            error=str(error),
            again_in_s=round(wait_s, 3),
        )
        await asyncio.sleep(wait_s)

    async def _list(self) -> None:
        """List all objects, in pages."""
        items: list[Object] = []
        token = ""
        while True:
            page = await self._api.list_page(
                self._resource,
                self._namespace,
                labels=self._labels,
                fields=self._fields,
                limit=_PAGE,
                continue_token=token,
                accept=self._list_accept,
            )
            if self._lighten is not None:
                for obj in page.items:
                    self._lighten(obj)
            items += page.items
            token = page.continue_token
            if not token:
                break
        self._sink.replace(items, page.resource_version)
        self._resource_version = page.resource_version
        self._lists = False

    async def _watch_list(self) -> None:
        """Get all objects from the start of a watch, and go on with the same stream."""
        objects: dict[tuple[str, str], Object] | None = {}
        async with aclosing(self._stream(initial_events=True)) as stream:
            async for events in stream:
                if objects is None:
                    self._take(events)
                    continue
                for position, event in enumerate(events):
                    meta = event.object["metadata"]
                    if event.type != "BOOKMARK":
                        key = (meta.get("namespace", ""), meta["name"])
                        if event.type == "DELETED":
                            objects.pop(key, None)
                        else:
                            if self._lighten is not None:
                                self._lighten(event.object)
                            objects[key] = event.object
                    elif _is_initial_end(meta):
                        self._sink.replace(list(objects.values()), meta["resourceVersion"])
                        self._resource_version = meta["resourceVersion"]
                        objects = None
                        self._take(events[position + 1 :])
                        break
        self._lists = objects is not None  # it ended before the initial events did

    async def _watch(self) -> None:
        """Follow changes; a stream that ends at once without any raises UnreachableError."""
        began_s, is_silent = self._clock.monotonic_s(), True
        async with aclosing(self._stream(initial_events=False)) as stream:
            async for events in stream:
                is_silent = False
                self._take(events)
        if is_silent and self._clock.monotonic_s() - began_s < _SHORT_S:
            raise UnreachableError(f"a watch ended within {_SHORT_S} s without an event")

    def _stream(self, *, initial_events: bool) -> AsyncGenerator[list[Event], None]:
        return self._api.watch(
            self._resource,
            self._namespace,
            resource_version=self._resource_version,
            labels=self._labels,
            fields=self._fields,
            timeout_s=int(self._watch_s * (1 + self._random())),
            initial_events=initial_events,
            accept=self._accept,
        )

    def _take(self, events: list[Event]) -> None:
        if events:
            self._sink.apply(events)
            self._resource_version = events[-1].object["metadata"]["resourceVersion"]


def _is_initial_end(meta: Object) -> bool:
    """Return whether all initial events were before the bookmark with these metadata."""
    annotations = meta.get("annotations") or {}
    return bool(annotations.get(INITIAL_EVENTS_END_ANNOTATION) == "true")


def _is_ahead(error: ApiError) -> bool:
    """Return whether the server has not reached the requested resourceVersion."""
    causes = (error.status.get("details") or {}).get("causes") or ()
    return any(cause.get("reason") == _AHEAD for cause in causes)
