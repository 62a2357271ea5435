"""custom.metrics.k8s.io: of pods, of Services and of Ingresses.

    /apis/custom.metrics.k8s.io/v1beta2/namespaces/NAMESPACE/pods/NAME/METRIC
    …/pods/*/METRIC?labelSelector=app=web&metricLabelSelector=code=200
    …/services/NAME/METRIC, …/ingresses.networking.k8s.io/NAME/METRIC

v1beta1 names some members otherwise. Objects of which the metric is not known are left out. Whether
the client may read it was decided before.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from kvstack.agents.client import built_in
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.metrics.answers import OBJECTS_MANY, WholeAnswer, accepted, answer, refusal
from kvstack.agents.metrics.custom.page_reader import PageReader
from kvstack.agents.metrics.custom.queries import quantity_of, selector_of
from kvstack.agents.metrics.custom.readings import Value
from kvstack.agents.metrics.custom.rules import OBJECTS, Rules
from kvstack.agents.metrics.custom.scraper import Scraper
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time

Query: TypeAlias = Mapping[str, Sequence[str]]

GROUP: Final = "custom.metrics.k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
PODS: Final = "pods"
_KIND: Final = "MetricValueList"


class CustomApi:
    """Serves both versions."""

    def __init__(
        self,
        rules: Rules,
        scraper: Scraper,
        pages: PageReader,
        stores: Mapping[str, ObjectStore],
    ) -> None:
        """Serve the metrics of objects; stores: existing objects, by resource."""
        self._rules = rules
        self._scraper = scraper
        self._pages = pages
        self._stores = stores

    @property
    def is_large(self) -> bool:
        """Whether an answer may take long; then it may be made in a thread."""
        return bool(self._rules.objects) or len(self._stores[PODS]) > OBJECTS_MANY

    def answer(self, method: str, path: str, query: Query, accept: str) -> WholeAnswer:
        """Answer an authorized request."""
        try:
            return answer(self._answer(method, path, query, accept))
        except ApiError as error:
            return refusal(error)

    def _answer(self, method: str, path: str, query: Query, accept: str) -> Object:
        parts = path.strip("/").split("/")
        if parts[:2] != ["apis", GROUP] or parts[2:3] not in ([each] for each in VERSIONS):
            raise status.generic(404)
        if method not in ("GET", "HEAD"):
            raise status.method_not_supported(GroupResource(GROUP, "pods"), method.lower())
        version, rest = parts[2], parts[3:]
        if not rest:
            return self._resource_list(version)
        accepted(accept)
        match rest:
            case ["namespaces", namespace, resource, name, metric] if resource in self._stores:
                return self._values(version, resource, (namespace, name, metric), query)
        raise status.generic(404)

    def _resource_list(self, version: str) -> Object:
        names = [f"{PODS}/{each}" for each in self._rules.metrics]
        names += [f"{resource}/{metric}" for resource, metric in self._rules.objects]
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{GROUP}/{version}",
            "resources": [
                {
                    "name": each,
                    "singularName": "",
                    "namespaced": True,
                    "kind": _KIND,
                    "verbs": ["get"],
                }
                for each in names
            ],
        }

    def _values(
        self, version: str, resource: str, scope: tuple[str, str, str], query: Query
    ) -> Object:
        namespace, name, metric = scope
        of_pods = resource == PODS
        rules = self._rules
        rule = rules.metrics.get(metric) if of_pods else rules.objects.get((resource, metric))
        if rule is None:
            text = f"the server could not find the metric {metric} for {resource}"
            raise status.failure(404, "NotFound", text, {})
        of_samples = selector_of(query, "metricLabelSelector")
        find: Callable[[str], Value | None] = (
            partial(self._scraper.value, namespace, rule=rule, selector=of_samples)
            if of_pods
            else self._pages.values(rule, namespace, of_samples).get
        )
        chosen = self._select(resource, namespace, name, selector_of(query, "labelSelector"))
        items = [
            _item(version, resource, each, metric, found)
            for each in chosen
            if (found := find(each["metadata"]["name"])) is not None
        ]
        if name != "*" and not items:
            text = f"the server could not find the metric {metric} for {resource} {name}"
            raise status.failure(404, "NotFound", text, {})
        return {
            "kind": _KIND,
            "apiVersion": f"{GROUP}/{version}",
            "metadata": {},
            "items": items,
        }

    def _select(
        self, resource: str, namespace: str, name: str, selector: Selector
    ) -> Sequence[Object]:
        """Return the requested objects."""
        store = self._stores[resource]
        if name != "*":
            one = store.get(f"{namespace}/{name}")
            if one is None:
                plural, _, group = resource.partition(".")
                raise status.not_found(GroupResource(group, plural), name)
            return [one]
        found = [
            each
            for each in store.in_namespace(namespace)
            if selector.matches(each["metadata"].get("labels") or {})
        ]
        return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def _item(version: str, resource: str, of: Object, metric: str, value: Value) -> Object:
    meta = of["metadata"]
    kind = built_in.PODS if resource == PODS else OBJECTS[resource].resource
    item: Object = {
        "describedObject": {
            "kind": kind.kind,
            "namespace": meta["namespace"],
            "name": meta["name"],
            "apiVersion": f"{kind.group}/{kind.version}",
        },
        "timestamp": format_time(value.time_s),
        "value": quantity_of(value.value),
    }
    window = {} if not value.window_s else {"window": max(round(value.window_s), 1)}
    if version == "v1beta1":
        return {**item, "metricName": metric, **window}
    if window:
        item["windowSeconds"] = window["window"]
    return {**item, "metric": {"name": metric}}
