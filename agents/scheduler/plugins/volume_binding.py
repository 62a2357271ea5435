"""Claims of pods: nodes must reach the bound volumes, or have volumes to bind.

A claim is bound; or waits for its first pod (its class says so), which then decides about the node
and with it the volume; or is unbound otherwise, and the pod has to wait. What is to be bound on a
node is a `Plan`, carried out once the node is chosen.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
from typing_extensions import override

from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kvstack.agents.scheduler.arguments import POINT, Fields, check_points, invalid
from kvstack.agents.scheduler.cycle import SKIP, Code, Cycle, Failures, Reason, Refusal, Skip
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_LABEL,
)
from kvstack.agents.scheduler.events.storage import (
    has_more_capacity,
    has_other_topology,
    is_migrated,
    is_own_claim,
    stops_counting,
)
from kvstack.agents.scheduler.handle import Handle, PluginError
from kvstack.agents.scheduler.plugin import Args, Hints, Plugin, always
from kvstack.agents.scheduler.plugins.binding_progress import Progress
from kvstack.agents.scheduler.plugins.resources import by_shape
from kvstack.agents.scheduler.snapshot import node_selectors, storage
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.columns import IntArray
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, selector_of
from kvstack.apimachinery.objects import labels as selectors
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import (
    BIND_COMPLETED_ANNOTATION,
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
)

_NODE_CONFLICT: Final = "node(s) didn't match PersistentVolume's node affinity"
_BIND_CONFLICT: Final = "node(s) didn't find available persistent volumes to bind"
_NO_SPACE: Final = "node(s) did not have enough free storage"
_NO_VOLUME: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_UNBOUND: Final = "pod has unbound immediate PersistentVolumeClaims"
_DEFAULT_SHAPE: Final = ({"utilization": 0, "score": 10}, {"utilization": 100, "score": 0})
_SHAPE_UNIT: Final = 10
_TIMEOUT_S: Final = 600
_POLL_S: Final = 1.0


class Provision(NamedTuple):
    """A claim that a driver makes a volume for."""

    claim: Object
    capacity: int | None
    """Bytes the driver has for the node; None: it does not say."""


@dataclass(slots=True)
class Plan:
    """What is to be bound on one node."""

    bindings: list[tuple[Object, Object]] = field(default_factory=list)
    """Volume and claim."""
    provisions: list[Provision] = field(default_factory=list)


class Assumed(NamedTuple):
    """A volume or a claim, as it counts until the API shows what was written."""

    old: Object
    new: Object


@dataclass(slots=True)
class State:
    """The claims of a pod, and what was found for each node."""

    bound: list[Object] = field(default_factory=list)
    delayed: list[Object] = field(default_factory=list)
    plans: dict[int, Plan] = field(default_factory=dict)
    """By slot."""


class VolumeBinding(Plugin):
    """Pods run where their volumes are, or can be."""

    name = "VolumeBinding"
    arg_fields: ClassVar[Fields | None] = {"bindTimeoutSeconds": int, "shape": [POINT]}
    arg_defaults: ClassVar[Args] = {"bindTimeoutSeconds": 600}
    hints: ClassVar[Hints] = {
        **dict.fromkeys(("PersistentVolumeClaimAdd", "PersistentVolumeClaimUpdate"), is_own_claim),
        "StorageClassAdd": always,
        "StorageClassUpdate": has_other_topology,
        **dict.fromkeys(("PersistentVolumeAdd", "PersistentVolumeUpdate"), always),
        **dict.fromkeys((NODE_ADD, NODE_LABEL), always),
        "CSINodeAdd": always,
        "CSINodeUpdate": is_migrated,
        "CSIDriverUpdate": stops_counting,
        "CSIStorageCapacityAdd": always,
        "CSIStorageCapacityUpdate": has_more_capacity,
    }

    @classmethod
    @override
    def check_args(cls, args: Object, path: str) -> None:
        seconds = args.get("bindTimeoutSeconds", 0)
        if seconds < 0:
            raise invalid(f"{path}.bindTimeoutSeconds", seconds, "invalid BindTimeoutSeconds")
        if "shape" in args:
            check_points(args["shape"], f"{path}.shape")

    def __init__(self, args: Mapping[str, Any]) -> None:
        """args: `bindTimeoutSeconds`, and `shape`."""
        self._timeout_s = float(args.get("bindTimeoutSeconds") or _TIMEOUT_S)
        points = args.get("shape") or _DEFAULT_SHAPE
        self._points = [(each["utilization"], each["score"] * _SHAPE_UNIT) for each in points]

    @override
    def pre_filter(self, cycle: Cycle) -> Skip | Refusal | None:
        found = _claims(cycle.cluster, cycle.pod)
        if isinstance(found, Refusal):
            return found
        if not found.bound and not found.delayed:
            return SKIP
        cycle.states[self.name] = found
        return None

    @override
    def filter(self, cycle: Cycle) -> Failures | None:
        state: State = cycle.states[self.name]
        cluster = cycle.cluster
        texts: dict[tuple[str, ...], int] = {}
        numbers = np.zeros(cluster.size, dtype=np.int64)
        is_reached = cluster.is_valid.copy()
        is_missing = False
        for claim in state.bound:
            volume = cluster.storage.volumes.get(claim["spec"]["volumeName"])
            if volume is None:
                is_missing = True
                continue
            affinity = (volume["spec"].get("nodeAffinity") or {}).get("required")
            if affinity is not None:
                is_reached &= node_selectors.selected(cluster, affinity)
        slots = np.arange(cluster.size, dtype=np.int64)[cycle.rows]
        matching = {} if not state.delayed else _volume_masks(cluster, state.delayed)
        for slot in slots.tolist():
            if not cluster.is_valid[slot]:
                continue
            found = (
                (_NO_VOLUME,)
                if is_missing
                else self._reasons(
                    cluster, state, slot, matching, is_reached=bool(is_reached[slot])
                )
            )
            if found:
                numbers[slot] = texts.setdefault(found, len(texts) + 1)
        numbers = numbers[cycle.rows]
        reasons = [Reason(Code.UNRESOLVABLE, each) for each in texts]
        return Failures(numbers, reasons) if reasons else None

    @override
    def score(self, cycle: Cycle, feasible: IntArray) -> IntArray | None:
        found = np.zeros(len(feasible), dtype=np.int64)
        state: State | None = cycle.states.get(self.name)
        if state is not None:
            for index, slot in enumerate(feasible.tolist()):
                if slot in state.plans:
                    found[index] = self._score(state.plans[slot])
        return found

    @override
    def reserve(self, cycle: Cycle, slot: int) -> list[Assumed]:
        cluster, plan = cycle.cluster, plan_for(cycle, slot)
        if plan is None:
            return []
        assumed = [Assumed(volume, _volume_for(volume, claim)) for volume, claim in plan.bindings]
        for claim, _ in plan.provisions:
            new = copy.deepcopy(claim)
            annotations = new["metadata"].setdefault("annotations", {})
            annotations[SELECTED_NODE_ANNOTATION] = cluster.names[slot]
            assumed.append(Assumed(claim, new))
        for _, new in assumed:
            objects, key = _stored_at(cluster, new)
            objects[key] = new
        return assumed

    @override
    def unreserve(self, cluster: Cluster, reserved: Sequence[Assumed]) -> None:
        for old, new in reserved:
            objects, key = _stored_at(cluster, new)
            if objects.get(key) is new:  # the API has shown nothing newer
                objects[key] = old

    @override
    async def pre_bind(
        self, handle: Handle, pod: PodInfo, node: str, reserved: Sequence[Assumed]
    ) -> None:
        """Write volumes and claims, and wait until the claims are bound."""
        written = []
        try:
            for _, new in reserved:
                is_claim = "namespace" in new["metadata"]
                resource = PERSISTENT_VOLUME_CLAIMS if is_claim else PERSISTENT_VOLUMES
                written.append(await handle.update(resource, new))
            progress = Progress(handle.cluster, pod, node, written)
            await handle.wait_until(progress.is_done, _POLL_S, self._timeout_s)
        except (ApiError, PluginError) as error:
            raise PluginError(f"binding volumes: {error}") from error

    def _reasons(
        self,
        cluster: Cluster,
        state: State,
        slot: int,
        matching: Mapping[str, Any],
        *,
        is_reached: bool,
    ) -> tuple[str, ...]:
        reasons = [] if is_reached else [_NODE_CONFLICT]
        if state.delayed:
            plan = _plan(cluster, state.delayed, slot, matching)
            if isinstance(plan, Plan):
                state.plans[slot] = plan
            else:
                reasons.append(plan)
        return tuple(reasons)

    def _score(self, plan: Plan) -> int:
        sums: dict[str, tuple[int, int]] = {}
        if plan.bindings:
            pairs = [(claim, _capacity(volume)) for volume, claim in plan.bindings]
        else:
            pairs = [(each.claim, each.capacity) for each in plan.provisions if each.capacity]
        for claim, capacity in pairs:
            name = storage.claim_class(claim)
            requested, there = sums.get(name, (0, 0))
            sums[name] = (requested + _requested(claim), there + capacity)
        if not sums:
            return 0
        shares = [
            100 if not there or requested > there else requested * 100 // there
            for requested, there in sums.values()
        ]
        scores = by_shape(self._points, np.array(shares, dtype=np.int64))
        return int(float(scores.sum()) / len(sums) + 0.5)


def _volume_for(volume: Object, claim: Object) -> Object:
    """Return a volume that is a claim's."""
    new = copy.deepcopy(volume)
    meta = claim["metadata"]
    if not new["spec"].get("claimRef"):
        new["metadata"].setdefault("annotations", {})[BOUND_BY_CONTROLLER_ANNOTATION] = "yes"
    new["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    return new


def _stored_at(cluster: Cluster, obj: Object) -> tuple[dict[str, Object], str]:
    """Return where a volume or a claim is kept, and under which key."""
    meta = obj["metadata"]
    if "namespace" in meta:
        return cluster.storage.claims, f"{meta['namespace']}/{meta['name']}"
    return cluster.storage.volumes, meta["name"]


def plan_for(cycle: Cycle, slot: int) -> Plan | None:
    """Return what is to be bound if a pod runs on a node; None: nothing."""
    state: State | None = cycle.states.get(VolumeBinding.name)
    return None if state is None else state.plans.get(slot)


def _claims(cluster: Cluster, pod: PodInfo) -> State | Refusal:
    known, state = cluster.storage, State()
    is_immediate = False
    for name, is_ephemeral in storage.claim_names(pod.obj):
        claim = known.claims.get(f"{pod.namespace}/{name}")
        if claim is None:
            text = f'persistentvolumeclaim "{name}" not found'
            if is_ephemeral:
                text = (
                    "waiting for ephemeral volume controller to create the"
                    f' persistentvolumeclaim "{name}"'
                )
            return _refusal(text)
        if (claim.get("status") or {}).get("phase") == "Lost":
            volume = claim["spec"].get("volumeName") or ""
            text = (
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
            )
            return _refusal(text)
        if claim["metadata"].get("deletionTimestamp"):
            return _refusal(f'persistentvolumeclaim "{name}" is being deleted')
        annotations = claim["metadata"].get("annotations") or {}
        if claim["spec"].get("volumeName"):
            if BIND_COMPLETED_ANNOTATION in annotations:
                state.bound.append(claim)
            else:
                is_immediate = True
        elif _waits(cluster, claim):
            state.delayed.append(claim)
        else:
            is_immediate = True
    return _refusal(_UNBOUND) if is_immediate else state


def _waits(cluster: Cluster, claim: Object) -> bool:
    found = cluster.storage.classes.get(storage.claim_class(claim))
    return found is not None and found.get("volumeBindingMode") == storage.WAIT


def _refusal(text: str) -> Refusal:
    return Refusal(Code.UNRESOLVABLE, text)


def _volume_masks(cluster: Cluster, claims: Sequence[Object]) -> dict[str, Any]:
    """Return which nodes reach the volumes of the classes of some claims, by their names."""
    classes = {storage.claim_class(claim) for claim in claims}
    masks = {}
    for name, volume in sorted(cluster.storage.volumes.items()):
        if storage.volume_class(volume) in classes:
            affinity = (volume["spec"].get("nodeAffinity") or {}).get("required")
            masks[name] = (
                cluster.is_valid if affinity is None else node_selectors.selected(cluster, affinity)
            )
    return masks


def _plan(
    cluster: Cluster, claims: Sequence[Object], slot: int, masks: Mapping[str, Any]
) -> Plan | str:
    """Return what is to be bound on a node, or why that cannot be."""
    plan, node_name = Plan(), cluster.names[slot]
    to_match: list[Object] = []
    to_provision: list[Object] = []
    for claim in claims:
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE_ANNOTATION)
        if not selected:
            to_match.append(claim)
        elif selected == node_name:
            to_provision.append(claim)
        else:
            return _BIND_CONFLICT
    chosen: set[str] = set()
    for claim in sorted(to_match, key=_requested):
        volume = _match(cluster, claim, slot, masks, chosen)
        if volume is None:
            to_provision.append(claim)
        else:
            chosen.add(volume["metadata"]["name"])
            plan.bindings.append((volume, claim))
    for claim in to_provision:
        found = _provision(cluster, claim, slot)
        if isinstance(found, str):
            return found
        plan.provisions.append(found)
    return plan


