"""Names of drivers, pools, requests and attributes.

check_driver_name("", "spec.driver", errors)   → spec.driver: Required value
check_qualified_name("gpu.example.com/model", path, errors)
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    invalid,
    required,
    too_long,
    too_long_characters,
)
from kvstack.apimachinery.objects.names import (
    DNS_SUBDOMAIN_MAX,
    check_caseless_dns_subdomain,
    check_dns_label,
    check_dns_subdomain,
    check_identifier,
    check_label_key,
    length,
)
from kvstack.apiserver.kinds.rules import Errors, add_invalid

DRIVER_MAX: Final = 63
IDENTIFIER_MAX: Final = 32

_NO_DOMAIN: Final = "a fully qualified name must be a domain and a name separated by a slash"
_REFERENCE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated"
    " by '/'"
)
_UUID: Final = "must be a lowercase UUID in 8-4-4-4-12 format"
_HEX: Final = frozenset("0123456789abcdef")

Requests = dict[str, frozenset[str]]
"""Alternatives by request name."""


def check_driver_name(name: str, path: str, errors: Errors, *, covered: bool = False) -> None:
    """Check the name of a driver; `covered`: the type declares the same check."""
    name_errors: Errors = []
    if not name:
        name_errors.append(required(path))
    else:
        if length(name) > DRIVER_MAX:
            name_errors.append(too_long(path, DRIVER_MAX))
        add_invalid(name_errors, path, name, check_dns_subdomain(name.lower()))
    errors.extend(each._replace(covered=covered) for each in name_errors)


def check_pool_name(name: str, path: str, errors: Errors, *, covered: bool = False) -> None:
    """Check the name of a pool: DNS subdomains, separated by slashes."""
    segment_errors: Errors = []
    if not name:
        segment_errors.append(required(path))
    else:
        if length(name) > DNS_SUBDOMAIN_MAX:
            segment_errors.append(too_long(path, DNS_SUBDOMAIN_MAX))
        for part in name.split("/"):
            add_invalid(segment_errors, path, part, check_dns_subdomain(part))
    errors.extend(each._replace(covered=covered) for each in segment_errors)


def check_qualified_name(name: str, path: str, errors: Errors) -> None:
    """Check the name of an attribute or capacity, `[domain/]name`."""
    parts = name.split("/")
    if len(parts) == 2:
        if not parts[0]:
            errors.append(invalid(path, "", "the domain must not be empty"))
        else:
            check_driver_name(parts[0], path, errors)
        if not parts[1]:
            errors.append(invalid(path, "", "the name must not be empty"))
            return
    # More than one slash is not checked, as upstream.
    if len(parts) <= 2:
        _check_identifier(parts[-1], path, errors)


def check_full_name(name: str, path: str) -> list[FieldError]:
    """Declared check of an attribute's name with its domain."""
    errors: Errors = []
    parts = name.split("/")
    if len(parts) == 2:
        if not parts[0]:
            errors.append(invalid(path, "", "prefix must not be empty"))
        else:
            if length(parts[0]) > DRIVER_MAX:
                errors.append(too_long(path, DRIVER_MAX))
            wrong = (f"prefix: {each}" for each in _in_bytes(check_dns_subdomain(parts[0])))
            add_invalid(errors, path, parts[0], wrong)
        if not parts[1]:
            errors.append(invalid(path, "", "name must not be empty"))
    if len(parts) <= 2 and parts[-1]:
        _check_identifier(parts[-1], path, errors)
    elif len(parts) == 1:
        _check_identifier("", path, errors)
    if "/" not in name:
        errors.append(invalid(path, name, _NO_DOMAIN))
    return errors


def _check_identifier(name: str, path: str, errors: Errors) -> None:
    if length(name) > IDENTIFIER_MAX:
        errors.append(too_long(path, IDENTIFIER_MAX))
    add_invalid(errors, path, name, check_identifier(name))


def check_reference(name: str, path: str, requests: Requests, errors: Errors) -> None:
    """Check that a text names a request, `request[/alternative]`."""
    parts = name.split("/")
    if len(parts) > 2:
        errors.append(invalid(path, name, _REFERENCE))
        return
    for part in parts:
        add_invalid(errors, path, part, check_dns_label(part))
    is_known = parts[0] in requests and (len(parts) == 1 or parts[1] in requests[parts[0]])
    if not is_known:
        errors.append(invalid(path, name, _REFERENCE))


def declared_driver_name(name: str, path: str) -> list[FieldError]:
    """Declared check of a driver's name."""
    errors = [invalid(path, name, each) for each in check_caseless_dns_subdomain(name)]
    if len(name) > DRIVER_MAX:
        errors.append(too_long_characters(path, DRIVER_MAX))
    return errors


def declared_pool_name(name: str, path: str) -> list[FieldError]:
    """Declared check of a pool's name."""
    errors: Errors = []
    if length(name) > DNS_SUBDOMAIN_MAX:
        errors.append(too_long(path, DNS_SUBDOMAIN_MAX))
    for position, part in enumerate(name.split("/")):
        prefix = f"segment {position}: "
        if part:
            wrong = (prefix + each for each in _in_bytes(check_dns_subdomain(part)))
            add_invalid(errors, path, part, wrong)
        else:
            errors.append(invalid(path, name, f"{prefix}must not be empty"))
    return errors


def declared_short_name(name: str, path: str) -> list[FieldError]:
    """Declared check of a DNS label."""
    return [invalid(path, name, each) for each in _in_bytes(check_dns_label(name))]


def declared_long_name(name: str, path: str) -> list[FieldError]:
    """Declared check of a DNS subdomain."""
    return [invalid(path, name, each) for each in _in_bytes(check_dns_subdomain(name))]


def declared_label_key(name: str, path: str) -> list[FieldError]:
    """Declared check of a label key."""
    return [invalid(path, name, each) for each in check_label_key(name)]


def declared_uuid(text: str, path: str) -> list[FieldError]:
    """Declared check of a UUID."""
    parts = text.split("-")
    is_good = [len(each) for each in parts] == [8, 4, 4, 4, 12] and _HEX.issuperset("".join(parts))
    return [] if is_good else [invalid(path, text, _UUID)]


def declared_extended_name(name: str, path: str) -> list[FieldError]:
    """Declared check of an extended resource's name."""
    wrong: list[str] = []
    if "/" not in name:
        wrong.append("a name must be a domain-prefixed path, such as 'example.com/my-prop'")
    elif "kubernetes.io/" in name:
        wrong.append('must not have "kubernetes.io/" domain')
    if name.startswith("requests."):
        wrong.append('must not have "requests." prefix')
    wrong += check_label_key(f"requests.{name}")
    return [invalid(path, name, each) for each in wrong]


def name_of_class(name: str, is_prefix: bool) -> list[str]:  # noqa: FBT001  # a CheckName
    """Check the name of a DeviceClass; a prefix is not checked."""
    return [] if is_prefix else _in_bytes(check_dns_subdomain(name))


def _in_bytes(messages: list[str]) -> list[str]:
    """Return messages with the unit of declared rules."""
    return [
        each.replace(" characters", " bytes") if each.startswith("must be no more than") else each
        for each in messages
    ]
