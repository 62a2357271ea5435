"""The scheduler's snapshot of the cluster: nodes as slots of columns, and their pods.

    cluster = Cluster()
    cluster.set_node(node)
    cluster.add_pod(info, "n1")           a pod the API shows, or one that is assumed
    cluster.used("cpu")[:cluster.size]    the requests of pods on each node

A slot belongs to one name until the node is gone and no pod is left on it. `is_valid` marks slots
with a node; pods may come before their node does. Indexes (values of a label, pods that a selector
matches, terms of pods) are built on first use and then kept up to date.
"""

from collections.abc import Mapping, MutableMapping
from typing import Final, NamedTuple

import numpy as np

from kvstack.agents.scheduler.snapshot import node_order
from kvstack.agents.scheduler.snapshot.columns import BoolArray, Column, Columns, IdArray, IntArray
from kvstack.agents.scheduler.snapshot.devices import Devices
from kvstack.agents.scheduler.snapshot.kept_columns import KeptColumns
from kvstack.agents.scheduler.snapshot.pod_index import PodIndex
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, PodMatch, Port
from kvstack.agents.scheduler.snapshot.pod_resources import CPU, MEMORY, PODS, amount_of, is_counted
from kvstack.agents.scheduler.snapshot.storage import Storage
from kvstack.apimachinery.objects.core.tolerations import Taint, taints_of
from kvstack.apimachinery.objects.json_object import Object


class LabelValues:
    """The values of one label over nodes."""

    __slots__ = ("column", "ids", "texts")

    def __init__(self, column: Column[np.int32]) -> None:
        self.column: Final = column
        """Ids of values; -1: the node lacks the label."""
        self.ids: Final[dict[str, int]] = {}
        self.texts: Final[list[str]] = []

    def set(self, slot: int, text: str | None) -> None:
        """Set the value of a node."""
        if text is None:
            self.column.data[slot] = -1
            return
        found = self.ids.get(text)
        if found is None:
            found = self.ids[text] = len(self.texts)
            self.texts.append(text)
        self.column.data[slot] = found


class Image(NamedTuple):
    """An image that nodes have."""

    size: int
    """Bytes, as the first node said that had it."""
    slots: set[int]


