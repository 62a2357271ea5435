"""What does not come to an end after a change, and why: as far as the cluster itself tells.

    pods            that no node takes, whose image is not there, whose containers end badly
    deletions       that wait for a finalizer
    workloads       whose pods are refused: quota, admission
    Services        that had endpoints and have none any more
    writes          that a part of the cluster may not make
    commands        that were stopped

What was so before the change is not told.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.core.pod_status import condition_of
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL
from kvstack.clusters.plan.objects import (
    EVENTS,
    NAMESPACES,
    PODS,
    SERVICES,
    SLICES,
    IdentifiedObject,
    Objects,
)
from kvstack.clusters.plan.writes import YOU, Write

_BAD_WAITING: Final = frozenset(
    (
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
    )
)
_PENDING: Final = "stays pending"
_PREEMPTION: Final = " preemption: "
"""What follows tells of pods that could make room, which would be seen."""
_NO_RIGHT: Final = 'is forbidden: User "'
"""What quota and admission refuse is told by the objects that lack it."""


class Finding(NamedTuple):
    """Something about an object."""

    resource: GroupResource
    path: str
    """Empty: about no object."""
    subject: str
    """As people call it: `pod shop/web-1`."""
    text: str
    who: str = ""


def stuck(before: Objects, after: Objects, refused: Sequence[Write]) -> list[Finding]:
    """Return what does not come to an end."""
    return [
        *_pods(before, after),
        *_deletions(before, after),
        *_refused_pods(before, after),
        *_without_endpoints(before, after),
        *_forbidden(refused),
    ]


def _about(known: IdentifiedObject, text: str, who: str = "") -> Finding:
    return Finding(known.resource, known.path, known.name, text, who)


def _pods(before: Objects, after: Objects) -> Iterator[Finding]:
    for known in after.of(PODS):
        trouble = _trouble(known.obj)
        if trouble is None:
            continue
        earlier = before.get(PODS, known.path)
        same = (
            earlier is not None and earlier.obj["metadata"]["uid"] == known.obj["metadata"]["uid"]
        )
        if not (same and earlier is not None and _trouble(earlier.obj) is not None):
            yield _about(known, *trouble)


def _trouble(pod: Object) -> tuple[str, str] | None:
    """Return why a pod does not run, and who says so; None: it does, or it is on its way."""
    scheduled = condition_of(pod, "PodScheduled")
    if scheduled is not None and scheduled["status"] == "False":
        why = scheduled.get("message") or scheduled.get("reason") or ""
        return f"{_PENDING}: {why.partition(_PREEMPTION)[0]}", "scheduler"
    status = pod.get("status") or {}
    for member in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(member) or ():
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in _BAD_WAITING:
                return f"container {each['name']}: {waiting['reason']} ({each['image']})", "kubelet"
    return None


def _deletions(before: Objects, after: Objects) -> Iterator[Finding]:
    for known in after:
        meta = known.obj["metadata"]
        if not meta.get("deletionTimestamp"):
            continue
        earlier = before.by_uid.get(meta.get("uid", ""))
        if earlier is not None and earlier.obj["metadata"].get("deletionTimestamp"):
            continue
        waits = list(meta.get("finalizers") or ())
        if known.resource == NAMESPACES:
            conditions = (known.obj.get("status") or {}).get("conditions") or ()
            waits += [each["message"] for each in conditions if each["status"] == "True"]
            waits += (known.obj.get("spec") or {}).get("finalizers") or ()
        why = f"waits for {', '.join(waits)}" if waits else "its node does not let it go"
        yield _about(known, f"is not gone: {why}")


def _refused_pods(before: Objects, after: Objects) -> Iterator[Finding]:
    """Yield workloads whose pods are refused."""
    for known in after:
        for each in _failures(known):
            earlier = before.by_uid.get(known.obj["metadata"].get("uid", ""))
            if earlier is None or each not in list(_failures(earlier)):
                yield _about(known, each)
    old = {each.path for each in before.of(EVENTS)}
    told: set[str] = set()
    for event in after.of(EVENTS):
        if event.path in old or event.obj.get("reason") != "FailedCreate":
            continue
        uid = (event.obj.get("involvedObject") or {}).get("uid", "")
        owner = after.by_uid.get(uid)
        if (
            owner is not None
            and uid not in told
            and not any(_failures(owner))
            and _lacks(owner.obj)
        ):
            told.add(uid)
            yield _about(owner, str(event.obj.get("message", "")))


def _failures(known: IdentifiedObject) -> Iterator[str]:
    conditions = (known.obj.get("status") or {}).get("conditions") or ()
    if known.kind not in ("ReplicaSet", "ReplicationController"):
        return  # a Deployment repeats what its ReplicaSet says
    for each in conditions:
        if isinstance(each, dict) and each.get("type") == "ReplicaFailure":
            yield f"its pods are refused: {each.get('message', '')}"


def _lacks(workload: Object) -> bool:
    """Whether a workload has fewer pods than it is to have."""
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    if "desiredNumberScheduled" in status:
        lacking: bool = status["desiredNumberScheduled"] > status.get("currentNumberScheduled", 0)
        return lacking
    if "replicas" in spec:
        return bool(spec["replicas"] > status.get("replicas", 0))
    return not status.get("succeeded") and not status.get("active")


def _without_endpoints(before: Objects, after: Objects) -> Iterator[Finding]:
    old, new = _endpoints(before), _endpoints(after)
    for path, number in old.items():
        service = after.get(SERVICES, path)
        if service is not None and number and not new.get(path):
            yield _about(service, f"has no endpoints any more, it had {number}")


def _endpoints(objects: Objects) -> dict[str, int]:
    """Return how many ready endpoints Services have, by path."""
    found: dict[str, set[str]] = {}
    for known in objects.of(SLICES):
        meta = known.obj["metadata"]
        name = (meta.get("labels") or {}).get(SERVICE_NAME_LABEL)
        if not name:
            continue
        addresses = found.setdefault(f"{meta.get('namespace', '')}/{name}", set())
        for each in known.obj.get("endpoints") or ():
            if (each.get("conditions") or {}).get("ready") is not False:
                addresses.update(each.get("addresses") or ())
    return {path: len(addresses) for path, addresses in found.items()}


def _forbidden(refused: Sequence[Write]) -> Iterator[Finding]:
    """Yield what parts of the cluster may not do."""
    told: set[tuple[str, str, GroupResource, str]] = set()
    for each in refused:
        key = (each.who, each.verb, each.resource, each.subresource)
        lacks_right = each.code == HTTPStatus.FORBIDDEN and _NO_RIGHT in each.message
        if not lacks_right or each.who == YOU or key in told:
            continue
        told.add(key)
        what = f"{each.resource}/{each.subresource}" if each.subresource else str(each.resource)
        text = f"may not {each.verb} {what}: {each.message}"
        yield Finding(each.resource, "", each.who, text, each.who)
