"""Counts and durations of checks by policies, under upstream's names.

A check takes as long as all expressions of the policy for one binding and one parameter. Upstream
counts of validations only those that are not met or cannot be run, and this does the same.
"""

from collections.abc import Iterator
from typing import Final

from kvstack.apiserver.policy.ports import Clock
from kvstore.histograms import NANOSECOND_S, Histograms
from kvstore.server.metrics.exposition import FamilyKind, FamilySamples, labels

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
    """The checks of one kind of policy."""

    def __init__(self, kind: str, clock: Clock) -> None:
        """Begin with none; kind: `validating` or `mutating`."""
        self._kind: Final = kind
        self._clock: Final = clock
        self._durations: Final = Histograms(_BOUNDS)

    def now_ns(self) -> int:
        """Return the moment at which a check begins."""
        return self._clock.monotonic_ns()

    def add(self, policy: str, binding: str, error: str, began_ns: int, action: str = "") -> None:
        """Count a check; error: why it could not be made, empty if it could.

        action: of validating policies, `allow` or what was done: `deny`, `audit`, `warn`.
        """
        told = {"error_type": _error_type(error), "policy": policy, "policy_binding": binding}
        if action:
            told = {"enforcement_action": action, **told}
        self._durations.add(labels(**told), (self.now_ns() - began_ns) * NANOSECOND_S)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        word, counted, timed = _WORDS[self._kind]
        prefix = f"apiserver_{self._kind}_admission_policy_check"
        yield (
            f"{prefix}_total",
            FamilyKind.COUNTER,
            f"{word} admission policy check total, {counted}",
            self._durations.counts(),
        )
        yield (
            f"{prefix}_duration_seconds",
            FamilyKind.HISTOGRAM,
            f"{word} admission latency for individual {word.lower()} expressions in seconds,"
            f" {timed}",
            self._durations.copies(),
        )


def _error_type(error: str) -> str:
    if not error:
        return "no_error"
    if error.startswith("compilation"):
        return "compile_error"
    if error.startswith("validation failed due to running out of cost budget"):
        return "out_of_budget"
    return "invalid_error"
