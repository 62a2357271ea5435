"""Amounts of resources as numbers, and what steps need together.

    parsed({"cpu": "500m"})                        → {"cpu": Quantity("500m")}
    needed_together(at_once, [(amounts, stays)…])  → what must be there for all of them

Steps that come first run one after the other, each beside those before it that stay; all that stay
run beside the steps that run at once. What is needed is the larger of the two.

    needed = max(Σ at once + Σ staying, max over i of (first i + Σ staying before i))
"""

from collections.abc import Iterable, Mapping

from kvstack.apimachinery.objects.quantity import Quantity, parse

Amounts = dict[str, Quantity]


def parsed(texts: Mapping[str, str] | None) -> Amounts:
    """Return the numbers of a list of resources; QuantityError if one is invalid."""
    return {name: parse(text) for name, text in texts.items()} if texts else {}


def add_to(total: Amounts, amounts: Mapping[str, Quantity]) -> None:
    """Add amounts to a total, in place."""
    for name, amount in amounts.items():
        known = total.get(name)
        total[name] = amount if known is None else known + amount


def raise_to(largest: Amounts, amounts: Mapping[str, Quantity]) -> None:
    """Raise each of the largest amounts so far to another where that is more, in place."""
    for name, amount in amounts.items():
        known = largest.get(name)
        if known is None or amount > known:
            largest[name] = amount


def needed_together(at_once: Iterable[Amounts], first: Iterable[tuple[Amounts, bool]]) -> Amounts:
    """Return what steps need together; with each of the first ones: whether it stays."""
    total: Amounts = {}
    for amounts in at_once:
        add_to(total, amounts)
    staying: Amounts = {}
    largest: Amounts = {}
    for amounts, stays in first:
        if stays:
            add_to(total, amounts)
            add_to(staying, amounts)
            raise_to(largest, staying)
        else:
            beside = dict(amounts)
            add_to(beside, staying)
            raise_to(largest, beside)
    raise_to(total, largest)
    return total
