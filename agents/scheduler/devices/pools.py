"""The device pools that a node can access: the newest generation of each, all or nothing.

    pools = pools_of(cluster, slot)         by driver and name; those that wait for conditions last

A slice names its node, all nodes, a selector of nodes, or leaves that to each device.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

from kvstack.agents.scheduler.snapshot import node_selectors
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.devices import DeviceId
from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE, NO_SCHEDULE
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import Quantity, parse

Counters: TypeAlias = dict[tuple[str, str], Quantity]
"""(set, counter) → how much."""

TAINTING: Final = frozenset((NO_SCHEDULE, NO_EXECUTE))


class PoolId(NamedTuple):
    """Names a pool."""

    driver: str
    name: str

    @override
    def __str__(self) -> str:
        """Return it as messages have it."""
        return f"{self.driver}/{self.name}"


@dataclass(slots=True, eq=False)
class Candidate:
    """A device that a node may see."""

    id: DeviceId
    device: Object
    slice_spec: Object
    pool: "Pool"
    taints: list[Object] = field(default_factory=list)
    """Its own and those of rules."""

    @property
    def is_shared(self) -> bool:
        """Whether several claims may have parts of it."""
        return bool(self.device.get("allowMultipleAllocations"))

    @property
    def location(self) -> Object:
        """The object that selects its nodes: the slice, or the device itself."""
        return self.device if self.slice_spec.get("perDeviceNodeSelection") else self.slice_spec

    def counters(self) -> Counters:
        """Return what it takes of the counters of its pool."""
        return {
            (each["counterSet"], name): parse(counter["value"])
            for each in self.device.get("consumesCounters") or ()
            for name, counter in each["counters"].items()
        }


@dataclass(slots=True, eq=False)
class Pool:
    """Devices of a driver that belong together."""

    id: PoolId
    is_incomplete: bool = False
    is_invalid: bool = False
    here: list[Candidate] = field(default_factory=list)
    """Devices of slices that the node can access."""
    elsewhere: list[Candidate] = field(default_factory=list)
    counters: Counters = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """Whether a device of it is bound only once conditions are met."""
        return any(each.device.get("bindingConditions") for each in self.here)


def pools_of(cluster: Cluster, slot: int) -> list[Pool]:
    """Return the pools that a node sees."""
    node, name = cluster.nodes[slot], cluster.names[slot]
    known = cluster.devices.pools.get(name)
    if known is not None and known[0] is node:
        return known[1]
    found = _gathered(cluster, slot)
    if node is not None:
        cluster.devices.pools[name] = (node, found)
    return found


def _gathered(cluster: Cluster, slot: int) -> list[Pool]:
    devices = cluster.devices
    slices_by_pool: dict[PoolId, list[Object]] = {}
    for each in devices.slices_for(cluster.names[slot]):
        if not _is_seen(cluster, slot, each["spec"]):
            continue
        known = slices_by_pool.setdefault(_id_of(each), [])
        if known and _generation(each) != _generation(known[0]):
            if _generation(each) < _generation(known[0]):
                continue
            known.clear()
        known.append(each)
    pools = []
    for pool_id, slices in slices_by_pool.items():
        slice_count = slices[0]["spec"]["pool"]["resourceSliceCount"]
        all_slices = slices
        if len(slices) != slice_count:
            same = [each for each in devices.slices.values() if _id_of(each) == pool_id]
            newest = max(map(_generation, same))
            if newest > _generation(slices[0]):
                continue  # what the node sees is obsolete
            all_slices = [each for each in same if _generation(each) == newest]
            if len(all_slices) != slice_count:
                pools.append(Pool(pool_id, is_incomplete=True))
                continue
        pools.append(_pool(pool_id, slices, all_slices, devices.taint_rules.values()))
    return sorted(pools, key=lambda each: (each.waits, each.id))


def is_seen(cluster: Cluster, slot: int, location: Object) -> bool:
    """Whether a node can access a slice, or a device."""
    if location.get("nodeName"):
        return bool(location["nodeName"] == cluster.names[slot])
    if location.get("allNodes"):
        return True
    selector = location.get("nodeSelector")
    return selector is not None and bool(node_selectors.selected(cluster, selector)[slot])


def _is_seen(cluster: Cluster, slot: int, spec: Object) -> bool:
    if spec.get("perDeviceNodeSelection"):
        return any(is_seen(cluster, slot, each) for each in spec.get("devices") or ())
    return is_seen(cluster, slot, spec)


def _id_of(slice_: Object) -> PoolId:
    spec = slice_["spec"]
    return PoolId(spec["driver"], spec["pool"]["name"])


def _generation(slice_: Object) -> int:
    found: int = slice_["spec"]["pool"].get("generation") or 0
    return found


def _pool(
    pool_id: PoolId, slices: list[Object], all_slices: list[Object], rules: Iterable[Object]
) -> Pool:
    pool = Pool(pool_id)
    here = {each["metadata"]["name"] for each in slices}
    rules = [each["spec"] for each in rules]
    names: set[str] = set()
    for each in sorted(all_slices, key=lambda one: str(one["metadata"]["name"])):
        spec = each["spec"]
        for counters in spec.get("sharedCounters") or ():
            for name, counter in counters["counters"].items():
                key = (counters["name"], name)
                pool.is_invalid |= key in pool.counters
                pool.counters[key] = parse(counter["value"])
        is_here = each["metadata"]["name"] in here
        for device in spec.get("devices") or ():
            device_id = DeviceId(*pool_id, device["name"])
            taints = [*(device.get("taints") or ()), *_taints_by_rules(device_id, rules)]
            candidate = Candidate(device_id, device, spec, pool, taints)
            (pool.here if is_here else pool.elsewhere).append(candidate)
            if is_here:
                pool.is_invalid |= device["name"] in names
                names.add(device["name"])
    for candidate in (*pool.here, *pool.elsewhere):
        pool.is_invalid |= any(key not in pool.counters for key in candidate.counters())
    return pool


def _taints_by_rules(device: DeviceId, rules: Iterable[Object]) -> list[Object]:
    wanted = {"driver": device.driver, "pool": device.pool, "device": device.name}
    return [
        rule["taint"]
        for rule in rules
        if (selector := rule.get("deviceSelector")) is not None
        and all(selector.get(key) in (None, value) for key, value in wanted.items())
    ]
