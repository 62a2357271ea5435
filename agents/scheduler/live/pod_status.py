"""Writes the status of pods for the scheduler."""

from typing import Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_SCHEDULED: Final = "PodScheduled"


class PodStatus:
    """Writes the status of pods."""

    def __init__(self, api: Api, clock: Clock, logger: Logger) -> None:
        self._api = api
        self._clock = clock
        self._logger = logger

    async def refuse(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        """Set the condition of an unschedulable pod; nominated: None: as it was, empty: removed."""
        status = pod.obj.get("status") or {}
        before = conditions.find(status.get("conditions"), _SCHEDULED)
        change: Object = {}
        wanted = {"status": "False", "reason": reason, "message": message}
        if before is None or any(before.get(name) != text for name, text in wanted.items()):
            condition = {"type": _SCHEDULED, **wanted, "lastProbeTime": None}
            if (generation := pod.obj["metadata"].get("generation")) is not None:
                condition["observedGeneration"] = generation
            if before is None or before.get("status") != "False":
                condition["lastTransitionTime"] = format_time(self._clock.now_s())
            change["conditions"] = [condition]
        if nominated is not None and nominated != (status.get("nominatedNodeName") or ""):
            change["nominatedNodeName"] = nominated or None
        if change:
            await self.patch(pod, change)

    async def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Set the nominated node of a pod whose binding takes a while."""
        if (pod.obj.get("status") or {}).get("nominatedNodeName") != node_name:
            await self.patch(pod, {"nominatedNodeName": node_name})

    async def patch(self, pod: PodInfo, change: Object) -> bool:
        """Patch a pod's status; return whether that succeeded. A deleted pod is not an error."""
        try:
            await self._api.patch(
                PODS,
                pod.namespace,
                pod.name,
                {"metadata": {"uid": pod.uid}, "status": change},
                STRATEGIC_MERGE_PATCH,
                subresource="status",
            )
        except (ApiError, UnreachableError) as error:
            if not isinstance(error, ApiError) or not (error.is_not_found or error.is_conflict):
                self._logger.warning(
                    "failed to write a pod's status", pod=pod.key, error=str(error)
                )
            return False
        return True
