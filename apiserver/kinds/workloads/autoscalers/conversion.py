"""Conversion of autoscaling/v1, which is stored as autoscaling/v2.

    v1  spec.targetCPUUtilizationPercentage: 80
    v2  spec.metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, …}}}]

What v1 has no field for is in its annotations as JSON: all other metrics, their current values, the
conditions, and the behavior, the latter with Go's names. On the way back the annotations are
decoded and dropped; an invalid one is only dropped. The default metric is cpu at 80 %.
"""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import go_json
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.objects.text.json_text import parse as parse_json
from kvstack.apimachinery.schema.decode import DecodeError, normalize
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apiserver.kinds.internal_values import internal_value

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS: Final = f"{_PREFIX}metrics"
_CURRENT_METRICS: Final = f"{_PREFIX}current-metrics"
_CONDITIONS: Final = f"{_PREFIX}conditions"
_BEHAVIOR: Final = f"{_PREFIX}behavior"
_ANNOTATIONS: Final = frozenset(
    (
        _METRICS,
        _CURRENT_METRICS,
        _CONDITIONS,
        _BEHAVIOR,
        f"{_PREFIX}scale-down-tolerance",
        f"{_PREFIX}scale-up-tolerance",
    )
)

_V1: Final = "io.k8s.api.autoscaling.v1."
_BEHAVIOR_TYPE: Final = "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerBehavior"
_PLAIN_SPEC: Final = ("scaleTargetRef", "minReplicas", "maxReplicas")
_PLAIN_STATUS: Final = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")

_Paths = Mapping[str, tuple[str, ...]]
_SOURCES: Final[Mapping[str, _Paths]] = {
    "object": {
        "target": ("describedObject",),
        "metricName": ("metric", "name"),
        "selector": ("metric", "selector"),
        "targetValue": ("target", "value"),
        "averageValue": ("target", "averageValue"),
    },
    "pods": {
        "metricName": ("metric", "name"),
        "selector": ("metric", "selector"),
        "targetAverageValue": ("target", "averageValue"),
    },
    "resource": {
        "name": ("name",),
        "targetAverageUtilization": ("target", "averageUtilization"),
        "targetAverageValue": ("target", "averageValue"),
    },
    "containerResource": {
        "name": ("name",),
        "container": ("container",),
        "targetAverageUtilization": ("target", "averageUtilization"),
        "targetAverageValue": ("target", "averageValue"),
    },
    "external": {
        "metricName": ("metric", "name"),
        "metricSelector": ("metric", "selector"),
        "targetValue": ("target", "value"),
        "targetAverageValue": ("target", "averageValue"),
    },
}
"""Fields of v1 metric sources and their paths in v2."""
_STATUSES: Final[Mapping[str, _Paths]] = {
    "object": {
        "target": ("describedObject",),
        "metricName": ("metric", "name"),
        "selector": ("metric", "selector"),
        "currentValue": ("current", "value"),
        "averageValue": ("current", "averageValue"),
    },
    "pods": {
        "metricName": ("metric", "name"),
        "selector": ("metric", "selector"),
        "currentAverageValue": ("current", "averageValue"),
    },
    "resource": {
        "name": ("name",),
        "currentAverageUtilization": ("current", "averageUtilization"),
        "currentAverageValue": ("current", "averageValue"),
    },
    "containerResource": {
        "name": ("name",),
        "container": ("container",),
        "currentAverageUtilization": ("current", "averageUtilization"),
        "currentAverageValue": ("current", "averageValue"),
    },
    "external": {
        "metricName": ("metric", "name"),
        "metricSelector": ("metric", "selector"),
        "currentValue": ("current", "value"),
        "currentAverageValue": ("current", "averageValue"),
    },
}
"""The same for current values."""


def default_v1(obj: Object) -> None:
    """Set the defaults of v1."""
    obj.setdefault("spec", {}).setdefault("minReplicas", 1)


def without_annotations(obj: Object) -> Object:
    """Return an object without the annotations of v1; the argument is not changed."""
    metadata = obj.get("metadata") or {}
    annotations: dict[str, str] = metadata.get("annotations") or {}
    if not any(each in _ANNOTATIONS for each in annotations):
        return obj
    kept = {name: text for name, text in annotations.items() if name not in _ANNOTATIONS}
    found = {name: value for name, value in metadata.items() if name != "annotations"}
    if kept:
        found["annotations"] = kept
    return {**obj, "metadata": found}


