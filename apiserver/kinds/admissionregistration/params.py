"""Parameters of policies: the paramKind of a policy and the paramRef of a binding.

The writer of a policy or binding must be allowed to read its parameters.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import validate_object
from kvstack.apimachinery.objects.names import (
    check_dns1035_label,
    check_dns_subdomain,
    check_path_segment,
)
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_in_order
from kvstack.apiserver.kinds.access import ALL, SUPERUSERS, AccessRequest, user_text
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context

_GROUP: Final = "admissionregistration.k8s.io"
_ACTIONS: Final = enum_in_order(
    "io.k8s.api.admissionregistration.v1alpha1.ParamRef", "parameterNotFoundAction", "Deny", "Allow"
)
"""An enumeration in one version of the API alone."""
_EXCLUSIVE: Final = "name and selector are mutually exclusive"


def check_param_kind(kind: dict[str, Any], path: str, errors: Errors) -> None:
    """Check the paramKind of a policy."""
    _check_api_version(kind.get("apiVersion", ""), child(path, "apiVersion"), errors)
    name, name_path = kind.get("kind", ""), child(path, "kind")
    if not name:
        errors.append(required(name_path))
        return
    wrong = check_dns1035_label(name.lower())
    if wrong:
        detail = f"may have mixed case, but should otherwise match: {', '.join(wrong)}"
        errors.append(invalid(name_path, name, detail))


def _check_api_version(text: str, path: str, errors: Errors) -> None:
    if not text:
        errors.append(required(path))
        return
    if text.count("/") > 1:
        errors.append(invalid(path, text, f"unexpected GroupVersion string: {text}"))
        return
    group, _, version = text.rpartition("/")
    if group and (wrong := check_dns_subdomain(group)):
        errors.append(invalid(path, group, ",".join(wrong)))
    if not version:
        errors.append(invalid(path, text, "version must be specified"))
    elif wrong := check_dns1035_label(version):
        errors.append(invalid(path, version, ",".join(wrong)))


def check_param_reference(reference: dict[str, Any], path: str, errors: Errors) -> None:
    """Check the paramRef of a binding."""
    name, selector = reference.get("name", ""), reference.get("selector")
    if name:
        add_invalid(errors, child(path, "name"), name, check_path_segment(name))
        if selector is not None:
            errors.append(forbidden(child(path, "name"), _EXCLUSIVE))
    errors.extend(validate_object(child(path, "selector"), selector))
    if selector is not None and name:
        errors.append(forbidden(child(path, "selector"), _EXCLUSIVE))
    if not name and selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    action, action_path = (
        reference.get("parameterNotFoundAction"),
        child(path, "parameterNotFoundAction"),
    )
    if not action:
        errors.append(required(action_path))
    elif action not in _ACTIONS:
        errors.append(not_supported(action_path, JsonText(action), _ACTIONS))


def param_kind_denial(new: Object, old: Object | None, context: Context) -> list[FieldError]:
    """Return the error of a policy whose writer may not read its paramKind."""
    kind: Object | None = new["spec"].get("paramKind")
    if kind is None or (old is not None and old["spec"].get("paramKind") == kind):
        return []
    if SUPERUSERS in context.groups:
        return []
    group, version, resource = _resource_of(kind, context)
    if context.access.is_allowed(AccessRequest("get", group, version, resource, ALL, ALL)):
        return []
    detail = (
        f'user {_user(context)} must have "get" permission on all objects of the referenced'
        f" paramKind (kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')})"
    )
    return [forbidden("spec.paramKind", detail)]


def param_reference_denial(new: Object, policies: str, context: Context) -> list[FieldError]:
    """Return the error of a binding whose writer may not read its parameters.

    policies: the resource of its policy.
    """
    spec = new["spec"]
    reference: Object | None = spec.get("paramRef")
    if reference is None or SUPERUSERS in context.groups:
        return []
    policy_name = spec.get("policyName", "")
    policy = context.access.find(_GROUP, policies, "", policy_name)
    kind: Object | None = None if policy is None else policy["spec"].get("paramKind")
    group, version, resource = (ALL, ALL, ALL) if kind is None else _resource_of(kind, context)
    name = reference.get("name", "")
    verb = "get" if name else "list"
    namespace = reference.get("namespace", "")
    request = AccessRequest(verb, group, version, resource, namespace, name)
    if context.access.is_allowed(request):
        return []
    user, lacks = _user(context), f'does not have "{verb}" permission'
    everywhere = f"user {user} {lacks} for all groups, versions and resources"
    minimum = "to determine minimum required permissions and"
    if policy is None:
        detail = f"unable to get policy {policy_name} {minimum} {everywhere}"
    elif kind is not None and resource == ALL:
        shown = f"&{{{kind.get('apiVersion', '')} {kind.get('kind', '')}}}"
        detail = f"unable to resolve paramKind {shown} {minimum} {everywhere}"
    else:
        detail = f"user {user} {lacks} on the object referenced by paramRef"
    return [forbidden("spec.paramRef", detail)]


def _resource_of(kind: Object, context: Context) -> tuple[str, str, str]:
    """Return group, version and resource of a kind; `*` for unknown parts."""
    parts = kind.get("apiVersion", "").split("/")
    if len(parts) > 2:
        return ALL, ALL, ALL
    group, version = ("", *parts)[-2:]
    resource = context.access.resource_of(group, version, kind.get("kind", ""))
    return group, version, resource or ALL


def _user(context: Context) -> str:
    return user_text(context.user, context.user_uid, context.groups, context.extra)
