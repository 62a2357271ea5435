"""Whether nodes report: their Ready condition's heartbeat, or their Lease, moves.

Times in objects are the node's; only that they change is of interest. When they last did is told by
the clock here.
"""

import math
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.client.timing import time_text
from kvstack.agents.controllers.options import NodeLifecycleOptions
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.apimachinery.objects.core import conditions

Object: TypeAlias = dict[str, Any]

_WATCHED: Final = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


class _Observation(NamedTuple):
    """What was last seen of a node."""

    heartbeat: str | None
    """Of the Ready condition; None: it had none."""
    renewed: str
    """When its Lease was renewed."""
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
        """Take a node as heard of just now."""
        if name in self._seen:
            self._seen[name] = self._seen[name]._replace(probed_s=now_s)

    def is_silent(self, node: Object, lease: Object | None, now_s: float) -> bool:
        """Take what is known of a node, and tell whether it has been silent for too long."""
        name = node["metadata"]["name"]
        ready = conditions.find((node.get("status") or {}).get("conditions"), "Ready")
        seen = self._probe(node, ready, now_s)
        spec = (lease or {}).get("spec") or {}
        renewed = spec.get("renewTime") or ""
        # One form of time: the order of texts is that of moments.
        if lease is not None and (not seen.lease_version or renewed > seen.renewed):
            version = lease["metadata"]["resourceVersion"]
            seen = _Observation(seen.heartbeat, renewed, version, now_s)
        options = self._options
        grace_s = options.startup_grace_period_s if ready is None else options.grace_period_s
        if options.trusts_leases and isinstance(lasts_s := spec.get("leaseDurationSeconds"), int):
            grace_s = max(grace_s, lasts_s)
        self._seen[name] = seen = seen._replace(silent_from_s=seen.probed_s + grace_s)
        return now_s > seen.silent_from_s

    def rests_s(self, now_s: float) -> float:
        """Return how long no node will have been silent for too long, if nothing moves."""
        return min((each.silent_from_s for each in self._seen.values()), default=math.inf) - now_s

    def lease_version(self, name: str) -> str:
        """Return the version of the Lease that was last counted; empty: none was."""
        seen = self._seen.get(name)
        return seen.lease_version if seen is not None else ""

    def record_unknown(self, node: Object) -> None:
        """Take a node whose conditions were set to Unknown: that is no sign of it."""
        name = node["metadata"]["name"]
        ready = conditions.find(node["status"]["conditions"], "Ready") or {}
        self._seen[name] = self._seen[name]._replace(heartbeat=ready.get("lastHeartbeatTime", ""))

    def _probe(self, node: Object, ready: Object | None, now_s: float) -> _Observation:
        seen = self._seen.get(node["metadata"]["name"])
        heartbeat = None if ready is None else ready.get("lastHeartbeatTime", "")
        if seen is None:
            created_s = seconds_of(node["metadata"]["creationTimestamp"])
            probed_s = created_s if ready is None and created_s is not None else now_s
            return _Observation(heartbeat, "", "", probed_s)
        if seen.heartbeat != heartbeat:
            return seen._replace(heartbeat=heartbeat, probed_s=now_s)
        return seen


def with_unknown(node: Object, now_s: float) -> Object:
    """Return a silent node with its conditions Unknown."""
    status = node.get("status") or {}
    updated = list(status.get("conditions") or ())
    for type_ in _WATCHED:
        known = conditions.find(updated, type_)
        new = {
            "type": type_,
            "status": "Unknown",
            "lastTransitionTime": time_text(now_s),
        }
        if known is None:
            new["lastHeartbeatTime"] = node["metadata"]["creationTimestamp"]
            new["reason"] = "NodeStatusNeverUpdated"
            new["message"] = "Kubelet never posted node status."
            updated.append(new)
        elif known["status"] != "Unknown":
            new["reason"] = "NodeStatusUnknown"
            new["message"] = "Kubelet stopped posting node status."
            updated[updated.index(known)] = {**known, **new}
    return {**node, "status": {**status, "conditions": updated}}
