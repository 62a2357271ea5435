"""What must hold once faults have ended and nobody changes anything: everything is as it was asked.

`unsettled` returns what is not yet so, in words; worlds wait for it to become empty.
"""

from collections.abc import Iterator
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from tests.sim.whole.objects import Objects, is_ended, is_ready, is_terminating

_SYNC_FAILED: Final = "SyncFailed"
_FINISHED: Final = ("Complete", "Failed")


def unsettled(objects: Objects) -> list[str]:
    """Return what is not as it was asked."""
    found = [
        *_terminating(objects),
        *_orphans(objects),
        *_deployments(objects),
        *_stateful_sets(objects),
        *_daemon_sets(objects),
        *_jobs(objects),
        *_budgets(objects),
    ]
    return found[:8]


def _name(kind: str, obj: Object) -> str:
    return f"{kind} {obj['metadata']['name']}"


def _observed(kind: str, obj: Object) -> list[str]:
    generation = obj["metadata"]["generation"]
    observed = (obj.get("status") or {}).get("observedGeneration")
    return [] if observed == generation else [f"{_name(kind, obj)}: {observed} of {generation}"]


def _terminating(objects: Objects) -> Iterator[str]:
    for resource, found in objects.of.items():
        for obj in found.values():
            if is_terminating(obj):
                yield f"{_name(resource, obj)} is not gone: {obj['metadata'].get('finalizers')}"


def _orphans(objects: Objects) -> Iterator[str]:
    """Tell of objects whose owners are all gone."""
    for resource, found in objects.of.items():
        if resource == "leases":
            continue
        for obj in found.values():
            owners = obj["metadata"].get("ownerReferences")
            if owners and all(each["uid"] not in objects.by_uid for each in owners):
                yield f"{_name(resource, obj)} has lost its owners"


def _pods(objects: Objects, uid: str) -> list[Object]:
    return [each for each in objects.owned("pods", uid) if not is_ended(each)]


def _counts(kind: str, obj: Object, pods: list[Object], expected: int) -> Iterator[str]:
    """Tell what differs of pods: so many, all ready."""
    ready = sum(map(is_ready, pods))
    if len(pods) != expected:
        yield f"{_name(kind, obj)} has {len(pods)} pods of {expected}"
    elif ready != expected and all(each["spec"].get("nodeName") for each in pods):
        yield f"{_name(kind, obj)} has {ready} ready pods of {expected}"


def _deployments(objects: Objects) -> Iterator[str]:
    for obj in objects.all("deployments"):
        yield from _observed("deployment", obj)
        wanted, uid = obj["spec"]["replicas"], obj["metadata"]["uid"]
        sets = objects.owned("replicasets", uid)
        pods = [pod for each in sets for pod in _pods(objects, each["metadata"]["uid"])]
        if all(each["spec"].get("nodeName") for each in pods):
            yield from _counts("deployment", obj, pods, wanted)
            version = obj["spec"]["template"]["metadata"]["annotations"]["version"]
            old = [p for p in pods if p["metadata"]["annotations"]["version"] != version]
            if old:
                yield f"{_name('deployment', obj)} has {len(old)} old pods"
            status = obj.get("status") or {}
            if status.get("availableReplicas", 0) != wanted:
                yield f"{_name('deployment', obj)} says {status}"


def _stateful_sets(objects: Objects) -> Iterator[str]:
    for obj in objects.all("statefulsets"):
        yield from _observed("statefulset", obj)
        pods = _pods(objects, obj["metadata"]["uid"])
        if all(each["spec"].get("nodeName") for each in pods):
            yield from _counts("statefulset", obj, pods, obj["spec"]["replicas"])
            names = {each["metadata"]["name"] for each in pods}
            wanted = {f"{obj['metadata']['name']}-{at}" for at in range(obj["spec"]["replicas"])}
            if names != wanted:
                yield f"{_name('statefulset', obj)} has {sorted(names)}"


def _daemon_sets(objects: Objects) -> Iterator[str]:
    for obj in objects.all("daemonsets"):
        yield from _observed("daemonset", obj)
        pods = _pods(objects, obj["metadata"]["uid"])
        yield from _counts("daemonset", obj, pods, len(objects.of["minions"]))


def _jobs(objects: Objects) -> Iterator[str]:
    for obj in objects.all("jobs"):
        status = obj.get("status") or {}
        conditions = {c["type"] for c in status.get("conditions") or () if c["status"] == "True"}
        pods = objects.owned("pods", obj["metadata"]["uid"])
        if not conditions & set(_FINISHED):
            if all(each["spec"].get("nodeName") for each in pods):
                yield f"{_name('job', obj)} is not finished: {status}"
        elif status.get("active") or any(not is_ended(each) for each in pods):
            yield f"{_name('job', obj)} still has pods"
        elif "Complete" in conditions and status.get("succeeded") != obj["spec"]["completions"]:
            yield f"{_name('job', obj)} is complete with {status}"


def _budgets(objects: Objects) -> Iterator[str]:
    for obj in objects.all("poddisruptionbudgets"):
        yield from _observed("budget", obj)
        app = obj["spec"]["selector"]["matchLabels"]["app"]
        healthy = sum(
            1
            for pod in objects.all("pods")
            if (pod["metadata"].get("labels") or {}).get("app") == app
            and is_ready(pod)
            and not is_terminating(pod)
            and not is_ended(pod)
        )
        status = obj.get("status") or {}
        reasons = {each["reason"] for each in status.get("conditions") or ()}
        # Of pods without an owner it is not known how many there should be.
        if _SYNC_FAILED not in reasons and status.get("currentHealthy") != healthy:
            yield f"{_name('budget', obj)} says {status} of {healthy}"
