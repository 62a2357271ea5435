"""Claims of devices: nodes must access the allocated devices, or have some to allocate.

A claim that has devices already limits the nodes to those that see them. For the others devices are
looked for on each node that is left; what was found there is part of the decision (`plan_for`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.arguments import Duration, Fields, invalid
from kvstack.agents.scheduler.cycle import (
    SKIP,
    Code,
    Cycle,
    Failures,
    Reason,
    Refusal,
    Skip,
    normalized,
)
from kvstack.agents.scheduler.devices.allocator import Allocator, NodeError
from kvstack.agents.scheduler.devices.binding import TIMEOUT_S, has_failed, has_timed_out
from kvstack.agents.scheduler.devices.claim_writes import (
    Reservation,
    allocate,
    deallocate,
    release,
    until_ready,
)
from kvstack.agents.scheduler.devices.requests import missing_class
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_ALLOCATABLE,
    NODE_LABEL,
    OWN_CLAIMS,
    Change,
)
from kvstack.agents.scheduler.handle import Handle, PluginError, PostFilterResult
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin, Unplaced, always
from kvstack.agents.scheduler.snapshot import node_selectors
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import IntArray
from kvstack.agents.scheduler.snapshot.devices import (
    Devices,
    allocation_of,
    claim_names,
    reserves,
    results_of,
)
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.durations import parse
from kvstack.apimachinery.objects.json_object import Object

_UNAVAILABLE: Final = "resourceclaim not available on the node"
_NOT_ALLOCATED: Final = "cannot allocate all claims"
_ALTERNATIVES_MAX: Final = 8
_DEALLOCATED: Final = "deallocation of ResourceClaim completed"


@dataclass(slots=True)
class State:
    """The claims of a pod, and what was found for each node."""

    claims: list[Object]
    new: list[Object] = field(default_factory=list)
    """The claims without devices."""
    found: dict[int, list[Object]] = field(default_factory=dict)
    """By slot: the allocations of the new claims."""
    unavailable: list[Object] = field(default_factory=list)
    """Claims whose devices some node did not see."""


_WITHOUT_CLAIMS: Final = State([])


def _freed_or_own_devices(pod: PodInfo, change: Change) -> bool:
    """Whether devices were deallocated, or a claim of the pod has another status."""
    old, new = change.old, change.new
    had = old is not None and allocation_of(old) is not None
    if new is None or (had and allocation_of(new) is None):
        return had
    if new["metadata"]["namespace"] != pod.namespace:
        return False
    if all(name != new["metadata"]["name"] for _, name, _ in claim_names(pod.obj)):
        return False
    return old is None or old.get("status") != new.get("status")


class DynamicResources(Plugin):
    """Pods run where their devices are, or can be had."""

    name = "DynamicResources"
    default_weight = 2
    arg_fields: ClassVar[Fields | None] = {"filterTimeout": Duration, "bindingTimeout": Duration}
    arg_defaults: ClassVar[Args] = {"bindingTimeout": "10m0s", "filterTimeout": "10s"}
    hints: ClassVar[Hints] = {
        **dict.fromkeys((NODE_ADD, NODE_LABEL, NODE_ALLOCATABLE, OWN_CLAIMS), always),
        **dict.fromkeys(
            ("ResourceClaimAdd", "ResourceClaimUpdate", "ResourceClaimDelete"),
            _freed_or_own_devices,
        ),
        **dict.fromkeys(
            ("DeviceClassAdd", "DeviceClassUpdate", "ResourceSliceAdd", "ResourceSliceUpdate"),
            always,
        ),
    }

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        for name in ("filterTimeout", "bindingTimeout"):
            text = args.get(name)
            if text is not None and parse(text) <= 0:
                raise invalid(f"{path}.{name}", text, "must be greater than 0")

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: DynamicResourcesArgs; `filterTimeout` has no effect: searches are cut by steps."""
        given = args.get("bindingTimeout")
        self.binding_timeout_s: Final = TIMEOUT_S if given is None else parse(given) / 1e9

    @override
    def pre_enqueue(self, pod: PodInfo, cluster: Cluster) -> bool:
        return not (pod.spec.get("resourceClaims") and missing_claim(pod, cluster.devices))

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Refusal | None:
        pod, devices = cycle.pod, cycle.cluster.devices
        cycle.states[self.name] = _WITHOUT_CLAIMS
        if not pod.spec.get("resourceClaims"):
            return SKIP
        if missing := missing_claim(pod, devices):
            return _refusal(missing)
        state = State(claims_of(pod, devices))
        if not state.claims:
            return SKIP
        for claim in state.claims:
            if allocation_of(claim) is not None:
                continue
            meta = claim["metadata"]
            if meta["uid"] in devices.pending:
                key = f"{meta['namespace']}/{meta['name']}"
                return _refusal(f"resource claim {key} is in the process of being allocated")
            if message := missing_class(claim, devices):
                return _refusal(message)
            state.new.append(claim)
        cycle.states[self.name] = state
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        state: State = cycle.states[self.name]
        cluster = cycle.cluster
        is_available = cluster.is_valid.copy()
        for claim in state.claims:
            allocation = allocation_of(claim)
            if allocation is None:
                continue
            is_late = has_timed_out(claim, cycle.now_s, self.binding_timeout_s)
            is_usable = not (has_failed(claim) or is_late)
            selector = allocation.get("nodeSelector")
            here = cluster.is_valid & is_usable
            if selector is not None:
                here &= node_selectors.selected(cluster, selector)
            if not here[cycle.rows].all():
                state.unavailable.append(claim)
            is_available &= here
        numbers = np.zeros(cluster.size, dtype=np.int64)
        texts = {_UNAVAILABLE: 1}
        numbers[~is_available] = 1
        if state.new:
            allocator = Allocator(cluster, state.new)
            slots = np.arange(cluster.size, dtype=np.int64)[cycle.rows]
            for slot in slots[(cycle.is_alive & is_available)[slots]].tolist():
                message = _NOT_ALLOCATED
                try:
                    found = allocator.allocate(slot)
                except NodeError as error:
                    found, message = None, str(error)
                if found is None:
                    numbers[slot] = texts.setdefault(message, len(texts) + 1)
                else:
                    state.found[slot] = found
        numbers = numbers[cycle.rows]
        if not numbers.any():
            return None
        return Failures(numbers, [Reason(Code.UNRESOLVABLE, (text,)) for text in texts])

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        state: State | None = cycle.states.get(self.name)
        scores = np.zeros(len(feasible), dtype=np.int64)
        if state is None or not state.claims:
            return scores
        for index, slot in enumerate(feasible.tolist()):
            new = iter(state.found.get(slot, ()))
            for claim in state.claims:
                allocation = allocation_of(claim) or next(new, None)
                scores[index] += _preference(claim, allocation)
        return normalized(scores)

    @override
    def reserve(self, cycle: Cycle, slot: int) -> list[Reservation]:
        plan = plan_for(cycle, slot)
        for each in plan:
            if each.allocation is not None:
                cycle.cluster.devices.assume(each.claim, each.allocation)
        return plan

    @override
    def unreserve(self, cluster: Cluster, reserved: Sequence[Reservation]) -> None:
        for each in reserved:
            cluster.devices.forget(each.claim["metadata"]["uid"])

    @override
    async def post_filter(self, handle: Handle, unplaced: Unplaced) -> PostFilterResult:
        """Deallocate unused devices that the pod needs."""
        state: State | None = unplaced.cycle.states.get(self.name)
        if state is None:
            # Upstream's text where a plugin before this one ended the search.
            raise PluginError("not found")
        claim = _to_deallocate(state, unplaced.cycle.pod)
        if claim is None:
            return PostFilterResult(Code.UNSCHEDULABLE)
        await deallocate(handle, claim)
        return PostFilterResult(Code.UNSCHEDULABLE, _DEALLOCATED)

    @override
    async def pre_bind(
        self, handle: Handle, pod: PodInfo, _node: str, reserved: Sequence[Reservation]
    ) -> None:
        await allocate(handle, pod, reserved)
        await until_ready(handle, reserved, self.binding_timeout_s)

    @override
    async def undo_pre_bind(
        self, handle: Handle, pod: PodInfo, reserved: Sequence[Reservation]
    ) -> None:
        await release(handle, pod, reserved)


