"""Validation of volume specs, in PersistentVolumes and, inline, in VolumeAttachments.

An inline spec is a CSI volume without claim: it has no capacity, class or affinity.
"""

import posixpath
from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    invalid,
    key,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import NOT_POSITIVE, check_dns_subdomain
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.claim_specs import VOLUME_MODES, check_access_modes
from kvstack.apiserver.kinds.pods.node_selectors import check_node_selector
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.storage.sources import check_source

RECLAIM_POLICIES: Final = enum_values(
    "io.k8s.api.core.v1.PersistentVolumeSpec", "persistentVolumeReclaimPolicy"
)
RECYCLE: Final = "Recycle"
RETAIN: Final = "Retain"
FILESYSTEM: Final = "Filesystem"

_INLINE: Final = "in the context of inline volumes"


def check_volume_spec(
    spec: Object, path: str, errors: Errors, *, name: str, allows_bad_values: bool = False
) -> None:
    """Check the spec of a PersistentVolume."""
    _check_modes(spec, path, errors)
    _check_capacity(spec.get("capacity"), child(path, "capacity"), errors)
    policy, policy_path = _policy(spec), child(path, "persistentVolumeReclaimPolicy")
    if policy and policy not in RECLAIM_POLICIES:
        errors.append(not_supported(policy_path, JsonText(policy), RECLAIM_POLICIES))
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        affinity_path = child(path, "nodeAffinity", "required")
        if affinity.get("required") is None:
            errors.append(required(affinity_path, "must specify required node constraints"))
        else:
            check_node_selector(
                affinity["required"], affinity_path, errors, allows_bad_values=allows_bad_values
            )
    check_source(spec, path, errors, volume_name=name, has_affinity=affinity is not None)
    _check_recycled_root(spec, policy_path, errors)
    class_name = spec.get("storageClassName", "")
    if class_name:
        wrong = check_dns_subdomain(class_name)
        add_invalid(errors, child(path, "storageClassName"), class_name, wrong)
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        errors.append(not_supported(child(path, "volumeMode"), JsonText(mode), VOLUME_MODES))
    _check_attributes_class(spec, path, errors)


def check_inline_spec(spec: Object, path: str, errors: Errors) -> None:
    """Check the inline spec of an attached volume."""
    detail = f"may not be specified {_INLINE}"
    if spec.get("claimRef") is not None:
        errors.append(forbidden(child(path, "claimRef"), detail))
    if spec.get("capacity"):
        errors.append(forbidden(child(path, "capacity"), detail))
    if spec.get("csi") is None:
        errors.append(required(child(path, "csi"), f"has to be specified {_INLINE}"))
    _check_modes(spec, path, errors)
    policy, policy_path = _policy(spec), child(path, "persistentVolumeReclaimPolicy")
    if policy not in {"", RETAIN}:
        errors.append(forbidden(policy_path, f"may only be {RETAIN} {_INLINE}"))
    if spec.get("nodeAffinity") is not None:
        errors.append(forbidden(child(path, "nodeAffinity"), detail))
    check_source(spec, path, errors)
    _check_recycled_root(spec, policy_path, errors)
    if spec.get("storageClassName"):
        errors.append(forbidden(child(path, "storageClassName"), detail))
    mode = spec.get("volumeMode")
    if mode is not None and mode != FILESYSTEM:
        text = f"may not specify volumeMode other than {FILESYSTEM} {_INLINE}"
        errors.append(forbidden(child(path, "volumeMode"), text))


def _policy(spec: Object) -> str:
    policy: str = spec.get("persistentVolumeReclaimPolicy", "")
    return policy


def _check_modes(spec: Object, path: str, errors: Errors) -> None:
    modes_path, modes = child(path, "accessModes"), spec.get("accessModes") or []
    if not modes:
        errors.append(required(modes_path))
    check_access_modes(modes, modes_path, errors)


def _check_capacity(capacity: dict[str, str] | None, path: str, errors: Errors) -> None:
    if not capacity:
        errors.append(required(path))
    if set(capacity or ()) != {"storage"}:
        errors.append(not_supported(path, capacity, ("storage",)))
    for name, amount in (capacity or {}).items():
        field, quantity = key(path, name), parse(amount)
        if quantity.value() < 0:
            errors.append(invalid(field, quantity.value(), "must be a valid resource quantity"))
        if quantity.sign <= 0:
            errors.append(invalid(field, amount, NOT_POSITIVE))


def _check_recycled_root(spec: Object, path: str, errors: Errors) -> None:
    host_path = (spec.get("hostPath") or {}).get("path", "")
    if host_path and posixpath.normpath(host_path) in {"/", "//"} and _policy(spec) == RECYCLE:
        errors.append(forbidden(path, "may not be 'recycle' for a hostPath mount of '/'"))


def _check_attributes_class(spec: Object, path: str, errors: Errors) -> None:
    name, field = spec.get("volumeAttributesClassName"), child(path, "volumeAttributesClassName")
    if name is None:
        return
    if name:
        add_invalid(errors, field, name, check_dns_subdomain(name))
    else:
        errors.append(required(field, "an empty string is disallowed"))
    if spec.get("csi") is None:
        detail = "has to be specified when using volumeAttributesClassName"
        errors.append(required(child(path, "csi"), detail))
