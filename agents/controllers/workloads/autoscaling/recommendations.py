"""Past proposals and scalings, and limits on how fast a target is scaled.

    memory.stabilized(key, …)   the proposal of the window, not of the moment
    limited(…)                  no faster than the rules allow, within the bounds

The memory is the controller's own: after a restart it begins with the replicas there are.
"""

import math
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object

_UP_FACTOR: Final = 2
_UP_LEAST: Final = 4
_RATES: Final = {
    "up": (
        "ScaleUpLimit",
        "the desired replica count is increasing faster than the maximum scale rate",
    ),
    "down": (
        "ScaleDownLimit",
        "the desired replica count is decreasing faster than the maximum scale rate",
    ),
}
_TOO_MANY: Final = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
)
_TOO_FEW: Final = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
)
_WITHIN: Final = ("DesiredWithinRange", "the desired count is within the acceptable range")
_LOWEST: Final = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
)
_HIGHEST: Final = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent"
    " recommendation",
)
_READY: Final = ("ReadyForNewScale", "recommended size matches current size")


class Timed(NamedTuple):
    """A number of replicas and its time."""

    replicas: int
    time_s: float


class Bounds(NamedTuple):
    """Between what replicas are to be, and how many there are."""

    current: int
    least: int
    most: int


class Decision(NamedTuple):
    """Replicas, and why these."""

    replicas: int
    reason: str
    message: str
    is_limited: bool = False


class Memory:
    """Past proposals and scalings, by key."""

    def __init__(self, window_s: float) -> None:
        """window_s: for how long proposals hold a scale down back, where nothing else is said."""
        self._window_s = window_s
        self._proposed: dict[str, list[Timed]] = {}
        self._added: dict[str, list[Timed]] = {}
        self._removed: dict[str, list[Timed]] = {}

    def begin(self, key: str, replicas: int, now_s: float) -> None:
        """Remember the current replicas if there is no history."""
        self._proposed.setdefault(key, [Timed(replicas, now_s)])

    def forget(self, key: str) -> None:
        """Forget a key."""
        for each in (self._proposed, self._added, self._removed):
            each.pop(key, None)

    def stabilized(
        self, key: str, proposed: int, current: int, behavior: Object | None, now_s: float
    ) -> Decision:
        """Return the proposal that the windows leave, and remember this one."""
        known = self._proposed.setdefault(key, [])
        down_s, up_s = self._windows(behavior)
        recent = [each for each in known if now_s - each.time_s < max(down_s, up_s)]
        lowest = min((x.replicas for x in recent if now_s - x.time_s < up_s), default=proposed)
        highest = max((x.replicas for x in recent if now_s - x.time_s < down_s), default=proposed)
        lowest, highest = min(lowest, proposed), max(highest, proposed)
        self._proposed[key] = [*recent, Timed(proposed, now_s)]
        if behavior is None:
            found, why = highest, _HIGHEST
        else:
            found = min(max(current, lowest), highest)
            why = _LOWEST if proposed >= current else _HIGHEST
        return Decision(found, *(_READY if found == proposed else why))

    def _windows(self, behavior: Object | None) -> tuple[float, float]:
        """Return the windows for scaling down and up."""
        if behavior is None:
            return self._window_s, 0.0
        down = (behavior.get("scaleDown") or {}).get("stabilizationWindowSeconds")
        up = (behavior.get("scaleUp") or {}).get("stabilizationWindowSeconds")
        return self._window_s if down is None else float(down), float(up or 0)

    def scaled(self, key: str, before: int, after: int, behavior: Object, now_s: float) -> None:
        """Remember a scaling, for as long as rules look back."""
        direction, known = (
            ("scaleUp", self._added) if after > before else ("scaleDown", self._removed)
        )
        policies = (behavior.get(direction) or {}).get("policies") or ()
        longest_s = max((each["periodSeconds"] for each in policies), default=0)
        kept = [x for x in known.get(key, ()) if now_s - x.time_s <= longest_s]
        known[key] = [*kept, Timed(abs(after - before), now_s)]

    def limited(
        self, key: str, desired: int, bounds: Bounds, behavior: Object | None, now_s: float
    ) -> Decision:
        """Return what of a wish the bounds and the rules allow."""
        if behavior is None:
            return _limited_by_factor(desired, bounds)
        if desired > bounds.current:
            most = max(
                self._furthest(key, bounds.current, behavior, "scaleUp", now_s), bounds.current
            )
            why = _RATES["up"] if most < bounds.most else _TOO_MANY
            most = min(most, bounds.most)
            if desired > most:
                return Decision(most, *why, is_limited=True)
        elif desired < bounds.current:
            least = min(
                self._furthest(key, bounds.current, behavior, "scaleDown", now_s), bounds.current
            )
            why = _RATES["down"] if least > bounds.least else _TOO_FEW
            least = max(least, bounds.least)
            if desired < least:
                return Decision(least, *why, is_limited=True)
        return Decision(desired, *_WITHIN)

    def _furthest(
        self, key: str, current: int, behavior: Object, direction: str, now_s: float
    ) -> int:
        """Return how far the rules of a direction let a target be scaled."""
        rules = behavior.get(direction) or {}
        choice = rules.get("selectPolicy", "Max")
        if choice == "Disabled":
            return current
        is_up = direction == "scaleUp"
        found = [
            _reach(each, self._base(key, current, each["periodSeconds"], now_s), is_up=is_up)
            for each in rules.get("policies") or ()
        ]
        pick = max if (choice == "Min") != is_up else min
        return pick(found, default=current)

    def _base(self, key: str, current: int, period_s: float, now_s: float) -> int:
        """Return how many replicas there were when a period began."""

        def sum_of(known: dict[str, list[Timed]]) -> int:
            return sum(x.replicas for x in known.get(key, ()) if now_s - x.time_s < period_s)

        return current - sum_of(self._added) + sum_of(self._removed)


def _reach(policy: Object, base: int, *, is_up: bool) -> int:
    value: int = policy["value"]
    if policy["type"] == "Pods":
        return base + value if is_up else base - value
    if is_up:
        return math.ceil(base * (1 + value / 100))
    return int(base * (1 - value / 100))


def _limited_by_factor(desired: int, bounds: Bounds) -> Decision:
    fastest = max(_UP_FACTOR * bounds.current, _UP_LEAST)
    why = _RATES["up"] if bounds.most > fastest else _TOO_MANY
    most = min(bounds.most, fastest)
    if desired < bounds.least:
        return Decision(bounds.least, *_TOO_FEW, is_limited=True)
    if desired > most:
        return Decision(most, *why, is_limited=True)
    return Decision(desired, *_WITHIN)
