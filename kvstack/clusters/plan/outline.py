"""What came of a change as a tree: what was changed, what followed from it, by whom and when.

    ~ deployment shop/web             image 1.4 → 1.5              you
      + replicaset shop/web-7c9                                    deployment-controller, +0 s
        + 6 pods in shop              the last after 25 s          replicaset-controller, +0 s
        ! pod shop/web-7c9-…          stays pending: 0/3 nodes …   scheduler

An object is below its owner, and below the Namespace or definition with which it went. Pods are
counted; those that are stuck are named. What only tells how others are (endpoints, revisions,
counts in a status) is counted alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from kvstack.apimachinery.objects.core.pod_status import is_ready
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.comparison.comparison import Change, Comparison, Difference
from kvstack.clusters.comparison.summaries import summary
from kvstack.clusters.plan.objects import NAMESPACES, PODS, Objects
from kvstack.clusters.plan.stuck import Finding
from kvstack.clusters.plan.writes import YOU, Write, Writes, controller_uid

STUCK: Final = "!"
UNFORESEEN: Final = "?"
TELLING: Final = frozenset(
    (
        GroupResource("", "endpoints"),
        GroupResource("apps", "controllerrevisions"),
        GroupResource("discovery.k8s.io", "endpointslices"),
        GroupResource("networking.k8s.io", "ipaddresses"),
    )
)
"""Resources whose objects only tell of others."""
_DEFINITIONS: Final = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
_OF_DEPLOYMENTS: Final = "deployment.kubernetes.io/"
"""Annotations by which a Deployment keeps account of its ReplicaSets."""
_SAME_MAX: Final = 3
"""Stuck pods with the same reason that are named."""
_DELETIONS: Final = frozenset(("delete", "deletecollection"))
_FOR: Final = {
    Change.ADDED: frozenset(("create", "patch", "update")),
    Change.CHANGED: frozenset(("patch", "update", "delete", "create")),
    Change.REPLACED: frozenset(("create", "patch", "update")),
    Change.REMOVED: _DELETIONS,
}


@dataclass(slots=True)
class Entry:
    """A line of the outline, and what is below it."""

    subject: str
    """`deployment shop/web`, or `6 pods`."""
    text: str = ""
    who: str = ""
    at_s: float | None = None
    """After how much time; None: it is not known, or goes without saying."""
    difference: Difference | None = None
    mark: str = ""
    """Of what is no difference of an object."""
    below: "list[Entry]" = field(default_factory=list)


@dataclass(slots=True)
class Outline:
    """All of it."""

    entries: list[Entry] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """`by you`, `changed`, `made`, `deleted`, `stuck`, `not foreseen`."""
    derived: int = 0
    """Changed objects that are derived from others: endpoints, revisions, statuses."""


def outline(
    found: Comparison,
    before: Objects,
    after: Objects,
    writes: Writes,
    stuck: Sequence[Finding],
    unforeseen: Sequence[Finding],
) -> Outline:
    """Return the tree."""
    return _Outlining(before, after, writes).build(found, stuck, unforeseen)


class _Outlining:
    """Makes one outline."""

    def __init__(self, before: Objects, after: Objects, writes: Writes) -> None:
        self._before: Final = before
        self._after: Final = after
        self._authors: Final = _Authors(writes.done)
        self._moments: Final = writes.pods
        self._outline: Final = Outline()
        self._by_uid: Final[dict[str, Entry]] = {}
        self._by_path: Final[dict[tuple[GroupResource, str], Entry]] = {}
        self._parents: Final[list[tuple[Entry, Difference]]] = []

    def build(
        self, found: Comparison, stuck: Sequence[Finding], unforeseen: Sequence[Finding]
    ) -> Outline:
        pods = [each for each in found.differences if each.resource == PODS]
        for each in found.differences:
            if each.resource != PODS or self._authors.is_yours(each):
                self._add(each)
        for entry, difference in self._parents:
            self._insert(entry, difference)
        self._count_pods([each for each in pods if not self._authors.is_yours(each)])
        self._tell(STUCK, stuck)
        self._tell(UNFORESEEN, unforeseen)
        counts = self._outline.counts
        counts["stuck"], counts["not foreseen"] = len(stuck), len(unforeseen)
        self._outline.entries.sort(key=_order)
        return self._outline

    def _add(self, difference: Difference) -> None:
        is_yours = self._authors.is_yours(difference)
        if not is_yours and (difference.resource in TELLING or _is_status_alone(difference)):
            self._outline.derived += 1
            return
        shown = _without_status(difference)
        write = self._authors.of(difference)
        entry = Entry(
            f"{difference.kind.lower() or difference.resource} {difference.path}",
            summary(shown),
            "" if write is None else write.who,
            None if write is None or write.who == YOU else write.at_s,
            difference,
        )
        self._outline.counts[_counted_as(difference, is_yours=is_yours)] += 1
        self._by_path[difference.resource, difference.path] = entry
        for obj in (difference.before, difference.after):
            if obj is not None and (uid := obj.get("metadata", {}).get("uid")):
                self._by_uid[uid] = entry
        self._parents.append((entry, difference))

    def _insert(self, entry: Entry, difference: Difference) -> None:
        parent = self._parent(difference)
        below = self._outline.entries if parent is None or parent is entry else parent.below
        below.append(entry)

    def _parent(self, difference: Difference) -> Entry | None:
        if self._authors.is_yours(difference):
            return None
        obj = difference.after or difference.before or {}
        owner = self._by_uid.get(controller_uid(obj))
        if owner is not None or difference.change is not Change.REMOVED:
            return owner
        definition = self._by_path.get((_DEFINITIONS, str(difference.resource)))
        if _is_removal(definition):
            return definition
        namespace = self._by_path.get((NAMESPACES, difference.namespace))
        return namespace if _is_removal(namespace) else None

    # Pods.

    def _count_pods(self, pods: Iterable[Difference]) -> None:
        by_owner: dict[tuple[str, Change, str], list[Difference]] = {}
        for each in pods:
            if each.change is Change.CHANGED:
                self._outline.derived += 1
                continue
            owner = controller_uid(each.after or each.before or {})
            write = self._authors.of(each)
            by_owner.setdefault(
                (owner, each.change, "" if write is None else write.who), []
            ).append(each)
        for (owner, change, who), group in by_owner.items():
            entry = self._pods_entry(change, who, group)
            parent = self._by_uid.get(owner) or self._parent(group[0])
            (self._outline.entries if parent is None else parent.below).append(entry)
            self._outline.counts[_counted_as(group[0], is_yours=who == YOU)] += len(group)
        for root in self._outline.entries:
            if text := self._availability(root):
                root.text = f"{root.text}, {text}" if root.text else text

    def _pods_entry(self, change: Change, who: str, group: Sequence[Difference]) -> Entry:
        times = [write.at_s for each in group if (write := self._authors.of(each)) is not None]
        last = f"the last after {max(times):.0f} s" if times and max(times) >= 1 else ""
        at_s = min(times, default=None)
        if len(group) == 1:
            difference = group[0]
            return Entry(f"pod {difference.path}", "", who, at_s, difference)
        namespaces = sorted({each.namespace for each in group})
        where = f" in {namespaces[0]}" if len(namespaces) == 1 else ""
        mark = {Change.ADDED: "+", Change.REMOVED: "-"}.get(change, "±")
        return Entry(f"{len(group)} pods{where}", last, who, at_s, None, mark)

    def _availability(self, root: Entry) -> str:
        """Return how many pods of a workload were ready at least, if some went or came."""
        if root.difference is None:
            return ""
        uids = {
            each.get("metadata", {}).get("uid")
            for each in (root.difference.before, root.difference.after)
            if each is not None
        }
        ready = {
            uid
            for uid, known in self._before.by_uid.items()
            if known.resource == PODS and is_ready(known.obj) and self._root_of(known.obj) in uids
        }
        had = len(ready)
        fewest, is_touched = had, False
        for moment in self._moments:
            if self._root_of_uid(moment.owner) not in uids:
                continue
            is_touched = True
            (ready.add if moment.is_ready else ready.discard)(moment.uid)
            fewest = min(fewest, len(ready))
        if not is_touched or fewest == had:
            return ""
        return f"at times {fewest} of {had} pods ready" if fewest else "at times no pod ready"

    def _root_of(self, obj: Object) -> str:
        return self._root_of_uid(controller_uid(obj))

    def _root_of_uid(self, uid: str) -> str:
        for _ in range(8):  # owners of owners; cycles end
            known = self._after.by_uid.get(uid) or self._before.by_uid.get(uid)
            above = "" if known is None else controller_uid(known.obj)
            if not above:
                return uid
            uid = above
        return uid

    # Findings.

    def _tell(self, mark: str, findings: Sequence[Finding]) -> None:
        same: Counter[tuple[int, str]] = Counter()
        for each in findings:
            entry = self._by_path.get((each.resource, each.path)) if each.path else None
            if entry is None and each.path:
                known = self._after.get(each.resource, each.path)
                entry = None if known is None else self._by_uid.get(controller_uid(known.obj))
            below = self._outline.entries if entry is None else entry.below
            same[id(below), each.text] += 1
            if same[id(below), each.text] <= _SAME_MAX:
                below.append(Entry(each.subject, each.text, each.who, None, None, mark))
        for (where, text), number in same.items():
            if number > _SAME_MAX:
                for below in self._all_below():
                    if id(below) == where:
                        subject = f"{number - _SAME_MAX} more"
                        below.append(Entry(subject, text, "", None, None, mark))

    def _all_below(self) -> Iterator[list[Entry]]:
        yield self._outline.entries
        for each in self._by_path.values():
            yield each.below


class _Authors:
    """Who changed which object first."""

    def __init__(self, writes: Sequence[Write]) -> None:
        self._of: Final[dict[tuple[GroupResource, str], list[Write]]] = {}
        self._of_all: Final[dict[tuple[GroupResource, str], Write]] = {}
        for each in writes:
            if each.name:
                self._of.setdefault((each.resource, each.path), []).append(each)
            elif each.verb in _DELETIONS:
                self._of_all.setdefault((each.resource, each.namespace), each)

    def of(self, difference: Difference) -> Write | None:
        """Return the write that began a difference: yours, or the first that may have."""
        verbs = _FOR[difference.change]
        is_deep = difference.change is Change.CHANGED and not _is_status_alone(difference)
        found = [
            each
            for each in self._of.get((difference.resource, difference.path), ())
            if (each.verb in verbs and not (is_deep and each.subresource == "status"))
            or (each.subresource == "eviction" and difference.change is not Change.ADDED)
        ]
        if difference.change is Change.ADDED:
            found = [each for each in found if not each.subresource]
        if not found and difference.change is Change.REMOVED:
            return self._of_all.get((difference.resource, difference.namespace))
        yours = (each for each in found if each.who == YOU)
        return next(yours, found[0] if found else None)

    def is_yours(self, difference: Difference) -> bool:
        """Whether you changed an object yourself."""
        write = self.of(difference)
        return write is not None and write.who == YOU


def _is_removal(entry: Entry | None) -> bool:
    difference = None if entry is None else entry.difference
    return difference is not None and difference.change is Change.REMOVED


def _is_status_alone(difference: Difference) -> bool:
    return difference.change is Change.CHANGED and not any(
        _is_deep(each.path) for each in difference.fields
    )


def _is_deep(path: tuple[str, ...]) -> bool:
    if path[:2] == ("metadata", "annotations") and len(path) > 2:
        return not path[2].startswith(_OF_DEPLOYMENTS)
    return path[:1] != ("status",)


def _without_status(difference: Difference) -> Difference:
    fields = tuple(each for each in difference.fields if _is_deep(each.path))
    return replace(difference, fields=fields or difference.fields)


def _counted_as(difference: Difference, *, is_yours: bool) -> str:
    if is_yours:
        return "by you"
    words = {Change.ADDED: "made", Change.REMOVED: "deleted"}
    return words.get(difference.change, "changed")


def _order(entry: Entry) -> tuple[int, float, str]:
    """Yours first, then by time; what is no difference last."""
    if entry.who == YOU:
        return 0, 0.0, entry.subject
    if entry.mark in (STUCK, UNFORESEEN):
        return 2, 0.0, entry.mark
    return 1, entry.at_s or 0.0, entry.subject
