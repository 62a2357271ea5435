"""Devices, their classes and claims, in the scheduler's snapshot.

devices.set_claim("default/gpu", claim)     what the API shows
devices.assume(claim, allocation)           decided here, and not shown by the API yet
devices.in_use                              devices that cannot be allocated again
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from typing_extensions import override

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import Quantity, parse

Capacities: TypeAlias = dict[str, Quantity]

_NONE: Final = parse("0")


class DeviceId(NamedTuple):
    """Names a device."""

    driver: str
    pool: str
    name: str

    @override
    def __str__(self) -> str:
        """Return it as messages have it."""
        return f"{self.driver}/{self.pool}/{self.name}"


class Devices:
    """The devices of the cluster, and their allocations."""

    def __init__(self) -> None:
        self.classes: Final[dict[str, Object]] = {}
        self.slices: Final[dict[str, Object]] = {}
        self.taint_rules: Final[dict[str, Object]] = {}
        self.claims: Final[dict[str, Object]] = {}
        """By `namespace/name`."""
        self.pending: Final[dict[str, Object]] = {}
        """Uid of a claim → the allocation that was decided on, until the API shows one."""
        self.in_use: Final[Counter[DeviceId]] = Counter()
        self.shared: Final[dict[DeviceId, Capacities]] = {}
        """The consumed capacities of devices that several claims may share."""
        self.pools: Final[dict[str, tuple[Object, list[Any]]]] = {}
        """Node → its object, and the pools it sees (`devices.pools`)."""
        self._by_node: dict[str, list[Object]] | None = None

    def slices_changed(self) -> None:
        """Look again at who sees what: slices, or what taints their devices, have changed."""
        self.pools.clear()
        self._by_node = None

    def slices_for(self, node_name: str) -> list[Object]:
        """Return the slices that a node may see: its own, and those of no single node."""
        if self._by_node is None:
            self._by_node = {}
            for each in self.slices.values():
                self._by_node.setdefault(each["spec"].get("nodeName") or "", []).append(each)
        return [*self._by_node.get(node_name, ()), *self._by_node.get("", ())]

    def set_claim(self, key: str, claim: Object | None) -> None:
        """Set the state of a claim; None: it was deleted."""
        old = self.claims.pop(key, None)
        if old is not None:
            self._account(allocation_of(old), -1)
        uid = (claim or old or {}).get("metadata", {}).get("uid", "")
        if claim is None or allocation_of(claim) is not None:
            self.forget(uid)
        if claim is not None:
            self.claims[key] = claim
            self._account(allocation_of(claim), 1)

    def assume(self, claim: Object, allocation: Object) -> None:
        """Treat a claim as allocated, until the API shows that it is, or `forget`."""
        self.pending[claim["metadata"]["uid"]] = allocation
        self._account(allocation, 1)

    def forget(self, uid: str) -> None:
        """Give back what a claim was to get."""
        self._account(self.pending.pop(uid, None), -1)

    def _account(self, allocation: Object | None, by: int) -> None:
        for result in results_of(allocation):
            if result.get("adminAccess"):
                continue
            device = DeviceId(result["driver"], result["pool"], result["device"])
            if not result.get("shareID"):
                self.in_use[device] += by
                if not self.in_use[device]:
                    del self.in_use[device]
                continue
            # One without capacity is in use all the same.
            amounts = self.shared.setdefault(device, {"": _NONE})
            amounts[""] = amounts[""] + (parse("1") if by > 0 else parse("-1"))
            for name, text in (result.get("consumedCapacity") or {}).items():
                amount = parse(text)
                amounts[name] = amounts.get(name, _NONE) + (amount if by > 0 else -amount)
            if not amounts[""].sign:
                del self.shared[device]


def allocation_of(claim: Object) -> Object | None:
    """Return the allocation of a claim, if it has one."""
    return (claim.get("status") or {}).get("allocation")


def results_of(allocation: Object | None) -> list[Object]:
    """Return the devices of an allocation."""
    return ((allocation or {}).get("devices") or {}).get("results") or []


def claim_names(pod: Object) -> Iterator[tuple[str, str, bool]]:
    """Give what a pod calls its claims, their names, and whether each was made for it.

    The name is empty where a claim is still to be made. Claims that were found not to be needed
    are left out.
    """
    known = {
        each["name"]: each.get("resourceClaimName")
        for each in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    for wanted in pod["spec"].get("resourceClaims") or ():
        name = wanted["name"]
        if wanted.get("resourceClaimName"):
            yield name, wanted["resourceClaimName"], False
        elif name not in known:
            yield name, "", True
        elif known[name]:
            yield name, known[name], True


def reserves(claim: Object, uid: str) -> bool:
    """Whether a claim is reserved for a pod."""
    reserved = (claim.get("status") or {}).get("reservedFor") or ()
    return any(each.get("uid") == uid for each in reserved)
