"""Expansion of volumes on the node: which claims wait for it, and their status. Pure.

external-resizer ─► claim.status.allocatedResourceStatuses.storage: NodeResizePending
kubelet          ─► NodeResizeInProgress ─► the driver ─► capacity; the entry and conditions go
                                               └─► failed: NodeResizeInfeasible, NodeResizeError
"""

from typing import Final

from kvstack.agents.kubelet.csi.volume import Volume
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.times import format_time

INFEASIBLE_CODES: Final = frozenset(("InvalidArgument", "OutOfRange", "NotFound"))
IN_USE_CODE: Final = "FailedPrecondition"
"""The gRPC code of a driver that cannot expand volumes in use."""
_NOT_REQUIRED: Final = "volume.kubernetes.io/node-expansion-not-required"
_PENDING: Final = ("NodeResizePending", "NodeResizeInProgress")
_IN_PROGRESS: Final = "NodeResizeInProgress"
_INFEASIBLE: Final = "NodeResizeInfeasible"
_ERROR: Final = "NodeResizeError"
_CONDITIONS: Final = ("FileSystemResizePending", "Resizing", "ControllerResizeError", _ERROR)


def size_of(volume: Volume) -> int:
    """Return the bytes that a volume is to have."""
    return parse(volume.capacity or "0").value()


def size_of_claim(claim: Object) -> int:
    """Return the bytes that a claim is said to have."""
    capacity = (claim.get("status") or {}).get("capacity") or {}
    return parse(capacity.get("storage", "0")).value()


def is_due(claim: Object, volume: Volume, size_bytes: int) -> bool:
    """Whether a volume is to be expanded on this node; size_bytes: its size here.

    A claim that is to have its size already is one that several nodes may write to: another node
    was first.
    """
    size = size_of(volume)
    if size <= size_bytes or volume.lifecycle != "Persistent":
        return False
    status = claim.get("status") or {}
    progress = (status.get("allocatedResourceStatuses") or {}).get("storage", "")
    if progress:
        return progress in _PENDING
    annotations = claim["metadata"].get("annotations") or {}
    is_shared = "ReadWriteMany" in (claim["spec"].get("accessModes") or ())
    return size_of_claim(claim) >= size and is_shared and _NOT_REQUIRED not in annotations


def is_written(claim: Object, volume: Volume) -> bool:
    """Whether the status of a claim already has its size."""
    status = claim.get("status") or {}
    has_progress = (status.get("allocatedResourceStatuses") or {}).get("storage")
    return not has_progress and size_of_claim(claim) >= size_of(volume)


def is_other_request(claim: Object, volume: Volume) -> bool:
    """Whether a claim requests another size in the meantime."""
    resources = claim["spec"].get("resources") or {}
    request = parse((resources.get("requests") or {}).get("storage", "0")).value()
    return request != size_of(volume)


# Strategic merge patches of a claim's status.


def begun(claim: Object) -> Object:
    """Return the condition or status of a volume that the node expands."""
    return _patch(claim, {"allocatedResourceStatuses": {"storage": _IN_PROGRESS}})


def done(claim: Object, volume: Volume) -> Object:
    """Return the event or status of a volume that has its size."""
    known = {each["type"] for each in (claim.get("status") or {}).get("conditions") or ()}
    gone = [{"$patch": "delete", "type": each} for each in _CONDITIONS if each in known]
    status = {
        "capacity": {"storage": volume.capacity},
        "allocatedResourceStatuses": {"storage": None},
        **({"conditions": gone} if gone else {}),
    }
    return _patch(claim, status)


def failed(problem: str, now_s: float, *, is_infeasible: bool) -> Object:
    """Return the status of a volume whose expansion on the node failed."""
    condition = {
        "type": _ERROR,
        "status": "True",
        "lastTransitionTime": format_time(now_s),
        "message": f"failed to expand pvc with {problem}",
    }
    status: Object = {"conditions": [condition]}
    if is_infeasible:
        status["allocatedResourceStatuses"] = {"storage": _INFEASIBLE}
    return {"status": status}


def _patch(claim: Object, status: Object) -> Object:
    """Return a patch that is refused if the claim has changed meanwhile."""
    version = claim["metadata"]["resourceVersion"]
    return {"metadata": {"resourceVersion": version}, "status": status}
