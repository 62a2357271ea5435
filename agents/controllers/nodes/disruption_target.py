"""The pod condition DisruptionTarget: why the control plane ends a pod."""

from typing import Final

from kvstack.agents.client.built_in import PODS
from kvstack.agents.reconcile.plan import Patch
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

_TYPE: Final = "DisruptionTarget"


def new_condition(pod: Object, reason: str, message: str, now_s: float) -> Object | None:
    """Return the condition to be set; None: the pod has it."""
    condition = conditions.find((pod.get("status") or {}).get("conditions"), _TYPE)
    generation = pod["metadata"].get("generation", 0)
    desired: Object = {"type": _TYPE, "status": "True", "reason": reason, "message": message}
    if generation:
        desired["observedGeneration"] = generation
    if condition is not None and desired.items() <= condition.items():
        return None
    now = format_time(now_s)
    desired["lastTransitionTime"] = conditions.transition_time(condition, "True", now)
    return desired


def status_patch(pod: Object, status: Object) -> Patch:
    """Return the patch of a pod's status; the uid keeps it from meeting another pod."""
    meta = pod["metadata"]
    if "conditions" in status:
        order = [each["type"] for each in (pod.get("status") or {}).get("conditions") or ()]
        new = [each["type"] for each in status["conditions"] if each["type"] not in order]
        ordered = [{"type": each} for each in (*order, *new)]
        status = {"$setElementOrder/conditions": ordered, **status}
    body = {"metadata": {"uid": meta["uid"]}, "status": status}
    return Patch(
        PODS, meta["namespace"], meta["name"], body, STRATEGIC_MERGE_PATCH, subresource="status"
    )
