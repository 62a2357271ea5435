"""Validation of environment variables: single ones, and envFrom.

env[0] = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
envFrom[0] = {"prefix": "DB_", "secretRef": {"name": "db"}}
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import child, index, invalid, not_found
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    check_config_key,
    check_dns_label,
    check_relaxed_env_name,
    name_is_dns_subdomain,
)
from kvstack.apiserver.kinds.file_paths import path_without_steps_back
from kvstack.apiserver.kinds.pods.field_references import (
    ENV_FIELDS,
    check_field_reference,
    check_resource_reference,
)
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.rules import (
    Errors,
    Rule,
    add_invalid,
    all_of,
    formatted,
    needs,
    needs_formatted,
)

_MORE_THAN_ONE: Final = "may not have more than one field specified at a time"
_NO_VALUE_SOURCE: Final = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or"
    " `fileKeyRef`"
)


def check_env(variable: Object, path: str, errors: Errors) -> None:
    """Check one variable."""
    _name(variable, path, errors)
    source = variable.get("valueFrom")
    if source is not None:
        _check_value_source(source, variable.get("value", ""), child(path, "valueFrom"), errors)


def check_env_from(sources: list[Object], path: str, errors: Errors) -> None:
    """Check envFrom; errors about its size are reported at the list."""
    for position, source in enumerate(sources):
        source_path = index(path, position)
        _prefix(source, source_path, errors)
        source_fields = [
            each for each in ("configMapRef", "secretRef") if source.get(each) is not None
        ]
        for name in source_fields:
            _check_map(source[name], child(source_path, name), errors)
        if not source_fields:
            message = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(invalid(path, "", message))
        elif len(source_fields) > 1:
            errors.append(invalid(path, "", _MORE_THAN_ONE))


def check_file_key_volumes(scope: SpecScope) -> None:
    """Check that the volumes of fileKeyRef exist and are emptyDirs."""
    volumes: dict[str, Object] | None = None
    for container, path in scope.containers():
        for position, variable in enumerate(container.get("env") or ()):
            reference = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if reference is None:
                continue
            if volumes is None:
                all_volumes = scope.spec.get("volumes") or ()
                volumes = {each.get("name", ""): each for each in all_volumes}
            name = reference.get("volumeName", "")
            name_path = child(
                index(child(path, "env"), position), "valueFrom", "fileKeyRef", "volumeName"
            )
            volume = volumes.get(name)
            if volume is None:
                scope.errors.append(not_found(name_path, name))
            elif volume.get("emptyDir") is None:
                message = "referenced volume must be of type emptyDir"
                scope.errors.append(invalid(name_path, name, message))


def _check_value_source(source: Object, value: str, path: str, errors: Errors) -> None:
    sources = [each for each in _VALUE_SOURCES if source.get(each) is not None]
    for name in sources:
        _VALUE_SOURCES[name](source[name], child(path, name), errors)
    if not sources:
        errors.append(invalid(path, "", _NO_VALUE_SOURCE))
    elif value:
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(sources) > 1:
        errors.append(invalid(path, "", _MORE_THAN_ONE))


def _check_field(reference: Object, path: str, errors: Errors) -> None:
    check_field_reference(reference, path, errors, ENV_FIELDS)


def _check_resource(reference: Object, path: str, errors: Errors) -> None:
    check_resource_reference(reference, path, errors, needs_container=False)


def _check_name(reference: Object, path: str, errors: Errors) -> None:
    name = reference.get("name", "")
    add_invalid(errors, child(path, "name"), name, name_is_dns_subdomain(name, False))


def _prefix_is_subdomain(name: str) -> list[str]:
    return name_is_dns_subdomain(name, True)


_name: Final = needs_formatted("name", check_relaxed_env_name)
_prefix: Final = formatted("prefix", check_relaxed_env_name)
_check_map: Final = needs_formatted("name", _prefix_is_subdomain)
_check_key: Final = all_of(_check_name, needs_formatted("key", check_config_key))
_VALUE_SOURCES: Final[dict[str, Rule]] = {
    "fieldRef": _check_field,
    "resourceFieldRef": _check_resource,
    "configMapKeyRef": _check_key,
    "secretKeyRef": _check_key,
    "fileKeyRef": all_of(
        needs_formatted("key", check_relaxed_env_name),
        needs_formatted("volumeName", check_dns_label),
        needs("path"),
        path_without_steps_back("path"),
    ),
}
"""Sources of a variable's value, in order of evaluation."""
