"""Parameters and drivers of storage classes."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import invalid, required, too_long
from kvstack.apimachinery.objects.names import check_label_key, length
from kvstack.apiserver.kinds.rules import Errors, add_invalid

PARAMETERS_MAX: Final = 512
PARAMETERS_BYTES_MAX: Final = 256 * 1024


def check_driver(errors: Errors, path: str, name: str) -> None:
    """Check the form of a provisioner's or driver's name, if present."""
    lowered = name.lower()
    add_invalid(errors, path, lowered, check_label_key(lowered))


def check_parameters(
    errors: Errors, path: str, parameters: dict[str, str], *, is_required: bool
) -> None:
    """Check the parameters of a class."""
    if len(parameters) > PARAMETERS_MAX:
        errors.append(too_long(path, PARAMETERS_MAX))
        return
    if "" in parameters:
        errors.append(invalid(path, "", "field can not be empty."))
    size = sum(length(name) + length(value) for name, value in parameters.items())
    if size > PARAMETERS_BYTES_MAX:
        errors.append(too_long(path, PARAMETERS_BYTES_MAX))
    if is_required and not parameters:
        errors.append(required(path, "must contain at least one key/value pair"))
