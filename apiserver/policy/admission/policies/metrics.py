"""Counts and durations of policy checks, under upstream's names.

The duration of a check is that of all expressions of the policy for one binding and one parameter.
As upstream, only validations that fail or cannot be evaluated are counted.
"""

from collections.abc import Iterator
from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.metrics.histograms import NANOSECOND_S
from kvstack.component.metrics.labelled import LabelledHistogram

ALLOW: Final = "allow"
DENY: Final = "deny"
_BOUNDS: Final = (0.0000005, 0.001, 0.01, 0.1, 1.0)
_WORDS: Final = {
    "validating": (
        "Validation",
        "labeled by policy and further identified by binding and enforcement action taken.",
        "labeled by policy and further including binding and enforcement action taken.",
    ),
    "mutating": (
        "Mutation",
        "labeled by policy and further identified by binding.",
        "labeled by policy and binding.",
    ),
}


class PolicyChecks:
    """Metrics of one kind of policy."""

    def __init__(self, kind: str, clock: Clock) -> None:
        """kind: `validating` or `mutating`."""
        self._kind: Final = kind
        self._clock: Final = clock
        word, self._counted, timed = _WORDS[kind]
        self._prefix: Final = f"apiserver_{kind}_admission_policy_check"
        action = ("enforcement_action",) if kind == "validating" else ()
        self._durations: Final = LabelledHistogram(
            f"{self._prefix}_duration_seconds",
            f"{word} admission latency for individual {word.lower()} expressions in seconds,"
            f" {timed}",
            _BOUNDS,
            *(*action, "error_type", "policy", "policy_binding"),
        )

    def now_ns(self) -> int:
        """Return the start time of a check."""
        return self._clock.monotonic_ns()

    def add(self, policy: str, binding: str, error: str, began_ns: int, action: str = "") -> None:
        """Count a check; error: why it could not be evaluated, empty if it could.

        action: of validating policies, `allow`, `deny`, `audit` or `warn`.
        """
        actions = (action,) if action else ()
        took_s = (self.now_ns() - began_ns) * NANOSECOND_S
        self._durations.add(took_s, *actions, _error_type(error), policy, binding)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        word = _WORDS[self._kind][0]
        yield self._durations.counted(
            f"{self._prefix}_total", f"{word} admission policy check total, {self._counted}"
        )
        yield self._durations.samples()


def _error_type(error: str) -> str:
    if not error:
        return "no_error"
    if error.startswith("compilation"):
        return "compile_error"
    if error.startswith("validation failed due to running out of cost budget"):
        return "out_of_budget"
    return "invalid_error"
