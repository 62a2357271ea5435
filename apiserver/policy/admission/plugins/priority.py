"""Priority: a pod gets the priority of its class; at most one class is the default.

spec.priorityClassName: high → spec.priority: 1000, spec.preemptionPolicy: PreemptLowerPriority
"""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import PODS, PRIORITY_CLASSES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView

_NO_CLASS: Final[Object] = {
    "metadata": {"name": ""},
    "value": 0,
    "preemptionPolicy": "PreemptLowerPriority",
}


class Priority(Listed):
    """Gives pods their priority."""

    name = "Priority"
    calls = calls((CREATE, UPDATE), PODS) | calls((CREATE, UPDATE), PRIORITY_CLASSES)

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view
        self._found: tuple[int, Object | None] = -1, None
        """The default class, and the version of the classes for which it was looked up."""

    def mutate(self, request: AdmissionRequest) -> None:
        """Set the priority of a new pod; keep that of an old one."""
        if request.resource != PODS:
            return
        if request.operation == UPDATE:
            _keep(request)
            return
        spec = request.own("spec")
        priority_class = self._class_of(request, spec.get("priorityClassName", ""))
        name, value = priority_class["metadata"]["name"], priority_class.get("value", 0)
        if name:
            spec["priorityClassName"] = name
        requested = spec.get("priority")
        if requested is not None and requested != value:
            raise request.forbidden(
                f"the integer value of priority ({requested}) must not be provided in pod"
                f" spec; priority admission controller computed {value}"
                " from the given PriorityClass name"
            )
        spec["priority"] = value
        policy = priority_class.get("preemptionPolicy")
        if policy is None:
            return
        requested = spec.get("preemptionPolicy")
        if requested is not None and requested != policy:
            raise request.forbidden(
                f"the string value of PreemptionPolicy ({requested}) must not be provided in pod"
                f" spec; priority admission controller computed {policy}"
                " from the given PriorityClass name"
            )
        spec["preemptionPolicy"] = policy

    def validate(self, request: AdmissionRequest) -> None:
        """Refuse a second default class."""
        if request.resource != PRIORITY_CLASSES or not request.new.get("globalDefault"):
            return
        default = self._default()
        if default is None:
            return
        name = default["metadata"]["name"]
        if request.operation == CREATE or name != request.new["metadata"].get("name"):
            raise request.forbidden(
                f"PriorityClass {name} is already marked as default. Only one default can exist"
            )

    def _class_of(self, request: AdmissionRequest, name: str) -> Object:
        if not name:
            return self._default() or _NO_CLASS
        found = self._view.get(PRIORITY_CLASSES, "", name)
        if found is None:
            raise request.forbidden(f"no PriorityClass with name {name} was found")
        return found

    def _default(self) -> Object | None:
        version = self._view.version(PRIORITY_CLASSES)
        if self._found[0] != version:
            classes = self._view.list(PRIORITY_CLASSES)
            defaults = [each for each in classes if each.get("globalDefault")]
            # The lowest of several: no pod gets more than intended.
            self._found = version, min(defaults, key=_value, default=None)
        return self._found[1]


def _value(priority_class: Object) -> int:
    value: int = priority_class.get("value", 0)
    return value


def _keep(request: AdmissionRequest) -> None:
    old = (request.old or {}).get("spec") or {}
    priority_fields = {
        name: old[name]
        for name in ("priority", "preemptionPolicy")
        if old.get(name) is not None and (request.new.get("spec") or {}).get(name) is None
    }
    if priority_fields:
        request.own("spec").update(priority_fields)
