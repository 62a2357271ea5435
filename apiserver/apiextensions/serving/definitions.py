"""Follows definitions and serves their custom resources.

    following = Definitions(registry, serve, logger)
    following.follow()            from the watch cache, and its changes
    await following.settled()     until all existing ones are served

A definition is served once it is established, and updated whenever its versions or names change.
One task applies changes in order: the objects are read into the cache first, then `serve` gets all
rows. Definitions whose objects cannot be read are retried. Only the record of a definition is kept:
there may be thousands.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    ESTABLISHED,
    TERMINATING,
    is_true,
)
from kvstack.apiserver.apiextensions.customresources.form import check_form
from kvstack.apiserver.apiextensions.customresources.resource import CustomResource
from kvstack.apiserver.apiextensions.customresources.rows import rows_of
from kvstack.apiserver.apiextensions.customresources.versions import version_rank
from kvstack.apiserver.apiextensions.serving.conversion import WebhookConverter
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.window import Change
from kvstack.component.logger import Logger
from kvstore.client.errors import StoreError

DEFINITIONS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
_RETRY_S: Final = 1.0
_AT_ONCE: Final = 32
"""Number of concurrent reads of definitions' objects."""

MakeConverter = Callable[[Object], WebhookConverter]
"""Returns the converter of a definition with a webhook; ValueError: it has none."""


class _RowSource(NamedTuple):
    """What rows are made from, in short."""

    is_going: bool
    rest: bytes


class _ServedDefinition(NamedTuple):
    """The served state of a definition."""

    said: _RowSource
    resource: GroupResource
    rows: list[CustomResource]


class Definitions:
    """Serves the custom resources of all definitions."""

    def __init__(
        self,
        registry: Registry,
        serve: Callable[[list[Resource]], None],
        make_converter: MakeConverter,
        logger: Logger,
    ) -> None:
        """serve: takes all served rows, in the order of discovery."""
        self._registry: Final = registry
        self._serve: Final = serve
        self._make_converter: Final = make_converter
        self._logger: Final = logger
        self._changed: set[str] = set()
        self._wake: Final = asyncio.Event()
        self._idle: Final = asyncio.Event()
        self._served: dict[str, _ServedDefinition] = {}
        self._task: asyncio.Task[None] | None = None

    def follow(self) -> None:
        """Start; the registry must have been read."""
        collection = self._registry.collection(DEFINITIONS)
        collection.listeners.append(self._note)
        self._changed.update(each.key for each in collection.between())
        self._idle.set()
        if self._changed:
            self._idle.clear()
            self._wake.set()
        self._task = asyncio.create_task(self._run(), name="definitions")

    async def settled(self) -> None:
        """Wait until all known definitions are served."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Stop."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _note(self, changes: Sequence[Change]) -> None:
        self._changed.update(each.key for each in changes)
        self._idle.clear()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            names, self._changed = sorted(self._changed), set()
            failed: set[str] = set()
            if await self._take(names, failed):
                self._serve(in_order(self._served))
            if failed:
                self._changed |= failed
                self._wake.set()
                await asyncio.sleep(_RETRY_S)
            if not self._changed:
                self._idle.set()

    async def _take(self, names: Iterable[str], failed: set[str]) -> bool:
        """Update some definitions; return whether anything changed."""
        collection = self._registry.collection(DEFINITIONS)
        is_different = False
        joining: list[tuple[str, _ServedDefinition]] = []
        for name in names:
            record, served = collection.get(name), self._served.get(name)
            current = None if record is None else self._read(name, record, served)
            if current is None:
                is_different |= self._leave(name)
            elif current is not served:
                if served is None or served.said.rest != current.said.rest:
                    joining.append((name, current))
                else:
                    self._served[name] = current
                    is_different = True
        for at in range(0, len(joining), _AT_ONCE):
            part = joining[at : at + _AT_ONCE]
            done = await asyncio.gather(*(self._join(*each, failed) for each in part))
            is_different |= any(done)
        return is_different

    def _read(
        self, name: str, record: Record, served: _ServedDefinition | None
    ) -> _ServedDefinition | None:
        """Return the state to serve of a definition; None: nothing."""
        if record.error:
            return None
        definition = record.parse()
        if not is_true(definition, ESTABLISHED):
            return None
        try:
            fingerprint = _row_source(definition)
            if served is not None and served.said == fingerprint:
                return served
            check_form(definition)
            rows = rows_of(definition, record.parse, self._converter(definition))
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # Others write definitions, too; a malformed one must not block the rest.
            self._logger.error("failed to serve a definition", name=name, error=repr(error))
            return None
        return _ServedDefinition(fingerprint, GroupResource(rows[0].group, rows[0].name), rows)

    def _converter(self, definition: Object) -> WebhookConverter | None:
        spec = definition["spec"]
        if (spec.get("conversion") or {}).get("strategy") != "Webhook":
            return None
        return self._make_converter(definition)

    async def _join(self, name: str, definition: _ServedDefinition, failed: set[str]) -> bool:
        try:
            await self._registry.join(list(definition.rows))
        except StoreError as error:
            self._logger.warning("failed to read custom resources", name=name, error=str(error))
            failed.add(name)
            return False
        self._served[name] = definition
        return True

    def _leave(self, name: str) -> bool:
        served = self._served.pop(name, None)
        if served is None:
            return False
        self._registry.leave(served.resource)
        return True


def _row_source(definition: Object) -> _RowSource:
    spec = definition["spec"]
    parts = [
        spec.get("versions"),
        spec.get("conversion"),
        spec.get("scope"),
        definition["status"].get("acceptedNames"),
    ]
    digest = hashlib.sha256(json_text.write(parts)).digest()
    return _RowSource(is_true(definition, TERMINATING), digest)


def in_order(served: dict[str, _ServedDefinition]) -> list[Resource]:
    """Return all served rows: by group, version and name, newest versions first."""
    rows = [row for each in served.values() for row in each.rows if row.is_served]
    return sorted(rows, key=lambda row: (row.group, version_rank(row.version), row.name))
