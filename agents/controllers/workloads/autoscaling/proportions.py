"""Replicas from usage and target. Values are thousandths.

    by_utilization(pods, samples, requests, 50, …)   → Proposal(replicas=4, …)

Pods without samples make a change smaller, never larger: when less is needed they count as
fully used, when more is needed as idle.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.pod_rules import ready_condition, seconds_of
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse

_WHOLE: Final = 100
_CPU: Final = "cpu"
_INT_MAX: Final = 2**31 - 1


class MetricError(Exception):
    """A metric from which nothing can be proposed; the message is upstream's."""


class Sample(NamedTuple):
    """The usage of a pod."""

    value: int
    time_s: float
    window_s: float


class Tolerances(NamedTuple):
    """How far usage may be from its target without scaling; fractions of one."""

    down: float
    up: float

    def have(self, ratio: float) -> bool:
        """Whether a ratio of usage to target is close enough to one."""
        return 1.0 - self.down <= ratio <= 1.0 + self.up


class Readiness(NamedTuple):
    """How long samples of new pods are ignored."""

    start_s: float = 300.0
    delay_s: float = 30.0


class Proposal(NamedTuple):
    """The replicas that a metric proposes."""

    replicas: int
    value: int
    """Used on average."""
    percent: int | None = None
    """The usage in percent of the request."""


class Groups(NamedTuple):
    """Pods by the samples that they have."""

    ready: int
    unready: frozenset[str]
    missing: frozenset[str]
    ignored: frozenset[str]


class Question(NamedTuple):
    """The input of a proposal."""

    pods: Sequence[Object]
    current: int
    """Replicas there are to be now."""
    tolerances: Tolerances
    readiness: Readiness
    now_s: float


def group(question: Question, samples: Mapping[str, Sample], resource: str) -> Groups:
    """Group pods."""
    ready = 0
    unready, missing, ignored = set(), set(), set()
    for pod in question.pods:
        name = pod["metadata"]["name"]
        phase = (pod.get("status") or {}).get("phase")
        if is_deleting(pod) or phase == "Failed":
            ignored.add(name)
        elif phase == "Pending":
            unready.add(name)
        elif name not in samples:
            missing.add(name)
        elif resource == _CPU and _is_fresh(pod, samples[name], question):
            unready.add(name)
        else:
            ready += 1
    return Groups(ready, frozenset(unready), frozenset(missing), frozenset(ignored))


def _is_fresh(pod: Object, sample: Sample, question: Question) -> bool:
    """Whether a pod's usage may still be that of its start."""
    condition = ready_condition(pod)
    started_s = seconds_of(pod["status"].get("startTime"))
    if condition is None or started_s is None:
        return True
    is_false = condition.get("status") == "False"
    since_s = seconds_of(condition.get("lastTransitionTime")) or 0.0
    if started_s + question.readiness.start_s > question.now_s:
        return is_false or sample.time_s < since_s + sample.window_s
    return is_false and started_s + question.readiness.delay_s > since_s


def requests_of(pods: Sequence[Object], container: str, resource: str) -> dict[str, int]:
    """Return what each pod requests; raises MetricError."""
    return {pod["metadata"]["name"]: _request(pod, container, resource) for pod in pods}


def _request(pod: Object, container: str, resource: str) -> int:
    spec, name = pod["spec"], pod["metadata"]["name"]
    whole = (spec.get("resources") or {}).get("requests")
    if whole and not container:
        if resource not in whole:
            raise MetricError(f"missing pod-level request for {resource} in Pod {name}")
        return parse(whole[resource]).milli_value()
    sidecars = [each for each in spec.get("initContainers") or () if is_sidecar(each)]
    total = 0
    for each in (*spec["containers"], *sidecars):
        if container and each["name"] != container:
            continue
        requests = (each.get("resources") or {}).get("requests") or {}
        if resource not in requests:
            raise MetricError(
                f"missing request for {resource} in container {each['name']} of Pod {name}"
            )
        total += parse(requests[resource]).milli_value()
        if container:
            return total
    if container:
        raise MetricError(f"container {container} not found in Pod {name}")
    return total


