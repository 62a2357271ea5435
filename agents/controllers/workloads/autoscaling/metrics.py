"""The proposal of each metric of an autoscaler, read from the metrics APIs.

resource, containerResource   metrics.k8s.io
pods, object                  custom.metrics.k8s.io
external                      external.metrics.k8s.io
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.controllers.workloads.autoscaling.proportions import (
    MetricError,
    Proposal,
    Question,
    Sample,
    by_average,
    by_share,
    by_total,
    by_utilization,
)
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import Get, ListLive, Outcome, Step, discover
from kvstack.apimachinery.objects import durations, labels
from kvstack.apimachinery.objects.durations import DurationError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.status import ApiError

Reading: TypeAlias = Generator[Step, list[Outcome], "MetricProposal"]

_POD_METRICS: Final = ResourceType("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")
_CUSTOM: Final = ("custom.metrics.k8s.io", "v1beta2")
_EXTERNAL: Final = ("external.metrics.k8s.io", "v1beta1")
_NANOSECONDS: Final = 1e9
_WINDOW_S: Final = 60.0
_BINARY_STEP: Final = 1024
_THOUSAND: Final = 1000
_REASONS: Final = {
    "Resource": "FailedGetResourceMetric",
    "ContainerResource": "FailedGetContainerResourceMetric",
    "Pods": "FailedGetPodsMetric",
    "Object": "FailedGetObjectMetric",
    "External": "FailedGetExternalMetric",
}


class MetricProposal(NamedTuple):
    """The replicas that a metric proposes."""

    replicas: int
    name: str
    status: Object


class Target(NamedTuple):
    """The target of an autoscaler."""

    namespace: str
    selector: str
    """The selector of its pods, in the syntax of queries."""
    status_replicas: int
    question: Question


class FailedMetricError(Exception):
    """A metric from which nothing can be proposed."""

    def __init__(self, reason: str, cause: str, message: str) -> None:
        """cause: for the event and the condition; message: for the error of the whole."""
        super().__init__(message)
        self.reason = reason
        self.cause = cause


def propose(spec: Object, target: Target) -> Reading:
    """Return what a metric proposes; raises FailedMetricError."""
    type_ = spec.get("type", "")
    read = _READERS.get(type_)
    if read is None:
        text = f'unknown metric source type "{type_}"'
        raise FailedMetricError("InvalidMetricSourceType", text, text)
    key = f"{type_[0].lower()}{type_[1:]}"
    try:
        return (yield from read(spec[key], target))
    except MetricError as error:
        message = f"failed to get {_external_metric_text(type_, spec[key])}: {error}"
        raise FailedMetricError(_REASONS[type_], str(error), message) from None


def _external_metric_text(type_: str, source: Object) -> str:
    if type_ == "Resource":
        return f"{source['name']} resource metric value"
    if type_ == "ContainerResource":
        return f"{source['container']} container metric value"
    if type_ == "External":
        return f"{source['metric']['name']} external metric value"
    return f"{type_.lower()} metric value"


# What pods use.


def _resource(source: Object, target: Target) -> Reading:
    current, replicas, name = yield from _usage(source, target, "")
    if name.endswith("request)"):
        name = f"{source['name']} resource utilization (percentage of request)"
    status = {"type": "Resource", "resource": {"name": source["name"], "current": current}}
    return MetricProposal(replicas, name, status)


def _container_resource(source: Object, target: Target) -> Reading:
    current, replicas, name = yield from _usage(source, target, source["container"])
    status = {"name": source["name"], "container": source["container"], "current": current}
    return MetricProposal(
        replicas, name, {"type": "ContainerResource", "containerResource": status}
    )


def _usage(
    source: Object, target: Target, container: str
) -> Generator[Step, list[Outcome], tuple[Object, int, str]]:
    """Return the current value, the proposed replicas and the metric's name."""
    resource, goal = source["name"], source["target"]
    is_value = goal.get("averageValue") is not None
    if not is_value and goal.get("averageUtilization") is None:
        raise MetricError(
            "invalid resource metric source: neither an average utilization target nor an"
            " average value (usage) target was set"
        )
    try:
        samples = yield from _pod_samples(target, resource, container)
        if is_value:
            value = parse(goal["averageValue"]).milli_value()
            usage = by_average(target.question, samples, value, resource)
        else:
            percent = goal["averageUtilization"]
            usage = by_utilization(target.question, samples, percent, resource, container)
    except MetricError as error:
        word = "usage" if is_value else "utilization"
        raise MetricError(f"failed to get {resource} {word}: {error}") from None
    current: Object = {"averageValue": _text(usage.value, is_binary=resource == "memory")}
    if usage.percent is None:
        return current, usage.replicas, f"{resource} resource"
    current["averageUtilization"] = usage.percent
    kind = "container resource" if container else "resource"
    return current, usage.replicas, f"{resource} {kind} utilization (percentage of request)"


