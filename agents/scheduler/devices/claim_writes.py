"""Writes the allocations of claims, and reserves them for their pod.

finalizer ─► status: allocation, reservedFor ─► conditions of devices are met, where there are some
"""

import copy
from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.built_in import RESOURCE_CLAIMS
from kvstack.agents.scheduler.devices.binding import has_failed, has_timed_out, is_ready
from kvstack.agents.scheduler.handle import Handle, PluginError
from kvstack.agents.scheduler.snapshot.devices import allocation_of, reserves, results_of
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import DEVICE_CLAIM_FINALIZER

_TRIES: Final = 5
_POLL_S: Final = 1.0


class Reservation(NamedTuple):
    """A claim a pod has on its node, once it is bound there."""

    claim: Object
    allocation: Object | None
    """New; None: it has one."""


async def allocate(handle: Handle, pod: PodInfo, plan: Sequence[Reservation]) -> None:
    """Allocate claims and reserve them for a pod; raises ApiError, PluginError."""
    for each in plan:
        claim = copy.deepcopy(each.claim)
        for attempt in range(_TRIES):
            try:
                await _write(handle, pod, claim, each.allocation)
            except ApiError as error:
                if not error.is_conflict or attempt == _TRIES - 1:
                    raise
                meta = claim["metadata"]
                claim = await handle.get(RESOURCE_CLAIMS, meta["namespace"], meta["name"])
            else:
                break


async def until_ready(handle: Handle, plan: Sequence[Reservation], timeout_s: float) -> None:
    """Wait until conditions of devices are met; raises PluginError.

    timeout_s: how long they may take, from their allocation on.
    """
    waiting = [
        _key_of(each.claim)
        for each in plan
        if any(
            result.get("bindingConditions")
            for result in results_of(each.allocation or allocation_of(each.claim))
        )
    ]
    for key in waiting:
        while not _is_ready(handle, key, timeout_s):
            await handle.sleep(_POLL_S)


async def release(handle: Handle, pod: PodInfo, plan: Sequence[Reservation]) -> None:
    """Remove the reservations of claims for a pod which was not bound; raises ApiError."""
    for each in plan:
        claim = handle.cluster.devices.claims.get(_key_of(each.claim))
        if claim is None or not reserves(claim, pod.uid):
            continue
        meta = claim["metadata"]
        change = {
            "metadata": {"uid": meta["uid"]},
            "status": {"reservedFor": [{"$patch": "delete", "uid": pod.uid}]},
        }
        try:
            await handle.patch(RESOURCE_CLAIMS, meta["namespace"], meta["name"], change, "status")
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):
                raise


async def deallocate(handle: Handle, claim: Object) -> None:
    """Deallocate the devices of an unused claim; raises ApiError, PluginError."""
    new = copy.deepcopy(claim)
    for name in ("allocation", "devices", "reservedFor"):
        new["status"].pop(name, None)
    await handle.update(RESOURCE_CLAIMS, new, "status")


async def _write(handle: Handle, pod: PodInfo, claim: Object, new: Object | None) -> None:
    meta, key = claim["metadata"], _key_of(claim)
    if "deletionTimestamp" in meta:
        raise PluginError(f"claim {key} got deleted in the meantime")
    if new is not None:
        if allocation_of(claim) is not None:
            raise PluginError(f"claim {key} got allocated elsewhere in the meantime")
        if DEVICE_CLAIM_FINALIZER not in (meta.get("finalizers") or ()):
            meta.setdefault("finalizers", []).append(DEVICE_CLAIM_FINALIZER)
            claim = await handle.update(RESOURCE_CLAIMS, claim)
    status = claim.setdefault("status", {})
    if new is not None:
        status["allocation"] = copy.deepcopy(new)
    allocation = status.get("allocation")
    if allocation is None:
        raise PluginError(f"claim {key} got deallocated elsewhere in the meantime")
    allocation.setdefault("allocationTimestamp", format_time(int(handle.now_s())))
    reference = {"resource": "pods", "name": pod.name, "uid": pod.uid}
    status["reservedFor"] = [*(status.get("reservedFor") or ()), reference]
    await handle.update(RESOURCE_CLAIMS, claim, "status")


def _is_ready(handle: Handle, key: str, timeout_s: float) -> bool:
    """Whether the devices of a claim are ready; raises PluginError once they cannot be."""
    claim = handle.cluster.devices.claims.get(key)
    if claim is None:
        raise PluginError(f"claim {key} got deleted in the meantime")
    if failed := has_failed(claim):
        raise PluginError(failed)
    if allocation_of(claim) is not None and is_ready(claim):
        return True
    if has_timed_out(claim, handle.now_s(), timeout_s):
        raise PluginError(f"device binding timeout: claim={claim['metadata']['name']}")
    return False


def _key_of(claim: Object) -> str:
    return f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
