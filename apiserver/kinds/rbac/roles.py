"""Roles and ClusterRoles."""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, child, index, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import validate_object
from kvstack.apimachinery.objects.names import name_is_path_segment
from kvstack.apiserver.kinds.rbac.declared import DECLARED
from kvstack.apiserver.kinds.rules import Errors, Rule, each
from kvstack.apiserver.kinds.strategy import Context, Deletion, Strategy

_ROLE: Final = "io.k8s.api.rbac.v1.Role"
_CLUSTER_ROLE: Final = "io.k8s.api.rbac.v1.ClusterRole"
_SELECTORS: Final = "aggregationRule.clusterRoleSelectors"
_NO_URLS: Final = "namespaced rules cannot apply to non-resource URLs"
_NOT_BOTH: Final = "rules cannot apply to both regular resources and non-resource URLs"


def _rule(*, is_namespaced: bool) -> Rule:
    """Return the check of a rule of a role."""

    def check(rule: dict[str, Any], path: str, errors: Errors) -> None:
        if not rule.get("verbs"):
            missing = required(child(path, "verbs"), "verbs must contain at least one value")
            errors.append(missing._replace(covered=True))
        urls = rule.get("nonResourceURLs")
        if urls:
            urls_path = child(path, "nonResourceURLs")
            if is_namespaced:
                errors.append(invalid(urls_path, urls, _NO_URLS))
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                errors.append(invalid(urls_path, urls, _NOT_BOTH))
            return
        for name, what in (("apiGroups", "api group"), ("resources", "resource")):
            if not rule.get(name):
                detail = f"resource rules must supply at least one {what}"
                errors.append(required(child(path, name), detail))

    return check


_check_rules: Final = each("rules", _rule(is_namespaced=True))
_check_cluster_rules: Final = each("rules", _rule(is_namespaced=False))


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    return _role_errors(obj, None)


def _validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    return _role_errors(new, old)


def _role_errors(obj: Object, old: Object | None) -> list[FieldError]:
    errors: Errors = []
    _check_rules(obj, "", errors)
    return DECLARED.merge(errors, obj, old, _ROLE)


def _validate_cluster(obj: Object, _context: Context) -> list[FieldError]:
    return _cluster_role_errors(obj, None, allow_invalid_values=False)


def _validate_cluster_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
    was_wrong = any(validate_object("", each) for each in _selectors(old))
    return _cluster_role_errors(new, old, allow_invalid_values=was_wrong)


def _cluster_role_errors(
    obj: Object, old: Object | None, *, allow_invalid_values: bool
) -> list[FieldError]:
    errors: Errors = []
    _check_cluster_rules(obj, "", errors)
    selectors = _selectors(obj)
    if obj.get("aggregationRule") is not None and not selectors:
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required(_SELECTORS, detail))
    for position, selector in enumerate(selectors):
        path = index(_SELECTORS, position)
        errors += validate_object(path, selector, allow_invalid_values=allow_invalid_values)
        if validate_object(path, selector):
            # The value is the converted selector, which is nil.
            errors.append(invalid(path, None, "invalid label selector."))
    return DECLARED.merge(errors, obj, old, _CLUSTER_ROLE)


def _selectors(obj: Object) -> list[Object]:
    return (obj.get("aggregationRule") or {}).get("clusterRoleSelectors") or []


def _strategy(
    validate: Callable[[Object, Context], list[FieldError]],
    validate_update: Callable[[Object, Object, Context], list[FieldError]],
) -> Strategy:
    return Strategy(
        deletion=Deletion(allows_unread=False),
        validate=validate,
        validate_update=validate_update,
        check_name=name_is_path_segment,
        allows_create_on_update=True,
    )


ROLES: Final = _strategy(_validate, _validate_update)
CLUSTER_ROLES: Final = _strategy(_validate_cluster, _validate_cluster_update)
