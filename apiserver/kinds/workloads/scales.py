"""The subresource `scale` of workloads: the replicas.

    GET   scale_of(deployment)                     → {"kind": "Scale", "spec": {"replicas": 3}, …}
    PUT   set_replicas(deployment, scale)          then an ordinary update of the deployment

Only the replicas of a written Scale are used, and UID and resourceVersion as preconditions, which
the store checks.
"""

from typing import Final

from kvstack.apimachinery.objects import labels, status
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.objects.names import NEGATIVE
from kvstack.apiserver.kinds.strategy import Scaling

_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
SCALE: Final = "Scale"
_SCALE: Final = GroupKind("autoscaling", SCALE)


def scale_object(owner: Object, replicas: int, current: int, selector: str) -> Object:
    """Return the Scale of an object with desired and current replicas."""
    metadata = owner["metadata"]
    scale_status: Object = {"replicas": current}
    if selector:
        scale_status["selector"] = selector
    return {
        "kind": SCALE,
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _METADATA if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": scale_status,
    }


def requested_replicas(owner: Object, scale: Object) -> int:
    """Return the replicas of a written Scale; raises ApiError."""
    replicas: int = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        error = invalid("spec.replicas", replicas, NEGATIVE)
        raise status.invalid(_SCALE, owner["metadata"]["name"], [error])
    return replicas


def scale_of(owner: Object) -> Object:
    """Return the Scale of a workload; raises ApiError if its selector has errors."""
    spec = owner["spec"]
    current = (owner.get("status") or {}).get("replicas", 0)
    text = str(_selector_of(owner.get("kind", ""), spec.get("selector")))
    return scale_object(owner, spec.get("replicas") or 0, current, text)


def _selector_of(kind: str, selector: Object | None) -> Selector:
    if kind == "ReplicationController":
        return labels.from_map(selector or {})
    try:
        return labels.from_object(selector)
    except labels.SelectorError as error:
        raise status.bad_request(str(error)) from None


def set_replicas(owner: Object, scale: Object) -> None:
    """Set the replicas of a workload from a written Scale; raises ApiError."""
    owner["spec"]["replicas"] = requested_replicas(owner, scale)


WORKLOADS: Final = Scaling(path=("spec", "replicas"), scale_of=scale_of, set_replicas=set_replicas)
"""The scaling of built-in kinds."""
