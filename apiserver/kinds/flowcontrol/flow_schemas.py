"""FlowSchemas: classification of requests to priority levels."""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_dns_label, check_dns_subdomain
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.flowcontrol import mandatory
from kvstack.apiserver.kinds.flowcontrol.status import (
    prepare_create,
    prepare_status,
    prepare_update_of,
    status_errors,
    validate_status,
)
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rules import Errors, Rule, add_invalid, all_of, each
from kvstack.apiserver.kinds.strategy import Context, Strategy, TableFormat, with_status

_TYPES: Final = "io.k8s.api.flowcontrol.v1"
_SPEC: Final = f"{_TYPES}.FlowSchemaSpec"
_DEFAULT_PRECEDENCE: Final = 1000
_PRECEDENCE_MAX: Final = 10000
_METHODS: Final = ("ByNamespace", "ByUser")
_SUBJECT_FIELDS: Final = {
    "Group": "group",
    "ServiceAccount": "serviceAccount",
    "User": "user",
}
"""The field of each kind of subject, in the order of errors."""
_ERROR_ORDER: Final = ("ServiceAccount", "User", "Group")
"""The order in which fields are checked."""
_VERBS: Final = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
)
_NAMESPACE_INTRODUCTION: Final = "each member of this list must be '*' or a DNS-1123 label; "


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("matchingPrecedence"):
        spec["matchingPrecedence"] = _DEFAULT_PRECEDENCE


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: Errors = []
    name, spec = obj["metadata"].get("name", ""), obj["spec"]
    _check_spec(name, spec, errors)
    fixed = mandatory.FLOW_SCHEMAS.get(name)
    if fixed is not None and not same(spec, fixed, _SPEC):
        detail = f"spec of '{name}' must equal the fixed value"
        errors.append(invalid("spec", internal_value(spec, _SPEC), detail))
    return errors + status_errors(obj)


def _validate_update(new: Object, _old: Object, context: Context) -> list[FieldError]:
    return _validate(new, context)


def _check_spec(name: str, spec: Object, errors: Errors) -> None:
    _check_precedence(name, spec["matchingPrecedence"], errors)
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type", "") not in _METHODS:
        value = internal_value(method, f"{_TYPES}.FlowDistinguisherMethod")
        errors.append(not_supported("spec.distinguisherMethod.type", value, _METHODS))
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    path = "spec.priorityLevelConfiguration.name"
    if level:
        add_invalid(errors, path, level, check_dns_subdomain(level))
    else:
        errors.append(required(path, "must reference a priority level"))
    _check_rules(spec, "spec", errors)


def _check_precedence(name: str, value: int, errors: Errors) -> None:
    path = "spec.matchingPrecedence"
    if value <= 0:
        errors.append(invalid(path, value, "must be a positive value"))
    if value > _PRECEDENCE_MAX:
        errors.append(invalid(path, value, f"must not be greater than {_PRECEDENCE_MAX}"))
    if value == 1 and name != mandatory.EXEMPT:
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        errors.append(invalid(path, value, detail))


def _check_rule(rule: dict[str, Any], path: str, errors: Errors) -> None:
    if not rule.get("subjects"):
        detail = "subjects must contain at least one value"
        errors.append(required(child(path, "subjects"), detail))
    _check_subjects(rule, path, errors)
    if not rule.get("resourceRules") and not rule.get("nonResourceRules"):
        detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
        errors.append(required(path, detail))
    _check_parts(rule, path, errors)


def _check_subject(subject: dict[str, Any], path: str, errors: Errors) -> None:
    kind = subject.get("kind", "")
    if kind not in _SUBJECT_FIELDS:
        errors.append(not_supported(child(path, "kind"), JsonText(kind), _SUBJECT_FIELDS))
        return
    field = _SUBJECT_FIELDS[kind]
    who, where = subject.get(field), child(path, field)
    if who is None:
        errors.append(required(where, f"{field} is required when subject kind is '{kind}'"))
    else:
        _check_who(kind, who, where, errors)
    for other in _ERROR_ORDER:
        field = _SUBJECT_FIELDS[other]
        if other != kind and subject.get(field) is not None:
            detail = f"{field} is forbidden when subject kind is not '{other}'"
            errors.append(forbidden(child(path, field), detail))


