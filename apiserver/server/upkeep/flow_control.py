"""FlowSchemas and priority levels that every cluster has, and the conditions of all FlowSchemas.

Their specs are in `data/flow_control.json`. Missing ones are made; those with the annotation
`apf.kubernetes.io/autoupdate-spec` get their spec back. The condition of each FlowSchema says
whether its priority level exists.
"""

import asyncio
from pathlib import Path
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.kinds.flowcontrol.mandatory import FLOW_SCHEMAS, PRIORITY_LEVELS
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.registry.view import View
from kvstack.apiserver.server.loopback import Loopback
from kvstack.component.clock import Clock

DATA: Final = Path(__file__).parent.parent / "data" / "flow_control.json"
PERIOD_S: Final = 60.0
PRODUCER: Final = "api-priority-and-fairness-config-producer-v1"
CONSUMER: Final = "api-priority-and-fairness-config-consumer-v1"

_GROUP: Final = "flowcontrol.apiserver.k8s.io"
SCHEMAS: Final = GroupResource(_GROUP, "flowschemas")
LEVELS: Final = GroupResource(_GROUP, "prioritylevelconfigurations")
_KEEP: Final = "apf.kubernetes.io/autoupdate-spec"
_MANDATORY: Final = {SCHEMAS: FLOW_SCHEMAS, LEVELS: PRIORITY_LEVELS}
_DANGLING: Final = "Dangling"


class FlowControl:
    """Maintains the objects and the conditions."""

    def __init__(self, loopback: Loopback, view: View, clock: Clock) -> None:
        self._loopback: Final = loopback
        self._view: Final = view
        self._clock: Final = clock
        self._seen: tuple[int, int] = (-1, -1)

    async def keep(self) -> None:
        """Make what is missing, and restore specs that are auto-updated; raises ApiError."""
        wanted = orjson.loads(DATA.read_bytes())
        for resource in (LEVELS, SCHEMAS):
            specs = wanted[resource.resource].items()
            await asyncio.gather(*(self._keep_one(resource, name, spec) for name, spec in specs))

    async def update_conditions(self) -> None:
        """Set the conditions of FlowSchemas whose priority level came or went; raises ApiError."""
        versions = self._view.version(SCHEMAS), self._view.version(LEVELS)
        if versions == self._seen:
            return
        for each in list(self._view.list(SCHEMAS)):
            await self._tell_one(each)
        self._seen = versions

    async def _keep_one(self, resource: GroupResource, name: str, spec: dict[str, Any]) -> None:
        current = self._loopback.get(resource, "", name)
        if current is None:
            metadata = {"name": name, "annotations": {_KEEP: "true"}}
            try:
                await self._loopback.create(
                    resource, {"metadata": metadata, "spec": spec}, PRODUCER
                )
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):
                    raise
            return
        annotations = current["metadata"].get("annotations") or {}
        is_mandatory = name in _MANDATORY[resource]
        if not is_mandatory and annotations.get(_KEEP) != "true":
            return
        wanted = current.get("spec") if is_mandatory else spec
        if current.get("spec") != wanted or annotations.get(_KEEP) != "true":
            metadata = {**current["metadata"], "annotations": {**annotations, _KEEP: "true"}}
            new = {**current, "metadata": metadata, "spec": wanted}
            await self._loopback.update(resource, new, PRODUCER)

    async def _tell_one(self, schema: Object) -> None:
        metadata = schema["metadata"]
        level = schema["spec"]["priorityLevelConfiguration"]["name"]
        is_there = self._view.get(LEVELS, "", level) is not None
        wanted = condition(level, is_there=is_there)
        known = find((schema.get("status") or {}).get("conditions"), _DANGLING)
        if known is not None and wanted.items() <= known.items():
            return
        status = {"conditions": [{**wanted, "lastTransitionTime": now_text(self._clock)}]}
        body = {"metadata": {"name": metadata["name"]}, "status": status}
        try:
            await self._loopback.apply(SCHEMAS, body, CONSUMER, "status")
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise


def condition(level: str, *, is_there: bool) -> dict[str, str]:
    """Return the condition of a FlowSchema that refers to a priority level, without its time."""
    message = f'This FlowSchema references the PriorityLevelConfiguration object named "{level}"'
    if is_there:
        return {
            "type": _DANGLING,
            "status": "False",
            "reason": "Found",
            "message": f"{message} and it exists",
        }
    return {
        "type": _DANGLING,
        "status": "True",
        "reason": "NotFound",
        "message": f"{message} but there is no such object",
    }
