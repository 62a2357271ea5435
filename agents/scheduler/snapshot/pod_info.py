"""A pod as the scheduler uses it: the relevant fields, parsed once.

    info = PodInfo(pod)
    info.requests          {"cpu": 500}
    info.labels_key        pods with equal ones match the same selectors
    info.affinity.required the terms of podAffinity that must hold

A term's namespaces are those it names, or the pod's own where it names none.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import orjson

from kvstack.agents.scheduler.snapshot import pod_resources
from kvstack.apimachinery.objects import labels as selectors
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector, SelectorError
from kvstack.apimachinery.objects.text.json_text import exact

if TYPE_CHECKING:
    from kvstack.agents.scheduler.snapshot.pod_resources import Amounts

LabelsKey: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
Port: TypeAlias = tuple[str, int, str]
"""Protocol, port, address ("" or 0.0.0.0: all)."""

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class PodMatch(NamedTuple):
    """The pods that a term selects."""

    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    @property
    def is_of_names(self) -> bool:
        """Whether labels of namespaces do not matter."""
        return self.namespace_selector is selectors.NOTHING

    def matches(self, pod: "PodInfo", namespace_labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod; namespace_labels: of the pod's namespace."""
        return (
            pod.namespace in self.namespaces or self.namespace_selector.matches(namespace_labels)
        ) and self.selector.matches(pod.labels)


class Term(NamedTuple):
    """A term of pod (anti)affinity."""

    match: PodMatch
    key: str
    """Nodes of equal value of this label are one domain."""
    weight: int = 0


class Terms(NamedTuple):
    """The terms of podAffinity or podAntiAffinity."""

    required: tuple[Term, ...] = ()
    preferred: tuple[Term, ...] = ()


NO_TERMS: Final = Terms()


class PodInfo:
    """A pod, and what of it decides; never changes."""

    __slots__ = (
        "affinity",
        "anti_affinity",
        "has_terms",
        "is_terminating",
        "key",
        "labels",
        "labels_key",
        "namespace",
        "node_name",
        "obj",
        "ports",
        "priority",
        "requests",
        "scored_requests",
        "spec",
        "uid",
    )

    def __init__(self, obj: Object, *, placed: bool = False) -> None:
        """Parse a pod; placed: it is on a node, and its allocated resources count."""
        meta, spec = obj["metadata"], obj["spec"]
        self.obj: Final = obj
        self.spec: Final[Object] = spec
        self.namespace: Final[str] = meta["namespace"]
        self.key: Final = f"{self.namespace}/{meta['name']}"
        self.uid: Final[str] = meta.get("uid") or self.key
        self.labels: Final[dict[str, str]] = meta.get("labels") or {}
        self.labels_key: Final = _labels_key(self.namespace, tuple(self.labels.items()))
        self.node_name: Final[str] = spec.get("nodeName") or ""
        self.priority: Final[int] = spec.get("priority") or 0
        self.is_terminating: Final = "deletionTimestamp" in meta
        self.requests: Final = _shared(pod_resources.requests_of(obj, placed=placed))
        # Upstream's scores forget the own resources of a pod that is still to be placed.
        self.scored_requests: Final = _shared(
            pod_resources.requests_of(obj, defaulted=True, pod_level=placed, placed=placed)
        )
        self.ports: Final[tuple[Port, ...]] = _ports(spec)
        affinity = spec.get("affinity")
        self.affinity: Terms = NO_TERMS
        self.anti_affinity: Terms = NO_TERMS
        self.has_terms: Final = bool(
            affinity and (affinity.get("podAffinity") or affinity.get("podAntiAffinity"))
        )
        if affinity:
            self.affinity = _terms(affinity.get("podAffinity"), self.namespace)
            self.anti_affinity = _terms(affinity.get("podAntiAffinity"), self.namespace)

    @property
    def name(self) -> str:
        """Its name."""
        return self.obj["metadata"]["name"]  # type: ignore[no-any-return]


def _shared(amounts: "Amounts") -> "Amounts":
    """Return equal amounts that other pods have, too, if there are any."""
    return _amounts(tuple(amounts.items()))


@lru_cache(maxsize=1024)
def _amounts(items: tuple[tuple[str, int], ...]) -> "Amounts":
    return dict(items)


@lru_cache(maxsize=1024)
def _labels_key(namespace: str, items: tuple[tuple[str, str], ...]) -> LabelsKey:
    return namespace, frozenset(items)


def selector_of(obj: Object | None) -> Selector:
    """Return the selector of a LabelSelector; one that is invalid matches nothing, as upstream."""
    if obj is None:
        return selectors.NOTHING
    return _selector(exact(orjson.dumps(obj, option=orjson.OPT_SORT_KEYS)))


@lru_cache(maxsize=4096)
def _selector(text: bytes) -> Selector:
    try:
        return selectors.from_object(orjson.loads(text))
    except SelectorError:
        return selectors.NOTHING


def _ports(spec: Object) -> tuple[Port, ...]:
    found: list[Port] = []
    for container in spec["containers"]:
        _add_ports(found, container)
    for container in spec.get("initContainers") or ():
        if is_sidecar(container):
            _add_ports(found, container)
    return tuple(found)


def _add_ports(found: list[Port], container: Object) -> None:
    for port in container.get("ports") or ():
        number = port.get("hostPort")
        if number:
            found.append((port.get("protocol") or "TCP", number, port.get("hostIP") or ""))


def _terms(affinity: Object | None, namespace: str) -> Terms:
    if not affinity:
        return NO_TERMS
    required: Sequence[Object] = affinity.get(_REQUIRED) or ()
    preferred: Sequence[Object] = affinity.get(_PREFERRED) or ()
    return Terms(
        tuple(_term(each, namespace) for each in required),
        tuple(_term(each["podAffinityTerm"], namespace, each["weight"]) for each in preferred),
    )


def _term(term: Object, namespace: str, weight: int = 0) -> Term:
    names = term.get("namespaces")
    by_labels = term.get("namespaceSelector")
    if not names and by_labels is None:
        names = (namespace,)
    match = PodMatch(
        frozenset(names or ()), selector_of(by_labels), selector_of(term.get("labelSelector"))
    )
    return Term(match, term["topologyKey"], weight)
