"""Names of webhooks and policies that are reserved for manifest files."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError, invalid

_SUFFIX: Final = ".static.k8s.io"
_RESERVED: Final = (
    f'names ending with "{_SUFFIX}" are reserved for static manifest-based configurations'
    " and cannot be managed via the API"
)


def reserved_name_errors(obj: dict[str, Any]) -> list[FieldError]:
    """Return the error of a new object with such a name."""
    name: str = obj["metadata"].get("name", "")
    return [invalid("metadata.name", name, _RESERVED)] if name.endswith(_SUFFIX) else []


def reserved_name_warnings(obj: dict[str, Any]) -> list[str]:
    """Return the warning about a stored object with such a name."""
    name: str = obj["metadata"].get("name", "")
    return [f"metadata.name: {_RESERVED}"] if name.endswith(_SUFFIX) else []
