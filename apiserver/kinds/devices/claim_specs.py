"""Device requests of ResourceClaims and their templates."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label, check_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.devices.declared import ALLOCATION_MODES, TYPES
from kvstack.apiserver.kinds.devices.names import (
    Requests,
    check_full_name,
    check_reference,
)
from kvstack.apiserver.kinds.devices.parts import (
    check_configuration,
    check_items,
    check_selectors,
    check_toleration,
)
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context

ADMIN_LABEL: Final = "resource.kubernetes.io/admin-access"

_LIST_MAX: Final = 32
_ALTERNATIVES_MAX: Final = 8
_ONE_OF: Final = "exactly one of `exactly` or `firstAvailable` is required"
_SPEC: Final = f"{TYPES}.ResourceClaimSpec"


def default_claim_spec(spec: Object) -> None:
    """Set the default counts, and operators of tolerations."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = request.get("exactly")
        for each in [*([exactly] if exactly is not None else []), *alternatives(request)]:
            if not each.get("allocationMode"):
                each["allocationMode"] = "ExactCount"
            if each["allocationMode"] == "ExactCount" and not each.get("count"):
                each["count"] = 1
            for toleration in each.get("tolerations") or ():
                if not toleration.get("operator"):
                    toleration["operator"] = "Equal"


def drop_disabled_fields(spec: Object, old: Object | None) -> None:
    """Drop derived attributes, unless the stored spec has some."""
    if old is not None and any("derivedAttributes" in each for each in _selections(old)):
        return
    for each in _selections(spec):
        each.pop("derivedAttributes", None)


def _selections(spec: Object) -> list[Object]:
    requests = (spec.get("devices") or {}).get("requests") or ()
    found: list[Object] = []
    for request in requests:
        found += [*([request["exactly"]] if request.get("exactly") is not None else [])]
        found += alternatives(request)
    return found


def alternatives(request: Object) -> list[Object]:
    """Return the alternatives of a request, in order of preference."""
    return request.get("firstAvailable") or []


def names_of(spec: Object) -> Requests:
    """Return the names of requests that the rest of a claim may refer to."""
    return {
        request.get("name", ""): frozenset(each.get("name", "") for each in alternatives(request))
        for request in (spec.get("devices") or {}).get("requests") or ()
    }


def claim_spec_errors(spec: Object, path: str, context: Context) -> list[FieldError]:
    """Return the errors of a claim's spec."""
    errors: Errors = []
    devices, where, names = spec.get("devices") or {}, child(path, "devices"), names_of(spec)

    def check_request(request: Object, at: str) -> None:
        _check_request(request, at, errors, context)

    def check_constraint(constraint: Object, at: str) -> None:
        _check_constraint(constraint, at, errors, names)

    def check_config(config: Object, at: str) -> None:
        check_references(config.get("requests") or [], child(at, "requests"), errors, names)
        check_configuration(config, at, errors, is_stored=False)

    for name, check in (
        ("requests", check_request),
        ("constraints", check_constraint),
        ("config", check_config),
    ):
        check_items(devices.get(name) or [], _LIST_MAX, child(where, name), errors, check)
    return errors


def _check_request(request: Object, path: str, errors: Errors, context: Context) -> None:
    name = request.get("name", "")
    add_invalid(errors, child(path, "name"), name, check_dns_label(name))
    exactly, first_available = request.get("exactly"), alternatives(request)
    if exactly is not None and first_available:
        errors.append(invalid(path, None, f"{_ONE_OF}, but multiple fields are set"))
    elif exactly is not None:
        where = child(path, "exactly")
        _check_class(exactly.get("deviceClassName", ""), where, errors, covered=False)
        _check_selection(exactly, where, errors, context)
    elif first_available:
        _check_alternatives(first_available, child(path, "firstAvailable"), errors, context)
    else:
        errors.append(required(path, _ONE_OF))


def _check_alternatives(
    first_available: list[Object], path: str, errors: Errors, context: Context
) -> None:
    def check(request: Object, at: str) -> None:
        name = request.get("name", "")
        add_invalid(errors, child(at, "name"), name, check_dns_label(name))
        _check_class(request.get("deviceClassName", ""), at, errors, covered=True)
        _check_selection(request, at, errors, context)

    check_items(first_available, _ALTERNATIVES_MAX, path, errors, check)


def _check_class(name: str, path: str, errors: Errors, *, covered: bool) -> None:
    class_errors: Errors = []
    where = child(path, "deviceClassName")
    if name:
        add_invalid(class_errors, where, name, check_dns_subdomain(name))
    else:
        class_errors.append(required(where))
    errors.extend(each._replace(covered=covered) for each in class_errors)


def _check_selection(request: Object, path: str, errors: Errors, context: Context) -> None:
    selectors = request.get("selectors") or []
    check_selectors(selectors, child(path, "selectors"), errors, context, is_stored=False)
    mode, count = request.get("allocationMode", ""), request.get("count", 0)
    where = child(path, "count")
    if mode == "All" and count:
        errors.append(invalid(where, count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount" and count <= 0:
        errors.append(invalid(where, count, "must be greater than zero"))
    elif mode not in ALLOCATION_MODES:
        wrong = not_supported(child(path, "allocationMode"), JsonText(mode), ALLOCATION_MODES)
        errors.append(wrong._replace(covered=True))
    tolerations = child(path, "tolerations")
    for position, toleration in enumerate(request.get("tolerations") or ()):
        check_toleration(toleration, index(tolerations, position), errors)


def _check_constraint(constraint: Object, path: str, errors: Errors, names: Requests) -> None:
    check_references(constraint.get("requests") or [], child(path, "requests"), errors, names)
    for name in ("matchAttribute", "distinctAttribute"):
        attribute = constraint.get(name)
        if attribute is not None:
            # The type declares the same check with the same text.
            found = check_full_name(attribute, child(path, name))
            errors.extend(each._replace(covered=True) for each in found)
            return
    detail = (
        'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields'
        " are set"
    )
    errors.append(required(path, detail))


def check_references(texts: list[str], path: str, errors: Errors, names: Requests) -> None:
    """Check references to requests."""

    def check(text: str, at: str) -> None:
        check_reference(text, at, names, errors)

    if check_items(texts, _LIST_MAX, path, errors, check):
        errors.extend(
            duplicate(index(path, position), text)._replace(covered=True)
            for position, text in enumerate(texts)
            if text in texts[:position]
        )


def admin_request_errors(spec: Object, context: Context) -> list[FieldError]:
    """Return the error of admin access, which the namespace must allow."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    for position, request in enumerate(requests):
        if (request.get("exactly") or {}).get("adminAccess"):
            path = child(index("spec.devices.requests", position), "adminAccess")
            return admin_errors(path, context)
    return []


def admin_errors(path: str, context: Context) -> list[FieldError]:
    """Return the error of admin access in a namespace that does not allow it."""
    namespace: dict[str, Any] = context.access.find("", "namespaces", "", context.namespace) or {}
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    if labels.get(ADMIN_LABEL) == "true":
        return []
    detail = (
        f"admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing"
        " namespace"
    )
    return [forbidden(path, detail)]


def printed_spec(spec: Object) -> Any:  # noqa: ANN401 — as errors print it
    """Return a spec as errors print it."""
    return internal_value(spec, _SPEC)
