"""Allocation of a server's seats to priority levels.

    limits(600, {"a": Shares(40, lendable_percent=50), …})   what each has, may lend and may borrow
    share_out(600, [Claim(target, low, high), …])            what each has now, by its demand

All get the same proportion of the target, but not less than `low` and not more than `high`.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

_TARGET_MIN: Final = 0.001
_MAX_PERCENT_OF_ONE: Final = 0.15


class Shares(NamedTuple):
    """The configured shares of a priority level."""

    shares: int
    lendable_percent: int = 0
    borrowing_limit_percent: int | None = None
    """Percentage of its own seats; None: unlimited."""
    hand_size: int = 0
    """0: it has no queues."""


class Limits(NamedTuple):
    """Seats of a level."""

    nominal: int
    low: int
    """Seats that it never lends."""
    high: int
    """Seats that it has at most, with all that it may borrow."""
    request_max: int = 0
    """Seats that one request may take; 0: no limit of its own."""


class Claim(NamedTuple):
    """What a level could use, and its bounds."""

    target: float
    low: float
    high: float


def limits(seats: int, levels: Mapping[str, Shares]) -> dict[str, Limits]:
    """Return the limits of all levels of a server with so many seats."""
    total = sum(each.shares for each in levels.values())
    return {name: _limits(seats, each, total) for name, each in levels.items()}


def _limits(seats: int, shares: Shares, total: int) -> Limits:
    nominal = ceil(seats * shares.shares / total) if total else 0
    lendable = round(nominal * shares.lendable_percent / 100)
    percent = shares.borrowing_limit_percent
    borrowing = seats if percent is None else round(nominal * percent / 100)
    request_max = 0
    if shares.hand_size:
        most = min(ceil(nominal * _MAX_PERCENT_OF_ONE), nominal // shares.hand_size)
        request_max = max(1, most)
    return Limits(nominal, nominal - lendable, nominal + borrowing, request_max)


def share_out(seats: float, claims: Sequence[Claim]) -> tuple[list[float], float]:
    """Return the shares of claims, and the proportion of their targets.

    The shares add up to the seats as far as the bounds allow.
    """
    targets = [max(each.target, _TARGET_MIN) for each in claims]

    def shares(proportion: float) -> list[float]:
        pairs = zip(claims, targets, strict=True)
        return [min(max(proportion * target, c.low), c.high) for c, target in pairs]

    bounds = sorted(
        {
            bound / target
            for claim, target in zip(claims, targets, strict=True)
            for bound in (claim.low, claim.high)
        }
    )
    if not bounds:
        return [], 0.0
    below, sum_below = bounds[0], sum(shares(bounds[0]))
    if sum_below >= seats:
        return shares(below), below
    for above in bounds[1:]:
        sum_above = sum(shares(above))
        if sum_above >= seats:
            # Between two bounds the sum is linear.
            proportion = below + (above - below) * (seats - sum_below) / (sum_above - sum_below)
            return shares(proportion), proportion
        below, sum_below = above, sum_above
    return shares(below), below
