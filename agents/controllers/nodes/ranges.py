"""Node IPAM: allocates a range of pod addresses of each family to every node.

    cluster 10.244.0.0/16, nodes /24  ─►  10.244.0.0/24, 10.244.1.0/24, …

The next range after the one given last is taken, so that those of deleted nodes rest for a while.
What nodes have already, and what overlaps the Services' ranges, is not given again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import NODES
from kvstack.agents.controllers.options import NodeRanges
from kvstack.agents.reconcile.plan import BaseController, Identity, Patch, Plan, Record, View, Watch
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

Network: TypeAlias = IPv4Network | IPv6Network


class RangesExhaustedError(Exception):
    """All ranges of a family are given."""


class Blocks:
    """The equal parts of one range, and which are taken."""

    def __init__(self, whole: Network, prefix: int) -> None:
        """Divide a range into parts with so long a prefix."""
        self.whole: Final = whole
        self._prefix = prefix
        self._shift = whole.max_prefixlen - prefix
        self._first = int(whole.network_address)
        self._count = 1 << (prefix - whole.prefixlen)
        self._taken: Counter[int] = Counter()
        self._next = 0

    @property
    def is_full(self) -> bool:
        """Whether all parts are used."""
        return sum(1 for times in self._taken.values() if times > 0) >= self._count

    def take_next(self) -> str:
        """Allocate the next free part, which must exist."""
        for offset in range(self._count):
            index = (self._next + offset) % self._count
            if not self._taken[index]:
                self._taken[index] = 1
                self._next = (index + 1) % self._count
                address = self.whole.network_address + (index << self._shift)
                return f"{address}/{self._prefix}"
        raise AssertionError(f"{self.whole} has no part left")

    def occupy(self, other: Network) -> None:
        """Mark the parts that a range overlaps as used."""
        for index in self._parts(other):
            self._taken[index] += 1

    def release(self, other: Network) -> None:
        """Give back the parts that a range overlaps, once for each time they were taken."""
        for index in self._parts(other):
            self._taken[index] -= 1

    def _parts(self, other: Network) -> range:
        if other.version != self.whole.version:
            return range(0)
        last = self._count - 1
        begin = (int(other.network_address) - self._first) >> self._shift
        end = (int(other.broadcast_address) - self._first) >> self._shift
        return range(max(begin, 0), min(end, last) + 1)


class NodeRangeController(BaseController):
    """Gives nodes their ranges."""

    workers = 1

    def __init__(self, ranges: NodeRanges) -> None:
        """Give parts of these."""
        self.identity: Identity = Identity(
            "node-ipam-controller", "node-controller", "cidrAllocator"
        )
        self.watches: Sequence[Watch] = (Watch(NODES, self._keys),)
        self._blocks: Final = [
            Blocks(whole, mask) for whole, mask in zip(ranges.clusters, ranges.masks, strict=True)
        ]
        for blocks in self._blocks:
            for each in ranges.services:
                blocks.occupy(each)
        self._given: dict[str, list[str]] = {}
        """Node → its ranges, as the API has them or as they are being written."""

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one node."""
        node = view.get(NODES, key)
        if node is None or node["spec"].get("podCIDRs"):
            return None
        ranges = self._given.get(key)
        if ranges is None:
            try:
                ranges = self._given[key] = self._take()
            except RangesExhaustedError:
                yield [_status_change(node, "CIDRNotAvailable")]
                raise
        meta: Object = {"uid": node["metadata"]["uid"]}
        body = {"metadata": meta, "spec": {"podCIDR": ranges[0], "podCIDRs": ranges}}
        [outcome] = yield [Patch(NODES, "", key, body, STRATEGIC_MERGE_PATCH)]
        if outcome.error is None:
            return None
        if isinstance(outcome.error, ApiError):  # otherwise it may be written: keep it for the node
            self._release(key)
        if outcome.is_not_found:
            return None
        yield [_status_change(node, "CIDRAssignmentFailed")]
        raise outcome.error

    def _take(self) -> list[str]:
        for blocks in self._blocks:
            if blocks.is_full:
                raise RangesExhaustedError(f"no range of {blocks.whole} is left for a node")
        return [blocks.take_next() for blocks in self._blocks]

    def _release(self, name: str) -> None:
        self._each(self._given.pop(name, []), Blocks.release)

    def _each(self, ranges: Iterable[str], change: Callable[[Blocks, Network], None]) -> None:
        for text in ranges:
            network = ip_network(text, strict=False)
            for blocks in self._blocks:
                change(blocks, network)

    def _keys(self, old: Object | None, new: Object | None, view: View) -> Iterable[str]:
        name = (new or old or {})["metadata"]["name"]
        if new is None:
            self._release(name)
            return
        known = new["spec"].get("podCIDRs") or []
        if not known:
            yield name
        elif self._given.get(name) != known:
            self._release(name)
            self._given[name] = known
            self._each(known, Blocks.occupy)


def _status_change(node: Object, reason: str) -> Record:
    name = node["metadata"]["name"]
    return Record(node, "Normal", reason, f"Node {name} status is now: {reason}")
