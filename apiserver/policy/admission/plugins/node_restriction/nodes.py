"""Writes of a kubelet to its own Node: nothing that attracts pods it must not have."""

from collections.abc import Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import (
    ARCH_LABEL,
    BETA_ARCH_LABEL,
    BETA_INSTANCE_TYPE_LABEL,
    BETA_OS_LABEL,
    BETA_REGION_LABEL,
    BETA_ZONE_LABEL,
    HOSTNAME_LABEL,
    INSTANCE_TYPE_LABEL,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest

_TAINT: Final = "io.k8s.api.core.v1.Taint"
_OWNER: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"
_RESTRICTED: Final = "node-restriction.kubernetes.io"
"""Only administrators may set labels of this domain."""
_OF_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_OF_KUBELETS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED: Final = frozenset(
    (
        BETA_ARCH_LABEL,
        BETA_INSTANCE_TYPE_LABEL,
        BETA_OS_LABEL,
        BETA_REGION_LABEL,
        BETA_ZONE_LABEL,
        ARCH_LABEL,
        HOSTNAME_LABEL,
        OS_LABEL,
        INSTANCE_TYPE_LABEL,
        REGION_LABEL,
        ZONE_LABEL,
    )
)


def check(node: str, request: AdmissionRequest) -> None:
    """Refuse a write of another Node, or of fields that administrators control; raises ApiError."""
    node_text = quote(node)
    if request.name != node:
        other = quote(request.name)
        raise request.forbidden(f"node {node_text} is not allowed to modify node {other}")
    if request.operation == CREATE:
        if (request.new.get("spec") or {}).get("configSource") is not None:
            message = f"node {node_text} is not allowed to create pods with a non-nil configSource"
            raise request.forbidden(message)
        if labels := _forbidden_labels(request.new, {}):
            raise request.forbidden(
                f"node {node_text} is not allowed to set the following labels: {labels}"
            )
    elif request.operation == UPDATE:
        _check_update(node_text, request)


def _check_update(node_text: str, request: AdmissionRequest) -> None:
    new, old = request.new, request.old or {}
    spec, old_spec = new.get("spec") or {}, old.get("spec") or {}
    source = spec.get("configSource")
    if source is not None and source != old_spec.get("configSource"):
        raise request.forbidden(
            f"node {node_text} is not allowed to update configSource to a new non-nil configSource"
        )
    if not _same_lists(spec.get("taints"), old_spec.get("taints"), _TAINT):
        raise request.forbidden(f"node {node_text} is not allowed to modify taints")
    owners, old_owners = (each["metadata"].get("ownerReferences") for each in (new, old))
    if not _same_lists(owners, old_owners, _OWNER):
        raise request.forbidden(f"node {node_text} is not allowed to modify ownerReferences")
    if labels := _forbidden_labels(new, old):
        raise request.forbidden(f"is not allowed to modify labels: {labels}")


def _same_lists(left: list[Any] | None, right: list[Any] | None, type_name: str) -> bool:
    mine, others = left or [], right or []
    return len(mine) == len(others) and all(
        same(each, other, type_name) for each, other in zip(mine, others, strict=True)
    )


def _forbidden_labels(new: Mapping[str, Any], old: Mapping[str, Any]) -> str:
    """Return the changed labels that nodes may not set, sorted."""
    labels, old_labels = _labels(new), _labels(old)
    changed = {
        each for each in labels.keys() | old_labels if labels.get(each) != old_labels.get(each)
    }
    return ", ".join(sorted(each for each in changed if _is_forbidden(each)))


def _labels(node: Mapping[str, Any]) -> Mapping[str, str]:
    labels: Mapping[str, str] = (node.get("metadata") or {}).get("labels") or {}
    return labels


def _is_forbidden(label: str) -> bool:
    domain, slash, _ = label.partition("/")
    if not slash:
        return False
    if _is_within(domain, _RESTRICTED):
        return True
    if not any(_is_within(domain, each) for each in _OF_KUBERNETES):
        return False
    return label not in _ALLOWED and not any(_is_within(domain, each) for each in _OF_KUBELETS)


def _is_within(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")
