"""References to fields of the pod and to resources of its containers, in env and files.

fieldRef: {"apiVersion": "v1", "fieldPath": "metadata.labels['app']"}
resourceFieldRef: {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import child, invalid, not_supported, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key
from kvstack.apimachinery.objects.quantity import canonical
from kvstack.apiserver.kinds.rules import Errors, add_invalid

ENV_FIELDS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
"""Fields that an environment variable may refer to, sorted."""
FILE_FIELDS: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
    "metadata.uid",
)  # fmt: skip
"""Fields that a file may hold, sorted."""

_KNOWN_FIELDS: Final = frozenset((
    *ENV_FIELDS, *FILE_FIELDS, "spec.restartPolicy", "spec.schedulerName", "status.phase",
))  # fmt: skip
_SUBSCRIPTED: Final = frozenset(("metadata.annotations", "metadata.labels"))
_RESOURCES: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory",
    "requests.cpu", "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS: Final = ("1m", "1")
_SIZE_DIVISORS: Final = (
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
)  # fmt: skip
_SIZES: Final = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}


def check_field_reference(
    reference: Object, path: str, errors: Errors, fields: tuple[str, ...]
) -> None:
    """Check a reference to a field of the pod, which must be among `fields` or have a subscript."""
    for name in ("apiVersion", "fieldPath"):
        if not reference.get(name):
            errors.append(required(child(path, name)))
            return
    field_path: str = reference["fieldPath"]
    stem, subscript = split_subscript(field_path)
    problem = _unknown_field(reference["apiVersion"], field_path, stem, subscript)
    if problem:
        message = f"error converting fieldPath: {problem}"
        errors.append(invalid(child(path, "fieldPath"), field_path, message))
    elif subscript is not None:
        name = subscript.lower() if stem == "metadata.annotations" else subscript
        add_invalid(errors, path, name, check_label_key(name))
    else:
        field = "spec.nodeName" if stem == "spec.host" else stem
        if field not in fields:
            errors.append(not_supported(child(path, "fieldPath"), field, fields))


def check_resource_reference(
    reference: Object, path: str, errors: Errors, *, needs_container: bool
) -> None:
    """Check a reference to a request or limit of a container."""
    resource: str = reference.get("resource", "")
    if needs_container and not reference.get("containerName"):
        errors.append(required(child(path, "containerName")))
    elif not resource:
        errors.append(required(child(path, "resource")))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        errors.append(not_supported(child(path, "resource"), resource, _RESOURCES))
    _check_divisor(resource, canonical(reference.get("divisor", "0")), path, errors)


def split_subscript(field_path: str) -> tuple[str, str | None]:
    """Return the path without its subscript, and the subscript: `metadata.labels['app']`."""
    if not field_path.endswith("']"):
        return field_path, None
    stem, bracket, subscript = field_path.removesuffix("']").partition("['")
    return (stem, subscript) if bracket and stem else (field_path, None)


def _unknown_field(version: str, field_path: str, stem: str, subscript: str | None) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if subscript is not None:
        if stem not in _SUBSCRIPTED:
            return f"field label does not support subscript: {field_path}"
    elif stem not in _KNOWN_FIELDS and stem != "spec.host":
        return f"field label not supported: {field_path}"
    return ""


def _check_divisor(resource: str, divisor: str, path: str, errors: Errors) -> None:
    if divisor == "0":
        return
    message = ""
    name = resource.partition(".")[2] if resource.startswith(("limits.", "requests.")) else ""
    is_size = name in _SIZES or name.startswith("hugepages-")
    if name == "cpu" and divisor not in _CPU_DIVISORS:
        message = "only divisor's values 1m and 1 are supported with the cpu resource"
    elif is_size and divisor not in _SIZE_DIVISORS:
        what = _SIZES.get(name, "hugepages")
        message = (
            f"only divisor's values {', '.join(_SIZE_DIVISORS)} are supported with the {what}"
            " resource"
        )
    if message:
        errors.append(invalid(child(path, "divisor"), resource, message))
