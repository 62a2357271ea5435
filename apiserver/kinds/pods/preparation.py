"""Preparation of pods before validation.

On creation: an empty status with the QoS class, conditions of scheduling gates, values of
matchLabelKeys in selectors, AppArmor profiles from annotations, and pod-level resources completed
from those of containers. On an update: fields that the endpoint cannot change are copied from the
stored pod.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.core.pod_resources import (
    aggregate,
    is_huge_pages,
    is_pod_resource,
)
from kvstack.apimachinery.objects.core.quality_of_service import quality_of
from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.pods.annotations import APP_ARMOR_PREFIX, app_armor_profile
from kvstack.apiserver.kinds.pods.conditions import set_condition
from kvstack.apiserver.kinds.pods.disabled_fields import (
    drop_disabled_fields,
    drop_disabled_status_fields,
    drop_old_annotations,
)
from kvstack.apiserver.kinds.pods.scheduling import PREFERRED_TERMS, REQUIRED_TERMS
from kvstack.apiserver.kinds.pods.security.contexts import check_app_armor
from kvstack.apiserver.kinds.resource_names import can_be_overcommitted
from kvstack.apiserver.kinds.strategy import Context

SPEC_TYPE: Final = "io.k8s.api.core.v1.PodSpec"


def prepare_create(pod: Object, context: Context) -> None:
    """Prepare a new pod."""
    metadata, spec = pod.setdefault("metadata", {}), pod.setdefault("spec", {})
    metadata["generation"] = 1
    status: Object = {"phase": "Pending"}
    pod["status"] = status
    drop_disabled_fields(spec, None)
    drop_old_annotations(metadata)
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        set_condition(status, "PodScheduled", "False", context.now, "SchedulingGated", message)
    _merge_label_keys(spec, metadata.get("labels") or {})
    _take_app_armor(spec, metadata.get("annotations") or {}, context)
    default_pod_resources(spec)
    status["qosClass"] = quality_of(pod)


def prepare_update(new: Object, old: Object, _context: Context) -> None:
    """Keep what an update of a pod cannot change."""
    new["status"] = old.get("status", {})
    keep_pod_resources(new, old)
    drop_disabled(new, old)
    raise_generation(new, old)


def drop_disabled(new: Object, old: Object) -> None:
    """Drop fields of disabled features that the stored pod does not use."""
    drop_disabled_fields(new.setdefault("spec", {}), old.get("spec"))
    status = new.get("status")
    if status:
        drop_disabled_status_fields(status, old.get("status"))
    drop_old_annotations(new.get("metadata"))


def raise_generation(new: Object, old: Object) -> None:
    """Increment the generation if the spec has changed."""
    if not same(new.get("spec"), old.get("spec"), SPEC_TYPE):
        metadata = new["metadata"]
        metadata["generation"] = metadata.get("generation", 0) + 1


def keep_metadata(new: Object, old: Object) -> None:
    """Keep the metadata that subresources of a pod cannot change."""
    kept, stored = new["metadata"], old["metadata"]
    for name in _KEPT_METADATA:
        if name in stored:
            kept[name] = stored[name]
        else:
            kept.pop(name, None)


def default_pod_resources(spec: Object) -> None:
    """Complete pod-level resources, if present, from those of the containers."""
    resources = spec.get("resources")
    if not resources or not (resources.get("requests") or resources.get("limits")):
        return
    limits: dict[str, str] = dict(resources.get("limits") or {})
    requests: dict[str, str] = dict(resources.get("requests") or {})
    needed_limits = aggregate(spec, "limits")
    for name, amount in needed_limits.items():
        if is_huge_pages(name) and name not in requests:
            limits.setdefault(name, str(amount))
    for name, amount in aggregate(spec, "requests").items():
        if is_pod_resource(name) and can_be_overcommitted(name):
            requests.setdefault(name, str(amount))
    for name, limit in limits.items():
        if is_pod_resource(name):
            requests.setdefault(name, limit)
    for name, request in requests.items():
        if is_pod_resource(name) and name not in limits and _all_limit(spec, name):
            total = needed_limits.get(name)
            if total is not None:
                limits[name] = request if parse(request) > total else str(total)
    for name, amounts in (("limits", limits), ("requests", requests)):
        if amounts:
            resources[name] = amounts


def keep_pod_resources(new: Object, old: Object) -> None:
    """Keep pod-level resources if a client that does not know them left them out."""
    stored = (old.get("spec") or {}).get("resources")
    if stored is not None:
        new.setdefault("spec", {}).setdefault("resources", stored)


def _all_limit(spec: Object, name: str) -> bool:
    return all(
        name in ((each.get("resources") or {}).get("limits") or {}) for each in all_containers(spec)
    )


def _merge_label_keys(spec: Object, labels: Mapping[str, str]) -> None:
    affinity = spec.get("affinity") or {}
    terms: list[Object] = []
    for name in ("podAffinity", "podAntiAffinity"):
        one = affinity.get(name) or {}
        terms += [each.get("podAffinityTerm") or {} for each in one.get(PREFERRED_TERMS) or ()]
        terms += one.get(REQUIRED_TERMS) or ()
    terms += spec.get("topologySpreadConstraints") or ()
    for term in terms:
        selector = term.get("labelSelector")
        if selector is not None:
            _merge_keys(selector, term.get("matchLabelKeys") or (), "In", labels)
            _merge_keys(selector, term.get("mismatchLabelKeys") or (), "NotIn", labels)


def _merge_keys(
    selector: Object, keys: Sequence[str], operator: str, labels: Mapping[str, str]
) -> None:
    added = [
        {"key": key, "operator": operator, "values": [labels[key]]} for key in keys if key in labels
    ]
    if added:
        selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *added]


def _take_app_armor(spec: Object, annotations: Mapping[str, str], context: Context) -> None:
    if not annotations or (spec.get("os") or {}).get("name") == "windows":
        return
    of_pod = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container in all_containers(spec):
        name = APP_ARMOR_PREFIX + container.get("name", "")
        annotation = annotations.get(name)
        security = container.get("securityContext")
        if annotation is None or (security and security.get("appArmorProfile") is not None):
            continue
        profile = app_armor_profile(annotation)
        errors = list[FieldError]()
        check_app_armor(errors, profile, "")
        if errors:
            profile = None
        if profile is not None and profile != of_pod:
            container.setdefault("securityContext", {})["appArmorProfile"] = profile
        if profile is None or profile != of_pod:
            context.warnings.append(
                f"metadata.annotations[{name}]: deprecated since v1.30;"
                ' use the "appArmorProfile" field instead'
            )


_KEPT_METADATA: Final = (
    "deletionTimestamp", "generation", "selfLink", "labels", "annotations", "finalizers",
    "ownerReferences",
)  # fmt: skip
