"""Finds devices for claims on one node: the first solution in the order of claims, requests, pools.

    found = Allocator(cluster, claims).allocate(slot)     an allocation a claim; None: it cannot be

Every combination is tried, not every order: within a request devices are taken in the order in
which the pools have them. A search that takes too many steps is given up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kvstack.agents.scheduler.devices.capacity import consumed_of, fits
from kvstack.agents.scheduler.devices.constraints import Constraint, constraints_of
from kvstack.agents.scheduler.devices.pools import (
    TAINTING,
    Candidate,
    Counters,
    Pool,
    PoolId,
    is_seen,
    pools_of,
)
from kvstack.agents.scheduler.devices.requests import (
    DEVICES_MAX,
    DeviceError,
    Request,
    requests_of,
)
from kvstack.agents.scheduler.devices.results import AllocatedDevice, allocation_result
from kvstack.agents.scheduler.devices.selectors import Selectors
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.devices import Capacities, DeviceId
from kvstack.apimachinery.objects.core.tolerations import is_tolerated, taint_of
from kvstack.apimachinery.objects.json_object import Object

STEPS_MAX: Final = 50_000
"""Steps of one search; upstream ends one after ten seconds."""


class NodeError(Exception):
    """A node whose pools make no sense; others may do. The message is shown to users."""


class _End(Enum):
    """The outcome of a part of the search."""

    FOUND = "found"
    NONE = "none"
    TOO_MANY = "too many"
    """A claim would have more devices than it may."""


@dataclass(slots=True, eq=False)
class _Claim:
    obj: Object
    requests: list[list[Request]]
    constraints: list[Constraint]


class Allocator:
    """Finds devices for the claims of one pod."""

    def __init__(self, cluster: Cluster, claims: Sequence[Object]) -> None:
        """Read the requests of the claims; raises DeviceError."""
        self._cluster = cluster
        self._selectors = Selectors()
        self._claims = [
            _Claim(each, requests_of(each, cluster.devices), constraints_of(each))
            for each in claims
        ]

    def allocate(self, slot: int) -> list[Object] | None:
        """Return the claims' allocations on a node; raises DeviceError, NodeError."""
        pools = pools_of(self._cluster, slot)
        search = _Search(self._cluster, slot, pools, self._claims, self._selectors)
        taken = search.run()
        if taken is not None:
            name = self._cluster.names[slot]
            return [
                allocation_result(claim.obj, claim.requests, devices, name)
                for claim, devices in zip(self._claims, taken, strict=True)
            ]
        if any(pool.is_invalid for pool in pools):
            raise NodeError("invalid resource pools were encountered")
        return None


