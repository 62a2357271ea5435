"""Which pods are a pod's like, where it does not say: those of its services and of its owner."""

from functools import lru_cache

from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.agents.scheduler.snapshot.pod_info import selector_of as selector_of_object
from kvstack.apiserver.objects import labels as selectors
from kvstack.apiserver.objects.labels import EQUALS, Requirement, Selector


def selector_of(cluster: Cluster, pod: PodInfo) -> Selector | None:
    """Return the selector of a pod's like; None: it has none."""
    labels: dict[str, str] = {}
    for service in cluster.services.get(pod.namespace, {}).values():
        wanted = service["spec"].get("selector") or {}
        if wanted and wanted.items() <= pod.labels.items():
            labels.update(wanted)
    requirements = [Requirement(key, EQUALS, (value,)) for key, value in labels.items()]
    for owner in pod.obj["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            key = (owner["apiVersion"], owner["kind"], pod.namespace, owner["name"])
            selector = selector_of_object(cluster.owners.get(key))
            if selector is not selectors.NOTHING:
                requirements += selector.requirements
            break
    return _interned(tuple(requirements)) if requirements else None


@lru_cache(maxsize=4096)
def _interned(requirements: tuple[Requirement, ...]) -> Selector:
    """Return the same selector for the same requirements: compiling one takes time."""
    return Selector(requirements)
