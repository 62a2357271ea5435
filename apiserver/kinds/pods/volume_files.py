"""Validation of files in volumes.

{"key": "config.yaml", "path": "conf/config.yaml", "mode": 256}
{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import child, invalid, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.file_paths import local_path
from kvstack.apiserver.kinds.pods.field_references import (
    FILE_FIELDS,
    check_field_reference,
    check_resource_reference,
)
from kvstack.apiserver.kinds.rules import Errors, all_of, file_mode, needs, numeric_id


def check_downward_file(item: Object, path: str, errors: Errors) -> None:
    """Check a file that holds a field or a resource; `path`: of the list's owner."""
    _file_path(item, path, errors)
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        check_field_reference(field, child(path, "fieldRef"), errors, FILE_FIELDS)
        if resource is not None:
            message = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid(path, "resource", message))
    elif resource is not None:
        resource_path = child(path, "resourceFieldRef")
        check_resource_reference(resource, resource_path, errors, needs_container=True)
    else:
        errors.append(required(path, "one of fieldRef and resourceFieldRef is required"))
    _file_mode_and_user(item, path, errors)


_file_path: Final = all_of(needs("path"), local_path("path"))
_file_mode_and_user: Final = all_of(file_mode("mode"), numeric_id("user"))

default_mode_and_user: Final = all_of(file_mode("defaultMode"), numeric_id("defaultUser"))
"""Check the defaults of a volume's files."""
check_key_to_path: Final = all_of(needs("key"), _file_path, _file_mode_and_user)
"""Check a file with the value of a key of a Secret or ConfigMap."""