def to_v2(obj: Object) -> Object:
    """Return an autoscaler of v1 as v2; the argument is not changed."""
    annotations: Mapping[str, str] = (obj.get("metadata") or {}).get("annotations") or {}
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    metrics = _read_metrics(annotations.get(_METRICS), "MetricSpec", _spec_to_v2) or []
    utilization = spec.get("targetCPUUtilizationPercentage")
    if utilization is not None or not metrics:
        metrics.append(cpu_metric(80 if utilization is None else utilization))
    new_spec = {**_only(spec, _PLAIN_SPEC), "metrics": metrics}
    behavior = _read_behavior(annotations.get(_BEHAVIOR))
    if behavior:
        new_spec["behavior"] = behavior
    new_status = _status_to_v2(status, annotations)
    converted = {**obj, "apiVersion": "autoscaling/v2", "spec": new_spec, "status": new_status}
    return without_annotations(converted)


def _status_to_v2(status: Object, annotations: Mapping[str, str]) -> Object:
    converted = _only(status, _PLAIN_STATUS)
    current = _read_metrics(annotations.get(_CURRENT_METRICS), "MetricStatus", _metric_status_to_v2)
    utilization = status.get("currentCPUUtilizationPercentage")
    if current is None and utilization is not None:
        value = {"averageUtilization": utilization}
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": value}}]
    if current is not None:
        converted["currentMetrics"] = current
    conditions = _read_list(annotations.get(_CONDITIONS), "HorizontalPodAutoscalerCondition")
    if conditions is not None:
        converted["conditions"] = conditions
    return converted


