"""Table rows of workloads.

NAME   READY   UP-TO-DATE   AVAILABLE   AGE   CONTAINERS   IMAGES   SELECTOR
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.groups import GroupKind, parse_group_version
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import age, human_duration, parse_time
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.cells import bool_text, first_of, pairs_text

_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"
_METRICS_MAX: Final = 2


def deployment_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a Deployment."""
    status = _status(obj)
    return [
        _name(obj),
        _ready(obj),
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        _age(obj, now),
        *_containers(obj),
        _selector_text(obj["spec"].get("selector")),
    ]


def replica_set_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a ReplicaSet."""
    return [*_replica_cells(obj, now), labels.format_object(obj["spec"].get("selector"))]


def replication_controller_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a ReplicationController."""
    return [*_replica_cells(obj, now), pairs_text(obj["spec"].get("selector"))]


def stateful_set_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a StatefulSet."""
    return [_name(obj), _ready(obj), _age(obj, now), *_containers(obj)]


def daemon_set_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a DaemonSet."""
    spec, status = obj["spec"], _status(obj)
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    pod_spec = (spec.get("template") or {}).get("spec") or {}
    return [
        _name(obj),
        *(status.get(each, 0) for each in counts),
        pairs_text(pod_spec.get("nodeSelector")),
        _age(obj, now),
        *_containers(obj),
        labels.format_object(spec.get("selector")),
    ]


def job_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a Job."""
    return [
        _name(obj),
        _job_state(obj),
        _completions(obj),
        _job_duration(_status(obj), now),
        _age(obj, now),
        *_containers(obj),
        labels.format_object(obj["spec"].get("selector")),
    ]


def cron_job_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a CronJob."""
    spec, status = obj["spec"], _status(obj)
    last = status.get("lastScheduleTime")
    zone = spec.get("timeZone")
    job = spec.get("jobTemplate") or {}
    return [
        _name(obj),
        spec.get("schedule", ""),
        _NONE if zone is None else zone,
        bool_text(spec.get("suspend")),
        len(status.get("active") or ()),
        _NONE if last is None else age(last, now),
        _age(obj, now),
        *_containers(job),
        labels.format_object((job.get("spec") or {}).get("selector")),
    ]


def pod_template_cells(obj: Object, _now: float) -> list[Any]:
    """Return the cells of a PodTemplate."""
    template = obj.get("template") or {}
    template_labels = (template.get("metadata") or {}).get("labels")
    return [_name(obj), *_containers({"spec": obj}), pairs_text(template_labels)]


def controller_revision_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a ControllerRevision."""
    owner = _NONE
    for each in obj["metadata"].get("ownerReferences") or ():
        if each.get("controller"):
            group = parse_group_version(each["apiVersion"]).group
            owner = f"{str(GroupKind(group, each['kind'])).lower()}/{each['name']}"
            break
    return [_name(obj), owner, obj.get("revision", 0), _age(obj, now)]


def disruption_budget_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a PodDisruptionBudget."""
    spec = obj.get("spec") or {}
    limits = (spec.get(each) for each in ("minAvailable", "maxUnavailable"))
    return [
        _name(obj),
        *("N/A" if each is None else str(each) for each in limits),
        _status(obj).get("disruptionsAllowed", 0),
        _age(obj, now),
    ]


