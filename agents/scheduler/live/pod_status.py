"""What the scheduler writes into the status of pods, and whom it deletes."""

from typing import Any, Final, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.timing import Clock, time_text
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers import conditions
from kvstack.agents.scheduler.preemption import BY_SCHEDULER, DISRUPTION
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.schema.resource import STRATEGIC_MERGE_PATCH
from kvstore.logger import Logger

Object: TypeAlias = dict[str, Any]

_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_SCHEDULED: Final = "PodScheduled"


class PodStatus:
    """Writes the status of pods."""

    def __init__(self, api: Api, clock: Clock, logger: Logger) -> None:
        """Write nothing yet."""
        self._api = api
        self._clock = clock
        self._logger = logger

    async def refuse(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        """Say that a pod is not placed, and why; nominated: None: as it was, empty: no more."""
        status = pod.obj.get("status") or {}
        before = conditions.find(status.get("conditions"), _SCHEDULED)
        change: Object = {}
        wanted = {"status": "False", "reason": reason, "message": message}
        if before is None or any(before.get(name) != text for name, text in wanted.items()):
            condition = {"type": _SCHEDULED, **wanted, "lastProbeTime": None}
            if (generation := pod.obj["metadata"].get("generation")) is not None:
                condition["observedGeneration"] = generation
            if before is None or before.get("status") != "False":
                condition["lastTransitionTime"] = time_text(self._clock.now_s())
            change["conditions"] = [condition]
        if nominated is not None and nominated != (status.get("nominatedNodeName") or ""):
            change["nominatedNodeName"] = nominated or None
        if change:
            await self._patch(pod, change)

    async def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Say on which node a pod is to run: what it needs there takes a while."""
        if (pod.obj.get("status") or {}).get("nominatedNodeName") != node_name:
            await self._patch(pod, {"nominatedNodeName": node_name})

    async def clear_nomination(self, pod: PodInfo) -> None:
        """Say that a pod is not to run on its nominated node any more."""
        await self._patch(pod, {"nominatedNodeName": None})

    async def delete_victim(self, victim: PodInfo, scheduler: str) -> bool:
        """Say why a pod has to go, and delete it; return whether it was there."""
        condition = {
            "type": DISRUPTION,
            "status": "True",
            "reason": BY_SCHEDULER,
            "message": f"{scheduler}: preempting to accommodate a higher priority pod",
            "lastTransitionTime": time_text(self._clock.now_s()),
        }
        if (generation := victim.obj["metadata"].get("generation")) is not None:
            condition["observedGeneration"] = generation
        if not await self._patch(victim, {"conditions": [condition]}):
            return False
        try:
            await self._api.delete(PODS, victim.namespace, victim.name, uid=victim.uid)
        except ApiError as error:
            if error.code not in (_NOT_FOUND, _CONFLICT):
                raise
            return False
        return True

    async def _patch(self, pod: PodInfo, change: Object) -> bool:
        """Patch a pod's status; return whether that was done. A pod that is gone is no fault."""
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
            if not isinstance(error, ApiError) or error.code not in (_NOT_FOUND, _CONFLICT):
                self._logger.warning(
                    "a pod's status was not written", pod=pod.key, error=str(error)
                )
            return False
        return True
