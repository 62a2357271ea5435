"""Validation of an autoscaler's metrics.

    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", …}}}

A metric has one source, which its type names, and a target of a type that the source supports.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label, check_path_segment
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.resource_names import check_container_resource_name
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.workloads.autoscalers.references import check_reference

SOURCES: Final = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Source fields by metric type, in order of evaluation."""

_TYPES: Final = tuple(sorted(SOURCES))
_TARGET_TYPES: Final = frozenset({"Utilization", "Value", "AverageValue"})
_NO_RAW_TARGET: Final = "must set either a target raw value or a target utilization"
_BOTH_RAW_TARGETS: Final = "may not set both a target raw value and a target utilization"


def check_metrics(
    errors: Errors,
    metrics: Sequence[Object],
    path: str,
    min_replicas: int | None,
    *,
    checks_api_version: bool,
) -> None:
    """Check all metrics of an autoscaler."""
    for position, metric in enumerate(metrics):
        _check_metric(errors, metric, index(path, position), checks_api_version=checks_api_version)
    if min_replicas == 0 and not any(
        each.get("type") in {"Object", "External"} for each in metrics
    ):
        message = (
            "must specify at least one Object or External metric to support scaling to zero"
            " replicas"
        )
        errors.append(forbidden(path, message))


def _check_metric(errors: Errors, metric: Object, path: str, *, checks_api_version: bool) -> None:
    type_ = metric.get("type", "")
    type_path = child(path, "type")
    if not type_:
        errors.append(required(type_path, "must specify a metric source type"))
    expected = SOURCES.get(type_, "")
    if not expected:
        errors.append(not_supported(type_path, JsonText(type_), _TYPES))
    sources = [field for field in SOURCES.values() if metric.get(field) is not None]
    if sources:
        source, source_path = metric[sources[0]], child(path, sources[0])
        if sources[0] == "object":
            described = child(source_path, "describedObject")
            reference = source.get("describedObject") or {}
            check_reference(
                errors,
                reference,
                described,
                is_core_allowed=True,
                checks_version=checks_api_version,
            )
        _check_source(errors, sources[0], source, source_path)
    if expected and expected not in sources:
        message = "must populate information for the given metric source"
        errors.append(required(child(path, expected), message))
    if len(sources) > 1:
        errors.extend(
            forbidden(child(path, field), "must populate the given metric source only")
            for field in sources
            if field != expected
        )


def _check_source(errors: Errors, field: str, source: Object, path: str) -> None:
    if field in {"resource", "containerResource"}:
        _check_resource(errors, source, path, is_container=field == "containerResource")
    else:
        _check_name(errors, source.get("metric") or {}, child(path, "metric", "name"))
    target, target_path = source.get("target") or {}, child(path, "target")
    _check_target(errors, target, target_path)
    value, average = target.get("value"), target.get("averageValue")
    average_path = child(target_path, "averageValue")
    if field == "object" and value is None and average is None:
        errors.append(required(average_path, "must set either a target value or averageValue"))
    elif field == "pods" and average is None:
        errors.append(required(average_path, "must specify a positive target averageValue"))
    elif field == "external":
        _check_external(errors, target, target_path)
    elif field in {"resource", "containerResource"}:
        utilization = target.get("averageUtilization")
        if utilization is None and average is None:
            errors.append(required(child(target_path, "averageUtilization"), _NO_RAW_TARGET))
        elif utilization is not None and average is not None:
            errors.append(forbidden(average_path, _BOTH_RAW_TARGETS))


def _check_external(errors: Errors, target: Object, path: str) -> None:
    value, average = target.get("value"), target.get("averageValue")
    if value is None and average is None:
        message = "must set either a target value for metric or a per-pod target"
        errors.append(required(child(path, "averageValue"), message))
    elif value is not None and average is not None:
        message = "may not set both a target value for metric and a per-pod target"
        errors.append(forbidden(child(path, "value"), message))


def _check_resource(errors: Errors, source: Object, path: str, *, is_container: bool) -> None:
    name, name_path = source.get("name", ""), child(path, "name")
    if not name:
        errors.append(required(name_path, "must specify a resource name"))
    elif is_container:
        check_container_resource_name(errors, name_path, name)
    if is_container:
        container, container_path = source.get("container", ""), child(path, "container")
        if container:
            add_invalid(errors, container_path, container, check_dns_label(container))
        else:
            errors.append(required(container_path, "must specify a container"))


def _check_name(errors: Errors, metric: Object, path: str) -> None:
    name = metric.get("name", "")
    if name:
        add_invalid(errors, path, name, check_path_segment(name))
    else:
        errors.append(required(path, "must specify a metric name"))


def _check_target(errors: Errors, target: Object, path: str) -> None:
    type_, type_path = target.get("type", ""), child(path, "type")
    if not type_:
        errors.append(required(type_path, "must specify a metric target type"))
    if type_ not in _TARGET_TYPES:
        message = "must be either Utilization, Value, or AverageValue"
        errors.append(invalid(type_path, JsonText(type_), message))
    for name in ("value", "averageValue"):
        amount = target.get(name)
        if amount is not None and parse(amount).sign <= 0:
            errors.append(invalid(child(path, name), amount, "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        message = "must be greater than 0"
        errors.append(invalid(child(path, "averageUtilization"), utilization, message))