def autoscaler_cells(obj: Object, now: float) -> list[Any]:
    """Return the cells of a HorizontalPodAutoscaler of autoscaling/v2."""
    spec, status = obj.get("spec") or {}, _status(obj)
    target = spec.get("scaleTargetRef") or {}
    minimum = spec.get("minReplicas")
    return [
        _name(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _metrics(spec.get("metrics") or (), status.get("currentMetrics") or ()),
        "<unset>" if minimum is None else str(minimum),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        _age(obj, now),
    ]


def scale_cells(scale: Object, now: float) -> list[Any]:
    """Return the cells of a Scale."""
    desired = (scale.get("spec") or {}).get("replicas", 0)
    return [_name(scale), desired, _status(scale).get("replicas", 0), _age(scale, now)]


def _replica_cells(obj: Object, now: float) -> list[Any]:
    status = _status(obj)
    return [
        _name(obj),
        obj["spec"].get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        _age(obj, now),
        *_containers(obj),
    ]


def _name(obj: Object) -> str:
    name: str = obj["metadata"].get("name", "")
    return name


def _status(obj: Object) -> Object:
    return obj.get("status") or {}


def _age(obj: Object, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _ready(obj: Object) -> str:
    return f"{_status(obj).get('readyReplicas', 0)}/{obj['spec'].get('replicas', 0)}"


def _containers(obj: Object) -> tuple[str, str]:
    """Return the names and the images of the containers in the object's template."""
    template = (obj.get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    names, images = ([each.get(field, "") for each in containers] for field in ("name", "image"))
    return ",".join(names), ",".join(images)


def _selector_text(selector: Object | None) -> str:
    try:
        return str(labels.from_object(selector))
    except labels.SelectorError:
        return "<invalid>"


def _job_state(obj: Object) -> str:
    holding = {
        each.get("type")
        for each in _status(obj).get("conditions") or ()
        if each.get("status") == "True"
    }
    if "deletionTimestamp" in obj["metadata"]:
        holding.add("Terminating")
    order = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget")
    for state in (*order, "SuccessCriteriaMet"):
        if state in holding:
            return state
    return "Running"


def _completions(obj: Object) -> str:
    spec, succeeded = obj["spec"], _status(obj).get("succeeded", 0)
    wanted, parallelism = spec.get("completions"), spec.get("parallelism", 0)
    if wanted is not None:
        return f"{succeeded}/{wanted}"
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def _job_duration(status: Object, now: float) -> str:
    start, end = status.get("startTime"), status.get("completionTime")
    if start is None:
        return ""
    ended = now if end is None else _seconds(end)
    return human_duration(ended - _seconds(start))


def _seconds(time: str) -> float:
    seconds, nanoseconds = parse_time(time)
    return seconds + nanoseconds / 1_000_000_000


def _metrics(specs: Sequence[Object], statuses: Sequence[Object]) -> str:
    if not specs:
        return _NONE
    shown = [
        _metric(spec, statuses[position] if position < len(statuses) else {})
        for position, spec in enumerate(specs)
    ]
    return first_of(_METRICS_MAX, shown, ", ")


def _metric(spec: Object, status: Object) -> str:
    type_ = spec.get("type", "")
    field = type_[:1].lower() + type_[1:]
    if type_ not in _METRIC_TYPES:
        return "<unknown type>"
    source = spec.get(field) or {}
    target: Mapping[str, Any] = source.get("target") or {}
    current: Mapping[str, Any] | None = (status.get(field) or {}).get("current")
    if type_ in {"Resource", "ContainerResource"}:
        return f"{source.get('name', '')}: {_resource_metric(target, current)}"
    if type_ == "Pods":
        return f"{_amount(current, 'averageValue')}/{target.get('averageValue', _NIL)}"
    if "averageValue" in target:
        shown = (current or {}).get("averageValue", _UNKNOWN)
        return f"{shown}/{target['averageValue']} (avg)"
    return f"{_amount(current, 'value')}/{target.get('value', _NIL)}"


def _resource_metric(target: Mapping[str, Any], current: Mapping[str, Any] | None) -> str:
    if "averageValue" in target:
        return f"{_amount(current, 'averageValue')}/{target['averageValue']}"
    used, wanted = (current or {}).get("averageUtilization"), target.get("averageUtilization")
    shown = _UNKNOWN if used is None else f"{used}%"
    return f"{shown}/{'<auto>' if wanted is None else f'{wanted}%'}"


def _amount(current: Mapping[str, Any] | None, name: str) -> str:
    """Return a quantity of a status; a missing one shows Go's nil."""
    return _UNKNOWN if current is None else str(current.get(name, _NIL))


_NIL: Final = "<nil>"
_METRIC_TYPES: Final = frozenset(enum_values("io.k8s.api.autoscaling.v1.MetricSpec", "type"))
