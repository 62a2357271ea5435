"""metrics.kvstack.io: the usage of a node or pod in the last quarter of an hour, for graphs.

    GET /apis/metrics.kvstack.io/v1/nodes/NAME
    GET /apis/metrics.kvstack.io/v1/namespaces/NAMESPACE/pods/NAME

    {"kind": "PodHistory", "metadata": {…}, "points": [
        {"timestamp": "2026-11-24T10:00:00Z", "usage": {"cpu": "250m", "memory": "96Mi"}}, …]}

Oldest first; steps in which nothing was measured are left out. Whether the client may read it was
decided before.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.answers import WholeAnswer, accepted, answer, refusal
from kvstack.agents.metrics.documents import USAGE_SCHEMA, MetricsGroup, ServedResource
from kvstack.agents.metrics.history import History
from kvstack.agents.metrics.resource_api import usage_text
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time

GROUP: Final = "metrics.kvstack.io"
_POINTS: Final = {
    "points": {"type": "array", "items": {"type": "object", "properties": USAGE_SCHEMA}}
}
_NODES: Final = ServedResource("nodes", "NodeHistory", False, _POINTS, has_list=False)
_PODS: Final = ServedResource("pods", "PodHistory", True, _POINTS, has_list=False)
HISTORY_GROUP: Final = MetricsGroup(GROUP, "v1", (_NODES, _PODS))


class HistoryApi:
    """Serves the history."""

    def __init__(self, history: History, nodes: ObjectStore, pods: ObjectStore) -> None:
        """Serve the history of existing nodes and pods."""
        self._history = history
        self._nodes = nodes
        self._pods = pods

    @property
    def is_large(self) -> bool:
        """Return False: an answer is about one object."""
        return False

    def answer(
        self, method: str, path: str, _query: Mapping[str, Sequence[str]], accept: str
    ) -> WholeAnswer:
        """Answer an authorized request."""
        try:
            return answer(self._answer(method, path, accept))
        except ApiError as error:
            return refusal(error)

    def _answer(self, method: str, path: str, accept: str) -> Object:
        parts = path.strip("/").split("/")
        if parts[:3] != ["apis", GROUP, HISTORY_GROUP.version]:
            raise status.generic(404)
        if method not in ("GET", "HEAD"):
            raise status.method_not_supported(GroupResource(GROUP, "pods"), method.lower())
        accepted(accept)
        match parts[3:]:
            case []:
                return HISTORY_GROUP.resource_list()
            case ["nodes", name]:
                return self._of(_NODES, self._nodes.get(name), name)
            case ["namespaces", namespace, "pods", name]:
                key = f"{namespace}/{name}"
                return self._of(_PODS, self._pods.get(key), key)
        raise status.generic(404)

    def _of(self, served: ServedResource, obj: Object | None, key: str) -> Object:
        name = key.rpartition("/")[2]
        if obj is None:
            raise status.not_found(GroupResource("", served.name), name)
        meta = obj["metadata"]
        shown = {each: meta[each] for each in ("name", "namespace", "uid") if each in meta}
        return {
            "kind": served.kind,
            "apiVersion": HISTORY_GROUP.api_version,
            "metadata": shown,
            "points": [
                {
                    "timestamp": format_time(each.time_s),
                    "usage": usage_text(round(each.cpu_cores * 1e9), round(each.memory_bytes)),
                }
                for each in self._history.of(key)
            ],
        }
