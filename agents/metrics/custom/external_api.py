"""external.metrics.k8s.io: metrics from outside of the cluster.

    /apis/external.metrics.k8s.io/v1beta1/namespaces/NAMESPACE/METRIC?labelSelector=queue=mail

Each series of the metric that the selector chooses is an item; an autoscaler adds them up. A metric
whose rule names a label of the namespace is seen by that namespace alone, any other by all.
Whether the client may read it was decided before.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from kvstack.agents.metrics.answers import WholeAnswer, accepted, answer, refusal
from kvstack.agents.metrics.custom.page_reader import PageReader
from kvstack.agents.metrics.custom.queries import quantity_of, selector_of
from kvstack.agents.metrics.custom.readings import Labels, Value
from kvstack.agents.metrics.custom.rules import Rules
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time

Query: TypeAlias = Mapping[str, Sequence[str]]

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
_LIST: Final = "ExternalMetricValueList"


class ExternalApi:
    """Serves the only version."""

    def __init__(self, rules: Rules, pages: PageReader) -> None:
        """Serve the metrics of pages."""
        self._rules = rules
        self._pages = pages

    @property
    def is_large(self) -> bool:
        """Pages may have many series."""
        return True

    def answer(self, method: str, path: str, query: Query, accept: str) -> WholeAnswer:
        """Answer an authorized request."""
        try:
            return answer(self._answer(method, path, query, accept))
        except ApiError as error:
            return refusal(error)

    def _answer(self, method: str, path: str, query: Query, accept: str) -> Object:
        parts = path.strip("/").split("/")
        if parts[:3] != ["apis", GROUP, VERSION]:
            raise status.generic(404)
        if method not in ("GET", "HEAD"):
            raise status.method_not_supported(GroupResource(GROUP, "metrics"), method.lower())
        if not parts[3:]:
            return self._resource_list()
        accepted(accept)
        match parts[3:]:
            case ["namespaces", namespace, metric]:
                return self._values(namespace, metric, query)
        raise status.generic(404)

    def _resource_list(self) -> Object:
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/{VERSION}",
            "resources": [
                {
                    "name": each,
                    "singularName": "",
                    "namespaced": True,
                    "kind": _LIST,
                    "verbs": ["get"],
                }
                for each in self._rules.external
            ],
        }

    def _values(self, namespace: str, metric: str, query: Query) -> Object:
        rule = self._rules.external.get(metric)
        if rule is None:
            text = f"the server could not find the external metric {metric}"
            raise status.failure(404, "NotFound", text, {})
        found = self._pages.series(rule, namespace, selector_of(query, "labelSelector"))
        return {
            "kind": _LIST,
            "apiVersion": f"{GROUP}/{VERSION}",
            "metadata": {},
            "items": [_item(metric, labels, value) for labels, value in found],
        }


def _item(metric: str, labels: Labels, value: Value) -> Object:
    item: Object = {
        "metricName": metric,
        "metricLabels": labels,
        "timestamp": format_time(value.time_s),
        "value": quantity_of(value.value),
    }
    if value.window_s:
        item["window"] = max(round(value.window_s), 1)
    return item
