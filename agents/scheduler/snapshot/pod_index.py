"""Counts of pods over nodes: those that a selector matches, and those with a term.

    index.count(matches, counts_terminating=False)   an element a slot
    index.carried_for(pod)                           terms of placed pods that mean this pod

A count is built from all pods when it is first used, and kept up to date afterwards. Pods of
equal namespace and labels match alike, so each such group is matched once.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias

import numpy as np

from kvstack.agents.scheduler.snapshot.columns import Column, Columns, IntArray
from kvstack.agents.scheduler.snapshot.pod_info import LabelsKey, PodInfo, PodMatch, Term

CarriedKind: TypeAlias = Literal["required", "preferred", "anti-required", "anti-preferred"]
Matches: TypeAlias = tuple[PodMatch, ...]

_COUNTS_MAX: Final = 512
"""The maximum number of counted selectors; the least recently used one is dropped."""
_GROUPS_MAX: Final = 50_000
"""Groups of pods whose matches are remembered."""


class PodCount:
    """The number of pods on each node that match all of some terms."""

    __slots__ = ("column", "counts_terminating", "matches")

    def __init__(
        self, column: Column[np.int64], matches: Matches, *, counts_terminating: bool
    ) -> None:
        self.column: Final = column
        self.matches: Final = matches
        self.counts_terminating: Final = counts_terminating


class Carried:
    """The number of pods on each node with a term."""

    __slots__ = ("column", "kind", "term", "total")

    def __init__(self, kind: CarriedKind, term: Term, column: Column[np.int64]) -> None:
        self.kind: Final = kind
        self.term: Final = term
        self.column: Final = column
        self.total = 0


class PodIndex:
    """Counts of the pods of a cluster."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._counts: dict[tuple[Matches, bool], PodCount] = {}
        self._counts_of: dict[tuple[LabelsKey, bool], tuple[PodCount, ...]] = {}
        self._carried: dict[tuple[CarriedKind, Term], Carried] = {}
        self._carried_matching: dict[LabelsKey, tuple[Carried, ...]] = {}
        self._namespaces: dict[str, Mapping[str, str]] = {}

    def count(
        self, matches: Matches, placed: Iterable[tuple[PodInfo, int]], *, counts_terminating: bool
    ) -> IntArray:
        """Return how many pods on each node are meant; placed: all pods with their slots."""
        key = (matches, counts_terminating)
        pod_count = self._counts.pop(key, None)
        if pod_count is None:
            if len(self._counts) >= _COUNTS_MAX:
                oldest = next(iter(self._counts))
                self._columns.drop(self._counts.pop(oldest).column)
            self._counts_of.clear()
            column = self._columns.add(np.int64, 0)
            pod_count = PodCount(column, matches, counts_terminating=counts_terminating)
            means: dict[LabelsKey, bool] = {}
            for pod, slot in placed:
                if pod.is_terminating and not counts_terminating:
                    continue
                is_meant = means.get(pod.labels_key)
                if is_meant is None:
                    is_meant = means[pod.labels_key] = self.means(matches, pod)
                if is_meant:
                    column.data[slot] += 1
        self._counts[key] = pod_count
        return pod_count.column.data

    def carried_for(self, pod: PodInfo) -> tuple[Carried, ...]:
        """Return the terms of placed pods that mean a pod."""
        carried = self._carried_matching.get(pod.labels_key)
        if carried is None:
            labels = self.namespace_labels(pod.namespace)
            carried = tuple(
                each for each in self._carried.values() if each.term.match.matches(pod, labels)
            )
            self._carried_matching[pod.labels_key] = carried
        return carried

    def means(self, matches: Matches, pod: PodInfo) -> bool:
        """Whether all matches select a pod."""
        labels = self.namespace_labels(pod.namespace)
        return all(match.matches(pod, labels) for match in matches)

    def account(self, pod: PodInfo, slot: int, by: int) -> None:
        """Account for an added (by 1) or removed (by -1) pod."""
        key = (pod.labels_key, pod.is_terminating)
        counts = self._counts_of.get(key)
        if counts is None:
            if len(self._counts_of) >= _GROUPS_MAX:
                self._counts_of.clear()
            counts = self._counts_of[key] = tuple(
                each
                for each in self._counts.values()
                if (each.counts_terminating or not pod.is_terminating)
                and self.means(each.matches, pod)
            )
        for each in counts:
            each.column.data[slot] += by
        if pod.has_terms:
            for kind, term in terms_of(pod):
                self._carry(kind, term, slot, by)

    # Namespaces.

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """Return the labels of a namespace."""
        return self._namespaces.get(namespace, {})

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set the labels of a namespace; None: it was deleted."""
        if self._namespaces.get(name) == labels:
            return
        if labels is None:
            del self._namespaces[name]
        else:
            self._namespaces[name] = labels
        self._carried_matching.clear()
        self._counts_of.clear()
        for key, count in list(self._counts.items()):
            if any(not match.is_of_names for match in count.matches):
                del self._counts[key]
                self._columns.drop(count.column)

    def _carry(self, kind: CarriedKind, term: Term, slot: int, by: int) -> None:
        carried = self._carried.get((kind, term))
        if carried is None:
            carried = Carried(kind, term, self._columns.add(np.int64, 0))
            self._carried[kind, term] = carried
            self._carried_matching.clear()
        carried.column.data[slot] += by
        carried.total += by
        if not carried.total:
            del self._carried[kind, term]
            self._columns.drop(carried.column)
            self._carried_matching.clear()


def terms_of(pod: PodInfo) -> Iterator[tuple[CarriedKind, Term]]:
    """Give the terms that a pod carries."""
    for term in pod.affinity.required:
        yield "required", term
    for term in pod.affinity.preferred:
        yield "preferred", term
    for term in pod.anti_affinity.required:
        yield "anti-required", term
    for term in pod.anti_affinity.preferred:
        yield "anti-preferred", term
