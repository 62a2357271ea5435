"""Validation of requests and limits of containers and pods.

{"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}, "claims": [{"name": "gpu"}]}
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstack.apimachinery.objects.core.pod_resources import (
    COMPUTE,
    HUGE_PAGES_PREFIX,
    aggregate,
    is_huge_pages,
    is_pod_resource,
)
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    not_found,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label
from kvstack.apimachinery.objects.quantity import QuantityError, parse
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.resource_names import (
    can_be_overcommitted,
    check_amount,
    check_container_resource_name,
    check_resource_name,
)
from kvstack.apiserver.kinds.rules import Errors

CheckName = Callable[[Errors, str, str], None]

POD_RESOURCES: Final = ("cpu", HUGE_PAGES_PREFIX, "memory")
"""Resources allowed at pod level, sorted."""


def check_requirements(
    scope: SpecScope, requirements: Object, path: str, check_name: CheckName
) -> None:
    """Check requests, limits and claims of a container, or of a pod."""
    errors = scope.errors
    limits: dict[str, str] = requirements.get("limits") or {}
    requests: dict[str, str] = requirements.get("requests") or {}
    limits_path, requests_path = child(path, "limits"), child(path, "requests")
    for name, amount in limits.items():
        _check_one(scope, name, amount, key(limits_path, name), check_name)
    for name, amount in requests.items():
        name_path = key(requests_path, name)
        check_name(errors, name_path, name)
        check_amount(errors, name_path, name, amount)
        _check_against_limit(errors, requests_path, limits_path, name, amount, limits.get(name))
        _check_pages(scope, name, amount, name_path)
    names = limits.keys() | requests.keys()
    if not any(each in names for each in COMPUTE) and any(is_huge_pages(each) for each in names):
        errors.append(forbidden(path, "HugePages require cpu or memory"))
    claims = requirements.get("claims")
    if claims:
        _check_claims(errors, claims, scope.claims, child(path, "claims"))


def check_container_requirements(scope: SpecScope, requirements: Object, path: str) -> None:
    """Check requests, limits and claims of a container."""
    check_requirements(scope, requirements, path, check_container_resource_name)


def check_overhead(scope: SpecScope) -> None:
    """Check the overhead."""
    overhead = scope.spec.get("overhead")
    if overhead is not None:
        path = child(scope.path, "overhead")
        check_container_requirements(scope, {"limits": overhead}, path)


def check_pod_resources(scope: SpecScope) -> None:
    """Check pod-level resources, also against those of the containers."""
    resources = scope.spec.get("resources")
    if resources is None:
        return
    path = child(scope.path, "resources")
    if scope.os == "windows":
        scope.errors.append(forbidden(path, "may not be set for a windows pod"))
        return
    if resources.get("claims") is not None:
        message = "claims may not be set for Resources at pod-level"
        scope.errors.append(forbidden(child(path, "claims"), message))
    check_requirements(scope, resources, path, _check_pod_resource_name)
    _check_consistency(scope, resources, path)


def is_multiple_of_page(name: str, amount: str) -> bool:
    """Return whether an amount of huge pages is a multiple of the page size."""
    try:
        page = parse(name.removeprefix(HUGE_PAGES_PREFIX))
    except QuantityError:
        return False
    if page.sign <= 0 or page.milli_value() % 1000:
        return False
    return parse(amount).value() % page.value() == 0


def _check_one(scope: SpecScope, name: str, amount: str, path: str, check_name: CheckName) -> None:
    check_name(scope.errors, path, name)
    check_amount(scope.errors, path, name, amount)
    _check_pages(scope, name, amount, path)


def _check_pages(scope: SpecScope, name: str, amount: str, path: str) -> None:
    if not is_huge_pages(name) or scope.tolerances.indivisible_huge_pages:
        return
    if not is_multiple_of_page(name, amount):
        message = f"{amount} is not positive integer multiple of {name}"
        scope.errors.append(invalid(path, amount, message))


def _check_against_limit(
    errors: Errors, path: str, limits_path: str, name: str, amount: str, limit: str | None
) -> None:
    if limit is None:
        if not can_be_overcommitted(name):
            message = "Limit must be set for non overcommitable resources"
            errors.append(required(limits_path, message))
        return
    request, most = parse(amount), parse(limit)
    if request != most and not can_be_overcommitted(name):
        errors.append(invalid(path, amount, f"must be equal to {name} limit of {limit}"))
    elif request > most:
        message = f"must be less than or equal to {name} limit of {limit}"
        errors.append(invalid(path, amount, message))


def _check_claims(
    errors: Errors, claims: Sequence[Object], pod_claims: set[str], path: str
) -> None:
    seen: set[str] = set()
    for position, claim in enumerate(claims):
        item_path = index(path, position)
        name = claim.get("name", "")
        if not name:
            errors.append(required(item_path))
            continue
        if name in seen:
            # The whole claim was already listed.
            errors.append(duplicate(item_path, name))
        else:
            _check_claim_request(errors, item_path, name, claim.get("request", ""), seen)
        if name not in pod_claims:
            errors.append(_unknown_claim(item_path, name, pod_claims))


def _check_claim_request(
    errors: Errors, path: str, name: str, request: str, seen: set[str]
) -> None:
    full_name = name
    if request:
        errors.extend(
            invalid(child(path, "request"), request, each) for each in check_dns_label(request)
        )
        full_name = f"{name}/{request}"
    if full_name in seen:
        errors.append(duplicate(path, full_name))
    elif not request:
        errors.extend(duplicate(path, name) for each in seen if each.startswith(f"{name}/"))
    seen.add(full_name)


def _unknown_claim(path: str, name: str, pod_claims: set[str]) -> FieldError:
    known = f": {', '.join(sorted(pod_claims))}" if pod_claims else " which is empty"
    error = not_found(path, name)
    detail = f"must be one of the names in pod.spec.resourceClaims{known}"
    return error._replace(body=f"{error.body}: {detail}")


def _check_pod_resource_name(errors: Errors, path: str, name: str) -> None:
    before = len(errors)
    check_resource_name(errors, path, name)
    if len(errors) == before and not is_pod_resource(name):
        errors.append(not_supported(path, JsonText(name), POD_RESOURCES))


def _check_consistency(scope: SpecScope, resources: Object, path: str) -> None:
    errors = scope.errors
    requests: dict[str, str] = resources.get("requests") or {}
    for name, needed in aggregate(scope.spec, "requests").items():
        request = requests.get(name)
        if request is not None and needed > parse(request):
            message = f"must be greater than or equal to aggregate container requests of {needed}"
            errors.append(invalid(key(child(path, "requests"), name), request, message))
    limits: dict[str, str] = resources.get("limits") or {}
    for name, needed in aggregate(scope.spec, "limits").items():
        request = limits.get(name)
        if request is not None and is_huge_pages(name) and needed > parse(request):
            message = f"must be greater than or equal to aggregate container limits of {needed}"
            errors.append(invalid(key(child(path, "limits"), name), request, message))
    containers_path = child(path, "containers")
    for position, container in enumerate(scope.spec.get("containers") or ()):
        for name, limit in _limits(container).items():
            most = limits.get(name)
            if most is not None and parse(limit) > parse(most):
                limit_path = child(key(index(containers_path, position), name), "limits")
                message = f"must be less than or equal to pod limits of {most}"
                errors.append(invalid(limit_path, limit, message))


def _limits(container: Object) -> dict[str, str]:
    return (container.get("resources") or {}).get("limits") or {}