def _match(
    cluster: Cluster, claim: Object, slot: int, masks: Mapping[str, Any], chosen: set[str]
) -> Object | None:
    """Return the smallest volume that a claim can have on a node."""
    best: Object | None = None
    wanted = _requested(claim)
    for name, mask in masks.items():
        volume = cluster.storage.volumes[name]
        if name in chosen or not _suits(volume, claim, wanted):
            continue
        if volume["spec"].get("claimRef"):
            return volume if mask[slot] else None  # it was made for this claim
        is_available = (volume.get("status") or {}).get("phase") == "Available"
        if is_available and mask[slot] and (best is None or _capacity(volume) < _capacity(best)):
            best = volume
    return best


def _suits(volume: Object, claim: Object, requested_bytes: int) -> bool:
    spec, claim_spec = volume["spec"], claim["spec"]
    reference = spec.get("claimRef")
    meta = claim["metadata"]
    if reference and (
        reference.get("name") != meta["name"]
        or reference.get("namespace") != meta["namespace"]
        or (reference.get("uid") and reference["uid"] != meta.get("uid"))
    ):
        return False
    selector = claim_spec.get("selector")
    return (
        _capacity(volume) >= requested_bytes
        and (spec.get("volumeMode") or "Filesystem")
        == (claim_spec.get("volumeMode") or "Filesystem")
        and (spec.get("volumeAttributesClassName") or "")
        == (claim_spec.get("volumeAttributesClassName") or "")
        and "deletionTimestamp" not in volume["metadata"]
        and storage.volume_class(volume) == storage.claim_class(claim)
        and set(claim_spec.get("accessModes") or ()) <= set(spec.get("accessModes") or ())
        and (
            selector is None
            or selector_of(selector).matches(volume["metadata"].get("labels") or {})
        )
    )


