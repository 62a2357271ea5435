"""Ingresses: hosts and paths of Services."""

from typing import Any, Final

from kvstack.apimachinery.objects.addresses import parse_ip
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_dns_label,
    check_dns_subdomain,
    check_path_segment,
    check_port_name,
    check_port_number,
    check_wildcard_dns_subdomain,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apimachinery.well_known import INGRESS_CLASS_ANNOTATION
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.network.load_balancers import (
    check_load_balancer_status,
    shown_addresses,
    status_warnings,
)
from kvstack.apiserver.kinds.rules import (
    Errors,
    Rule,
    add_invalid,
    all_of,
    needs_formatted,
)
from kvstack.apiserver.kinds.status_metadata import keep_spec
from kvstack.apiserver.kinds.strategy import Context, Strategy, with_status

_SPEC: Final = "io.k8s.api.networking.v1.IngressSpec"
_PATH_TYPES: Final = enum_values("io.k8s.api.networking.v1.HTTPIngressPath", "pathType")
_BAD_SEQUENCES: Final = ("//", "/./", "/../", "%2f", "%2F")
_BAD_ENDINGS: Final = ("/..", "/.")
_HOSTS_SHOWN: Final = 3


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {"loadBalancer": {}}
    obj["metadata"]["generation"] = 1


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = old["status"]
    raise_generation(new, old, _SPEC)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    _check_spec(errors, obj["spec"])
    name = obj["spec"].get("ingressClassName")
    annotation = (obj["metadata"].get("annotations") or {}).get(INGRESS_CLASS_ANNOTATION)
    if name is not None and annotation is not None and name != annotation:
        detail = "must match `ingressClassName` when both are specified"
        errors.append(invalid(f"annotations.{INGRESS_CLASS_ANNOTATION}", annotation, detail))
    return errors


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    old_spec = old["spec"]
    _check_spec(
        errors,
        new["spec"],
        allows_bad_secret=any(
            check_dns_subdomain(each["secretName"])
            for each in old_spec.get("tls") or ()
            if each.get("secretName")
        ),
        allows_bad_wildcard=_has_bad_wildcard(old_spec),
    )
    return errors


