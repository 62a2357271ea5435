"""metrics.k8s.io: the current usage of nodes and pods.

    api = ResourceApi(points, nodes, pods, clock)
    api.answer("GET", "/apis/metrics.k8s.io/v1/namespaces/default/pods", {}, "application/json")

    /apis/metrics.k8s.io/VERSION[/openapi]         the resources
    …/nodes[/NAME]                                 NodeMetrics
    …/pods, …/namespaces/NAMESPACE/pods[/NAME]     PodMetrics

Both versions have the same objects. Labels are those of the node or pod, and selectors choose by
them. Objects without measurements are left out of lists; for a pod only those of its own node
count, even if others report a pod of its name. Requests were authorized before.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.answers import (
    OBJECTS_MANY,
    AcceptedType,
    WholeAnswer,
    accepted,
    answer,
    refusal,
)
from kvstack.agents.metrics.documents import NODES, PODS, MetricsGroup, ServedResource
from kvstack.agents.metrics.points import PodRate, Points, Rate
from kvstack.apimachinery.objects import durations, fields, labels, quantity, status
from kvstack.apimachinery.objects.fields import FieldSelectorError
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import SelectorError
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.component.clock import Clock

Query: TypeAlias = Mapping[str, Sequence[str]]

GROUP: Final = "metrics.k8s.io"
GROUPS: Final = tuple(MetricsGroup(GROUP, each, (NODES, PODS)) for each in ("v1", "v1beta1"))
_BY_VERSION: Final = {each.version: each for each in GROUPS}
_NODE_METRICS: Final = GroupResource(GROUP, "nodemetrics")
_POD_METRICS: Final = GroupResource(GROUP, "podmetrics")
_RESOURCES: Final = frozenset(("nodes", "pods"))
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_FIELDS: Final = frozenset(("metadata.name", "metadata.namespace"))
_BINARY_STEP: Final = 1024
_THOUSAND: Final = 1000
_CORES_MANY: Final = 10**12
"""Nanocores of a thousand cores."""
_NS_PER_MS: Final = 1_000_000


class ResourceApi:
    """Serves both versions."""

    def __init__(self, points: Points, nodes: ObjectStore, pods: ObjectStore, clock: Clock) -> None:
        """points: what was measured, of the nodes and pods that there are."""
        self._points = points
        self._nodes = nodes
        self._pods = pods
        self._clock = clock

    @property
    def is_large(self) -> bool:
        """Whether an answer may take long; then it may be made in a thread."""
        return len(self._pods) + len(self._nodes) > OBJECTS_MANY

    def answer(self, method: str, path: str, query: Query, accept: str) -> WholeAnswer:
        """Answer an authorized request."""
        try:
            return self._answer(method, path, query, accept)
        except ApiError as error:
            return refusal(error)

    def _answer(self, method: str, path: str, query: Query, accept: str) -> WholeAnswer:
        parts = path.strip("/").split("/")
        group = _BY_VERSION.get(parts[2]) if parts[:2] == ["apis", GROUP] and parts[2:] else None
        if group is None:
            raise status.generic(404)
        rest = parts[3:]
        resource = GroupResource(GROUP, next((each for each in rest if each in _RESOURCES), ""))
        if method not in ("GET", "HEAD"):
            raise status.method_not_supported(resource, _VERBS.get(method, method.lower()))
        if not rest:
            return answer(group.resource_list())
        accepted_type = accepted(accept, (query.get("includeObject") or [""])[0])
        if "true" in query.get("watch", ()):
            raise status.method_not_supported(resource, "watch")
        match rest:
            case ["nodes"]:
                found = self._list(self._nodes, self._node, query)
                return _many(group, NODES, found, accepted_type)
            case ["nodes", name]:
                return _one(group, NODES, self._get_node(name), accepted_type)
            case ["pods"]:
                return _many(group, PODS, self._list(self._pods, self._pod, query), accepted_type)
            case ["namespaces", namespace, "pods"]:
                pods = self._pods.in_namespace(namespace)
                return _many(group, PODS, self._list(pods, self._pod, query), accepted_type)
            case ["namespaces", namespace, "pods", name]:
                return _one(group, PODS, self._get_pod(namespace, name), accepted_type)
        raise status.generic(404)

    # Objects, without apiVersion and kind.

    def _list(
        self, objects: Iterable[Object], measured: Callable[[Object], Object | None], query: Query
    ) -> list[Object]:
        """Return what is measured of those that are selected, in the order of their names."""
        by_labels, by_fields = _selectors(query)
        items: list[Object] = []
        for each in list(objects):  # in a thread, while others come and go
            meta = each["metadata"]
            if not by_labels.matches(meta.get("labels") or {}):
                continue
            place = {"metadata.name": meta["name"]}
            place["metadata.namespace"] = meta.get("namespace", "")
            if by_fields.matches(place) and (shown := measured(each)) is not None:
                items.append(shown)
        items.sort(key=_namespaced_name)
        return items

    def _get_node(self, name: str) -> Object:
        node = self._nodes.get(name)
        if node is None:
            raise status.not_found(GroupResource("", "nodes"), name)
        found = self._node(node)
        if found is None:
            raise status.not_found(_NODE_METRICS, name)
        return found

    def _get_pod(self, namespace: str, name: str) -> Object:
        pod = self._pods.get(f"{namespace}/{name}")
        if pod is None:
            raise status.not_found(GroupResource("", "pods"), name)
        found = self._pod(pod)
        if found is None:
            raise status.not_found(_POD_METRICS, f"{namespace}/{name}")
        return found

    def _node(self, node: Object) -> Object | None:
        rate = self._points.node(node["metadata"]["name"])
        if rate is None:
            return None
        return {**self._head(node, rate), "usage": usage_text(rate.cpu_nano, rate.memory_bytes)}

    def _pod(self, pod: Object) -> Object | None:
        meta = pod["metadata"]
        node = pod["spec"].get("nodeName", "")
        rate = self._points.pod(node, meta["namespace"], meta["name"])
        if rate is None:
            return None
        containers = [
            {"name": name, "usage": usage_text(each.cpu_nano, each.memory_bytes)}
            for name, each in rate.containers
        ]
        return {**self._head(pod, rate), "containers": containers}

    def _head(self, obj: Object, rate: Rate | PodRate) -> Object:
        meta = obj["metadata"]
        metadata: Object = {"name": meta["name"]}
        if meta.get("namespace"):
            metadata["namespace"] = meta["namespace"]
        metadata["creationTimestamp"] = format_time(self._clock.now_s())
        if meta.get("labels"):
            metadata["labels"] = meta["labels"]
        return {
            "metadata": metadata,
            "timestamp": format_time(rate.time_ms / 1000),
            "window": durations.text(rate.window_ms * _NS_PER_MS),
        }


def usage_text(cpu_nano: int, memory_bytes: int) -> dict[str, str]:
    """Return amounts as quantities, in canonical form."""
    return {"cpu": _cpu_text(cpu_nano), "memory": _memory_text(memory_bytes)}


def _cpu_text(nano: int) -> str:
    if not 0 < nano < _CORES_MANY:  # what is usual need not be parsed
        return quantity.canonical(f"{nano}n")
    for suffix in ("n", "u", "m"):
        if nano % _THOUSAND:
            return f"{nano}{suffix}"
        nano //= _THOUSAND
    return str(nano)


def _memory_text(size: int) -> str:
    if size <= 0 or size % _BINARY_STEP:
        return quantity.canonical(str(size))
    suffixes = iter(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))
    suffix = ""
    while size % _BINARY_STEP == 0 and (larger := next(suffixes, "")):
        size, suffix = size // _BINARY_STEP, larger
    return f"{size}{suffix}"


def _namespaced_name(obj: Object) -> tuple[str, str]:
    meta = obj["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _selectors(query: Query) -> tuple[labels.Selector, fields.FieldSelector]:
    try:
        by_labels = labels.parse((query.get("labelSelector") or [""])[0])
        by_fields = fields.parse((query.get("fieldSelector") or [""])[0])
    except (SelectorError, FieldSelectorError) as error:
        raise status.bad_request(str(error)) from None
    for each in by_fields.requirements:
        if each.field not in _FIELDS:
            raise status.bad_request(f"field label not supported: {each.field}")
    return by_labels, by_fields


def _one(
    group: MetricsGroup, served: ServedResource, found: Object, accepted_type: AcceptedType
) -> WholeAnswer:
    obj = {"kind": served.kind, "apiVersion": group.api_version, **found}
    return answer(_table(served, [obj], accepted_type) if accepted_type.table_version else obj)


def _many(
    group: MetricsGroup,
    served: ServedResource,
    items: Sequence[Object],
    accepted_type: AcceptedType,
) -> WholeAnswer:
    if accepted_type.table_version:
        kinds = {"kind": served.kind, "apiVersion": group.api_version}
        return answer(_table(served, [{**kinds, **each} for each in items], accepted_type))
    kind = f"{served.kind}List"
    return answer(
        {"kind": kind, "apiVersion": group.api_version, "metadata": {}, "items": list(items)}
    )


_COLUMNS: Final = (
    ("Name", "name"),
    ("cpu", "quantity"),
    ("memory", "quantity"),
    ("Window", "duration"),
)


def _table(
    served: ServedResource, objects: Sequence[Object], accepted_type: AcceptedType
) -> Object:
    rows = []
    for obj in objects:
        usage = obj["usage"] if served is NODES else _summed(obj["containers"])
        cells = [obj["metadata"]["name"], usage["cpu"], usage["memory"], obj["window"]]
        row: Object = {"cells": cells}
        if accepted_type.include == "Object":
            row["object"] = obj
        elif accepted_type.include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{accepted_type.table_version}",
                "metadata": obj["metadata"],
            }
        rows.append(row)
    columns = [
        {"name": name, "type": "string", "format": form, "description": "", "priority": 0}
        for name, form in _COLUMNS
    ]
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{accepted_type.table_version}",
        "metadata": {},
        "columnDefinitions": columns,
        "rows": rows,
    }


def _summed(containers: Sequence[Object]) -> dict[str, str]:
    sums = {}
    for name in ("cpu", "memory"):
        amounts = [quantity.parse(each["usage"][name]) for each in containers]
        total = amounts[0]
        for each in amounts[1:]:
            total += each
        sums[name] = str(total)
    return sums
