"""PodDisruptionBudgets: limits of voluntary disruptions.

Metadata is only validated if nothing else is wrong, and an update requires a resourceVersion. In a
removed version an empty selector selected nothing; it is represented by a label that no pod has,
which is dropped if there are other requirements.
"""

from typing import Any, Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_checks import conditions
from kvstack.apimachinery.objects.field_errors import FieldError, child, invalid, not_supported
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_path_segment
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Peculiarities, Strategy, with_status
from kvstack.apiserver.kinds.workloads.cells import disruption_budget_cells
from kvstack.apiserver.kinds.workloads.counts import check_count, check_share
from kvstack.apiserver.kinds.workloads.pod_owners import (
    SELECTOR_TYPE,
    keep_status,
    prepare_status,
    raise_generation,
)

_SPEC: Final = "io.k8s.api.policy.v1.PodDisruptionBudgetSpec"
_LIMITS: Final = ("minAvailable", "maxUnavailable")
_EVICTION_POLICIES: Final = enum_values(_SPEC, "unhealthyPodEvictionPolicy")
_OLD_EMPTY: Final = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
_MATCHES_NONE: Final = {"matchExpressions": [{"key": _OLD_EMPTY, "operator": "Exists"}]}
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    obj["metadata"]["generation"] = 1
    _drop_old_label(obj, None)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    keep_status(new, old)
    if not same(new.get("spec"), old.get("spec"), _SPEC):
        raise_generation(new, old)
    _drop_old_label(new, old)


def _selector(obj: Object) -> Object | None:
    selector: Object | None = (obj.get("spec") or {}).get("selector")
    return selector


def _drop_old_label(new: Object, old: Object | None) -> None:
    selector = _selector(new)
    if not selector or (old is not None and same(selector, _selector(old), SELECTOR_TYPE)):
        return
    expressions: list[Object] = selector.get("matchExpressions") or []
    if same(selector, _MATCHES_NONE, SELECTOR_TYPE):
        return
    kept = [each for each in expressions if each.get("key") != _OLD_EMPTY]
    if len(kept) < len(expressions):
        changed: Object = {**selector, "matchExpressions": kept}
        if not kept:
            del changed["matchExpressions"]
        new["spec"]["selector"] = changed


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _spec_errors(obj.get("spec") or {}, allows_bad_selector=False)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    selector = _selector(old)
    allows_bad_selector = selector is not None and bool(labels.validate_object("", selector))
    return _spec_errors(new.get("spec") or {}, allows_bad_selector=allows_bad_selector)


def _spec_errors(spec: Object, *, allows_bad_selector: bool) -> list[FieldError]:
    errors: list[FieldError] = []
    limits: dict[str, Any] = {name: spec[name] for name in _LIMITS if spec.get(name) is not None}
    if len(limits) > 1:
        message = "minAvailable and maxUnavailable cannot be both set"
        errors.append(invalid("spec", internal_value(spec, _SPEC), message))
    for name, value in limits.items():
        path = child("spec", name)
        check_count(errors, path, value)
        check_share(errors, path, value)
    errors += labels.validate_object(
        "spec.selector", spec.get("selector"), allow_invalid_values=allows_bad_selector
    )
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in _EVICTION_POLICIES:
        path = "spec.unhealthyPodEvictionPolicy"
        errors.append(not_supported(path, JsonText(policy), _EVICTION_POLICIES))
    return errors


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    status = new.get("status") or {}
    errors = conditions("status.conditions", status.get("conditions") or [])
    for name in _COUNTS:
        check_not_negative(errors, child("status", name), status.get(name))
    return errors


DISRUPTION_BUDGETS: Final = with_status(
    Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        check_name=name_is_path_segment,
        peculiarities=Peculiarities(checks_metadata_last=True),
        allows_any_finalizer=True,
        allows_unconditional_update=False,
        has_generation=True,
        cells=disruption_budget_cells,
    ),
    prepare_update=prepare_status,
    validate_update=_validate_status,
)
