"""RoleBindings and ClusterRoleBindings, whose roleRef is immutable."""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    IMMUTABLE,
    check_dns_subdomain,
    check_path_segment,
    name_is_path_segment,
)
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.internal_values import internal_value
from kvstack.apiserver.kinds.rbac.declared import DECLARED
from kvstack.apiserver.kinds.rules import Errors, Rule, add_invalid, each
from kvstack.apiserver.kinds.strategy import Context, Deletion, Strategy

GROUP: Final = "rbac.authorization.k8s.io"
SERVICE_ACCOUNT: Final = "ServiceAccount"
USER: Final = "User"
GROUP_OF_USERS: Final = "Group"

_TYPES: Final = "io.k8s.api.rbac.v1"
_SUBJECT_KINDS: Final = (SERVICE_ACCOUNT, USER, GROUP_OF_USERS)
_ROLE_KINDS: Final = {True: ("Role", "ClusterRole"), False: ("ClusterRole",)}
"""Kinds that can be bound, by whether the binding is namespaced."""


def _default(obj: Object) -> None:
    reference = obj.setdefault("roleRef", {})
    if not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in obj.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in {USER, GROUP_OF_USERS}:
            subject["apiGroup"] = GROUP


def _check_reference(reference: Object, errors: Errors, *, is_namespaced: bool) -> None:
    group, kind, name = (reference.get(each, "") for each in ("apiGroup", "kind", "name"))
    if group != GROUP:
        errors.append(not_supported("roleRef.apiGroup", group, (GROUP,)))
    if kind not in _ROLE_KINDS[is_namespaced]:
        errors.append(not_supported("roleRef.kind", kind, _ROLE_KINDS[is_namespaced]))
    if name:
        add_invalid(errors, "roleRef.name", name, check_path_segment(name))
    else:
        errors.append(required("roleRef.name")._replace(covered=True))


def _subject(*, is_namespaced: bool) -> Rule:
    """Return the check of a subject."""

    def check(subject: dict[str, Any], path: str, errors: Errors) -> None:
        kind, name, group = (subject.get(each, "") for each in ("kind", "name", "apiGroup"))
        if not name:
            errors.append(required(child(path, "name"))._replace(covered=True))
        if kind not in _SUBJECT_KINDS:
            errors.append(not_supported(child(path, "kind"), kind, _SUBJECT_KINDS))
            return
        is_account = kind == SERVICE_ACCOUNT
        if is_account and name:
            add_invalid(errors, child(path, "name"), name, check_dns_subdomain(name))
        wanted = "" if is_account else GROUP
        if group != wanted:
            errors.append(not_supported(child(path, "apiGroup"), group, (wanted,)))
        if is_account and not is_namespaced and not subject.get("namespace"):
            errors.append(required(child(path, "namespace")))

    return check


def _strategy(kind: str, *, is_namespaced: bool) -> Strategy:
    type_name = f"{_TYPES}.{kind}"
    check_subjects = each("subjects", _subject(is_namespaced=is_namespaced))

    def own_errors(obj: Object) -> list[FieldError]:
        errors: Errors = []
        _check_reference(obj["roleRef"], errors, is_namespaced=is_namespaced)
        check_subjects(obj, "", errors)
        return errors

    def validate(obj: Object, _context: Context) -> list[FieldError]:
        return DECLARED.merge(own_errors(obj), obj, None, type_name)

    def validate_update(new: Object, old: Object, _context: Context) -> list[FieldError]:
        errors = own_errors(new)
        if new["roleRef"] != old["roleRef"]:
            value = internal_value(new["roleRef"], f"{_TYPES}.RoleRef")
            errors.append(invalid("roleRef", value, IMMUTABLE))
        return DECLARED.merge(errors, new, old, type_name)

    return Strategy(
        deletion=Deletion(allows_unread=False),
        default=_default,
        validate=validate,
        validate_update=validate_update,
        check_name=name_is_path_segment,
        allows_create_on_update=True,
        cells=_cells,
    )


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, reference = obj["metadata"], obj.get("roleRef") or {}
    subjects = obj.get("subjects") or []
    accounts = (
        f"{each.get('namespace', '')}/{each.get('name', '')}"
        for each in _of_kind(subjects, SERVICE_ACCOUNT)
    )
    return [
        metadata["name"],
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        age(metadata.get("creationTimestamp"), now),
        ", ".join(each.get("name", "") for each in _of_kind(subjects, USER)),
        ", ".join(each.get("name", "") for each in _of_kind(subjects, GROUP_OF_USERS)),
        ", ".join(accounts),
    ]


def _of_kind(subjects: list[Object], kind: str) -> Iterable[Object]:
    return (each for each in subjects if each.get("kind") == kind)


ROLE_BINDINGS: Final = _strategy("RoleBinding", is_namespaced=True)
CLUSTER_ROLE_BINDINGS: Final = _strategy("ClusterRoleBinding", is_namespaced=False)