def _pod_samples(
    target: Target, resource: str, container: str
) -> Generator[Step, list[Outcome], dict[str, Sample]]:
    items = yield from _list_values(
        ListLive(_POD_METRICS, target.namespace, target.selector),
        f"unable to get metrics for resource {resource}: ",
        "resource",
    )
    samples: dict[str, Sample] = {}
    for item in items:
        containers = item.get("containers") or ()
        if container:
            containers = [each for each in containers if each["name"] == container]
        used: list[Any] = [(each.get("usage") or {}).get(resource) for each in containers]
        if used and None not in used:
            value = sum([parse(each).milli_value() for each in used])
            samples[item["metadata"]["name"]] = Sample(
                value, seconds_of(item.get("timestamp")) or 0.0, _seconds(item.get("window"))
            )
    return samples


def _seconds(text: str | None) -> float:
    try:
        return durations.parse(text) / _NANOSECONDS if text else 0.0
    except DurationError:
        return 0.0


# Metrics of other APIs.


def _pods(source: Object, target: Target) -> Reading:
    name = source["metric"]["name"]
    resource = ResourceType(*_CUSTOM, "pods", "MetricValueList")
    query = (("labelSelector", target.selector), *_metric_selector(source["metric"]))
    items = yield from _list_values(
        Get(resource, target.namespace, "*", name, query=query),
        f"unable to get metric {name}: ",
        "custom",
    )
    samples = {
        item["describedObject"]["name"]: Sample(
            parse(item["value"]).milli_value(),
            seconds_of(item.get("timestamp")) or 0.0,
            float(item.get("windowSeconds") or _WINDOW_S),
        )
        for item in items
    }
    goal = parse(source["target"]["averageValue"]).milli_value()
    found = by_average(target.question, samples, goal)
    status = _metric_status("Pods", source["metric"], {"averageValue": _text(found.value)})
    return MetricProposal(found.replicas, f"pods metric {name}", status)


def _object(source: Object, target: Target) -> Reading:
    name, described = source["metric"]["name"], source["describedObject"]
    what = f"{described['kind']} {target.namespace}/{described['name']}"
    discovered = yield from discover()
    version = described.get("apiVersion", "v1")
    known = discovered.of_kind(version, described["kind"])
    if known is None:
        raise MetricError(f'no matches for kind "{described["kind"]}" in version "{version}"')
    path = f"{known.name}.{known.group}" if known.group else known.name
    resource = ResourceType(*_CUSTOM, path, "MetricValueList", known.is_namespaced)
    namespace = target.namespace if known.is_namespaced else ""
    query = tuple(_metric_selector(source["metric"]))
    items = yield from _list_values(
        Get(resource, namespace, described["name"], name, query=query),
        f"unable to get metric {name} on {what}: ",
        "custom",
    )
    total = parse(items[0]["value"]).milli_value()
    proposal, current = _of_one_value(source["target"], total, target)
    if current is None:
        raise MetricError(
            "invalid object metric source: neither a value target nor an average value target was"
            " set"
        )
    status = _metric_status("Object", source["metric"], current)
    status["object"]["describedObject"] = described
    if "value" in current:
        return MetricProposal(proposal.replicas, f"{described['kind']} metric {name}", status)
    return MetricProposal(proposal.replicas, _external_name(source["metric"]), status)