def claims_of(pod: PodInfo, devices: Devices) -> list[Object]:
    """Return the claims of a pod that there are."""
    found = []
    for _, name, _ in claim_names(pod.obj):
        claim = devices.claims.get(f"{pod.namespace}/{name}")
        if claim is not None:
            found.append(claim)
    return found


def missing_claim(pod: PodInfo, devices: Devices) -> str:
    """Return the message about a claim that a pod lacks; empty: there are all."""
    for _, name, is_generated in claim_names(pod.obj):
        if not name:
            return f'pod "{pod.key}": ResourceClaim not created yet'
        claim = devices.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            return f'resourceclaim.resource.k8s.io "{name}" not found'
        if "deletionTimestamp" in claim["metadata"]:
            return f'resourceclaim "{name}" is being deleted'
        if is_generated and not _is_made_for(pod, claim):
            message = f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key}"
            return f"{message} (Pod is not owner)"
    return ""


def plan_for(cycle: Cycle, slot: int) -> list[Reservation]:
    """Return what claims are to get if a pod runs on a node."""
    state: State | None = cycle.states.get(DynamicResources.name)
    if state is None:
        return []
    new = iter(state.found.get(slot, ()))
    plan = [
        Reservation(claim, next(new) if allocation_of(claim) is None else None)
        for claim in state.claims
    ]
    uid = cycle.pod.uid
    return [each for each in plan if each.allocation is not None or not reserves(each.claim, uid)]


def _to_deallocate(state: State, pod: PodInfo) -> Object | None:
    """Return an unused claim whose devices a pod needs."""
    for claim in state.unavailable:
        reserved = claim["status"].get("reservedFor") or ()
        if all(each.get("uid") == pod.uid for each in reserved):
            return claim
    return None


def _preference(claim: Object, allocation: Object | None) -> int:
    """Return how early the alternatives are that were taken."""
    taken = {result["request"] for result in results_of(allocation)}
    return sum(
        _ALTERNATIVES_MAX - index
        for request in (claim["spec"].get("devices") or {}).get("requests") or ()
        for index, each in enumerate(request.get("firstAvailable") or ())
        if f"{request['name']}/{each['name']}" in taken
    )


def _is_made_for(pod: PodInfo, claim: Object) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == pod.uid for each in owners)


def _refusal(text: str) -> Refusal:
    return Refusal(Code.UNRESOLVABLE, text)
