"""The time of the turn under way, which is its inbox's."""

from dataclasses import dataclass


@dataclass(slots=True)
class TurnTime:
    """The time at which the turn began; set by the turn, read elsewhere."""

    now_ns: int = 0  # monotonic
    wall_ms: int = 0  # Unix milliseconds: only for ids that must be unique over restarts