def _external(source: Object, target: Target) -> Reading:
    name = source["metric"]["name"]
    selector = source["metric"].get("selector")
    resource = ResourceType(*_EXTERNAL, name, "ExternalMetricValue")
    query = str(labels.from_object(selector)) if selector is not None else ""
    items = yield from _list_values(
        ListLive(resource, target.namespace, query),
        f"unable to get external metric {target.namespace}/{name}/{_selector_text(selector)}: ",
        "external",
    )
    total = sum(parse(item["value"]).milli_value() for item in items)
    proposal, current = _of_one_value(source["target"], total, target)
    if current is None:
        raise MetricError(
            "invalid external metric source: neither a value target nor an average value target"
            " was set"
        )
    status = _metric_status("External", source["metric"], current)
    return MetricProposal(proposal.replicas, _external_name(source["metric"]), status)


def _of_one_value(goal: Object, total: int, target: Target) -> tuple[Proposal, Object | None]:
    """Return the proposal of one value, and its status; None: the target is not set."""
    if goal.get("averageValue") is not None:
        share = parse(goal["averageValue"]).milli_value()
        found = by_share(total, share, target.status_replicas, target.question.tolerances)
        return found, {"averageValue": _text(found.value)}
    if goal.get("value") is not None:
        found = by_total(target.question, total, parse(goal["value"]).milli_value())
        return found, {"value": _text(found.value)}
    return Proposal(0, 0), None


def _list_values(
    action: ListLive | Get, before: str, api: str
) -> Generator[Step, list[Outcome], Sequence[Object]]:
    """Return what an API of metrics lists; raises MetricError."""
    [outcome] = yield [action]
    if outcome.error is not None:
        text = _cause(outcome.error, action.resource)
        raise MetricError(f"{before}unable to fetch metrics from {api} metrics API: {text}")
    items: Sequence[Object] = outcome.result().get("items") or ()
    if not items:
        raise MetricError(f"{before}no metrics returned from {api} metrics API")
    return items


def _cause(error: Exception, resource: ResourceType) -> str:
    is_missing = isinstance(error, ApiError) and error.is_not_found
    if is_missing and "not found" not in str(error).removeprefix("404 page "):
        return str(error)
    if is_missing:
        what = f"{resource.name}.{resource.group}"
        return f"the server could not find the requested resource (get {what})"
    if isinstance(error, ApiError | UnreachableError):
        return str(error)
    raise error


def _metric_selector(metric: Object) -> Sequence[tuple[str, str]]:
    selector = metric.get("selector")
    if selector is None:
        return ()
    return (("metricLabelSelector", str(labels.from_object(selector))),)


def _selector_text(selector: Mapping[str, Any] | None) -> str:
    return "nil" if selector is None else labels.struct_text(selector)


def _external_name(metric: Object) -> str:
    return f"external metric {metric['name']}({_selector_text(metric.get('selector'))})"


def _metric_status(type_: str, metric: Object, current: Object) -> Object:
    return {"type": type_, type_.lower(): {"metric": metric, "current": current}}


def _text(milli: int, *, is_binary: bool = False) -> str:
    """Return a value in thousandths as a quantity."""
    if is_binary and milli % _THOUSAND == 0:
        value = milli // _THOUSAND
        if value and value % _BINARY_STEP == 0:
            return str(parse(f"{value // _BINARY_STEP}Ki"))
        return str(value)
    return str(parse(f"{milli}m"))


_READERS: Final = {
    "Resource": _resource,
    "ContainerResource": _container_resource,
    "Pods": _pods,
    "Object": _object,
    "External": _external,
}
