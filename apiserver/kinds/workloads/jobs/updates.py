"""Changes of a Job's spec.

Most fields are immutable. While a Job is suspended and has no pods, the node selection,
tolerations, gates, labels, annotations and resources of its template may change. An Indexed Job may
be scaled by changing completions and parallelism together.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.core.conditions import is_true
from kvstack.apimachinery.objects.field_errors import child, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.workloads.jobs.specs import INDEXED
from kvstack.apiserver.kinds.workloads.pod_owners import check_same_selector

_TEMPLATE: Final = "io.k8s.api.core.v1.PodTemplateSpec"
_POD_SPEC: Final = "io.k8s.api.core.v1.PodSpec"
_FAILURE_POLICY: Final = "io.k8s.api.batch.v1.PodFailurePolicy"
_SUCCESS_POLICY: Final = "io.k8s.api.batch.v1.SuccessPolicy"
_FREE_FIELDS: Final = ("nodeSelector", "tolerations", "schedulingGates")
_CONTAINERS: Final = ("containers", "initContainers")


def check_changes(errors: Errors, new: Object, old: Object) -> None:
    """Check the changes of a Job's spec."""
    spec, before = new["spec"], old["spec"]
    _check_completions(errors, spec, before)
    check_same_selector(errors, new, old)
    _check_template(errors, spec.get("template") or {}, old)
    _check_fixed(errors, spec, before, "completionMode")
    _check_fixed(errors, spec, before, "podFailurePolicy", _FAILURE_POLICY)
    _check_fixed(errors, spec, before, "backoffLimitPerIndex")
    _check_fixed(errors, spec, before, "managedBy")
    _check_fixed(errors, spec, before, "successPolicy", _SUCCESS_POLICY)


def _check_fixed(
    errors: Errors, spec: Object, before: Object, name: str, type_name: str = ""
) -> None:
    value, stored = spec.get(name), before.get(name)
    if type_name and not same(value, stored, type_name):
        errors.append(invalid(child("spec", name), internal_value(value, type_name), IMMUTABLE))
    elif not type_name and value != stored:
        shown = JsonText(value) if isinstance(value, str) else value
        errors.append(invalid(child("spec", name), shown, IMMUTABLE))


def _check_completions(errors: Errors, spec: Object, before: Object) -> None:
    completions = spec.get("completions")
    if completions == before.get("completions"):
        return
    if spec.get("completionMode") != INDEXED:
        errors.append(invalid("spec.completions", completions, IMMUTABLE))
    elif completions is not None and completions != spec.get("parallelism"):
        message = "can only be modified in tandem with spec.parallelism"
        errors.append(invalid("spec.completions", completions, message))


def allows_other_template(job: Object) -> bool:
    """Return whether a Job is suspended and has no pods."""
    status = job.get("status") or {}
    is_quiet = is_true(status.get("conditions"), "Suspended") or status.get("startTime") is None
    return bool(job["spec"].get("suspend")) and is_quiet and not status.get("active")


def _check_template(errors: Errors, template: Object, old: Object) -> None:
    stored: Object = old["spec"].get("template") or {}
    if not allows_other_template(old):
        if not same(template, stored, _TEMPLATE):
            shown = internal_value(template, _TEMPLATE)
            errors.append(invalid("spec.template", shown, IMMUTABLE))
        return
    spec = template.get("spec") or {}
    allowed = _with_changes(stored.get("spec") or {}, spec)
    if not same(spec, allowed, _POD_SPEC):
        errors.append(invalid("spec.template.spec", internal_value(spec, _POD_SPEC), IMMUTABLE))


def _with_changes(stored: Object, spec: Object) -> Object:
    """Return the stored spec with the allowed changes of the new one."""
    allowed = dict(stored)
    for name in _FREE_FIELDS:
        _take(allowed, spec, name)
    affinity = _with_node_affinity(stored.get("affinity"), spec.get("affinity"))
    if affinity is None:
        allowed.pop("affinity", None)
    else:
        allowed["affinity"] = affinity
    for name in _CONTAINERS:
        if stored.get(name):
            allowed[name] = _with_resources(stored[name], spec.get(name) or [])
    return allowed


def _with_node_affinity(stored: Object | None, affinity: Object | None) -> Object | None:
    """Return the stored affinity with the new node affinity."""
    allowed = dict(stored or {})
    _take(allowed, affinity or {}, "nodeAffinity")
    if affinity is None:
        return allowed or None
    return allowed


def _with_resources(stored: list[Object], containers: list[Object]) -> list[Object]:
    if len(stored) != len(containers):
        return stored
    allowed: list[Object] = []
    for before, container in zip(stored, containers, strict=True):
        kept = dict(before)
        if before.get("name") == container.get("name"):
            _take(kept, container, "resources")
        allowed.append(kept)
    return allowed


def _take(target: Object, source: Object, name: str) -> None:
    value: Any = source.get(name)
    if value is None:
        target.pop(name, None)
    else:
        target[name] = value