class _Search:
    """One search, on one node."""

    def __init__(
        self,
        cluster: Cluster,
        slot: int,
        pools: list[Pool],
        claims: list[_Claim],
        selectors: Selectors,
    ) -> None:
        self._cluster = cluster
        self._slot = slot
        self._pools = pools
        self._claims = claims
        self._selectors = selectors
        self._candidates = [
            each for pool in pools if not (pool.is_incomplete or pool.is_invalid)
            for each in pool.here
        ]  # fmt: skip
        self._all: dict[Request, list[Candidate]] = {}
        self._suits: dict[tuple[Request, Candidate], bool] = {}
        self._taken: list[list[AllocatedDevice]] = [[] for _ in claims]
        self._in_use: set[DeviceId] = set()
        self._shared: dict[DeviceId, list[Capacities]] = {}
        self._left: dict[PoolId, Counters] = {}
        self._steps = 0

    def run(self) -> list[list[AllocatedDevice]] | None:
        """Return the devices of each claim."""
        for claim in self._claims:
            least = 0
            for alternatives in claim.requests:
                for request in alternatives:
                    if request.takes_all:
                        request.count = len(self._all_of(request))
                least += min(each.count for each in alternatives)
            if least > DEVICES_MAX:
                name = claim.requests[-1][0].own_name
                raise DeviceError(
                    f"claim {claim.requests[0][0].claim}, request {name}:"
                    f" {least} devices exceed the claim limit of {DEVICES_MAX}"
                )
        return self._taken if self._claim(0) is _End.FOUND else None

    def _claim(self, number: int) -> _End:
        if number >= len(self._claims):
            return _End.FOUND
        return self._request(number, 0)

    def _request(self, number: int, position: int) -> _End:
        """Find devices for a request of a claim, and for all that follows."""
        claim = self._claims[number]
        if position >= len(claim.requests):
            end = self._claim(number + 1)
            # Another choice here may need fewer devices there.
            return _End.NONE if end is _End.TOO_MANY else end
        all_too_many = True
        for request in claim.requests[position]:
            if request.takes_all and not request.count:
                all_too_many = False
                continue
            end = self._device(number, position, request, 0, 0)
            if end is _End.FOUND:
                return end
            all_too_many = all_too_many and end is _End.TOO_MANY
        return _End.TOO_MANY if all_too_many else _End.NONE

    def _device(self, number: int, position: int, request: Request, had: int, start: int) -> _End:
        """Find what a request lacks; had: devices it has; start: the candidate to begin with."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            name = self._cluster.names[self._slot]
            raise DeviceError(f"node {name}: timed out trying to allocate devices")
        if had >= request.count:
            return self._request(number, position + 1)
        if request.count - had > DEVICES_MAX - len(self._taken[number]):
            return _End.TOO_MANY
        candidates = self._all_of(request) if request.takes_all else self._candidates
        last = start + 1 if request.takes_all else len(candidates)
        for index in range(start, last):
            candidate = candidates[index]
            taken = self._take(number, request, candidate)
            if taken is None:
                continue
            end = self._device(number, position, request, had + 1, index + 1)
            if end is _End.FOUND:
                return end
            self._give_back(number, taken)
            if end is _End.TOO_MANY:
                return end
        return _End.NONE

    # One device.

    def _take(self, number: int, request: Request, candidate: Candidate) -> AllocatedDevice | None:
        """Allocate a device for a request, if possible."""
        if not self._is_free(number, request, candidate) or not self._is_suitable(
            request, candidate
        ):
            return None
        consumed = consumed_of(request.capacity, candidate.device)
        if consumed is None or not fits(consumed, candidate.device, self._used(candidate)):
            return None
        if _is_tainted(candidate, request):
            return None
        # Parts of one device count once for its pool.
        takes_counters = not (candidate.is_shared and self._used(candidate))
        counters = candidate.counters() if takes_counters else {}
        if any(amount > self._left_of(candidate.pool)[key] for key, amount in counters.items()):
            return None
        constraints = self._claims[number].constraints
        for done, constraint in enumerate(constraints):
            if not constraint.add(request, candidate):
                for each in constraints[:done]:
                    each.remove(request)
                return None
        left = self._left_of(candidate.pool) if counters else {}
        for key, amount in counters.items():
            left[key] = left[key] - amount
        device = AllocatedDevice(
            request, candidate, consumed if candidate.is_shared else {}, counters
        )
        if candidate.is_shared:
            self._shared.setdefault(candidate.id, []).append(consumed)
        elif not request.is_admin:
            self._in_use.add(candidate.id)
        self._taken[number].append(device)
        return device

    def _give_back(self, number: int, device: AllocatedDevice) -> None:
        self._taken[number].pop()
        candidate = device.candidate
        if candidate.is_shared:
            self._shared[candidate.id].pop()
        else:
            self._in_use.discard(candidate.id)
        for key, amount in device.counters.items():
            left = self._left[candidate.pool.id]
            left[key] = left[key] + amount
        for constraint in self._claims[number].constraints:
            constraint.remove(device.request)

    def _is_free(self, number: int, request: Request, candidate: Candidate) -> bool:
        if request.is_admin:
            if candidate.is_shared:
                return True
            return all(each.candidate.id != candidate.id for each in self._taken[number])
        return candidate.id not in self._cluster.devices.in_use and candidate.id not in self._in_use

    def _used(self, candidate: Candidate) -> list[Capacities]:
        """Return what is in use of a device's capacities."""
        known = self._cluster.devices.shared.get(candidate.id)
        own = self._shared.get(candidate.id) or []
        return own if known is None else [known, *own]

    def _left_of(self, pool: Pool) -> Counters:
        """Return what is left of a pool's counters."""
        left = self._left.get(pool.id)
        if left is None:
            left = self._left[pool.id] = dict(pool.counters)
            devices = self._cluster.devices
            for each in (*pool.here, *pool.elsewhere):
                if each.id in devices.in_use or each.id in devices.shared:
                    for key, amount in each.counters().items():
                        left[key] = left[key] - amount
        return left

    def _is_suitable(self, request: Request, candidate: Candidate) -> bool:
        """Whether selectors and the node allow a device."""
        key = (request, candidate)
        found = self._suits.get(key)
        if found is None:
            found = self._selectors.select(request, candidate) and (
                candidate.location is not candidate.device
                or is_seen(self._cluster, self._slot, candidate.device)
            )
            self._suits[key] = found
        return found

    def _all_of(self, request: Request) -> list[Candidate]:
        """Return all devices that a request for all means; raises DeviceError."""
        devices = self._all.get(request)
        if devices is None:
            subject = (
                f"claim {request.claim}, request {request.own_name}: asks for all devices, but"
            )
            for pool in self._pools:
                if pool.is_incomplete:
                    raise DeviceError(
                        f"{subject} resource pool {pool.id} is currently being updated"
                    )
                if pool.is_invalid:
                    raise DeviceError(f"{subject} resource pool {pool.id} is currently invalid")
            devices = self._all[request] = [
                each
                for each in self._candidates
                if self._is_suitable(request, each)
                and (consumed := consumed_of(request.capacity, each.device)) is not None
                and fits(consumed, each.device, ())
            ]
        return devices


def _is_tainted(candidate: Candidate, request: Request) -> bool:
    """Whether a device has a taint that a request does not tolerate."""
    tolerations = request.spec.get("tolerations") or ()
    return any(
        taint["effect"] in TAINTING and not is_tolerated(taint_of(taint), tolerations)
        for taint in candidate.taints
    )
