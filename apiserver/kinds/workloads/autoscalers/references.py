"""Validation of references to objects of any kind: `{apiVersion, kind, name}`."""

from kvstack.apimachinery.objects.field_errors import child, invalid, required
from kvstack.apimachinery.objects.groups import parse_group_version
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apiserver.kinds.rules import Errors, add_invalid


def check_reference(
    errors: Errors, reference: Object, path: str, *, is_core_allowed: bool, checks_version: bool
) -> None:
    """Check a reference; is_core_allowed: whether the API group may be the core group."""
    for name in ("kind", "name"):
        value = reference.get(name, "")
        if value:
            add_invalid(errors, child(path, name), value, check_path_segment(value))
        else:
            errors.append(required(child(path, name)))
    if checks_version:
        api_version = reference.get("apiVersion", "")
        problem = api_version_problem(api_version, is_core_allowed=is_core_allowed)
        if problem:
            errors.append(invalid(child(path, "apiVersion"), api_version, problem))


def api_version_problem(api_version: str, *, is_core_allowed: bool) -> str:
    """Return the errors of the `apiVersion` of a reference; "": none."""
    try:
        group = parse_group_version(api_version).group
    except ValueError as error:
        return str(error)
    return "" if group or is_core_allowed else "apiVersion must specify API group"
