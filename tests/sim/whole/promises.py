"""What must hold at every change, whatever faults there are.

pods            bound once; to a node that is there and has room; a running one is not removed
                behind its node's back
rollouts        a controller never asks for more pods than maxSurge allows, nor for fewer than
                maxUnavailable does
stateful sets   each ordinal has one pod, of an ordinal that was asked for
budgets         an eviction is booked on the budget before the pod goes, and only if it allows one
jobs            counts never fall; a complete job has as many successes as it wanted, each of a pod
garbage         the collector deletes nothing whose owner lives
"""

import math
from collections import defaultdict
from typing import Final

import orjson

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from tests.sim.stack.links import Asked, Whole
from tests.sim.violation import demand
from tests.sim.whole.objects import Change, Objects, controller_of, is_ended, is_terminating

_COLLECTOR: Final = "system:serviceaccount:kube-system:generic-garbage-collector"
_NODE_CPU_M: Final = 4000


class Bounds:
    """What a deployment asked for in one of its generations."""

    __slots__ = ("generation", "replicas", "surge", "unavailable")

    def __init__(self, deployment: Object) -> None:
        spec = deployment["spec"]
        self.generation: int = deployment["metadata"]["generation"]
        self.replicas: int = spec["replicas"]
        rolling = spec["strategy"].get("rollingUpdate")
        if rolling is None:  # all are ended before others begin
            self.surge, self.unavailable = 0, self.replicas
            return
        self.surge = _share(rolling["maxSurge"], self.replicas, up=True)
        self.unavailable = _share(rolling["maxUnavailable"], self.replicas, up=False)
        if not self.surge and not self.unavailable:
            self.unavailable = 1


