"""Metrics of all admission plugins."""

from collections.abc import Iterator
from typing import Final

from kvstack.apiserver.policy.admission.policies.metrics import PolicyChecks
from kvstack.apiserver.policy.admission.webhooks.metrics import WebhookMetrics
from kvstack.component.clock import Clock
from kvstack.component.metrics.exposition import FamilySamples


class AdmissionMetrics:
    """The counts."""

    def __init__(self, clock: Clock) -> None:
        self.webhooks: Final = WebhookMetrics()
        self.validating: Final = PolicyChecks("validating", clock)
        self.mutating: Final = PolicyChecks("mutating", clock)

    def readings(self) -> Iterator[FamilySamples]:
        """Yield the families."""
        yield from self.webhooks.readings()
        yield from self.validating.readings()
        yield from self.mutating.readings()
