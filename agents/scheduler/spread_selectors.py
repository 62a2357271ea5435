"""The pods that a spread constraint counts: those it selects, or those of services and owner."""

from functools import lru_cache

from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, selector_of
from kvstack.apimachinery.objects import labels as selectors
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import EQUALS, Requirement, Selector


def own_selector(each: Object, pod: PodInfo) -> Selector:
    """Return which pods a constraint of a pod counts."""
    selector = selector_of(each.get("labelSelector"))
    keys = [key for key in each.get("matchLabelKeys") or () if key in pod.labels]
    if not keys or selector is selectors.NOTHING:
        return selector
    merged = [Requirement(key, selectors.IN, (pod.labels[key],)) for key in keys]
    return Selector((*selector.requirements, *merged))


def default_selector(cluster: Cluster, pod: PodInfo) -> Selector | None:
    """Return the selector where a pod has no constraints; None: it has no services and owner."""
    labels: dict[str, str] = {}
    for service in cluster.services.get(pod.namespace, {}).values():
        wanted = service["spec"].get("selector") or {}
        if wanted and wanted.items() <= pod.labels.items():
            labels.update(wanted)
    requirements = [Requirement(key, EQUALS, (value,)) for key, value in labels.items()]
    for owner in pod.obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            key = (owner["apiVersion"], owner["kind"], pod.namespace, owner["name"])
            selector = selector_of(cluster.owners.get(key))
            if selector is not selectors.NOTHING:
                requirements += selector.requirements
            break
    return _interned(tuple(requirements)) if requirements else None


@lru_cache(maxsize=4096)
def _interned(requirements: tuple[Requirement, ...]) -> Selector:
    """Return the same selector for the same requirements: compiling one takes time."""
    return Selector(requirements)
