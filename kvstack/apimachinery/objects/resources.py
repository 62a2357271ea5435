"""Lists of resources: maps from a resource's name to a quantity, as requests and limits are.

    add({"cpu": "500m"}, {"cpu": "1", "memory": "1Gi"})   → {"cpu": "1500m", "memory": "1Gi"}
    exceeds({"cpu": "2"}, {"cpu": "1"})                    → ["cpu"]

Values are texts of quantities and are returned as canonical texts, in the order of the first
list and then of the second. Code that often computes with the same lists keeps `Quantity` objects.
"""

from collections.abc import Callable, Iterable, Mapping

from kvstack.apimachinery.objects.quantity import ZERO, Quantity, compare, parse

ResourceList = Mapping[str, str]


def add(left: ResourceList, right: ResourceList) -> dict[str, str]:
    """Return the sums; a resource that one list lacks counts as zero there."""
    return _combine(left, right, Quantity.__add__)


def subtract(left: ResourceList, right: ResourceList) -> dict[str, str]:
    """Return left less right; what only right has comes out negative."""
    return _combine(left, right, Quantity.__sub__)


def subtract_to_zero(left: ResourceList, right: ResourceList) -> dict[str, str]:
    """Return left less right, no value below zero."""
    return {
        name: value if parse(value).sign >= 0 else "0"
        for name, value in subtract(left, right).items()
    }


def maximum(left: ResourceList, right: ResourceList) -> dict[str, str]:
    """Return the larger of both values for each resource that either list has."""
    result = {name: str(parse(value)) for name, value in left.items()}
    for name, value in right.items():
        if name not in result or parse(value) > parse(result[name]):
            result[name] = str(parse(value))
    return result


def exceeds(used: ResourceList, hard: ResourceList) -> list[str]:
    """Return the resources of which more is used than `hard` allows, in the order of `used`."""
    return [
        name for name, value in used.items() if name in hard and parse(value) > parse(hard[name])
    ]


def equal(left: ResourceList, right: ResourceList) -> bool:
    """Return whether both lists have the same resources with equal numbers."""
    return left.keys() == right.keys() and all(
        compare(parse(value), parse(right[name])) == 0 for name, value in left.items()
    )


def mask(resources: ResourceList, names: Iterable[str]) -> dict[str, str]:
    """Return the part of a list that has one of the names."""
    kept = frozenset(names)
    return {name: value for name, value in resources.items() if name in kept}


def negative(resources: ResourceList) -> list[str]:
    """Return the resources whose value is below zero."""
    return [name for name, value in resources.items() if parse(value).sign < 0]


def is_zero(resources: ResourceList) -> bool:
    """Return whether no value of the list is other than zero."""
    return all(parse(value).sign == 0 for value in resources.values())


def _combine(
    left: ResourceList, right: ResourceList, operation: Callable[[Quantity, Quantity], Quantity]
) -> dict[str, str]:
    result = {
        name: str(operation(parse(value), parse(right[name])))
        if name in right
        else str(parse(value))
        for name, value in left.items()
    }
    for name, value in right.items():
        if name not in result:
            result[name] = str(operation(ZERO, parse(value)))
    return result