def _provision(cluster: Cluster, claim: Object, slot: int) -> Provision | str:
    """Return how a claim gets a new volume on a node, or why it does not."""
    objects = cluster.storage
    storage_class = objects.classes.get(storage.claim_class(claim))
    if storage_class is None or storage_class["provisioner"] in ("", storage.NO_PROVISIONER):
        return _BIND_CONFLICT
    node = cluster.nodes[slot]
    labels = (node or {}).get("metadata", {}).get("labels") or {}
    topologies = storage_class.get("allowedTopologies")
    if topologies and not any(_topology_matches(each, labels) for each in topologies):
        return _BIND_CONFLICT
    driver = objects.drivers.get(storage_class["provisioner"])
    if driver is None or not driver["spec"].get("storageCapacity"):
        return Provision(claim, None)
    requested_bytes = _requested(claim)
    for capacity in objects.capacities.values():
        topology = capacity.get("nodeTopology")
        limit = capacity.get("maximumVolumeSize") or capacity.get("capacity")
        if (
            capacity["storageClassName"] == storage_class["metadata"]["name"]
            and limit is not None
            and parse(limit).value() >= requested_bytes
            and topology is not None
            and selector_of(topology).matches(labels)
        ):
            return Provision(claim, parse(capacity.get("capacity") or limit).value())
    return _NO_SPACE


def _topology_matches(term: Object, labels: selectors.Labels) -> bool:
    expressions = term.get("matchLabelExpressions") or ()
    return all(labels.get(each["key"]) in each["values"] for each in expressions)


def _requested(claim: Object) -> int:
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse(requests.get("storage") or "0").value()


def _capacity(volume: Object) -> int:
    return parse((volume["spec"].get("capacity") or {}).get("storage") or "0").value()
