"""Query parameters and values of the custom and external metrics APIs."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from kvstack.apimachinery.objects import labels, quantity, status
from kvstack.apimachinery.objects.labels import SelectorError

Query: TypeAlias = Mapping[str, Sequence[str]]


def selector_of(query: Query, name: str) -> labels.Selector:
    """Return a selector of a query; raises ApiError if it is none."""
    try:
        return labels.parse((query.get(name) or [""])[0])
    except SelectorError as error:
        raise status.bad_request(f"{name}: {error}") from None


def quantity_of(value: float) -> str:
    """Return a value as a quantity, in thousandths."""
    return quantity.canonical(f"{round(value * 1000)}m")
