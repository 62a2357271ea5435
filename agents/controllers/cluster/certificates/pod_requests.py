"""PodCertificateRequests: removed a quarter of an hour after they were made.

A kubelet that still waits for one by then makes another. Nothing is signed here: signers of pods'
certificates are programs of others.
"""

from collections.abc import Generator
from typing import Final

from typing_extensions import override

from kvstack.agents.client.built_in import POD_CERTIFICATE_REQUESTS
from kvstack.agents.controllers.sweeps import Sweep
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import Delete, Identity, Outcome, Step, View

_KEPT_S: Final = 900.0


class PodRequestCleaner(Sweep):
    """Deletes old requests, of every kind of end."""

    period_s = 300.0

    def __init__(self) -> None:
        """Look at all requests from time to time."""
        name = "podcertificaterequest-cleaner-controller"
        self.identity: Identity = Identity(name, "podcertificaterequestcleaner", name)
        super().__init__(POD_CERTIFICATE_REQUESTS)

    @override
    def sweep(self, view: View, now_s: float) -> Generator[Step, list[Outcome], None]:
        """Delete what is old."""
        old = [
            each["metadata"]
            for each in view.list(POD_CERTIFICATE_REQUESTS)
            if now_s >= (seconds_of(each["metadata"]["creationTimestamp"]) or 0.0) + _KEPT_S
        ]
        outcomes = yield [
            Delete(POD_CERTIFICATE_REQUESTS, meta["namespace"], meta["name"], uid=meta["uid"])
            for meta in old
        ]
        for outcome in outcomes:
            if not outcome.is_not_found:
                outcome.result()
