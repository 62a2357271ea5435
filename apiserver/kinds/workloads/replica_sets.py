"""ReplicaSets: replicas of one pod template."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.templates import check_template, check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.pods.warnings import name_warnings, template_warnings
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status
from kvstack.apiserver.kinds.workloads.cells import replica_set_cells
from kvstack.apiserver.kinds.workloads.pod_owners import (
    TEMPLATE_PATH,
    changed_template_warnings,
    check_labels,
    check_runs_forever,
    check_same_selector,
    check_selector,
    prepare_create,
    prepare_status,
    prepare_update_of,
    selector_of,
    selector_shown,
    template_of,
)
from kvstack.apiserver.kinds.workloads.status_counts import StatusCounts

_TOO_MANY: Final = "cannot be greater than status.replicas"
REPLICA_COUNTS: Final = StatusCounts(
    not_negative=(
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ),
    limits=(
        ("fullyLabeledReplicas", "replicas", _TOO_MANY),
        ("readyReplicas", "replicas", _TOO_MANY),
        ("availableReplicas", "replicas", _TOO_MANY),
        ("availableReplicas", "readyReplicas", "cannot be greater than readyReplicas"),
    ),
)
"""Counters of ReplicaSets and of ReplicationControllers, which have no `terminatingReplicas`."""


def check_replicated_template(
    errors: Errors, spec: Object, context: Context, tolerances: Tolerances
) -> None:
    """Check selector and template of a ReplicaSet or Deployment."""
    selector = spec.get("selector")
    check_selector(errors, selector, "spec.selector", "deployment")
    parsed = selector_of(selector)
    if parsed is None:
        shown = selector_shown(selector)
        errors.append(invalid("spec.selector", shown, "invalid label selector"))
        return
    template = spec.get("template") or {}
    if not parsed.is_everything:
        check_labels(errors, parsed, template, TEMPLATE_PATH)
    check_template(errors, template, TEMPLATE_PATH, context, tolerances)
    check_runs_forever(errors, template, TEMPLATE_PATH, "ReplicaSet")


def replicas_selectable(obj: Object) -> dict[str, str]:
    """Return the selectable fields of an object with replicas."""
    return {"status.replicas": str((obj.get("status") or {}).get("replicas", 0))}


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    spec.setdefault("replicas", 1)


def _validate(obj: Object, context: Context) -> list[FieldError]:
    return _spec_errors(obj["spec"], context, Tolerances())


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = check_with_tolerances(
        lambda tolerances: _spec_errors(new["spec"], context, tolerances), template_of(old)
    )
    check_same_selector(errors, new, old)
    return errors


def _spec_errors(spec: Object, context: Context, tolerances: Tolerances) -> list[FieldError]:
    errors: list[FieldError] = []
    check_not_negative(errors, "spec.replicas", spec.get("replicas", 0))
    check_not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds", 0))
    check_replicated_template(errors, spec, context, tolerances)
    return errors


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    REPLICA_COUNTS.check(errors, new.get("status") or {})
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    return name_warnings(obj) + template_warnings(template_of(obj), TEMPLATE_PATH)


REPLICA_SETS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=prepare_create,
        prepare_update=prepare_update_of("io.k8s.api.apps.v1.ReplicaSetSpec"),
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=changed_template_warnings,
        has_generation=True,
        selectable=replicas_selectable,
        cells=replica_set_cells,
    ),
    prepare_update=prepare_status,
    validate_update=_validate_status,
)
