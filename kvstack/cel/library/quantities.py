"""Quantities of resources: `quantity("1.5Gi").isGreaterThan(quantity("1G"))`."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.apimachinery.objects.quantity import (
    DECIMAL_EXPONENT,
    Quantity,
    QuantityError,
    compare,
    parse,
)
from kvstack.cel.checker.functions import Functions, declared
from kvstack.cel.errors import CelError

FUNCTIONS: Final[Functions] = declared("""
    quantity: (string) -> kubernetes.Quantity @ string_to_quantity
    isQuantity: (string) -> bool @ is_quantity_string
    sign: (kubernetes.Quantity) -> int @ quantity_sign
    isGreaterThan: kubernetes.Quantity.(kubernetes.Quantity) -> bool @ quantity_is_greater_than
    isLessThan: kubernetes.Quantity.(kubernetes.Quantity) -> bool @ quantity_is_less_than
    compareTo: kubernetes.Quantity.(kubernetes.Quantity) -> int @ quantity_compare_to
    asApproximateFloat: kubernetes.Quantity.() -> double @ quantity_get_float
    asInteger: kubernetes.Quantity.() -> int @ quantity_get_int
    isInteger: kubernetes.Quantity.() -> bool @ quantity_is_integer
    add: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity @ quantity_add
    add: kubernetes.Quantity.(int) -> kubernetes.Quantity @ quantity_add_int
    sub: kubernetes.Quantity.(kubernetes.Quantity) -> kubernetes.Quantity @ quantity_sub
    sub: kubernetes.Quantity.(int) -> kubernetes.Quantity @ quantity_sub_int
""")


def _quantity(text: str) -> Quantity:
    try:
        return parse(text)
    except QuantityError as error:
        raise CelError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def _as_integer(quantity: Quantity) -> int:
    number = quantity.as_int()
    if number is None:
        raise CelError("cannot convert value to integer")
    return number


def _of_int(number: int) -> Quantity:
    return Quantity(number, 0, DECIMAL_EXPONENT)


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "string_to_quantity": _quantity,
    "is_quantity_string": _is_quantity,
    "quantity_sign": lambda quantity: quantity.sign,
    "quantity_is_greater_than": lambda one, other: compare(one, other) > 0,
    "quantity_is_less_than": lambda one, other: compare(one, other) < 0,
    "quantity_compare_to": compare,
    "quantity_get_float": lambda quantity: quantity.as_float(),
    "quantity_get_int": _as_integer,
    "quantity_is_integer": lambda quantity: quantity.as_int() is not None,
    "quantity_add": lambda one, other: one + other,
    "quantity_add_int": lambda one, number: one + _of_int(number),
    "quantity_sub": lambda one, other: one - other,
    "quantity_sub_int": lambda one, number: one - _of_int(number),
}
