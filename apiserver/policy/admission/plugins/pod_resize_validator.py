"""PodResizeValidator: a bound pod is resized only on Linux, and only up to its node's capacity."""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import NODES, PODS
from kvstack.apimachinery.objects.core.pod_resources import pod_requests
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import ZERO, parse
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import OS_LABEL
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView

_UNSUPPORTED: Final = "UnsupportedPlatform"
_CAPACITY: Final = "NodeCapacity"


class PodResizeValidator(Listed):
    """Refuses resources that a node does not have."""

    name = "PodResizeValidator"
    calls = calls((UPDATE,), PODS, "resize")

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def validate(self, request: AdmissionRequest) -> None:
        """Check a changed pod against its node."""
        pod, old = request.new, request.old or {}
        name = pod["spec"].get("nodeName")
        generations = [each["metadata"].get("generation") for each in (pod, old) if each]
        if not name or len(set(generations)) == 1:
            return
        node = self._view.get(NODES, "", name)
        if node is None:
            raise request.forbidden(f"node {quote(name)} not found")
        os = (node["metadata"].get("labels") or {}).get(OS_LABEL, "linux")
        if os != "linux":
            message = (
                f"pod resize is only supported on linux nodes, node {quote(name)} is {quote(os)}"
            )
            raise _with_cause(request.forbidden(message), _UNSUPPORTED)
        if message := _beyond(pod, node):
            raise _with_cause(request.forbidden(message), _CAPACITY)


def _beyond(pod: Object, node: Object) -> str:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    requests = pod_requests(pod["spec"])
    missing: list[str] = []
    for name, is_milli in (("cpu", True), ("memory", False)):
        wanted, there = requests.get(name, ZERO), parse(allocatable.get(name, "0"))
        if wanted > there:
            numbers = [each.milli_value() if is_milli else each.value() for each in (wanted, there)]
            missing.append(f"{name}, requested: {numbers[0]}, allocatable: {numbers[1]}")
    return f"node didn't have enough allocatable resources: {'; '.join(missing)}" if missing else ""


def _with_cause(refusal: ApiError, reason: str) -> ApiError:
    refusal.status["details"]["causes"] = [{"reason": reason}]
    return refusal
