"""Binding a pod to a node.

    {"metadata": {"name": "web", "labels": {…}}, "target": {"kind": "Node", "name": "n1"}}

The pod must have no node, no scheduling gates, and not be terminating. The node's existence is not
checked. UID and resourceVersion of a binding's metadata are preconditions; the store checks them.
"""

from typing import Final

from kvstack.apimachinery.objects import field_errors, status
from kvstack.apimachinery.objects.field_errors import FieldError, invalid, not_supported, required
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apiserver.kinds.pods.conditions import set_condition
from kvstack.apiserver.kinds.pods.disabled_fields import drop_old_annotations

_BINDINGS: Final = GroupResource("", "pods/binding")


def check_binding(binding: Object, pod_name: str) -> None:
    """Check a binding of the pod in the URL; raises ApiError, with 500 for an invalid target."""
    if (binding.get("metadata") or {}).get("name", "") != pod_name:
        raise status.bad_request("name in URL does not match name in Binding object")
    errors = _target_errors(binding.get("target") or {})
    if errors:
        raise status.unknown(field_errors.summary(errors))


def _target_errors(target: Object) -> list[FieldError]:
    kind, name = target.get("kind", ""), target.get("name", "")
    is_node = kind in {"", "Node"}
    errors: list[FieldError] = []
    if not is_node:
        errors.append(not_supported("target.kind", kind, ("Node", "<empty>")))
    if not name:
        errors.append(required("target.name"))
    elif is_node:
        errors.extend(
            invalid("target.name", name, each) for each in name_is_dns_subdomain(name, False)
        )
    return errors


def bind(pod: Object, binding: Object, now: str) -> None:
    """Set the pod's node, and the labels and annotations of the binding; raises ApiError.

    now: RFC 3339 in seconds, UTC.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    name = metadata["name"]
    if metadata.get("deletionTimestamp"):
        raise _conflict(name, "is being deleted, cannot be assigned to a host")
    if node := spec.get("nodeName"):
        raise _conflict(name, f'is already assigned to node "{node}"')
    if spec.get("schedulingGates"):
        raise _conflict(name, "has non-empty .spec.schedulingGates")
    spec["nodeName"] = binding["target"]["name"]
    for member in ("annotations", "labels"):
        added = binding["metadata"].get(member)
        if added:
            metadata[member] = {**(metadata.get(member) or {}), **added}
    drop_old_annotations(metadata)
    pod_status = pod.setdefault("status", {})
    pod_status.pop("nominatedNodeName", None)
    set_condition(pod_status, "PodScheduled", "True", now)


def _conflict(name: str, why: str) -> status.ApiError:
    return status.conflict(_BINDINGS, name, f"pod {name} {why}")
