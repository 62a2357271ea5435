"""The subresource `resize`: cpu and memory of a running pod's containers.

The QoS class must not change, requests and limits cannot be removed, and containers cannot be
added, removed or reordered.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kvstack.apimachinery.objects.core.pod_resources import COMPUTE, is_sidecar
from kvstack.apimachinery.objects.core.quality_of_service import computed_quality, quality_of
from kvstack.apimachinery.objects.field_errors import FieldError, child, forbidden, index, invalid
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.well_known import MIRROR_ANNOTATION
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.pods.preparation import (
    SPEC_TYPE,
    default_pod_resources,
    drop_disabled,
    keep_metadata,
    keep_pod_resources,
    raise_generation,
)
from kvstack.apiserver.kinds.pods.tolerances import Tolerances
from kvstack.apiserver.kinds.pods.validation import annotations_of, check_forgiving, checked
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context

_CONTAINER_TYPE: Final = "io.k8s.api.core.v1.Container"
_RESOURCES_TYPE: Final = "io.k8s.api.core.v1.ResourceRequirements"
_LISTS: Final = ("containers", "initContainers")
_RESIZED: Final = ("resources", "resizePolicy")
_ONLY_COMPUTE: Final = "only cpu and memory resources are mutable"


def prepare_update(new: Object, old: Object, _context: Context) -> None:
    """Keep everything but resources and resize policies."""
    spec, stored = new.setdefault("spec", {}), old.get("spec") or {}
    if all(len(spec.get(name) or ()) == len(stored.get(name) or ()) for name in _LISTS):
        merged = dict(stored)
        for name in _LISTS:
            if spec.get(name):
                merged[name] = _resized(spec[name], stored[name])
        merged.pop("resources", None)
        if spec.get("resources") is not None:
            merged["resources"] = spec["resources"]
        new["spec"] = merged
        new["status"] = old.get("status", {})
        keep_metadata(new, old)
    # Added or removed containers are left to validation.
    keep_pod_resources(new, old)
    resources = new["spec"].get("resources")
    if resources is not None:
        new["spec"]["resources"] = dict(resources)
        default_pod_resources(new["spec"])
    drop_disabled(new, old)
    raise_generation(new, old)


def validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    """Return the errors of the resized pod."""
    if MIRROR_ANNOTATION in annotations_of(old):
        return [forbidden("", "static pods cannot be resized")]
    if ((old.get("spec") or {}).get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]

    def check(tolerances: Tolerances) -> list[FieldError]:
        errors = checked(new, context, tolerances).errors
        _check_resize(errors, new, old)
        return errors

    return check_forgiving(check, old)


def _resized(containers: Sequence[Object], stored: Sequence[Object]) -> Sequence[Object]:
    merged: list[Object] = []
    for container, before in zip(containers, stored, strict=True):
        if container.get("name") != before.get("name"):
            return containers
        kept = {name: value for name, value in before.items() if name not in _RESIZED}
        given: Object = {name: container[name] for name in _RESIZED if name in container}
        merged.append({**kept, **given})
    return merged


def _check_resize(errors: Errors, new: Object, old: Object) -> None:
    spec, stored = new["spec"], old["spec"]
    if quality_of(old) != computed_quality(spec):
        value = JsonText((new.get("status") or {}).get("qosClass", ""))
        message = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid("spec", value, message))
    if not _node_can_resize(old):
        errors.append(forbidden("spec", "Pod running on node without support for resize"))
    if _has_resources(spec) or _has_resources(stored):
        _check_pod_resources(errors, spec, stored)
    before = len(errors)
    _check_order(errors, spec, stored)
    if len(errors) > before:
        return
    _check_removals(errors, spec, stored)
    rest = _check_others(errors, spec, stored)
    if spec.get("volumes") != stored.get("volumes"):
        message = (
            "volumes are immutable on resize when InPlacePodVerticalScalingMemoryBackedVolumes"
            " feature gate is disabled"
        )
        errors.append(forbidden("spec.volumes", message))
    if not errors and not same(rest, stored, SPEC_TYPE):
        errors.append(forbidden("spec", _ONLY_COMPUTE))


def _node_can_resize(pod: Object) -> bool:
    for each in (pod.get("status") or {}).get("containerStatuses") or ():
        if "running" in (each.get("state") or {}):
            return each.get("resources") is not None
    return True


def _has_resources(spec: Object) -> bool:
    resources = spec.get("resources") or {}
    return bool(resources.get("requests") or resources.get("limits"))


def _check_pod_resources(errors: Errors, spec: Object, stored: Object) -> None:
    resources, before = spec.get("resources"), stored.get("resources")
    if before is not None and resources is None:
        errors.append(forbidden("spec.resources", "pod-level resources cannot be removed"))
        return
    for name in ("requests", "limits"):
        if before is not None and _removed(resources or {}, before, name):
            message = f"pod-level resource {name} cannot be removed"
            errors.append(forbidden(f"spec.resources.{name}", message))
    masked = _with_compute_of(resources, before)
    if before is None and masked is not None and not any(masked.values()):
        masked = None
    if masked != before and not (
        masked is not None and before is not None and same(masked, before, _RESOURCES_TYPE)
    ):
        message = "only cpu and memory resources are mutable at pod-level"
        errors.append(forbidden("spec", message))


def _check_order(errors: Errors, spec: Object, stored: Object) -> None:
    for name in _LISTS:
        path = child("spec", name)
        containers, before = spec.get(name) or (), stored.get(name) or ()
        if len(containers) != len(before):
            errors.append(forbidden(path, f"{name} may not be added or removed on resize"))
            continue
        errors.extend(
            forbidden(
                child(index(path, position), "name"),
                f"{name} may not be renamed or reordered on resize",
            )
            for position, (container, one) in enumerate(zip(containers, before, strict=True))
            if container.get("name") != one.get("name")
        )


def _check_removals(errors: Errors, spec: Object, stored: Object) -> None:
    for name in reversed(_LISTS):
        pairs = zip(spec.get(name) or (), stored.get(name) or (), strict=True)
        for position, (container, before) in enumerate(pairs):
            path = child(index(child("spec", name), position), "resources")
            resources = container.get("resources") or {}
            errors.extend(
                forbidden(child(path, what), f"resource {what} cannot be removed")
                for what in ("requests", "limits")
                if _removed(resources, before.get("resources") or {}, what)
            )


def _check_others(errors: Errors, spec: Object, stored: Object) -> Object:
    """Check that only cpu and memory differ; return the spec with their old values."""
    rest = dict(spec)
    if "resources" in stored:
        rest["resources"] = stored["resources"]
    else:
        rest.pop("resources", None)
    for name in _LISTS:
        masked: list[Object] = []
        pairs = zip(spec.get(name) or (), stored.get(name) or (), strict=True)
        for position, (container, before) in enumerate(pairs):
            one = dict(container)
            resources = _with_compute_of(container.get("resources"), before.get("resources"))
            one["resources"] = resources or {}
            masked.append(one)
            differs = not same(one, before, _CONTAINER_TYPE)
            if differs and name == "containers":
                errors.append(forbidden("spec", _ONLY_COMPUTE))
            elif name == "initContainers":
                path = index("spec.initContainers", position)
                if differs:
                    message = (
                        "only cpu and memory resources for init or sidecar containers are mutable"
                    )
                    errors.append(forbidden(path, message))
                if not is_sidecar(container) and not same(container, before, _CONTAINER_TYPE):
                    _check_init_policy(errors, container, path)
        if masked:
            rest[name] = masked
    return rest


def _check_init_policy(errors: Errors, container: Object, path: str) -> None:
    message = (
        "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
    )
    errors.extend(
        forbidden(path, message)
        for policy in container.get("resizePolicy") or ()
        if policy.get("restartPolicy") == "RestartContainer"
    )


def _removed(resources: Object, before: Object, name: str) -> bool:
    return bool((before.get(name) or {}).keys() - (resources.get(name) or {}).keys())


def _with_compute_of(resources: Object | None, before: Object | None) -> Object | None:
    """Return the resources with the old cpu and memory."""
    if resources is None:
        return None
    masked = dict(resources)
    for name in ("requests", "limits"):
        amounts = _masked(resources.get(name) or {}, (before or {}).get(name) or {})
        if amounts:
            masked[name] = amounts
        else:
            masked.pop(name, None)
    return masked


def _masked(amounts: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    kept = {name: amount for name, amount in amounts.items() if name not in COMPUTE}
    return kept | {name: before[name] for name in COMPUTE if name in before}
