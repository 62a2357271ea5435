"""Conflicts of an apply with other managers.

    Apply failed with 3 conflicts: conflicts with "a" using apps/v1:
    - .spec.replicas
    - .spec.paused
    conflicts with "b":
    - .spec.replicas

Managers are sorted, and the causes have the same order.
"""

from collections.abc import Mapping

from kvstack.apimachinery.objects.status import ApiError, Cause, apply_conflict
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.apply.field_set import FieldSet, paths
from kvstack.apiserver.apply.managed_fields import UPDATE, Manager, identity
from kvstack.apiserver.apply.path import path_text

Conflicts = dict[Manager, FieldSet]
"""The fields that an apply would change, by their managers; no set is empty."""

_REASON = "FieldManagerConflict"


def conflict_error(conflicts: Mapping[Manager, FieldSet]) -> ApiError:
    """Return the error of all conflicts, of which there must be one."""
    paths_by_manager = {
        _text(manager): [path_text(path) for path in paths(conflicts[manager])]
        for manager in sorted(conflicts, key=identity)
    }
    causes = [
        _cause(manager, path) for manager, fields in paths_by_manager.items() for path in fields
    ]
    return apply_conflict(causes, _message(paths_by_manager, len(causes)))


def _message(paths_by_manager: Mapping[str, list[str]], count: int) -> str:
    if count == 1:
        manager, fields = next(iter(paths_by_manager.items()))
        return f"Apply failed with 1 conflict: conflict with {manager}: {fields[0]}"
    blocks = [
        "\n".join([f"conflicts with {manager}:", *(f"- {path}" for path in fields)])
        for manager, fields in paths_by_manager.items()
    ]
    return f"Apply failed with {count} conflicts: {chr(10).join(blocks)}"


def _cause(manager: str, path: str) -> Cause:
    return {"reason": _REASON, "message": f"conflict with {manager}", "field": path}


def _text(manager: Manager) -> str:
    text = quote(manager.name)
    if manager.subresource:
        text = f"{text} with subresource {quote(manager.subresource)}"
    if manager.operation == UPDATE:
        text = f"{text} using {manager.api_version}"
    return text