def _check_who(kind: str, who: Object, path: str, errors: Errors) -> None:
    name = who.get("name", "")
    if not name:
        errors.append(required(child(path, "name")))
    if kind != "ServiceAccount":
        return
    if name and name != "*":
        add_invalid(errors, child(path, "name"), name, check_dns_subdomain(name))
    namespace, where = who.get("namespace", ""), child(path, "namespace")
    if namespace:
        add_invalid(errors, where, namespace, check_dns_label(namespace))
    else:
        errors.append(required(where, "must specify namespace for service account"))


def _check_verbs(rule: dict[str, Any], path: str, errors: Errors) -> None:
    verbs, where = rule.get("verbs") or [], child(path, "verbs")
    if not verbs:
        errors.append(required(where, "verbs must contain at least one value"))
    elif "*" in verbs:
        _check_alone(verbs, where, "verbs", errors)
    elif not set(verbs) <= set(_VERBS):
        errors.append(not_supported(where, verbs, _VERBS))


def _check_alone(values: Sequence[str], path: str, what: str, errors: Errors) -> None:
    if len(values) > 1 and "*" in values:
        errors.append(invalid(path, values, f"if '*' is present, must not specify other {what}"))


def _check_list(name: str, missing: str, what: str) -> Rule:
    """Return the check of a list that must not be empty, and in which `*` must be alone."""

    def check(rule: dict[str, Any], path: str, errors: Errors) -> None:
        values, where = rule.get(name) or [], child(path, name)
        if not values:
            errors.append(required(where, missing))
        _check_alone(values, where, what, errors)

    return check


def _check_urls(rule: dict[str, Any], path: str, errors: Errors) -> None:
    urls, where = rule.get("nonResourceURLs") or [], child(path, "nonResourceURLs")
    if not urls:
        errors.append(required(where, "nonResourceURLs must contain at least one value"))
    elif "*" in urls:
        _check_alone(urls, where, "non-resource URLs", errors)
    else:
        for position, url in enumerate(urls):
            problem = _url_problem(url)
            if problem:
                errors.append(invalid(index(where, position), url, problem))


def _url_problem(url: str) -> str:
    """Return the error of a path; empty: none."""
    if not url:
        return "must not be empty"
    if not url.startswith("/"):
        return "must start with slash"
    if " " in url:
        return "must not contain white-space"
    if "//" in url:
        return "must not contain double slash"
    stars = url.count("*")
    if stars > 1 or (stars == 1 and not url.endswith("/*")):
        return "wildcard can only do suffix matching"
    return ""


def _check_namespaces(rule: dict[str, Any], path: str, errors: Errors) -> None:
    namespaces, where = rule.get("namespaces") or [], child(path, "namespaces")
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        errors.append(required(where, detail))
    elif "*" in namespaces:
        _check_alone(namespaces, where, "namespaces", errors)
    else:
        for position, namespace in enumerate(namespaces):
            wrong = (f"{_NAMESPACE_INTRODUCTION}{each}" for each in check_dns_label(namespace))
            add_invalid(errors, index(where, position), namespace, wrong)


_check_rules: Final = each("rules", _check_rule)
_check_subjects: Final = each("subjects", _check_subject)
_check_parts: Final = all_of(
    each(
        "resourceRules",
        all_of(
            _check_verbs,
            _check_list(
                "apiGroups", "resource rules must supply at least one api group", "api groups"
            ),
            _check_list(
                "resources", "resource rules must supply at least one resource", "resources"
            ),
            _check_namespaces,
        ),
    ),
    each("nonResourceRules", all_of(_check_verbs, _check_urls)),
)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    dangling = find((obj.get("status") or {}).get("conditions"), "Dangling")
    method = spec.get("distinguisherMethod")
    return [
        metadata["name"],
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec["matchingPrecedence"],
        "<none>" if method is None else method.get("type", ""),
        age(metadata.get("creationTimestamp"), now),
        "?" if dangling is None else dangling.get("status", ""),
    ]


def _row_order(obj: Object) -> tuple[int, str]:
    return obj["spec"]["matchingPrecedence"], obj["metadata"]["name"]


FLOW_SCHEMAS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=prepare_create,
        prepare_update=prepare_update_of(_SPEC),
        validate=_validate,
        validate_update=_validate_update,
        has_generation=True,
        cells=_cells,
        table=TableFormat(order=_row_order),
    ),
    prepare_update=prepare_status,
    validate_update=validate_status,
    reset_fields=(("metadata",), ("spec",)),
)
