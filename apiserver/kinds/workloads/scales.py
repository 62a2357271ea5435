"""The subresource `scale` of workloads with replicas: one number that is read and written.

    GET   scale_of(deployment)                     → {"kind": "Scale", "spec": {"replicas": 3}, …}
    PUT   set_replicas(deployment, scale)          then an update of the deployment as any other

Of a Scale that is written only the replicas count, and UID and resourceVersion as preconditions,
which the store checks.
"""

from typing import Final

from kvstack.apiserver.kinds.strategy import Obj
from kvstack.apiserver.objects import labels, status
from kvstack.apiserver.objects.field_errors import invalid
from kvstack.apiserver.objects.groups import GroupKind
from kvstack.apiserver.objects.labels import Selector
from kvstack.apiserver.objects.names import NEGATIVE

_METADATA: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_SCALE: Final = GroupKind("autoscaling", "Scale")


def scale_of(owner: Obj) -> Obj:
    """Return the Scale of a workload; raises ApiError if its selector has errors."""
    metadata, spec = owner["metadata"], owner["spec"]
    replicas = (owner.get("status") or {}).get("replicas", 0)
    scale_status = {"replicas": replicas}
    text = str(_selector_of(owner.get("kind", ""), spec.get("selector")))
    if text:
        scale_status["selector"] = text
    scale_spec = {"replicas": spec["replicas"]} if spec.get("replicas") else {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {name: metadata[name] for name in _METADATA if name in metadata},
        "spec": scale_spec,
        "status": scale_status,
    }


def _selector_of(kind: str, selector: Obj | None) -> Selector:
    if kind == "ReplicationController":
        return labels.from_map(selector or {})
    try:
        return labels.from_object(selector)
    except labels.SelectorError as error:
        raise status.bad_request(str(error)) from None


def set_replicas(owner: Obj, scale: Obj) -> None:
    """Give a workload the replicas of a Scale that was written; raises ApiError."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        error = invalid("spec.replicas", replicas, NEGATIVE)
        raise status.invalid(_SCALE, owner["metadata"]["name"], [error])
    owner["spec"]["replicas"] = replicas