def by_utilization(
    question: Question,
    samples: Mapping[str, Sample],
    target_percent: int,
    resource: str,
    container: str = "",
) -> Proposal:
    """Return what a share of requests proposes; raises MetricError."""
    groups = _groups(question, samples, resource)
    usage_by_pod = _usage_by_pod(samples, groups)
    requests = requests_of(question.pods, container, resource)

    def ratio_of(values: Mapping[str, int]) -> float:
        return _percent(values, requests) / target_percent

    percent = _percent(usage_by_pod, requests)
    matched = [value for name, value in usage_by_pod.items() if name in requests]
    fallback = max(_WHOLE, target_percent)
    filled = {name: requests[name] * fallback // _WHOLE for name in groups.missing}
    replicas = _replicas(question, groups, usage_by_pod, filled, ratio_of)
    return Proposal(replicas, _divided(sum(matched), len(matched)), percent)


def by_average(
    question: Question, samples: Mapping[str, Sample], target: int, resource: str = ""
) -> Proposal:
    """Return what an average for each pod proposes; raises MetricError."""
    groups = _groups(question, samples, resource)
    usage_by_pod = _usage_by_pod(samples, groups)

    def ratio_of(values: Mapping[str, int]) -> float:
        return _divided(sum(values.values()), len(values)) / target

    filled = dict.fromkeys(groups.missing, target)
    replicas = _replicas(question, groups, usage_by_pod, filled, ratio_of)
    return Proposal(replicas, _divided(sum(usage_by_pod.values()), len(usage_by_pod)))


def by_total(question: Question, total: int, target: int) -> Proposal:
    """Return what one value for all pods proposes; raises MetricError."""
    ratio = total / target
    if not question.current:
        return Proposal(math.ceil(ratio), total)
    if question.tolerances.have(ratio):
        return Proposal(question.current, total)
    if not question.pods:
        raise MetricError(
            "unable to calculate ready pods: no pods returned by selector while calculating"
            " replica count"
        )
    ready = sum(
        (pod.get("status") or {}).get("phase") == "Running" and is_ready(pod)
        for pod in question.pods
    )
    return Proposal(min(math.ceil(ratio * ready), _INT_MAX), total)


def by_share(total: int, target: int, replicas: int, tolerances: Tolerances) -> Proposal:
    """Return what one value, divided among the pods there are, proposes."""
    ratio = total / (target * replicas) if replicas else math.inf
    wanted = replicas if tolerances.have(ratio) else min(math.ceil(total / target), _INT_MAX)
    return Proposal(wanted, math.ceil(total / replicas) if replicas else _INT_MAX)


def _groups(question: Question, samples: Mapping[str, Sample], resource: str) -> Groups:
    if not question.pods:
        raise MetricError("no pods returned by selector while calculating replica count")
    return group(question, samples, resource)


def _usage_by_pod(samples: Mapping[str, Sample], groups: Groups) -> dict[str, int]:
    left_out = groups.ignored | groups.unready
    known = {name: each.value for name, each in samples.items() if name not in left_out}
    if not known:
        raise MetricError("did not receive metrics for targeted pods (pods might be unready)")
    return known


def _percent(values: Mapping[str, int], requests: Mapping[str, int]) -> int:
    matched = [name for name in values if name in requests]
    requested = sum(requests[name] for name in matched)
    if not requested:
        raise MetricError("no metrics returned matched known pods")
    return _divided(sum(values[name] for name in matched) * _WHOLE, requested)


def _replicas(
    question: Question,
    groups: Groups,
    usage_by_pod: Mapping[str, int],
    filled: Mapping[str, int],
    ratio_of: Callable[[Mapping[str, int]], float],
) -> int:
    """Return the replicas; filled: what missing pods count as when less is needed."""
    current, tolerances = question.current, question.tolerances
    ratio = ratio_of(usage_by_pod)
    with_unready = bool(groups.unready) and ratio > 1.0
    if not with_unready and not groups.missing:
        return current if tolerances.have(ratio) else math.ceil(ratio * groups.ready)
    values = dict(usage_by_pod)
    if ratio < 1.0:
        values.update(filled)
    elif ratio > 1.0:
        values.update(dict.fromkeys(groups.missing, 0))
    if with_unready:
        values.update(dict.fromkeys(groups.unready, 0))
    new_ratio = ratio_of(values)
    has_turned = (ratio < 1.0 < new_ratio) or (new_ratio < 1.0 < ratio)
    if tolerances.have(new_ratio) or has_turned:
        return current
    wanted = math.ceil(new_ratio * len(values))
    if (new_ratio < 1.0 and wanted > current) or (new_ratio > 1.0 and wanted < current):
        return current
    return wanted


def _divided(total: int, count: int) -> int:
    """Divide as Go divides integers."""
    return total // count if total >= 0 else -(-total // count)
