"""Whether nodes report: changes of their Ready condition's heartbeat, or of their Lease.

Times in objects are the node's; only their changes matter. The local clock measures the time since
the last change.
"""

import math
from typing import Final, NamedTuple

from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.node_status import READY, ready_condition
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time

_WATCHED: Final = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")


class _Observation(NamedTuple):
    """The last observation of a node."""

    heartbeat: str | None
    """The heartbeat of the Ready condition; None: there is none."""
    renewed: str
    """The renew time of its Lease."""
    lease_version: str
    probed_s: float
    silent_from_s: float = 0.0
    """When it will have been silent for too long."""


class Health:
    """Remembers when each node was last heard of."""

    def __init__(self, options: NodeLifecycleOptions) -> None:
        self._options = options
        self._seen: dict[str, _Observation] = {}

    def forget(self, name: str) -> None:
        """Forget a node that is gone."""
        self._seen.pop(name, None)

    def give_time(self, name: str, now_s: float) -> None:
        """Treat a node as just heard from."""
        if name in self._seen:
            self._seen[name] = self._seen[name]._replace(probed_s=now_s)

    def is_silent(self, node: Object, lease: Object | None, now_s: float) -> bool:
        """Record the state of a node, and return whether it has been silent for too long."""
        name = node["metadata"]["name"]
        ready = ready_condition(node)
        observation = self._probe(node, ready, now_s)
        spec = (lease or {}).get("spec") or {}
        renewed = spec.get("renewTime") or ""
        # One form of time: the order of texts is that of moments.
        if lease is not None and (not observation.lease_version or renewed > observation.renewed):
            version = lease["metadata"]["resourceVersion"]
            observation = _Observation(observation.heartbeat, renewed, version, now_s)
        options = self._options
        grace_s = options.startup_grace_period_s if ready is None else options.grace_period_s
        if options.trusts_leases and isinstance(lasts_s := spec.get("leaseDurationSeconds"), int):
            grace_s = max(grace_s, lasts_s)
        observation = observation._replace(silent_from_s=observation.probed_s + grace_s)
        self._seen[name] = observation
        return now_s > observation.silent_from_s

    def rests_s(self, now_s: float) -> float:
        """Return for how many seconds no node becomes silent for too long, if nothing changes."""
        return min((each.silent_from_s for each in self._seen.values()), default=math.inf) - now_s

    def lease_version(self, name: str) -> str:
        """Return the version of the Lease that was last counted; empty: none was."""
        seen = self._seen.get(name)
        return seen.lease_version if seen is not None else ""

    def record_unknown(self, node: Object) -> None:
        """Record that a node's conditions were set to Unknown, which is not a heartbeat."""
        name = node["metadata"]["name"]
        ready = ready_condition(node) or {}
        self._seen[name] = self._seen[name]._replace(heartbeat=ready.get("lastHeartbeatTime", ""))

    def _probe(self, node: Object, ready: Object | None, now_s: float) -> _Observation:
        observation = self._seen.get(node["metadata"]["name"])
        heartbeat = None if ready is None else ready.get("lastHeartbeatTime", "")
        if observation is None:
            created_s = seconds_of(node["metadata"]["creationTimestamp"])
            probed_s = created_s if ready is None and created_s is not None else now_s
            return _Observation(heartbeat, "", "", probed_s)
        if observation.heartbeat != heartbeat:
            return observation._replace(heartbeat=heartbeat, probed_s=now_s)
        return observation


def with_unknown(node: Object, now_s: float) -> Object:
    """Return a silent node with its conditions Unknown."""
    status = node.get("status") or {}
    updated = list(status.get("conditions") or ())
    for type_ in _WATCHED:
        condition = conditions.find(updated, type_)
        new = {
            "type": type_,
            "status": "Unknown",
            "lastTransitionTime": format_time(now_s),
        }
        if condition is None:
            new["lastHeartbeatTime"] = node["metadata"]["creationTimestamp"]
            new["reason"] = "NodeStatusNeverUpdated"
            new["message"] = "Kubelet never posted node status."
            updated.append(new)
        elif condition["status"] != "Unknown":
            new["reason"] = "NodeStatusUnknown"
            new["message"] = "Kubelet stopped posting node status."
            updated[updated.index(condition)] = {**condition, **new}
    return {**node, "status": {**status, "conditions": updated}}
