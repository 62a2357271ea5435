"""Load balancer status of Services and Ingresses."""

from kvstack.apimachinery.objects.addresses import ip_warnings, parse_ip, validate_legacy_ip
from kvstack.apimachinery.objects.field_errors import (
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.rules import Errors, add_invalid

_MODES = ("Proxy", "VIP")


def check_load_balancer_status(
    errors: Errors, path: str, status: Object, old: Object, *, has_modes: bool
) -> None:
    """Check addresses and names; has_modes: of a Service, not an Ingress."""
    accepted = [each["ip"] for each in old.get("ingress") or () if each.get("ip")]
    for position, each in enumerate(status.get("ingress") or ()):
        field = index(child(path, "ingress"), position)
        ip = each.get("ip", "")
        if ip:
            errors.extend(validate_legacy_ip(child(field, "ip"), ip, accepted=accepted))
        if has_modes:
            _check_mode(errors, child(field, "ipMode"), ip, each.get("ipMode"))
        name = each.get("hostname", "")
        if name:
            check_host(errors, child(field, "hostname"), name)


def check_host(errors: Errors, path: str, name: str) -> None:
    """Check a DNS name that must not be an address."""
    add_invalid(errors, path, name, check_dns_subdomain(name))
    if parse_ip(name) is not None:
        errors.append(invalid(path, name, "must be a DNS name, not an IP address"))


def status_warnings(obj: Object) -> list[str]:
    """Return the warnings about addresses in a status."""
    warnings: list[str] = []
    ingress = (obj["status"].get("loadBalancer") or {}).get("ingress")
    for position, each in enumerate(ingress or ()):
        path = index("status.loadBalancer.ingress", position)
        warnings.extend(ip_warnings(path, each.get("ip", "")))
    return warnings


def shown_addresses(obj: Object) -> str:
    """Return the addresses, or hostnames if there are none, sorted, without duplicates."""
    ingress = (obj["status"].get("loadBalancer") or {}).get("ingress")
    shown = {each.get("ip") or each.get("hostname") or "" for each in ingress or ()}
    return ",".join(sorted(shown - {""}))


def _check_mode(errors: Errors, path: str, ip: str, mode: str | None) -> None:
    if mode is None:
        if ip:
            errors.append(required(path, "must be specified when `ip` is set"))
    elif not ip:
        errors.append(forbidden(path, "may not be specified when `ip` is not set"))
    elif mode not in _MODES:
        errors.append(not_supported(path, JsonText(mode), _MODES))
