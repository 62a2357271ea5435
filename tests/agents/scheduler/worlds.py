"""Recorded worlds as clusters: objects as the API server would hold them, and what was decided."""

import copy
import functools
import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from kvstack.agents.scheduler.profile import Profile, profile_of
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

RECORDED = Path(__file__).parent.parent / "recorded"
_LOCAL_TOLERATIONS = [
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute"}
    for name in ("not-ready", "unreachable")
]


def read(name: str) -> Iterator[Object]:
    """Return the worlds of a recording."""
    with gzip.open(RECORDED / name) as lines:
        yield from map(json.loads, lines)


@functools.cache
def fixtures() -> Object:
    """Return what every world has besides."""
    found: Object = json.loads((RECORDED / "scheduler-fixtures.json").read_text())
    return found


@functools.cache
def profiles() -> dict[str, Profile]:
    """Return the profiles of the recordings."""
    return {
        each["schedulerName"]: profile_of(each, percentage=100, tie_break="heap")
        for each in fixtures()["config"]["profiles"]
    }


def cluster_of(world: Object) -> Cluster:
    """Return a world as a cluster."""
    cluster = Cluster()
    for each in fixtures()["namespaces"]:
        cluster.index.set_namespace(each["metadata"]["name"], each["metadata"]["labels"])
    for node in world["nodes"]:
        cluster.set_node(node)
    for each in world.get("services", ()):
        meta = each["metadata"]
        cluster.services.setdefault(meta["namespace"], {})[meta["name"]] = each
    for kind, version, name in (
        ("replicationcontrollers", "v1", "ReplicationController"),
        ("replicasets", "apps/v1", "ReplicaSet"),
        ("statefulsets", "apps/v1", "StatefulSet"),
    ):
        for each in world.get(kind, ()):
            meta, selector = each["metadata"], each["spec"]["selector"]
            if version == "v1":
                selector = {"matchLabels": selector}
            cluster.owners[version, name, meta["namespace"], meta["name"]] = selector
    storage = cluster.storage
    for kind, known in (
        ("persistentvolumes", storage.volumes),
        ("persistentvolumeclaims", storage.claims),
        ("storageclasses", storage.classes),
        ("csinodes", storage.nodes),
        ("csidrivers", storage.drivers),
        ("csistoragecapacities", storage.capacities),
    ):
        for each in world.get(kind, ()):
            meta = each["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]
            known[key] = each
    for number, pod in enumerate(world["pods"]):
        if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            info = PodInfo(stored(pod, f"placed-{number}"), placed=True)
            cluster.add_pod(info, pod["spec"]["nodeName"])
    for each in world.get("poddisruptionbudgets", ()):
        cluster.budgets[f"{each['metadata']['namespace']}/{each['metadata']['name']}"] = each
    return cluster


def stored(pod: Object, uid: str) -> Object:
    """Return a pod as the API server stores it, as far as the scheduler is concerned."""
    pod = copy.deepcopy(pod)
    pod["metadata"]["uid"] = uid
    if pod.pop("terminating", False):
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container.get("resources")
        if resources and resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    resources = spec.get("resources")
    if resources and resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for each in fixtures()["priorityclasses"]:
        if each["metadata"]["name"] == spec.get("priorityClassName") and "preemptionPolicy" in each:
            spec["preemptionPolicy"] = each["preemptionPolicy"]
    spec["tolerations"] = [*spec.get("tolerations", ()), *_LOCAL_TOLERATIONS]
    for kind in ("podAffinity", "podAntiAffinity"):
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            _merge_keys(term, pod["metadata"].get("labels") or {})
        for each in affinity.get("preferredDuringSchedulingIgnoredDuringExecution", ()):
            _merge_keys(each["podAffinityTerm"], pod["metadata"].get("labels") or {})
    return pod


def _merge_keys(term: Object, labels: dict[str, str]) -> None:
    """Write what matchLabelKeys and mismatchLabelKeys mean into the selector."""
    if term.get("labelSelector") is None:
        return
    for member, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(member) or ():
            if key in labels:
                term["labelSelector"].setdefault("matchExpressions", []).append(
                    {"key": key, "operator": operator, "values": [labels[key]]}
                )