def to_v1(obj: Object) -> Object:
    """Return an autoscaler of v2 as v1."""
    converted = {**without_annotations(obj), "apiVersion": "autoscaling/v1"}
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    new_spec, new_status = _only(spec, _PLAIN_SPEC), _only(status, _PLAIN_STATUS)
    metrics = spec.get("metrics") or []
    utilizations = [each for each in map(_cpu_utilization, metrics) if each is not None]
    if utilizations:
        new_spec["targetCPUUtilizationPercentage"] = utilizations[0]
    current = status.get("currentMetrics") or []
    for each in current:
        resource = each.get("resource") or {}
        used = (resource.get("current") or {}).get("averageUtilization")
        if each.get("type") == "Resource" and resource.get("name") == "cpu" and used is not None:
            new_status["currentCPUUtilizationPercentage"] = used
    converted["spec"], converted["status"] = new_spec, new_status
    added = _annotations_of(spec, status)
    if added:
        metadata = converted["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **added}
        converted["metadata"] = {**metadata, "annotations": annotations}
    return converted


def _annotations_of(spec: Object, status: Object) -> dict[str, str]:
    """Return the v1 annotations."""
    annotations: dict[str, str] = {}
    metrics = [each for each in spec.get("metrics") or () if _cpu_utilization(each) is None]
    if metrics:
        annotations[_METRICS] = _write_list(
            [_to_v1(each, _SOURCES) for each in metrics], "MetricSpec"
        )
    if current := status.get("currentMetrics"):
        annotations[_CURRENT_METRICS] = _write_list(
            [_to_v1(each, _STATUSES) for each in current], "MetricStatus"
        )
    behavior = spec.get("behavior")
    if behavior is not None:
        annotations[_BEHAVIOR] = go_json(internal_value(behavior, _BEHAVIOR_TYPE))
    if conditions := status.get("conditions"):
        annotations[_CONDITIONS] = _write_list(conditions, "HorizontalPodAutoscalerCondition")
    return annotations


def cpu_metric(utilization: int) -> Object:
    """Return the metric of cpu utilization in percent of the requests."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _cpu_utilization(metric: Object) -> int | None:
    """Return the utilization if it is the metric that v1 has a field for."""
    resource = metric.get("resource") or {}
    if metric.get("type") != "Resource" or resource.get("name") != "cpu":
        return None
    utilization: int | None = (resource.get("target") or {}).get("averageUtilization")
    return utilization


def _spec_to_v2(metric: Object) -> Object:
    converted = _to_v2(metric, _SOURCES)
    for field in _SOURCES:
        source = converted.get(field)
        if source is not None:
            _complete_target(field, source)
    return converted


def _complete_target(field: str, source: Object) -> None:
    """Set the type of a target, and drop the value that v1 cannot omit."""
    target = source.setdefault("target", {})
    type_ = "AverageValue"
    if field == "object":
        if "averageValue" not in target:
            type_ = "Value"
        elif not parse(target.get("value", "0")).sign:
            target.pop("value", None)
    elif field == "external" and "value" in target:
        type_ = "Value"
    elif "averageUtilization" in target:
        type_ = "Utilization"
    target["type"] = type_


def _metric_status_to_v2(metric: Object) -> Object:
    converted = _to_v2(metric, _STATUSES)
    for field in _STATUSES:
        if converted.get(field) is not None:
            converted[field].setdefault("current", {})
    return converted


def _to_v2(metric: Object, fields: Mapping[str, _Paths]) -> Object:
    converted: Object = {"type": metric.get("type", "")}
    for field, paths in fields.items():
        source = metric.get(field)
        if source is not None:
            converted[field] = {"metric": {}} if "metricName" in paths else {}
            for name, path in paths.items():
                if name in source:
                    _put(converted[field], path, source[name])
    return converted


def _to_v1(metric: Object, fields: Mapping[str, _Paths]) -> Object:
    converted: Object = {"type": metric.get("type", "")}
    for field, paths in fields.items():
        source = metric.get(field)
        if source is not None:
            values = {name: _get(source, path) for name, path in paths.items()}
            converted[field] = {name: value for name, value in values.items() if value is not None}
    return converted


def _get(value: Any, path: tuple[str, ...]) -> Any:  # noqa: ANN401 — of the path
    for name in path:
        value = (value or {}).get(name)
    return value


def _put(target: Object, path: tuple[str, ...], value: object) -> None:
    for name in path[:-1]:
        target = target.setdefault(name, {})
    target[path[-1]] = value


def _only(obj: Object, names: tuple[str, ...]) -> Object:
    return {name: obj[name] for name in names if name in obj}


def _write_list(items: list[Object], type_name: str) -> str:
    type_ = built_in_types()[_V1 + type_name]
    return go_json([normalize(each, type_) for each in items])


def _read_list(text: str | None, type_name: str) -> list[Object] | None:
    """Return the items of an annotation; None: it is missing or invalid."""
    items = _json(text)
    if not isinstance(items, list):
        return None
    type_ = built_in_types()[_V1 + type_name]
    try:
        return [normalize({} if each is None else each, type_) for each in items]
    except DecodeError:
        return None


def _read_metrics(text: str | None, type_name: str, convert: Any) -> list[Object] | None:  # noqa: ANN401
    items = _read_list(text, type_name)
    return None if items is None else [convert(each) for each in items]


def _read_behavior(text: str | None) -> Object | None:
    """Return the behavior of an annotation; None: it is missing or invalid."""
    value = _json(text)
    if not isinstance(value, dict):
        return None
    type_ = built_in_types()[_BEHAVIOR_TYPE]
    try:
        return normalize(_with_own_names(value, type_), type_)
    except DecodeError:
        return None


def _with_own_names(value: Any, type_: Type) -> Any:  # noqa: ANN401 — of the type
    """Return a value with JSON names for Go's names, which match case-insensitively."""
    if isinstance(value, list) and type_.shape is Shape.LIST and type_.element is not None:
        return [_with_own_names(each, type_.element) for each in value]
    if not isinstance(value, dict) or type_.shape is not Shape.STRUCT:
        return value
    fields = {each.go_name.lower(): each for each in type_.fields.values()}
    renamed: Object = {}
    for name, member in value.items():
        field = fields.get(name.lower())
        if field is not None:
            renamed[field.name] = _with_own_names(member, field.type)
    return renamed


def _json(text: str | None) -> Any:  # noqa: ANN401 — whatever it holds
    if text is None:
        return None
    try:
        return parse_json(text.encode())
    except JsonError:
        return None
