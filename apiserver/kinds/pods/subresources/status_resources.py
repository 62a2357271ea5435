"""Resource claims and resource health in the status of a pod.

resourceClaimStatuses         claims made from templates, by their name in the spec
extendedResourceClaimStatus   the claim made for extended resources of containers
allocatedResourcesStatus      the health of the devices of a container
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label, length, name_is_dns_subdomain
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.rules import Errors, add_invalid

STATUS_LISTS: Final = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
)
"""Lists of container statuses of a pod and the containers they are about."""

_HEALTH: Final = ("Healthy", "Unhealthy", "Unknown")
_MESSAGE_MAX: Final = 1024
_CLAIM_PREFIX: Final = "claim:"


def check_claims(errors: Errors, status: Object, spec: Object) -> None:
    """Check the resource claims in the status."""
    _check_claim_statuses(errors, status, spec)
    _check_extended_claim(errors, status.get("extendedResourceClaimStatus"), spec)
    _check_node_claims(errors, status, spec)


def check_allocated(errors: Errors, status: Object, spec: Object) -> None:
    """Check the resource health of containers in the status."""
    for list_name, containers_name in STATUS_LISTS:
        containers = {each.get("name", ""): each for each in spec.get(containers_name) or ()}
        for position, each in enumerate(status.get(list_name) or ()):
            path = f"status.{list_name}[{position}].allocatedResourcesStatus"
            container = containers.get(each.get("name", ""))
            for number, resource in enumerate(each.get("allocatedResourcesStatus") or ()):
                item_path = index(path, number)
                if container is not None:
                    _check_allocated_name(errors, resource, container, status, item_path)
                _check_health(errors, resource, child(item_path, "resources"))
    for position, each in enumerate(status.get("ephemeralContainerStatuses") or ()):
        if each.get("allocatedResourcesStatus"):
            path = f"status.ephemeralContainerStatuses[{position}].allocatedResourcesStatus"
            errors.append(forbidden(path, "must not be specified in container status"))


def _check_claim_statuses(errors: Errors, status: Object, spec: Object) -> None:
    known = {each.get("name", "") for each in spec.get("resourceClaims") or ()}
    seen: set[str] = set()
    for position, each in enumerate(status.get("resourceClaimStatuses") or ()):
        path = f"status.resourceClaimStatuses[{position}]"
        name = each.get("name", "")
        if name not in known:
            message = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(invalid(child(path, "name"), name, message))
        if name in seen:
            errors.append(duplicate(child(path, "name"), name))
        seen.add(name)
        claim = each.get("resourceClaimName")
        if claim is not None:
            wrong = name_is_dns_subdomain(claim, False)
            add_invalid(errors, child(path, "resourceClaimName"), JsonText(claim), wrong)


def _check_extended_claim(errors: Errors, status: Object | None, spec: Object) -> None:
    if status is None:
        return
    path = "status.extendedResourceClaimStatus"
    containers = {
        each.get("name", ""): each
        for name in ("initContainers", "containers")
        for each in spec.get(name) or ()
    }
    mappings = status.get("requestMappings")
    list_path = child(path, "requestMappings")
    if not mappings:
        errors.append(required(list_path, "at least one request mapping is required"))
    seen: set[tuple[str, str, str]] = set()
    for position, mapping in enumerate(mappings or ()):
        item_path = index(list_path, position)
        _check_request_mapping(errors, mapping, containers, path, item_path)
        names = ("containerName", "resourceName", "requestName")
        values = (mapping.get(names[0], ""), mapping.get(names[1], ""), mapping.get(names[2], ""))
        if values in seen:
            errors.extend(
                duplicate(child(item_path, name), value)
                for name, value in zip(names, values, strict=True)
            )
        seen.add(values)
    claim = status.get("resourceClaimName", "")
    if not claim:
        errors.append(required(child(path, "resourceClaimName")))
    else:
        wrong = name_is_dns_subdomain(claim, False)
        add_invalid(errors, child(path, "resourceClaimName"), claim, wrong)


def _check_request_mapping(
    errors: Errors, mapping: Object, containers: dict[str, Object], path: str, item_path: str
) -> None:
    name, resource = mapping.get("containerName", ""), mapping.get("resourceName", "")
    container = containers.get(name)
    if container is None:
        message = (
            "must match the name of an entry in spec.initContainers.name or spec.containers.name"
        )
        errors.append(invalid(child(item_path, "containerName"), name, message))
    elif resource not in ((container.get("resources") or {}).get("requests") or {}):
        message = (
            "must match the extended resource name of an entry in"
            " spec.initContainers.resources.requests or spec.containers.resources.requests"
        )
        errors.append(invalid(child(item_path, "resourceName"), resource, message))
    request = mapping.get("requestName", "")
    add_invalid(errors, child(path, "requestName"), request, check_dns_label(request))


def _check_node_claims(errors: Errors, status: Object, spec: Object) -> None:
    listed = [*(spec.get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ())]
    known = {each.get("resourceClaimName") for each in listed}
    for position, each in enumerate(status.get("nodeAllocatableResourceClaimStatuses") or ()):
        path = f"status.nodeAllocatableResourceClaimStatuses[{position}]"
        name = each.get("resourceClaimName", "")
        if not name:
            continue
        if name not in known:
            message = "no mapping found in pod reference"
            errors.append(invalid(child(path, "resourceClaimName"), name, message))
        for number, item in enumerate(each.get("mapping") or ()):
            item_path = index(child(path, "mapping"), number)
            _check_node_resource(errors, item, item_path, ("quantity",))
        for number, item in enumerate(each.get("overhead") or ()):
            item_path = index(child(path, "overhead"), number)
            _check_node_resource(errors, item, item_path, ("perPod", "perContainer"))
            if item.get("perPod") is None and item.get("perContainer") is None:
                message = "at least one of perPod or perContainer must be set"
                errors.append(invalid(item_path, "", message))


def _check_node_resource(errors: Errors, item: Object, path: str, amounts: tuple[str, ...]) -> None:
    name = item.get("name", "")
    if name not in {"cpu", "memory"} and not name.startswith("hugepages-"):
        message = "must be a node allocatable resource name"
        errors.append(invalid(child(path, "name"), JsonText(name), message))
    for field in amounts:
        amount = item.get(field)
        if amount is not None and parse(amount).sign < 0:
            errors.append(invalid(child(path, field), amount, "must be non-negative"))


def _check_allocated_name(
    errors: Errors, resource: Object, container: Object, status: Object, path: str
) -> None:
    name: str = resource.get("name", "")
    requirements = container.get("resources") or {}
    if name.startswith(_CLAIM_PREFIX):
        claims = {_claim_resource(each) for each in requirements.get("claims") or ()}
        extended = status.get("extendedResourceClaimStatus")
        is_known = name in claims or _is_extended_claim(name, container, extended)
        message = (
            "must match one of the container's resource claims as 'claim:<claimName>/<requestName>'"
            " when container.resources.claims[*].request is set or 'claim:<claimName>' when it is"
            " empty"
        )
    else:
        is_known = name in (requirements.get("requests") or {})
        message = "must match one of the container's resource requests"
    if not is_known:
        errors.append(invalid(child(path, "name"), JsonText(name), message))


def _claim_resource(claim: Object) -> str:
    name, request = claim.get("name", ""), claim.get("request", "")
    return f"{_CLAIM_PREFIX}{name}/{request}" if request else f"{_CLAIM_PREFIX}{name}"


def _is_extended_claim(name: str, container: Object, status: Object | None) -> bool:
    claim, _, request = name.removeprefix(_CLAIM_PREFIX).partition("/")
    if status is None or not request or claim != status.get("resourceClaimName", ""):
        return False
    requests = (container.get("resources") or {}).get("requests") or {}
    return any(
        mapping.get("containerName") == container.get("name")
        and mapping.get("requestName") == request
        and mapping.get("resourceName") in requests
        and parse(requests[mapping["resourceName"]]).sign != 0
        for mapping in status.get("requestMappings") or ()
    )


def _check_health(errors: Errors, resource: Object, path: str) -> None:
    seen: set[str] = set()
    for position, each in enumerate(resource.get("resources") or ()):
        item_path = index(path, position)
        health = each.get("health", "")
        if health not in _HEALTH:
            error = not_supported(child(item_path, "health"), JsonText(health), _HEALTH)
            errors.append(error)
        message = each.get("message")
        if message is not None:
            message_path = child(item_path, "message")
            if not message:
                errors.append(required(message_path, "must be non-empty if specified"))
            elif length(message) > _MESSAGE_MAX:
                errors.append(too_long(message_path, _MESSAGE_MAX))
        name = each.get("resourceID", "")
        if name in seen:
            errors.append(duplicate(child(item_path, "resourceID"), JsonText(name)))
        seen.add(name)
