"""The hooks of HorizontalPodAutoscalers.

Errors about replicas come last, as in upstream's declarative validation.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import NEGATIVE
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Conversion, Strategy, with_status
from kvstack.apiserver.kinds.workloads.autoscalers.conversion import (
    cpu_metric,
    default_v1,
    to_v1,
    to_v2,
    without_annotations,
)
from kvstack.apiserver.kinds.workloads.autoscalers.metrics import check_metrics
from kvstack.apiserver.kinds.workloads.autoscalers.references import (
    api_version_problem,
    check_reference,
)
from kvstack.apiserver.kinds.workloads.cells import autoscaler_cells
from kvstack.apiserver.kinds.workloads.pod_owners import (
    keep_status,
    prepare_status,
    raise_generation,
)

PERIOD_SECONDS_MAX: Final = 1800
WINDOW_SECONDS_MAX: Final = 3600

_SPEC: Final = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec"
_UTILIZATION: Final = 80
_SELECT_POLICIES: Final = ("Disabled", "Max", "Min")
_POLICY_TYPES: Final = ("Percent", "Pods")
_PERCENT: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
_PODS: Final = {"type": "Pods", "value": 4, "periodSeconds": 15}
_RULES: Final[Mapping[str, Object]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [_PODS, _PERCENT],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [_PERCENT]},
}
"""Defaults of both directions of a behavior."""


def _default(obj: Object) -> None:
    kept = without_annotations(obj)
    if kept is not obj:
        obj["metadata"] = kept["metadata"]
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(_UTILIZATION)]
    behavior = spec.get("behavior")
    if behavior is not None:
        for direction, defaults in _RULES.items():
            rules = behavior.setdefault(direction, {})
            for name, value in defaults.items():
                rules.setdefault(name, deepcopy(value))


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    obj["metadata"]["generation"] = 1


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    keep_status(new, old)
    if not same(new["spec"], old["spec"], _SPEC):
        raise_generation(new, old)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    target = obj["spec"].get("scaleTargetRef") or {}
    is_core_allowed = target.get("kind") == "ReplicationController"
    return _spec_errors(
        obj["spec"], is_core_allowed=is_core_allowed, checks_target=True, checks_objects=True
    )


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    target, before = (each["spec"].get("scaleTargetRef") or {} for each in (new, old))
    checks_target = any(target.get(name) != before.get(name) for name in ("apiVersion", "kind"))
    return _spec_errors(
        new["spec"],
        is_core_allowed=target.get("kind") == "ReplicationController",
        checks_target=checks_target,
        checks_objects=not _has_bad_object(old["spec"].get("metrics") or ()),
    )


def _has_bad_object(metrics: Sequence[Object]) -> bool:
    """Return whether a stored metric names an object with an invalid API version."""
    for metric in metrics:
        source = metric.get("object")
        if metric.get("type") == "Object" and source is not None:
            described = source.get("describedObject") or {}
            if api_version_problem(described.get("apiVersion", ""), is_core_allowed=True):
                return True
    return False


def _spec_errors(
    spec: Object, *, is_core_allowed: bool, checks_target: bool, checks_objects: bool
) -> list[FieldError]:
    errors: list[FieldError] = []
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas", 0)
    if minimum is not None and maximum < minimum:
        message = "must be greater than or equal to `minReplicas`"
        errors.append(invalid("spec.maxReplicas", maximum, message))
    check_reference(
        errors,
        spec.get("scaleTargetRef") or {},
        "spec.scaleTargetRef",
        is_core_allowed=is_core_allowed,
        checks_version=checks_target,
    )
    metrics = spec.get("metrics") or ()
    check_metrics(errors, metrics, "spec.metrics", minimum, checks_api_version=checks_objects)
    behavior = spec.get("behavior") or {}
    for direction in _RULES:
        if behavior.get(direction) is not None:
            _check_rules(errors, behavior[direction], child("spec.behavior", direction))
    check_not_negative(errors, "spec.minReplicas", minimum)
    if maximum == 0:
        errors.append(required("spec.maxReplicas"))
    elif maximum < 0:
        message = "must be greater than or equal to 1"
        errors.append(invalid("spec.maxReplicas", maximum, message))
    return errors


def _check_rules(errors: Errors, rules: Object, path: str) -> None:
    window, select = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy")
    window_path = child(path, "stabilizationWindowSeconds")
    if window is not None and window < 0:
        errors.append(invalid(window_path, window, "must be greater than or equal to zero"))
    if window is not None and window > WINDOW_SECONDS_MAX:
        message = f"must be less than or equal to {WINDOW_SECONDS_MAX}"
        errors.append(invalid(window_path, window, message))
    if select is not None and select not in _SELECT_POLICIES:
        select_path = child(path, "selectPolicy")
        errors.append(not_supported(select_path, JsonText(select), _SELECT_POLICIES))
    policies_path = child(path, "policies")
    if not rules.get("policies"):
        errors.append(required(policies_path, "must specify at least one Policy"))
    for position, policy in enumerate(rules.get("policies") or ()):
        _check_policy(errors, policy, index(policies_path, position))
    tolerance = rules.get("tolerance")
    if tolerance is not None and parse(tolerance).sign < 0:
        errors.append(invalid(child(path, "tolerance"), tolerance, NEGATIVE))


def _check_policy(errors: Errors, policy: Object, path: str) -> None:
    type_ = policy.get("type", "")
    if type_ not in _POLICY_TYPES:
        errors.append(not_supported(child(path, "type"), JsonText(type_), _POLICY_TYPES))
    for name in ("value", "periodSeconds"):
        value = policy.get(name, 0)
        if value <= 0:
            errors.append(invalid(child(path, name), value, "must be greater than zero"))
    period = policy.get("periodSeconds", 0)
    if period > PERIOD_SECONDS_MAX:
        message = f"must be less than or equal to {PERIOD_SECONDS_MAX}"
        errors.append(invalid(child(path, "periodSeconds"), period, message))


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    status = new.get("status") or {}
    for position, condition in enumerate(status.get("conditions") or ()):
        path = child(index("status.conditions", position), "observedGeneration")
        check_not_negative(errors, path, condition.get("observedGeneration"))
    for name in ("currentReplicas", "desiredReplicas"):
        check_not_negative(errors, child("status", name), status.get(name))
    return errors


AUTOSCALERS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        has_generation=True,
        cells=autoscaler_cells,
        conversions={"v1": Conversion(default=default_v1, to_stored=to_v2, to_served=to_v1)},
    ),
    prepare_update=prepare_status,
    validate_update=_validate_status,
)
