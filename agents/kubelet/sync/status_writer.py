"""Writes the status of pods, and deletes terminated ones.

A status is written when it differs from the one written last, or when another client has changed
what it says: while a node is not heard of, its pods are called not ready. That of a static pod goes
to its mirror.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.kubelet.pods import resizes
from kvstack.apimachinery.objects.core.conditions import transition_time
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

_REPLACED: Final = ("podIPs", "hostIPs")


class StatusWriter:
    """Writes for one node."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._versions: dict[str, int] = {}  # as of the last write, by uid

    def forget(self, uid: str) -> None:
        """Forget a pod."""
        self._versions.pop(uid, None)

    async def write(self, pod: Object, previous: Object | None, status: Object) -> Object:
        """Write a status unless it is unchanged; return it, with its times."""
        if previous is not None:
            status["startTime"] = previous["startTime"]
            _keep_times(status, previous)
        meta = pod["metadata"]
        if status != previous or self._was_changed(pod, status):
            path = PODS.path(meta["namespace"], meta["name"], "status")
            patch = _patch(status, _obsolete(status, previous or {}, pod.get("status") or {}))
            body = orjson.dumps({"metadata": {"uid": meta["uid"]}, "status": patch})
            try:
                written = await self._api.call(
                    "PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH
                )
            except ApiError as error:
                if not (error.is_not_found or error.is_conflict):  # gone, or another of its name
                    raise
            else:
                self._versions[meta["uid"]] = _version(written)
        return status

    def _was_changed(self, pod: Object, status: Object) -> bool:
        """Whether the API has another status; objects older than the last write do not count."""
        if _version(pod) < self._versions.get(pod["metadata"]["uid"], 0):
            return False
        shown = pod.get("status") or {}
        values = {each["type"]: each["status"] for each in shown.get("conditions") or ()}
        conditions = status.get("conditions") or ()
        has_passed = bool(_obsolete(status, shown))
        return (
            has_passed
            or shown.get("phase") != status["phase"]
            or any(values.get(each["type"]) != each["status"] for each in conditions)
        )

    async def finish(self, pod: Object) -> None:
        """Delete a pod: it has ended, and its last status is in the API."""
        meta = pod["metadata"]
        try:
            await self._api.delete(
                PODS, meta["namespace"], meta["name"], uid=meta["uid"], grace_s=0
            )
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):  # gone, or another of its name
                raise


def _version(pod: Object) -> int:
    return int(pod["metadata"].get("resourceVersion") or 0)


def _obsolete(status: Object, *before: Object) -> list[str]:
    """Return earlier conditions that no longer hold: they are removed, not kept as False."""
    now = {each["type"] for each in status.get("conditions") or ()}
    known = {each["type"] for one in before for each in one.get("conditions") or ()}
    return [each for each in resizes.CONDITIONS if each in known - now]


def _patch(status: Object, passed: Sequence[str]) -> Object:
    """Return a status as a patch: addresses take the place of those of before."""
    whole: Object = {
        name: [*status[name], {"$patch": "replace"}] for name in _REPLACED if name in status
    }
    if passed:
        gone = [{"type": each, "$patch": "delete"} for each in passed]
        whole["conditions"] = [*status["conditions"], *gone]
    return {**status, **whole}


def _keep_times(status: Object, previous: Object) -> None:
    """Keep the times of unchanged conditions."""
    before = {each["type"]: each for each in previous.get("conditions") or ()}
    for condition in status.get("conditions") or ():
        now, last = condition["lastTransitionTime"], before.get(condition["type"])
        condition["lastTransitionTime"] = transition_time(last, condition["status"], now)