class Promises:
    """Looks at every change."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._bounds: defaultdict[str, list[Bounds]] = defaultdict(list)  # by uid
        self._replicas: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self._succeeded: defaultdict[str, set[str]] = defaultdict(set)  # job → pods
        self._last: dict[str, Object] = {}  # by uid, also of what is gone
        self._collected: list[tuple[int, str]] = []  # revision and uid
        self.checked = 0
        objects.on_change.append(self.changed)

    def changed(self, change: Change) -> None:
        """Check one change."""
        self.checked += 1
        obj = change.new or change.old
        assert obj is not None
        self._last[obj["metadata"]["uid"]] = obj
        self._check_collected()
        check = {
            "pods": self._pod,
            "deployments": self._deployment,
            "replicasets": self._replica_set,
            "statefulsets": self._stateful_set,
            "jobs": self._job,
            "poddisruptionbudgets": self._budget,
        }.get(change.resource)
        if check is not None:
            check(change)

    # Pods.

    def _pod(self, change: Change) -> None:
        old, new = change.old, change.new
        if old is None and new is not None:
            self._born(new)
        if old is not None and _runs(old) and not is_terminating(old):
            has_time = new is not None and new["metadata"].get("deletionGracePeriodSeconds") != 0
            demand(has_time, "pod", change.key, "was removed while it ran:", old)
        if new is None:
            return
        before = "" if old is None else old["spec"].get("nodeName", "")
        node = new["spec"].get("nodeName", "")
        demand(not before or node == before, "pod", change.key, "moved from", before, "to", node)
        if node and not before:
            self._bound(change.key, new, node)
        owner = controller_of(new)
        if owner and (new.get("status") or {}).get("phase") == "Succeeded":
            self._succeeded[owner].add(new["metadata"]["uid"])

    def _bound(self, key: str, pod: Object, node: str) -> None:
        demand(node in self._objects.of["minions"], "pod", key, "is bound to no node:", node)
        others = [
            each
            for each in self._objects.of["pods"].values()
            if each["spec"].get("nodeName") == node and not is_ended(each)
        ]
        used = sum(map(_cpu_m, others))
        demand(used <= _NODE_CPU_M, "pod", key, "does not fit on", node, "with", used, "m of CPU")

    def _born(self, pod: Object) -> None:
        """Check the ordinal of a stateful set's pod."""
        owner = self._last.get(controller_of(pod))
        if owner is not None and owner.get("kind") == "StatefulSet":
            ordinal = int(pod["metadata"]["name"].rpartition("-")[2])
            wanted = max(self._since_observed(owner, self._replicas))
            demand(ordinal < wanted, "pod", pod["metadata"]["name"], "was not asked for:", wanted)

    def _since_observed(
        self, owner: Object, by_generation: defaultdict[str, list[tuple[int, int]]]
    ) -> list[int]:
        """Return values of the generation that the controller knows, and of later ones."""
        observed = (owner.get("status") or {}).get("observedGeneration", 0)
        return [n for at, n in by_generation[owner["metadata"]["uid"]] if at >= observed]

    def _stateful_set(self, change: Change) -> None:
        if change.new is not None:
            meta = change.new["metadata"]
            told = meta["generation"], change.new["spec"]["replicas"]
            if told not in self._replicas[meta["uid"]]:
                self._replicas[meta["uid"]].append(told)

    # Rollouts.

    def _deployment(self, change: Change) -> None:
        if change.new is not None:
            meta = change.new["metadata"]
            known = self._bounds[meta["uid"]]
            if not known or known[-1].generation != meta["generation"]:
                known.append(Bounds(change.new))

    def _replica_set(self, change: Change) -> None:
        new = change.new
        owner = None if new is None else self._objects.by_uid.get(controller_of(new))
        if new is None or owner is None or is_terminating(owner):
            return
        before = 0 if change.old is None else change.old["spec"]["replicas"]
        change_by = new["spec"]["replicas"] - before
        if not change_by:
            return
        uid = owner["metadata"]["uid"]
        total = sum(each["spec"]["replicas"] for each in self._objects.owned("replicasets", uid))
        observed = (owner.get("status") or {}).get("observedGeneration", 0)
        bounds = [each for each in self._bounds[uid] if each.generation >= observed]
        name = owner["metadata"]["name"]
        if change_by > 0:
            most = max(each.replicas + each.surge for each in bounds)
            demand(total <= most, "deployment", name, "asks for", total, "pods, at most", most)
        else:
            least = min(each.replicas - each.unavailable for each in bounds)
            demand(total >= least, "deployment", name, "asks for", total, "pods, at least", least)

    # Jobs.

    def _job(self, change: Change) -> None:
        if change.new is None:
            return
        status = change.new.get("status") or {}
        before = (change.old or {}).get("status") or {}
        for field in ("succeeded", "failed"):
            fell = status.get(field, 0) < before.get(field, 0)
            demand(not fell, "job", change.key, field, "fell", before, status)
        succeeded = status.get("succeeded", 0)
        seen = len(self._succeeded[change.new["metadata"]["uid"]])
        demand(succeeded <= seen, "job", change.key, "counts", succeeded, "successes of", seen)
        if any(c["type"] == "Complete" for c in status.get("conditions") or ()):
            wanted = change.new["spec"]["completions"]
            demand(succeeded == wanted, "job", change.key, "is complete with", succeeded, wanted)

    # Budgets.

    def _budget(self, change: Change) -> None:
        if change.new is None:
            return
        status = change.new.get("status") or {}
        before = (change.old or {}).get("status") or {}
        allowed = status.get("disruptionsAllowed", 0)
        demand(allowed >= 0, "budget", change.key, "allows", allowed)
        booked = (status.get("disruptedPods") or {}).keys() - (
            before.get("disruptedPods") or {}
        ).keys()
        if booked:
            had = before.get("disruptionsAllowed", 0)
            demand(
                had - allowed == len(booked),
                "budget", change.key, "allowed", had, "and", allowed, "after", booked,
            )  # fmt: skip
        elif "desiredHealthy" in status:
            most = max(0, status["currentHealthy"] - status["desiredHealthy"])
            demand(allowed <= most, "budget", change.key, "allows too much:", status)

    # Garbage.

    def answered(self, user: User, asked: Asked, answer: Whole, revision: int) -> None:
        """Look at what the collector has deleted; revision: of the newest member."""
        if user.name == _COLLECTOR and asked.method == "DELETE" and answer.status == 200:
            found = orjson.loads(answer.data)
            uid = found.get("metadata", {}).get("uid") or found.get("details", {}).get("uid")
            self._collected.append((revision, uid))

    def _check_collected(self) -> None:
        while self._collected and self._collected[0][0] <= self._objects.revision:
            _, uid = self._collected.pop(0)
            obj = self._last.get(uid)
            if obj is None:
                continue  # of a resource that is not followed
            for owner in obj["metadata"].get("ownerReferences") or ():
                living = self._objects.by_uid.get(owner["uid"])
                demand(
                    living is None or is_terminating(living),
                    "the collector deleted", obj["metadata"]["name"], "of the living", owner,
                )  # fmt: skip


def _runs(pod: Object) -> bool:
    status = pod.get("status") or {}
    return bool(pod["spec"].get("nodeName")) and status.get("phase") == "Running"


def _cpu_m(pod: Object) -> int:
    """Return the milliCPU that a pod asks for."""
    total = 0
    for each in pod["spec"]["containers"]:
        text = ((each.get("resources") or {}).get("requests") or {}).get("cpu", "0")
        total += int(text[:-1]) if text.endswith("m") else 1000 * int(text)
    return total


def _share(value: int | str, of: int, *, up: bool) -> int:
    """Return a number of pods, given itself or as a percentage."""
    if isinstance(value, int):
        return value
    part = int(value.removesuffix("%")) * of / 100
    return math.ceil(part) if up else math.floor(part)
