"""Faults of stored pods that updates may keep (see `tolerances`)."""

from collections.abc import Callable, Mapping
from typing import Final

from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.core.pod_resources import is_huge_pages, is_sidecar
from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_value
from kvstack.apimachinery.well_known import DELETION_COST_ANNOTATION
from kvstack.apiserver.kinds.file_paths import check_local
from kvstack.apiserver.kinds.pods.annotations import is_deletion_cost
from kvstack.apiserver.kinds.pods.resources import is_multiple_of_page
from kvstack.apiserver.kinds.pods.scheduling import (
    PREFERRED_TERMS,
    REQUIRED_TERMS,
    label_key_errors,
)
from kvstack.apiserver.kinds.pods.security.contexts import host_sysctl_error
from kvstack.apiserver.kinds.pods.tolerances import Tolerances


def tolerances_of(spec: Object, annotations: Mapping[str, str] | None) -> Tolerances:
    """Return the faults of a stored pod or template."""
    found = {name: has(spec) for name, has in _FAULTS.items()}
    cost = (annotations or {}).get(DELETION_COST_ANNOTATION)
    return Tolerances(deletion_cost=cost is not None and not is_deletion_cost(cost), **found)


def _pod_affinity_terms(spec: Object) -> list[Object]:
    affinity = spec.get("affinity") or {}
    terms: list[Object] = []
    for name in ("podAffinity", "podAntiAffinity"):
        one = affinity.get(name) or {}
        terms += one.get(REQUIRED_TERMS) or ()
        terms += [each.get("podAffinityTerm") or {} for each in one.get(PREFERRED_TERMS) or ()]
    return terms


def _has_bad_affinity_selector(spec: Object) -> bool:
    return any(
        labels.validate_object("", term.get(name))
        for term in _pod_affinity_terms(spec)
        for name in ("labelSelector", "namespaceSelector")
    )


def _has_bad_node_affinity(spec: Object) -> bool:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(REQUIRED_TERMS) or {}).get("nodeSelectorTerms") or ()
    return any(
        check_label_value(value)
        for term in terms
        for requirement in term.get("matchExpressions") or ()
        for value in requirement.get("values") or ()
    )


def _has_bad_spread_selector(spec: Object) -> bool:
    return any(
        labels.validate_object("", each.get("labelSelector"))
        for each in spec.get("topologySpreadConstraints") or ()
    )


def _has_bad_spread_keys(spec: Object) -> bool:
    return any(
        label_key_errors("", each.get("matchLabelKeys") or (), (), each.get("labelSelector"))
        for each in spec.get("topologySpreadConstraints") or ()
    )


def _has_indivisible_pages(spec: Object) -> bool:
    lists: list[Mapping[str, str]] = [spec.get("overhead") or {}]
    for container in all_containers(spec):
        resources = container.get("resources") or {}
        lists += (resources.get("limits") or {}, resources.get("requests") or {})
    return any(
        is_huge_pages(name) and not is_multiple_of_page(name, amount)
        for amounts in lists
        for name, amount in amounts.items()
    )


def _has_remote_token_path(spec: Object) -> bool:
    errors = list[FieldError]()
    for volume in spec.get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            token = source.get("serviceAccountToken")
            if token is not None:
                check_local(errors, "", token.get("path", ""))
    return bool(errors)


def _has_host_sysctl(spec: Object) -> bool:
    sysctls = (spec.get("securityContext") or {}).get("sysctls") or ()
    return any(host_sysctl_error(each.get("name", ""), spec, "") for each in sysctls)


def _has_user_namespace(spec: Object) -> bool:
    return spec.get("hostUsers") is False


def _has_user_namespace_devices(spec: Object) -> bool:
    return _has_user_namespace(spec) and any(
        each.get("volumeDevices") for each in all_containers(spec)
    )


def _has_user_namespace_host_network(spec: Object) -> bool:
    return _has_user_namespace(spec) and bool(spec.get("hostNetwork"))


def _has_empty_image_reference(spec: Object) -> bool:
    return any(
        each.get("image") is not None and not each["image"].get("reference")
        for each in spec.get("volumes") or ()
    )


def _has_sys_admin_without_escalation(spec: Object) -> bool:
    for container in all_containers(spec):
        context = container.get("securityContext") or {}
        added = (context.get("capabilities") or {}).get("add") or ()
        if context.get("allowPrivilegeEscalation") is not True and "CAP_SYS_ADMIN" in added:
            return True
    return False


def _has_restarting_init_resize(spec: Object) -> bool:
    return any(
        policy.get("restartPolicy") == "RestartContainer"
        for container in spec.get("initContainers") or ()
        if not is_sidecar(container)
        for policy in container.get("resizePolicy") or ()
    )


def _has_comparing_toleration(spec: Object) -> bool:
    return any(each.get("operator") in {"Lt", "Gt"} for each in spec.get("tolerations") or ())


_FAULTS: Final[Mapping[str, Callable[[Object], bool]]] = {
    "selector_values": _has_bad_affinity_selector,
    "node_affinity_values": _has_bad_node_affinity,
    "spread_selectors": _has_bad_spread_selector,
    "spread_label_keys": _has_bad_spread_keys,
    "indivisible_huge_pages": _has_indivisible_pages,
    "remote_token_path": _has_remote_token_path,
    "host_sysctls": _has_host_sysctl,
    "user_namespace_devices": _has_user_namespace_devices,
    "user_namespace_host_network": _has_user_namespace_host_network,
    "empty_image_reference": _has_empty_image_reference,
    "sys_admin_without_escalation": _has_sys_admin_without_escalation,
    "restarting_init_resize": _has_restarting_init_resize,
    "comparing_tolerations": _has_comparing_toleration,
}
"""How each fault is recognized in a spec."""
