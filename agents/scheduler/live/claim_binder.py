"""Gives claims the devices that were decided on, and reserves them for their pod, through the API.

finalizer ─► status: allocation, reservedFor ─► conditions of devices are met, where there are some
"""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import RESOURCE_CLAIMS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.timing import Clock, time_text
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.scheduler.devices.binding import has_failed, has_timed_out, is_ready
from kvstack.agents.scheduler.live.binder import BindingError
from kvstack.agents.scheduler.plugins.dynamic_resources import Wanted
from kvstack.agents.scheduler.snapshot.devices import Devices, allocation_of, reserves, results_of
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.schema.resource import STRATEGIC_MERGE_PATCH

Object: TypeAlias = dict[str, Any]

_FINALIZER: Final = "resource.kubernetes.io/delete-protection"
_TRIES: Final = 5
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_POLL_S: Final = 1.0


class ClaimBinder:
    """Carries out decisions about claims."""

    def __init__(self, api: Api, known: Devices, clock: Clock) -> None:
        """known: the claims that the scheduler sees."""
        self._api = api
        self._known = known
        self._clock = clock

    def assume(self, plan: Sequence[Wanted]) -> None:
        """Take the devices of a plan as in use."""
        for each in plan:
            if each.allocation is not None:
                self._known.assume(each.claim, each.allocation)

    async def bind(self, pod: PodInfo, plan: Sequence[Wanted], timeout_s: float) -> None:
        """Allocate and reserve claims, and wait until devices are ready; raises BindingError.

        timeout_s: how long they may take, from their allocation on.
        """
        if not plan:
            return
        try:
            for each in plan:
                await self._bind_claim(pod, each)
            await self._until_ready(plan, timeout_s)
        except (ApiError, UnreachableError, BindingError) as error:
            raise BindingError(f'running PreBind plugin "DynamicResources": {error}') from error

    async def forget(self, pod: PodInfo, plan: Sequence[Wanted]) -> None:
        """Give back what a pod was to get, and does not need."""
        for each in plan:
            self._known.forget(each.claim["metadata"]["uid"])
            claim = self._known.claims.get(key_of(each.claim))
            if claim is not None and reserves(claim, pod.uid):
                await self._release(pod, claim)

    async def deallocate(self, claim: Object) -> None:
        """Take the devices of a claim away that nobody uses; raises ApiError."""
        new = copy.deepcopy(claim)
        for name in ("allocation", "devices", "reservedFor"):
            new["status"].pop(name, None)
        await self._api.update(RESOURCE_CLAIMS, new, subresource="status")

    async def _bind_claim(self, pod: PodInfo, wanted: Wanted) -> None:
        claim, key = copy.deepcopy(wanted.claim), key_of(wanted.claim)
        for attempt in range(_TRIES):
            try:
                await self._write(pod, claim, key, wanted.allocation)
            except ApiError as error:
                if error.code != _CONFLICT or attempt == _TRIES - 1:
                    raise
                meta = claim["metadata"]
                claim = await self._api.get(RESOURCE_CLAIMS, meta["namespace"], meta["name"])
            else:
                return

    async def _write(self, pod: PodInfo, claim: Object, key: str, new: Object | None) -> None:
        meta = claim["metadata"]
        if "deletionTimestamp" in meta:
            raise BindingError(f"claim {key} got deleted in the meantime")
        if new is not None:
            if allocation_of(claim) is not None:
                raise BindingError(f"claim {key} got allocated elsewhere in the meantime")
            if _FINALIZER not in (meta.get("finalizers") or ()):
                meta.setdefault("finalizers", []).append(_FINALIZER)
                claim = await self._api.update(RESOURCE_CLAIMS, claim)
        status = claim.setdefault("status", {})
        if new is not None:
            status["allocation"] = copy.deepcopy(new)
        allocation = status.get("allocation")
        if allocation is None:
            raise BindingError(f"claim {key} got deallocated elsewhere in the meantime")
        allocation.setdefault("allocationTimestamp", time_text(self._clock.now_s()))
        reference = {"resource": "pods", "name": pod.name, "uid": pod.uid}
        status["reservedFor"] = [*(status.get("reservedFor") or ()), reference]
        await self._api.update(RESOURCE_CLAIMS, claim, subresource="status")

    async def _until_ready(self, plan: Sequence[Wanted], timeout_s: float) -> None:
        """Wait until conditions of devices are met; raises BindingError."""
        waiting = [
            key_of(each.claim)
            for each in plan
            if any(
                result.get("bindingConditions")
                for result in results_of(each.allocation or allocation_of(each.claim))
            )
        ]
        for key in waiting:
            while True:
                claim = self._known.claims.get(key)
                if claim is None:
                    raise BindingError(f"claim {key} got deleted in the meantime")
                if failed := has_failed(claim):
                    raise BindingError(failed)
                if allocation_of(claim) is not None and is_ready(claim):
                    break
                if has_timed_out(claim, self._clock.now_s(), timeout_s):
                    name = claim["metadata"]["name"]
                    raise BindingError(f"device binding timeout: claim={name}")
                await asyncio.sleep(_POLL_S)

    async def _release(self, pod: PodInfo, claim: Object) -> None:
        meta = claim["metadata"]
        change = {
            "metadata": {"uid": meta["uid"]},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]},
        }
        try:
            await self._api.patch(
                RESOURCE_CLAIMS,
                meta["namespace"],
                meta["name"],
                change,
                STRATEGIC_MERGE_PATCH,
                subresource="status",
            )
        except ApiError as error:
            if error.code not in (_NOT_FOUND, _CONFLICT):
                raise
