"""Amounts of resources: what steps need that run at once, or one after the other."""

import pytest

from kvstack.apimachinery.objects.amounts import add_to, needed_together, parsed, raise_to
from kvstack.apimachinery.objects.quantity import QuantityError


def test_sums_and_maxima_are_of_each_resource() -> None:
    total = parsed({"cpu": "500m"})
    add_to(total, parsed({"cpu": "1", "memory": "1Gi"}))
    assert total == parsed({"cpu": "1500m", "memory": "1Gi"})
    raise_to(total, parsed({"cpu": "1", "memory": "2Gi", "example.com/gpu": "1"}))
    assert total == parsed({"cpu": "1500m", "memory": "2Gi", "example.com/gpu": "1"})


def test_nothing_and_no_quantity() -> None:
    assert parsed(None) == {}
    with pytest.raises(QuantityError):
        parsed({"cpu": "one"})


@pytest.mark.parametrize(
    ("at_once", "first", "expected"),
    [
        (("1", "2"), (), "3"),
        (("1",), (("5", False),), "5"),
        (("1",), (("2", True),), "3"),  # a sidecar runs beside the containers
        (("1",), (("2", True), ("4", False)), "6"),  # … and beside those that come after it
        (("1",), (("4", False), ("2", True)), "4"),  # but not beside those before
        (("3",), (("2", True), ("1", True), ("1", False)), "6"),
    ],
)
def test_what_is_needed_together(
    at_once: tuple[str, ...], first: tuple[tuple[str, bool], ...], expected: str
) -> None:
    found = needed_together(
        (parsed({"cpu": each}) for each in at_once),
        ((parsed({"cpu": each}), stays) for each, stays in first),
    )
    assert found == parsed({"cpu": expected})
