"""The objects of one resource, kept up to date, and handlers that are called for each change.

    informer = Informer(api, PODS, clock, random, logger)
    informer.on_change(lambda old, new: …)      None for an object that does not exist
    task = asyncio.create_task(informer.run()); await informer.synced()
    informer.store.get("default/web")

A handler is called for every object that existed before it was added. After a lost watch it gets
deletions in between with the last known state. An object that was replaced by one of the same
name and another uid is a deletion and an addition. managedFields, which no agent reads, are
left out, and what objects have in common is held once (`structural_sharing`). `lighten` leaves out
more.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from kvstack.agents.client.api import JSON, Api, Event
from kvstack.agents.client.built_in import ENDPOINT_SLICES, NODES, PODS, REPLICA_SETS
from kvstack.agents.client.object_store import ObjectStore, key_of
from kvstack.agents.client.reflector import WATCH_S, Reflector
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.structural_sharing import (
    SHALLOW,
    compact,
    share,
    share_metadata,
    share_status,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

Handler: TypeAlias = Callable[[Object | None, Object | None], None]
Lighten: TypeAlias = Callable[[Object], None]
"""Leaves out parts of a new object that no agent of the process reads."""

_SHARING: Final = frozenset((PODS, REPLICA_SETS, NODES, ENDPOINT_SLICES))
"""Resources with many objects that are alike, and without members of free form, in which 1 and true
would be equal."""


class Informer:
    """Follows one resource for all who want to know."""

    def __init__(
        self,
        api: Api,
        resource: ResourceType,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        *,
        labels: str = "",
        fields: str = "",
        accept: str = JSON,
        list_accept: str = JSON,
        watch_s: int = WATCH_S,
        lighten: Lighten | None = None,
    ) -> None:
        self.resource = resource
        self.store = ObjectStore()
        self._logger = logger
        self._handlers: list[Handler] = []
        self._is_synced = asyncio.Event()
        self._last: Object | None = None
        """The last object that came: of those that come together many are of one workload."""
        self._leave_out = lighten
        self._reflector = Reflector(
            api,
            resource,
            self,
            clock,
            random,
            logger,
            labels=labels,
            fields=fields,
            accept=accept,
            list_accept=list_accept,
            watch_s=watch_s,
            lighten=self._lighten,
        )

    def on_change(self, handler: Handler) -> None:
        """Call a handler with the old and new state for each change, and for existing objects."""
        self._handlers.append(handler)
        for obj in list(self.store):
            self._call(handler, None, obj)

    def forget(self, handler: Handler) -> None:
        """Remove a handler."""
        self._handlers.remove(handler)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._reflector.run()

    @property
    def is_synced(self) -> bool:
        """Whether the store holds all existing objects."""
        return self._is_synced.is_set()

    async def synced(self) -> None:
        """Wait until the store holds all existing objects, and handlers were called."""
        await self._is_synced.wait()

    # The reflector's side.

    def replace(self, objects: list[Object], resource_version: str) -> None:
        """Replace all objects."""
        keys = set()
        for obj in objects:
            keys.add(key_of(obj))
            self._set(obj)
        for key in [key for key in self.store.all_keys() if key not in keys]:
            self._remove(key, None)
        self.store.resource_version = resource_version
        self._is_synced.set()

    def apply(self, events: list[Event]) -> None:
        """Apply changes."""
        for kind, obj in events:
            if kind == "DELETED":
                self._remove(key_of(obj), obj)
            elif kind != "BOOKMARK":
                self._set(obj)
            self.store.resource_version = obj["metadata"]["resourceVersion"]

    def _lighten(self, obj: Object) -> None:
        """Drop the parts of a new object that are not kept, and share the rest."""
        self._drop(obj)
        self._share(obj)

    def _drop(self, obj: Object) -> None:
        obj["metadata"].pop("managedFields", None)
        if self._leave_out is not None:
            self._leave_out(obj)

    def _share(self, obj: Object) -> None:
        """Share what an object that is new has in common with the last one."""
        last, self._last = self._last, obj
        if self.resource in _SHARING:
            compact(obj)
            if last is not None:
                share(obj, last)
        elif last is not None:
            share_metadata(obj, last)

    def _set(self, obj: Object) -> None:
        self._drop(obj)
        key = key_of(obj)
        old = self.store.get(key)
        if old is not None and old["metadata"].get("uid") != obj["metadata"].get("uid"):
            self._remove(key, None)
            old = None
        if old is not None and _version(old) == _version(obj):
            return
        if old is None:
            if obj is not self._last:
                self._share(obj)
        elif self.resource in _SHARING:
            share(obj, old, SHALLOW)
            if self._last is not None:
                share_status(obj, old, self._last)
            self._last = obj
        self.store.set(obj)
        self._notify(old, obj)

    def _remove(self, key: str, last: Object | None) -> None:
        known = self.store.remove(key)
        if known is not None:
            self._notify(last or known, None)

    def _notify(self, old: Object | None, new: Object | None) -> None:
        for handler in self._handlers:
            self._call(handler, old, new)

    def _call(self, handler: Handler, old: Object | None, new: Object | None) -> None:
        """Call a handler; its failure must not affect other handlers, nor end the watch."""
        try:
            handler(old, new)
        except Exception as error:  # noqa: BLE001 - others must still hear of it
            self._logger.error(
                "an informer handler failed", resource=str(self.resource), error=repr(error)
            )


def _version(obj: Object) -> object:
    return obj["metadata"].get("resourceVersion")
