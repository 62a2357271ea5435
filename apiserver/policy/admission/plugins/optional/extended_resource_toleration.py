"""ExtendedResourceToleration: pods tolerate the taints of their extended resources.

requests: {example.com/gpu: 1} → toleration {key: example.com/gpu, Exists, NoSchedule}
"""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.core.tolerations import NO_SCHEDULE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.resource_names import is_extended
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest

_IDENTITY: Final = ("key", "operator", "value", "effect")


class ExtendedResourceToleration(Listed):
    """Adds a toleration for every extended resource."""

    name = "ExtendedResourceToleration"
    calls = calls((CREATE, UPDATE), PODS)

    def mutate(self, request: AdmissionRequest) -> None:
        """Add tolerations, sorted by resource."""
        spec = request.new.get("spec") or {}
        names = {
            name
            for kind in ("containers", "initContainers")
            for container in spec.get(kind) or ()
            for name in (container.get("resources") or {}).get("requests") or ()
            if is_extended(name)
        }
        if not names:
            return
        tolerations = list(spec.get("tolerations") or ())
        for name in sorted(names):
            _add(tolerations, {"key": name, "operator": "Exists", "effect": NO_SCHEDULE})
        request.own("spec")["tolerations"] = tolerations


def _add(tolerations: list[Object], added: Object) -> None:
    """Add a toleration, replacing the one for the same taint."""
    for position, each in enumerate(tolerations):
        if all(each.get(name, "") == added.get(name, "") for name in _IDENTITY):
            tolerations[position] = added
            return
    tolerations.append(added)
