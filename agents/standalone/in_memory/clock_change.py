"""What clients ask of a cluster's clock: of the cluster itself, and of a farm that has it.

    clock_change({"advance": "24h"})   → ClockChange(advance_s=86400.0)
    clock_change({"rate": 100})        → ClockChange(rate=100.0)

How far time may go and how fast, the clock says (`ClusterTime`).
"""

from typing import Final, NamedTuple

from kvstack.agents.standalone.in_memory.cluster_time import ClusterTimeError
from kvstack.apimachinery.objects import durations
from kvstack.apimachinery.objects.text.go_text import quote

ADVANCE: Final = "advance"
RATE: Final = "rate"
_EXAMPLE: Final = '{"advance": "24h"} or {"rate": 100}'


class ClockChange(NamedTuple):
    """One of the two is asked for."""

    advance_s: float | None = None
    """How much time goes by at once."""
    rate: float | None = None
    """How many times as fast as the machine's time it goes from now on."""


def clock_change(body: object) -> ClockChange:
    """Return what the body of a request, read as JSON, asks for; ClusterTimeError."""
    if not isinstance(body, dict) or len(body) != 1 or not body.keys() <= {ADVANCE, RATE}:
        raise ClusterTimeError(f"the body must be {_EXAMPLE}")
    if ADVANCE in body:
        return ClockChange(advance_s=_seconds(body[ADVANCE]))
    return ClockChange(rate=_number(body[RATE]))


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ClusterTimeError(f"invalid {RATE}: it is a number")
    return float(value)


def _seconds(value: object) -> float:
    if not isinstance(value, str):
        raise ClusterTimeError(f'invalid {ADVANCE}: expected a duration such as "24h"')
    try:
        return durations.parse(value) / 1e9
    except durations.DurationError as error:
        raise ClusterTimeError(f"invalid {ADVANCE} {quote(value)}: {error}") from None
