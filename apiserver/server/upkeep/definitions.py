"""Status of definitions: whether their names are accepted, and whether they are served.

Established definitions that are being deleted lose their objects first, then the finalizer that
holds them.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import aggregate
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    CLEANUP,
    ESTABLISHED,
    FALSE,
    TERMINATING,
    TRUE,
    set_condition,
    with_names,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    is_true as has_condition,
)
from kvstack.apiserver.apiextensions.serving.definitions import DEFINITIONS
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.registry.window import Change
from kvstack.apiserver.verbs.deletion.deletion_plan import mark
from kvstack.component.logger import Logger
from kvstack.component.units import SECOND_NS
from kvstore.client.errors import StoreError

_LOOK_AGAIN_S: Final = 1.0
_BEGUN: Final = frozenset(
    ("InstanceDeletionInProgress", "InstanceDeletionFailed", "InstanceDeletionCheck")
)
"""The message while the objects of a deleted definition are being deleted."""
_IN_PROGRESS: Final = "CustomResource deletion is in progress"
_CHECK_S: Final = 60.0
"""How long to wait before the condition says that objects remain."""
_REMAINING: Final = (
    "could not confirm zero CustomResources remaining: timed out waiting for the condition"
)
_COMPLETED: Final = "removed all instances"
_NEVER: Final = "resource was never established"


class DefinitionKeeper:
    """Maintains conditions and accepted names, and finalizes deleted definitions."""

    def __init__(self, registry: Registry, logger: Logger) -> None:
        self._logger: Final = logger
        self._registry: Final = registry
        self._changed: set[str] = set()
        self._heads: Final[dict[str, Object]] = {}
        """Group and accepted names of each definition, which other definitions must not take."""
        self._going: Final[dict[str, int]] = {}
        """Since when remaining objects are waited for, by definition."""
        self._wake: Final = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start watching definitions."""
        collection = self._registry.collection(DEFINITIONS)
        for each in collection.between():
            self._know(each.key, each)
        self._changed.update(self._heads)
        collection.listeners.append(self._note)
        self._task = asyncio.create_task(self._keep(), name="conditions of definitions")

    async def end(self) -> None:
        """Stop watching definitions."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep(self) -> None:
        """Process the queue until cancelled."""
        while True:
            names, self._changed = sorted(self._changed), set()
            going = [name for name in names if not await self._attempt(name)]
            self._changed.update(going)
            if going:
                await asyncio.sleep(_LOOK_AGAIN_S)
            elif not self._changed:
                await self._wake.wait()
            self._wake.clear()

    def _note(self, changes: Sequence[Change]) -> None:
        for each in changes:
            self._know(each.key, each.record)
        self._changed.update(each.key for each in changes if each.record is not None)
        # Names that were refused to one definition may become free when another is deleted.
        if any(each.record is None for each in changes):
            self._changed.update(self._heads)
        self._wake.set()

    def _know(self, name: str, record: Record | None) -> None:
        if record is None or record.error:
            self._heads.pop(name, None)
            return
        definition = record.parse()
        self._heads[name] = {
            "metadata": {"name": name},
            "spec": {"group": (definition.get("spec") or {}).get("group")},
            "status": {"acceptedNames": (definition.get("status") or {}).get("acceptedNames")},
        }

    async def _attempt(self, name: str) -> bool:
        """Process one definition; a failure does not delay others."""
        try:
            return await self._keep_one(name)
        except (ApiError, StoreError) as error:
            self._logger.warning("failed to process a definition", name=name, error=str(error))
            return False

    async def _keep_one(self, name: str) -> bool:
        """Process one definition; return whether nothing is left to do."""
        record = self._registry.collection(DEFINITIONS).get(name)
        if record is None or record.error:
            return True
        definition = record.parse()
        try:
            if definition["metadata"].get("deletionTimestamp"):
                return await self._take_away(definition)
            now = now_text(self._registry.clock)
            named = with_names(definition, self._heads.values(), now)
            if named["status"] != definition["status"]:
                await self._registry.live.replace(DEFINITIONS, named, "status")
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise
            return False
        return True

    async def _take_away(self, definition: Object) -> bool:
        """Delete the objects of a definition, then its finalizer; return whether that was done."""
        if CLEANUP not in (definition["metadata"].get("finalizers") or ()):
            return True
        if not has_condition(definition, ESTABLISHED):
            await self._finish(definition, "NeverEstablished", _NEVER)
            return True
        if _reason(definition) not in _BEGUN:
            definition = await self._set_terminating(
                definition, TRUE, "InstanceDeletionInProgress", _IN_PROGRESS
            )
        names = definition["status"].get("acceptedNames") or {}
        resource = GroupResource(definition["spec"]["group"], names.get("plural", ""))
        problem = await self._delete_all(resource)
        collection = self._registry.find(resource)
        name = definition["metadata"]["name"]
        if problem:
            await self._set_terminating(definition, TRUE, "InstanceDeletionFailed", problem)
            return False
        if collection is not None and len(collection):
            now_ns = self._registry.clock.monotonic_ns()
            since_ns = self._going.setdefault(name, now_ns)
            if now_ns - since_ns > _CHECK_S * SECOND_NS:
                await self._set_terminating(definition, TRUE, "InstanceDeletionCheck", _REMAINING)
            return False
        self._going.pop(name, None)
        await self._finish(definition, "InstanceDeletionCompleted", _COMPLETED)
        return True

    async def _delete_all(self, resource: GroupResource) -> str:
        """Delete objects that are not yet terminating; return why some could not be, or empty.

        No webhooks are called: those of a removed operator would block its definitions.
        """
        problems: dict[str, None] = {}
        live, now = self._registry.live, now_text(self._registry.clock)
        for each in list(self._registry.view.list(resource)):
            if not each["metadata"].get("deletionTimestamp"):
                try:
                    if each["metadata"].get("finalizers"):
                        new: Object = json_text.copied(each)
                        mark(new["metadata"], now)
                        await live.replace(resource, new, owns=False)
                    else:
                        await live.delete(resource, each)
                except ApiError as error:
                    if not (error.is_not_found or error.is_conflict):
                        problems[str(error)] = None
        return f"could not issue all deletes: {aggregate(list(problems))}" if problems else ""

    async def _set_terminating(
        self, definition: Object, value: str, reason: str, message: str
    ) -> Object:
        new: Object = json_text.copied(definition)
        now = now_text(self._registry.clock)
        set_condition(new["status"], TERMINATING, value, reason, message, now)
        if new == definition:
            return definition
        return await self._registry.live.replace(DEFINITIONS, new, "status")

    async def _finish(self, definition: Object, reason: str, message: str) -> None:
        is_written = await self._set_terminating(definition, FALSE, reason, message)
        metadata = is_written["metadata"]
        metadata["finalizers"] = [each for each in metadata["finalizers"] if each != CLEANUP]
        if metadata["finalizers"]:
            await self._registry.live.replace(DEFINITIONS, is_written)
        else:
            await self._registry.live.delete(DEFINITIONS, is_written)


def _reason(definition: Object) -> str:
    condition = find(definition["status"].get("conditions"), TERMINATING)
    return "" if condition is None else str(condition["reason"])
