"""DaemonSets: one pod on every matching node.

The annotation TEMPLATE_GENERATION was once a field; the server sets it, starting with 1, and
increments it whenever the template changes.
"""

from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.schema.decode import DecodeError
from kvstack.apimachinery.schema.load import enum_in_order
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.pods.defaults import default_template
from kvstack.apiserver.kinds.pods.disabled_fields import drop_disabled_template_fields
from kvstack.apiserver.kinds.pods.templates import check_template, check_with_tolerances
from kvstack.apiserver.kinds.pods.tolerances import NO_TOLERANCES, Tolerances
from kvstack.apiserver.kinds.pods.warnings import template_warnings
from kvstack.apiserver.kinds.rules import Errors, check_not_negative
from kvstack.apiserver.kinds.strategy import Context, Strategy, TableFormat, with_status
from kvstack.apiserver.kinds.workloads import pod_owners
from kvstack.apiserver.kinds.workloads.cells import daemon_set_cells
from kvstack.apiserver.kinds.workloads.counts import as_printed, check_count, check_share, is_zero
from kvstack.apiserver.kinds.workloads.pod_owners import (
    TEMPLATE_PATH,
    check_labels,
    check_runs_forever,
    check_same_selector,
    keep_status,
    raise_generation,
    selector_of,
    selector_shown,
    template_of,
)
from kvstack.apiserver.kinds.workloads.status_counts import StatusCounts, check_collisions

TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"

_SPEC: Final = "io.k8s.api.apps.v1.DaemonSetSpec"
_TEMPLATE: Final = "io.k8s.api.core.v1.PodTemplateSpec"
_UPDATE_STRATEGY: Final = "io.k8s.api.apps.v1.DaemonSetUpdateStrategy"
_UPDATE_STRATEGIES: Final = enum_in_order(_UPDATE_STRATEGY, "type", "RollingUpdate", "OnDelete")
_STATUS: Final = StatusCounts(
    not_negative=(
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
        "collisionCount",
    ),
)


def template_generation(obj: Object) -> int:
    """Return the template generation."""
    text = (obj["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
    return 0 if text is None else parse_int(text, 64)


def _set_template_generation(obj: Object, generation: int) -> None:
    metadata = obj["metadata"]
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {**annotations, TEMPLATE_GENERATION: str(generation)}


def _default(obj: Object) -> None:
    _read_template_generation(obj)
    spec = obj.setdefault("spec", {})
    default_template(spec.setdefault("template", {}))
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    elif (unused := strategy.get("rollingUpdate")) is not None:
        unused.setdefault("maxUnavailable", 0)
        unused.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)


def _read_template_generation(obj: Object) -> None:
    """Normalize the annotation to a number; 0 if it is missing."""
    metadata = obj.setdefault("metadata", {})
    text = (metadata.get("annotations") or {}).get(TEMPLATE_GENERATION, "0")
    try:
        _set_template_generation(obj, parse_int(text, 64))
    except NumberError as error:
        raise DecodeError(str(error)) from None


def _prepare_create(obj: Object, context: Context) -> None:
    pod_owners.prepare_create(obj, context)
    _set_template_generation(obj, max(1, template_generation(obj)))


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    keep_status(new, old)
    template, before = template_of(new), template_of(old)
    drop_disabled_template_fields(template, before)
    generation = template_generation(old)
    is_changed = not same(template, before, _TEMPLATE)
    _set_template_generation(new, generation + is_changed)
    if is_changed or not same(new["spec"], old["spec"], _SPEC):
        raise_generation(new, old)


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]
    _set_template_generation(new, template_generation(old))


def _validate(obj: Object, context: Context) -> list[FieldError]:
    return _spec_errors(obj["spec"], context, NO_TOLERANCES)


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    check_same_selector(errors, new, old)
    allows_bad_selector = labels.has_invalid_value(old["spec"].get("selector"))
    return errors + check_with_tolerances(
        lambda tolerances: _spec_errors(
            new["spec"], context, tolerances, allows_bad_selector=allows_bad_selector
        ),
        template_of(old),
    )


def _spec_errors(
    spec: Object, context: Context, tolerances: Tolerances, *, allows_bad_selector: bool = False
) -> list[FieldError]:
    selector, template = spec.get("selector"), spec.get("template") or {}
    errors = labels.validate_object(
        "spec.selector",
        selector,
        allow_invalid_values=allows_bad_selector or tolerances.selector_values,
    )
    parsed = selector_of(selector)
    if parsed is not None:
        check_labels(errors, parsed, template, TEMPLATE_PATH)
    if selector is not None and not (
        selector.get("matchLabels") or selector.get("matchExpressions")
    ):
        message = "empty selector is invalid for daemonset"
        errors.append(invalid("spec.selector", selector_shown(selector), message))
    check_template(errors, template, TEMPLATE_PATH, context, tolerances)
    check_runs_forever(errors, template, TEMPLATE_PATH, "DaemonSet")
    check_not_negative(errors, "spec.minReadySeconds", spec.get("minReadySeconds", 0))
    _check_strategy(errors, spec.get("updateStrategy") or {}, "spec.updateStrategy")
    check_not_negative(errors, "spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    return errors


def _check_strategy(errors: Errors, strategy: Object, path: str) -> None:
    type_: str = strategy.get("type", "")
    rolling: Object | None = strategy.get("rollingUpdate")
    rolling_path = child(path, "rollingUpdate")
    if type_ not in _UPDATE_STRATEGIES:
        printed = internal_value(strategy, _UPDATE_STRATEGY)
        errors.append(not_supported(path, printed, _UPDATE_STRATEGIES))
    elif type_ == "RollingUpdate":
        if rolling is None:
            errors.append(required(rolling_path))
        else:
            _check_rolling(errors, rolling, rolling_path)


def _check_rolling(errors: Errors, rolling: Object, path: str) -> None:
    unavailable, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    unavailable_path, surge_path = child(path, "maxUnavailable"), child(path, "maxSurge")
    check_count(errors, unavailable_path, unavailable)
    check_count(errors, surge_path, surge)
    check_share(errors, unavailable_path, unavailable)
    check_share(errors, surge_path, surge)
    if is_zero(unavailable) and is_zero(surge):
        errors.append(required(unavailable_path, "cannot be 0 when maxSurge is 0"))
    elif not is_zero(unavailable) and not is_zero(surge):
        message = "may not be set when maxUnavailable is non-zero"
        errors.append(invalid(surge_path, as_printed(surge), message))


def _validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _STATUS.check(errors, new.get("status") or {})
    check_collisions(errors, new, old)
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    return template_warnings(template_of(obj), TEMPLATE_PATH)


def _update_warnings(new: Object, old: Object, context: Context) -> list[str]:
    if template_generation(new) == template_generation(old):
        return []
    return _warnings(new, context)


DAEMON_SETS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        has_generation=True,
        table=TableFormat(hidden_annotations=frozenset({TEMPLATE_GENERATION})),
        cells=daemon_set_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
)
