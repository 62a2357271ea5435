"""RuntimeClass: a pod gets the overhead, node selector and tolerations of its runtime class."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from kvstack.apimachinery.objects import resources, status
from kvstack.apimachinery.objects.core.group_resources import PODS, RUNTIME_CLASSES
from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

_Hook: TypeAlias = Callable[[AdmissionRequest, Object | None], None]

_OTHER_OVERHEAD: Final = (
    "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
)


class RuntimeClass(Listed):
    """Completes pods by their RuntimeClass."""

    name = "RuntimeClass"
    calls = calls((CREATE,), PODS)

    def __init__(self, view: ObjectView, live: LiveObjects) -> None:
        self._view: Final = view
        self._live: Final = live

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Set overhead, node selector and tolerations."""
        return self._with_class(request, _complete)

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check that the overhead is that of the class."""
        return self._with_class(request, _check)

    def _with_class(self, request: AdmissionRequest, hook: _Hook) -> Awaitable[None] | None:
        name = (request.new.get("spec") or {}).get("runtimeClassName")
        if name is None:
            hook(request, None)
            return None
        found = self._view.get(RUNTIME_CLASSES, "", name)
        if found is None:
            return self._look_again(request, name, hook)
        hook(request, found)
        return None

    async def _look_again(self, request: AdmissionRequest, name: str, hook: _Hook) -> None:
        if not name:
            raise status.unknown("resource name may not be empty")
        if wrong := check_path_segment(name):
            raise status.unknown(f"invalid resource name {quote(name)}: [{' '.join(wrong)}]")
        await self._live.catch_up()
        found = self._view.get(RUNTIME_CLASSES, "", name)
        if found is None:
            raise request.forbidden(f"pod rejected: RuntimeClass {quote(name)} not found")
        hook(request, found)


def _complete(request: AdmissionRequest, runtime_class: Object | None) -> None:
    if runtime_class is None:
        return
    overhead = runtime_class.get("overhead")
    if overhead is not None:
        fixed = overhead.get("podFixed") or {}
        given = request.new["spec"].get("overhead")
        if given and not resources.equal(fixed, given):
            raise request.forbidden(_OTHER_OVERHEAD)
        spec = request.own("spec")
        spec.pop("overhead", None)
        if fixed:
            spec["overhead"] = dict(fixed)
    scheduling = runtime_class.get("scheduling")
    if scheduling is not None:
        _schedule(request, scheduling)


def _schedule(request: AdmissionRequest, scheduling: Object) -> None:
    spec = request.own("spec")
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            raise request.forbidden(
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value};"
                f" pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
    tolerations = merge_tolerations(
        [*(spec.get("tolerations") or ()), *(scheduling.get("tolerations") or ())]
    )
    if selector:
        spec["nodeSelector"] = selector
    if tolerations:
        spec["tolerations"] = tolerations


def _check(request: AdmissionRequest, runtime_class: Object | None) -> None:
    overhead = (runtime_class or {}).get("overhead")
    given = request.new["spec"].get("overhead")
    if overhead is not None:
        if not resources.equal(overhead.get("podFixed") or {}, given or {}):
            raise request.forbidden(_OTHER_OVERHEAD)
    elif given is not None:
        raise request.forbidden(
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        )


def merge_tolerations(tolerations: Sequence[Object]) -> list[Object]:
    """Return tolerations without those that another one covers; of equal ones the first stays."""
    merged: list[Object] = []
    for position, each in enumerate(tolerations):
        if any(includes(kept, each) for kept in merged):
            continue
        rest = tolerations[position + 1 :]
        if any(other != each and includes(other, each) for other in rest):
            continue
        merged.append(each)
    return merged


def includes(wide: Object, narrow: Object) -> bool:
    """Return whether a toleration covers another one."""
    if wide == narrow:
        return True
    operator = wide.get("operator") or "Equal"
    key, effect = wide.get("key", ""), wide.get("effect", "")
    if narrow.get("key", "") != key and (key or operator != "Exists"):
        return False
    if effect not in {"", narrow.get("effect", "")}:
        return False
    seconds = wide.get("tolerationSeconds")
    if effect == NO_EXECUTE and seconds is not None:
        of_narrow = narrow.get("tolerationSeconds")
        if of_narrow is None or of_narrow > seconds:
            return False
    if operator == "Exists":
        return True
    same_value = narrow.get("value", "") == wide.get("value", "")
    return operator == "Equal" and narrow.get("operator") == "Equal" and same_value
