"""NodeDeclaredFeatureValidator: an update of a bound pod needs features that its node declares.

    status.declaredFeatures: [InPlacePodLevelResourcesVerticalScaling]

A change that needs a feature which the pod's node has not declared is refused.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kvstack.apimachinery.objects.core.group_resources import NODES, PODS
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView


def _resizes_pod(old: Object, new: Object) -> bool:
    return (old.get("resources") or {}) != (new.get("resources") or {})


def _resizes_init_containers(old: Object, new: Object) -> bool:
    return any(
        not is_sidecar(before) and (before.get("resources") or {}) != (after.get("resources") or {})
        for before, after in _pairs(old, new, "initContainers")
    )


def _resizes_memory_volumes(old: Object, new: Object) -> bool:
    for before, after in _pairs(old, new, "volumes"):
        if before["name"] != after["name"]:
            continue
        given, wanted = before.get("emptyDir") or {}, after.get("emptyDir") or {}
        size, limit = given.get("sizeLimit"), wanted.get("sizeLimit")
        if wanted.get("medium") != "Memory" or size is None or limit is None:
            continue
        if parse(size) != parse(limit):
            return True
    return False


def _pairs(old: Object, new: Object, name: str) -> Iterator[tuple[Object, Object]]:
    return zip(old.get(name) or (), new.get(name) or (), strict=False)


_NEEDED_BY: Final[Mapping[str, Callable[[Object, Object], bool]]] = {
    "InPlacePodLevelResourcesVerticalScaling": _resizes_pod,
    "InPlacePodVerticalScalingInitContainers": _resizes_init_containers,
    "InPlacePodVerticalScalingMemoryBackedVolumes": _resizes_memory_volumes,
}
"""By feature, sorted: whether an update of a pod's spec needs it."""


class NodeDeclaredFeatureValidator(Listed):
    """Compares the features that an update needs with those that the node declares."""

    name = "NodeDeclaredFeatureValidator"
    calls = calls((UPDATE,), PODS, "", "resize")

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def validate(self, request: AdmissionRequest) -> None:
        """Refuse an update that the node does not support."""
        new, old = request.new, request.old or {}
        spec = new.get("spec") or {}
        node_name = spec.get("nodeName")
        if not node_name or _generation(new) == _generation(old):
            return
        before = old.get("spec") or {}
        needed = [name for name, is_needed in _NEEDED_BY.items() if is_needed(before, spec)]
        if not needed:
            return
        node = self._view.get(NODES, "", node_name)
        if node is None:
            raise request.forbidden(f"node {quote(node_name)} not found")
        declared = (node.get("status") or {}).get("declaredFeatures") or ()
        missing = [name for name in needed if name not in declared]
        if missing:
            raise request.forbidden(
                f"pod update requires features {', '.join(missing)} which are not available on node"
                f" {quote(node_name)}"
            )


def _generation(pod: Object) -> int:
    found: int = (pod.get("metadata") or {}).get("generation", 0)
    return found