class Cluster:
    """Nodes, and pods on them."""

    def __init__(self) -> None:
        self.size = 0
        """Slots in use, gaps included."""
        self.storage: Final = Storage()
        self.devices: Final = Devices()
        self.pods: Final[MutableMapping[str, PodInfo]] = {}
        """Pods on nodes, by uid."""
        self.nominated: Final[dict[str, dict[str, PodInfo]]] = {}
        self.preempting: Final[set[str]] = set()
        """Uids of waiting pods whose victims are being deleted."""
        """Node name → uid → a pod that is to run there once there is room."""
        self.services: Final[dict[str, dict[str, Object]]] = {}
        """Namespace → name → Service."""
        self.owners: Final[dict[tuple[str, str, str, str], Object | None]] = {}
        """(apiVersion, kind, namespace, name) → the owner's selector, as a LabelSelector."""
        self.budgets: Final[dict[str, Object]] = {}
        self.slots: Final[dict[str, int]] = {}
        self.names: Final[list[str]] = []
        self.nodes: Final[list[Object | None]] = []
        self.pods_on: Final[list[dict[str, PodInfo]]] = []
        self.taint_lists: Final[list[tuple[Taint, ...]]] = []
        self.images: Final[dict[str, Image]] = {}
        self.ports: Final[dict[Port, dict[int, int]]] = {}
        """Host port → slot → how many pods have it."""
        self.cached_masks: Final[dict[bytes, BoolArray]] = {}
        """The nodes that node selectors match, until a node changes."""
        self._taint_list_ids: dict[tuple[Taint, ...], int] = {}
        self._columns = Columns()
        self._valid = self._columns.add(np.bool_, 0)
        self._unschedulable = self._columns.add(np.bool_, 0)
        self._taint_ids = self._columns.add(np.int32, 0)
        self._allocatable: dict[str, Column[np.int64]] = {}
        self._used: dict[str, Column[np.int64]] = {}
        self._scored_used = {
            CPU: self._columns.add(np.int64, 0),
            MEMORY: self._columns.add(np.int64, 0),
        }
        self._label_values: dict[str, LabelValues] = {}
        self.index: Final = PodIndex(self._columns)
        self.kept: Final = KeptColumns()
        """Derived from resources of nodes and requests of pods."""
        self._slot_of: MutableMapping[str, int] = {}
        self._zones: dict[int, tuple[str, str]] = {}
        self._order: IntArray | None = None
        self._order_positions: IntArray | None = None
        self._free: list[int] = []

    # Columns, an element a slot.

    @property
    def is_valid(self) -> BoolArray:
        """The slots with a node."""
        return self._valid.data[: self.size]

    @property
    def is_unschedulable(self) -> BoolArray:
        """The cordoned nodes."""
        return self._unschedulable.data[: self.size]

    @property
    def taint_ids(self) -> IdArray:
        """The index of each node's list in `taint_lists`."""
        return self._taint_ids.data[: self.size]

    def allocatable(self, resource: str) -> IntArray:
        """Return what nodes have of a resource."""
        return self._resource(self._allocatable, resource).data[: self.size]

    def used(self, resource: str) -> IntArray:
        """Return what the pods on each node ask of a resource; `pods`: how many there are."""
        return self._resource(self._used, resource).data[: self.size]

    def scored_used(self, resource: str) -> IntArray:
        """Return what scores count: containers without cpu or memory as small ones."""
        column = self._scored_used.get(resource)
        return self.used(resource) if column is None else column.data[: self.size]

    def label(self, key: str) -> tuple[IdArray, LabelValues]:
        """Return the ids of nodes' values of a label, -1 where there is none, and the values."""
        values = self._label_values.get(key)
        if values is None:
            values = self._label_values[key] = LabelValues(self._columns.add(np.int32, -1))
            for slot, node in enumerate(self.nodes):
                if node is not None:
                    values.set(slot, (node["metadata"].get("labels") or {}).get(key))
        return values.column.data[: self.size], values

    def count(self, matches: tuple[PodMatch, ...], *, counts_terminating: bool) -> IntArray:
        """Return how many pods on each node are meant by all of the matches."""
        placed = ((pod, self._slot_of[uid]) for uid, pod in self.pods.items())
        data = self.index.count(matches, placed, counts_terminating=counts_terminating)
        return data[: self.size]

    @property
    def order(self) -> IntArray:
        """The slots with a node, in the order in which they are looked at."""
        if self._order is None:
            self._order_positions = None
            self._order = np.array(node_order.interleaved(self._zones), dtype=np.int64)
        return self._order

    @property
    def order_positions(self) -> IntArray:
        """The position of each slot in `order`."""
        if self._order_positions is None:
            self._order_positions = np.zeros(self.size, dtype=np.int64)
            self._order_positions[self.order] = np.arange(len(self.order))
        return self._order_positions

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self._zones)

    # Nodes.

    def set_node(self, node: Object) -> None:
        """Add a node, or take its new state."""
        name = node["metadata"]["name"]
        slot = self._slot(name)
        old = self.nodes[slot]
        self.nodes[slot] = node
        self._valid.data[slot] = True
        self._unschedulable.data[slot] = bool((node.get("spec") or {}).get("unschedulable"))
        self._taint_ids.data[slot] = self._taint_list_id(taints_of(node))
        self._set_allocatable(slot, (node.get("status") or {}).get("allocatable") or {})
        labels = node["metadata"].get("labels") or {}
        if old is None or (old["metadata"].get("labels") or {}) != labels:
            self.cached_masks.clear()
            for key, values in self._label_values.items():
                values.set(slot, labels.get(key))
            zone = node_order.zone_of(node)
            if self._zones.get(slot) != zone:
                self._zones.pop(slot, None)
                self._zones[slot] = zone
                self._order = None
        self._set_images(slot, old, node)

    def remove_node(self, name: str) -> None:
        """Remove a node; pods that are still on it are kept."""
        slot = self.slots.get(name)
        if slot is None or self.nodes[slot] is None:
            return
        self._set_images(slot, self.nodes[slot], {})
        self.nodes[slot] = None
        self._valid.data[slot] = False
        self._set_allocatable(slot, {})
        for values in self._label_values.values():
            values.set(slot, None)
        self._zones.pop(slot, None)
        self._order = None
        self.cached_masks.clear()
        self._release(slot)

    # Pods.

    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        """Put a pod on a node; one of the same uid is replaced."""
        if pod.uid in self.pods:
            self.remove_pod(pod.uid)
        slot = self._slot(node_name)
        self.pods[pod.uid] = pod
        self.pods_on[slot][pod.uid] = pod
        self._slot_of[pod.uid] = slot
        self._account(pod, slot, 1)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Remove a pod from its node; return it."""
        pod = self.pods.pop(uid, None)
        if pod is not None:
            slot = self._slot_of.pop(uid)
            del self.pods_on[slot][uid]
            self._account(pod, slot, -1)
            self._release(slot)
        return pod

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node a pod is on."""
        slot = self._slot_of.get(uid)
        return None if slot is None else self.names[slot]

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Note on which node a pod is to run once there is room; empty: on none."""
        self.unnominate(pod.uid)
        if node_name:
            self.nominated.setdefault(node_name, {})[pod.uid] = pod

    def unnominate(self, uid: str) -> bool:
        """Forget on which node a pod is to run; return whether that was known."""
        for name, pods in self.nominated.items():
            if pods.pop(uid, None) is not None:
                if not pods:
                    del self.nominated[name]
                return True
        return False

    def nominated_node(self, uid: str) -> str:
        """Return on which node a pod is to run; empty: on none."""
        return next((name for name, pods in self.nominated.items() if uid in pods), "")

    # Inside.

    def _resource(self, columns: dict[str, Column[np.int64]], resource: str) -> Column[np.int64]:
        column = columns.get(resource)
        if column is None:
            column = columns[resource] = self._columns.add(np.int64, 0)
        return column

    def _slot(self, name: str) -> int:
        slot = self.slots.get(name)
        if slot is not None:
            return slot
        if self._free:
            slot = self._free.pop()
            self.names[slot] = name
        else:
            slot = self.size
            self._columns.reserve(slot + 1)
            self.cached_masks.clear()  # they are of the old size
            self.size += 1
            self.names.append(name)
            self.nodes.append(None)
            self.pods_on.append({})
        self.slots[name] = slot
        return slot

    def _release(self, slot: int) -> None:
        """Free a slot without node and pods."""
        if self.nodes[slot] is None and not self.pods_on[slot]:
            del self.slots[self.names[slot]]
            self.names[slot] = ""
            self._free.append(slot)

    def _set_allocatable(self, slot: int, amounts: Mapping[str, str]) -> None:
        self.kept.touch(slot)
        for name, column in self._allocatable.items():
            if name not in amounts:
                column.data[slot] = 0
        for name, text in amounts.items():
            if name == PODS or is_counted(name):
                column = self._resource(self._allocatable, name)
                column.data[slot] = amount_of(name, text)

    def _taint_list_id(self, taints: tuple[Taint, ...]) -> int:
        found = self._taint_list_ids.get(taints)
        if found is None:
            found = self._taint_list_ids[taints] = len(self.taint_lists)
            self.taint_lists.append(taints)
        return found

    def _set_images(self, slot: int, old: Object | None, new: Object) -> None:
        before = ((old or {}).get("status") or {}).get("images") or ()
        after = (new.get("status") or {}).get("images") or ()
        if before == after:
            return
        for image in before:
            for name in image.get("names") or ():
                known = self.images.get(name)
                if known is not None:
                    known.slots.discard(slot)
                    if not known.slots:
                        del self.images[name]
        for image in after:
            for name in image.get("names") or ():
                known = self.images.get(name)
                if known is None:
                    known = self.images[name] = Image(image.get("sizeBytes") or 0, set())
                known.slots.add(slot)

    def _account(self, pod: PodInfo, slot: int, by: int) -> None:
        """Account for an added (by 1) or removed (by -1) pod."""
        self.kept.touch(slot)
        for name, amount in pod.requests.items():
            self._resource(self._used, name).data[slot] += by * amount
        self._resource(self._used, PODS).data[slot] += by
        scored = pod.scored_requests
        for name, column in self._scored_used.items():
            column.data[slot] += by * scored.get(name, 0)
        for port in pod.ports:
            users = self.ports.setdefault(port, {})
            users[slot] = users.get(slot, 0) + by
            if not users[slot]:
                del users[slot]
        self.index.account(pod, slot, by)
