"""Checks of file paths: relative, absolute, without `..`."""

from typing import Any

from kvstack.apimachinery.objects.field_errors import child, invalid
from kvstack.apiserver.kinds.rules import Errors, Rule


def absolute_path(name: str) -> Rule:
    """Return the check that a field holds an absolute path."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value: str = obj.get(name, "")
        if not value.startswith("/"):
            errors.append(invalid(child(path, name), value, "must be an absolute path"))

    return check


def descending_path(name: str) -> Rule:
    """Return the check that a path is relative and without `..`."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        check_descending(errors, child(path, name), obj.get(name, ""))

    return check


def local_path(name: str) -> Rule:
    """Return the check that a path is relative and has no element with a leading `..`."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        value: str = obj.get(name, "")
        if ".." in value or value.startswith("/"):
            check_local(errors, child(path, name), value)

    return check


def path_without_steps_back(name: str) -> Rule:
    """Return the check that a path has no element `..`."""

    def check(obj: dict[str, Any], path: str, errors: Errors) -> None:
        check_no_steps_back(errors, child(path, name), obj.get(name, ""))

    return check


def has_step_back(path: str) -> bool:
    """Return whether one element of the path is `..`."""
    return ".." in path and ".." in path.split("/")


def check_no_steps_back(errors: Errors, field: str, path: str) -> None:
    """Add an error if an element of the path is `..`."""
    if has_step_back(path):
        errors.append(invalid(field, path, "must not contain '..'"))


def check_descending(errors: Errors, field: str, path: str) -> None:
    """Check that a path is relative and without `..`."""
    if path.startswith("/"):
        errors.append(invalid(field, path, "must be a relative path"))
    check_no_steps_back(errors, field, path)


def check_local(errors: Errors, field: str, path: str) -> None:
    """Check a path below a volume, where names with a leading `..` are reserved."""
    check_descending(errors, field, path)
    if path.startswith("..") and not path.startswith("../"):
        errors.append(invalid(field, path, "must not start with '..'"))