def _validate_status(new: Object, old: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    status, before = new["status"].get("loadBalancer"), old["status"].get("loadBalancer")
    path = "status.loadBalancer"
    check_load_balancer_status(errors, path, status or {}, before or {}, has_modes=False)
    return errors


def _check_spec(
    errors: Errors,
    spec: Object,
    *,
    allows_bad_secret: bool = False,
    allows_bad_wildcard: bool = False,
) -> None:
    rules, backend = spec.get("rules") or [], spec.get("defaultBackend")
    if not rules and backend is None:
        detail = "either `defaultBackend` or `rules` must be specified"
        errors.append(invalid("spec", spec.get("rules"), detail))
    if backend is not None:
        _check_backend(backend, "spec.defaultBackend", errors)
    for position, rule in enumerate(rules):
        path = index("spec.rules", position)
        host = rule.get("host", "")
        if host:
            _check_rule_host(errors, child(path, "host"), host)
        if "*" not in host or not allows_bad_wildcard:
            _check_rule_value(rule, path, errors)
    for position, tls in enumerate(spec.get("tls") or ()):
        _check_tls(errors, index("spec.tls", position), tls, allows_bad_secret=allows_bad_secret)
    name = spec.get("ingressClassName")
    if name is not None:
        add_invalid(errors, "spec.ingressClassName", name, check_dns_subdomain(name))


def _has_bad_wildcard(spec: Object) -> bool:
    errors: Errors = []
    for rule in spec.get("rules") or ():
        if "*" in rule.get("host", ""):
            _check_rule_value(rule, "", errors)
    return bool(errors)


def _check_rule_host(errors: Errors, path: str, host: str) -> None:
    if parse_ip(host) is not None:
        errors.append(invalid(path, host, "must be a DNS name, not an IP address"))
    _check_pattern(errors, path, host)


def _check_pattern(errors: Errors, path: str, host: str) -> None:
    check = check_wildcard_dns_subdomain if "*" in host else check_dns_subdomain
    add_invalid(errors, path, host, check(host))


def _check_tls(errors: Errors, path: str, tls: Object, *, allows_bad_secret: bool) -> None:
    for position, host in enumerate(tls.get("hosts") or ()):
        _check_pattern(errors, index(child(path, "hosts"), position), host)
    secret = tls.get("secretName", "")
    if secret and not allows_bad_secret:
        add_invalid(errors, child(path, "secretName"), secret, check_dns_subdomain(secret))


def _check_rule_value(rule: Object, path: str, errors: Errors) -> None:
    http = rule.get("http")
    if http is None:
        return
    paths_path = child(path, "http", "paths")
    if not http.get("paths"):
        errors.append(required(paths_path))
    for position, each in enumerate(http.get("paths") or ()):
        _check_path(each, index(paths_path, position), errors)


def _check_path(item: Object, path: str, errors: Errors) -> None:
    kind = item.get("pathType")
    if kind is None:
        errors.append(required(child(path, "pathType"), "pathType must be specified"))
        return
    if kind in _PATH_TYPES:
        text = item.get("path", "")
        is_free = kind == "ImplementationSpecific"
        add_invalid(errors, child(path, "path"), text, _path_problems(text, is_free=is_free))
    else:
        errors.append(not_supported(child(path, "pathType"), JsonText(kind), _PATH_TYPES))
    _check_backend(item.get("backend") or {}, child(path, "backend"), errors)


def _path_problems(text: str, *, is_free: bool) -> list[str]:
    if is_free and not text:
        return []
    problems = [] if text.startswith("/") else ["must be an absolute path"]
    if not is_free:
        problems.extend(f"must not contain '{each}'" for each in _BAD_SEQUENCES if each in text)
        problems.extend(f"cannot end with '{each}'" for each in _BAD_ENDINGS if text.endswith(each))
    return problems


def _check_backend(backend: Object, path: str, errors: Errors) -> None:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        detail = "cannot set both resource and service backends"
        errors.append(invalid(path, "", detail))
    elif resource is not None:
        check_reference(resource, child(path, "resource"), errors)
    elif service is not None:
        _check_service_name(service, child(path, "service"), errors)
        _check_service_port(errors, path, service.get("port") or {})
    else:
        errors.append(invalid(path, "", "resource or service backend is required"))


def _check_service_port(errors: Errors, path: str, port: Object) -> None:
    name, number = port.get("name", ""), port.get("number", 0)
    port_path = child(path, "service", "port")
    if name and number:
        errors.append(invalid(path, "", "cannot set both port name & port number"))
    elif name:
        add_invalid(errors, child(port_path, "name"), name, check_port_name(name))
    elif number:
        add_invalid(errors, child(port_path, "number"), number, check_port_number(number))
    else:
        errors.append(required(path, "port name or number is required"))


def _check_group(reference: Object, path: str, errors: Errors) -> None:
    group = reference.get("apiGroup")
    if group is not None:
        add_invalid(errors, child(path, "apiGroup"), group, check_dns_subdomain(group))


check_reference: Final[Rule] = all_of(
    _check_group,
    needs_formatted("kind", check_path_segment),
    needs_formatted("name", check_path_segment),
)
"""The check of a reference to an object of any kind: group, kind and name."""

_check_service_name: Final[Rule] = needs_formatted("name", check_dns_label)


def _warnings(obj: Object, _context: Context) -> list[str]:
    annotations = obj["metadata"].get("annotations") or {}
    if INGRESS_CLASS_ANNOTATION not in annotations or "ingressClassName" in obj["spec"]:
        return []
    return [
        f'annotation "{INGRESS_CLASS_ANNOTATION}" is deprecated,'
        " please use 'spec.ingressClassName' instead"
    ]


def _status_warnings(new: Object, _old: Object, _context: Context) -> list[str]:
    return status_warnings(new)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    name = spec.get("ingressClassName")
    return [
        metadata["name"],
        "<none>" if name is None else name,
        _hosts(spec.get("rules") or []),
        shown_addresses(obj),
        "80, 443" if spec.get("tls") else "80",
        age(metadata.get("creationTimestamp"), now),
    ]


def _hosts(rules: list[Object]) -> str:
    hosts: list[str] = []
    has_more = False
    for each in rules:
        has_more = len(hosts) == _HOSTS_SHOWN
        if has_more:
            break
        if each.get("host"):
            hosts.append(each["host"])
    text = ",".join(hosts) or "*"
    return f"{text} + {len(rules) - _HOSTS_SHOWN} more..." if has_more else text


INGRESSES: Final = with_status(
    Strategy(
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        has_generation=True,
        cells=_cells,
    ),
    prepare_update=keep_spec,
    validate_update=_validate_status,
    update_warnings=_status_warnings,
)
