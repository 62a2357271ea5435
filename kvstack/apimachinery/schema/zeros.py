"""The values that Go writes for absent fields.

zero(Container)()   → {"name": "", "resources": {}}        zero(Quantity)() → "0"
"""

from collections.abc import Callable
from typing import Any, Final

from kvstack.apimachinery.schema.types import Shape, Type

Make = Callable[[], Any]

_ZEROS: Final[dict[Shape, object]] = {
    Shape.STRING: "",
    Shape.INT32: 0,
    Shape.INT64: 0,
    Shape.FLOAT64: 0,
    Shape.BOOL: False,
    Shape.DURATION: "0s",
    Shape.QUANTITY: "0",
    Shape.INT_OR_STRING: 0,
}  # of all others but structs it is null


def zero(type_: Type) -> Make:
    """Return a function that makes the value Go writes for an absent field of a type."""
    if type_.shape is not Shape.STRUCT:
        value = _ZEROS.get(type_.shape)
        return lambda: value
    always = always_written(type_)
    if not always:
        return dict
    return lambda: {name: make() for name, make in always}


def always_written(type_: Type) -> list[tuple[str, Make]]:
    """Return the fields that are written even if absent, and their values."""
    return [
        (name, (lambda: None) if field.is_pointer else zero(field.type))
        for name, field in type_.fields.items()
        if not field.omit_empty
    ]
