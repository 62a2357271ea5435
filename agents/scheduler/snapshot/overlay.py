"""A snapshot with other pods on its nodes, for questions such as whether a pod fits.

    overlay = Overlay(cluster)
    overlay.add_pod(pod, "n1"); overlay.remove_pod(uid)     the cluster stays as it is

An overlay shares nodes, storage and devices with its cluster, and holds what differs about pods.
It is good until the cluster changes.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, MutableMapping
from typing import Final, TypeAlias, TypeVar

import numpy as np
from typing_extensions import override

from kvstack.agents.scheduler.snapshot.cluster import Cluster, LabelValues
from kvstack.agents.scheduler.snapshot.columns import Column, Columns, IdArray, IntArray
from kvstack.agents.scheduler.snapshot.kept_columns import KeptColumns
from kvstack.agents.scheduler.snapshot.pod_index import (
    Carried,
    CarriedKind,
    Matches,
    PodIndex,
    terms_of,
)
from kvstack.agents.scheduler.snapshot.pod_info import LabelsKey, PodInfo, PodMatch, Term

_Value = TypeVar("_Value")
_Changes: TypeAlias = dict[tuple[PodInfo, int], int]
"""Pod and slot → 1: it is there besides, -1: it is not there."""


class Overlay(Cluster):
    """The nodes of a cluster, with pods of its own."""

    def __init__(self, cluster: Cluster) -> None:
        """Start with the pods of a cluster."""
        vars(self).update(vars(cluster))
        self._base: Final = cluster
        self._own_slots: set[int] = set()
        columns = Columns()
        columns.reserve(self._columns.capacity)
        self._index: Final = _OverlaidIndex(cluster.index, columns)
        private = {
            "pods": _Overlaid(cluster.pods),
            "pods_on": [*cluster.pods_on],
            "ports": {port: dict(users) for port, users in cluster.ports.items()},
            "kept": KeptColumns(),
            "index": self._index,
        }
        vars(self).update(private)
        self._slot_of = _Overlaid(self._slot_of)
        self._columns = columns
        self._used = {name: _copy(column) for name, column in self._used.items()}
        self._scored_used = {name: _copy(column) for name, column in self._scored_used.items()}

    @override
    def allocatable(self, resource: str) -> IntArray:
        return self._base.allocatable(resource)

    @override
    def label(self, key: str) -> tuple[IdArray, LabelValues]:
        return self._base.label(key)

    @override
    def count(self, matches: tuple[PodMatch, ...], *, counts_terminating: bool) -> IntArray:
        def unchanged() -> IntArray:
            return self._base.count(matches, counts_terminating=counts_terminating)

        return self._index.changed(unchanged, matches, counts_terminating=counts_terminating)

    @override
    def add_pod(self, pod: PodInfo, node_name: str) -> None:
        self._own(self.slots[node_name])
        super().add_pod(pod, node_name)

    @override
    def remove_pod(self, uid: str) -> PodInfo | None:
        slot = self._slot_of.get(uid)
        if slot is not None:
            self._own(slot)
        return super().remove_pod(uid)

    @override
    def set_node(self, node: object) -> None:
        raise TypeError("an overlay shares the nodes of its cluster: set_node changes them")

    @override
    def remove_node(self, name: str) -> None:
        raise TypeError("an overlay shares the nodes of its cluster: remove_node changes them")

    @override
    def _release(self, slot: int) -> None:
        """Slots are the cluster's."""

    def _own(self, slot: int) -> None:
        if slot not in self._own_slots:
            self._own_slots.add(slot)
            self.pods_on[slot] = dict(self.pods_on[slot])


class _OverlaidIndex(PodIndex):
    """The counts of another index, with changes."""

    def __init__(self, base: PodIndex, columns: Columns) -> None:
        super().__init__(columns)
        self._base: Final = base
        self._changes: _Changes = {}
        self._changed_terms: _Changes = {}
        """Terms of the changed pods."""
        self._changed_counts: dict[tuple[Matches, bool], _ChangedCount] = {}
        self._namespaces = base._namespaces  # noqa: SLF001  # a subclass, of the same class

    @override
    def account(self, pod: PodInfo, slot: int, by: int) -> None:
        _add(self._changes, pod, slot, by)
        if pod.has_terms:
            _add(self._changed_terms, pod, slot, by)
        for count in self._changed_counts.values():
            count.account(pod, slot, by)

    def changed(
        self, counts: Callable[[], IntArray], matches: Matches, *, counts_terminating: bool
    ) -> IntArray:
        """Return counts with the changes; counts: gives those of the index below."""
        key = (matches, counts_terminating)
        known = self._changed_counts.get(key)
        if known is None:
            known = _ChangedCount(self._base, counts().copy(), *key)
            self._changed_counts[key] = known
            for (pod, slot), by in self._changes.items():
                known.account(pod, slot, by)
        return known.counts

    @override
    def carried_for(self, pod: PodInfo) -> tuple[Carried, ...]:
        unchanged = self._base.carried_for(pod)
        if not self._changed_terms:
            return unchanged
        labels = self.namespace_labels(pod.namespace)
        changes: defaultdict[tuple[CarriedKind, Term], list[tuple[int, int]]] = defaultdict(list)
        for (other, slot), by in self._changed_terms.items():
            for key in terms_of(other):
                if key[1].match.matches(pod, labels):
                    changes[key].append((slot, by))
        terms: list[Carried] = []
        for each in unchanged:
            own = changes.pop((each.kind, each.term), None)
            carried = each if own is None else _with(each.kind, each.term, each, own)
            if carried.total:
                terms.append(carried)
        capacity = self._columns.capacity
        for (kind, term), own in changes.items():
            nobody = Carried(kind, term, Column(np.int64, 0, capacity))
            terms.append(_with(kind, term, nobody, own))
        return tuple(terms)


class _ChangedCount:
    """The number of pods on each node that some matches select."""

    def __init__(
        self,
        index: PodIndex,
        counts: IntArray,
        matches: Matches,
        counts_terminating: bool,  # noqa: FBT001
    ) -> None:
        self.counts: Final = counts
        self._index = index
        self._matches = matches
        self._counts_terminating = counts_terminating
        self._means: dict[LabelsKey, bool] = {}

    def account(self, pod: PodInfo, slot: int, by: int) -> None:
        if pod.is_terminating and not self._counts_terminating:
            return
        is_meant = self._means.get(pod.labels_key)
        if is_meant is None:
            is_meant = self._means[pod.labels_key] = self._index.means(self._matches, pod)
        if is_meant:
            self.counts[slot] += by


class _Overlaid(MutableMapping[str, _Value]):
    """A mapping with changes that the one below does not show."""

    def __init__(self, base: MutableMapping[str, _Value]) -> None:
        self._base = base
        self._set: dict[str, _Value] = {}
        self._gone: set[str] = set()

    @override
    def __contains__(self, key: object) -> bool:
        return key in self._set or (key not in self._gone and key in self._base)

    @override
    def __getitem__(self, key: str) -> _Value:
        if key in self._set:
            return self._set[key]
        if key in self._gone:
            raise KeyError(key)
        return self._base[key]

    @override
    def __setitem__(self, key: str, value: _Value) -> None:
        self._set[key] = value
        self._gone.discard(key)

    @override
    def __delitem__(self, key: str) -> None:
        if key not in self:
            raise KeyError(key)
        self._set.pop(key, None)
        if key in self._base:
            self._gone.add(key)

    @override
    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self._base if key not in self._gone and key not in self._set)
        yield from self._set

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)


def _copy(column: Column[np.int64]) -> Column[np.int64]:
    copy: Column[np.int64] = Column(np.int64, column.fill, 0)
    copy.data = column.data.copy()
    return copy


def _add(changes: _Changes, pod: PodInfo, slot: int, by: int) -> None:
    number = changes.get((pod, slot), 0) + by
    if number:
        changes[pod, slot] = number
    else:
        del changes[pod, slot]


def _with(
    kind: CarriedKind, term: Term, carried: Carried, changes: list[tuple[int, int]]
) -> Carried:
    found = Carried(kind, term, _copy(carried.column))
    found.total = carried.total
    for slot, by in changes:
        found.column.data[slot] += by
        found.total += by
    return found
