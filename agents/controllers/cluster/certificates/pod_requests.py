"""PodCertificateRequests: removed a quarter of an hour after they were made.

A kubelet that still waits for one by then makes another. Nothing is signed here: signers of pods'
certificates are programs of others.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from typing_extensions import override

from kvstack.agents.client.built_in import POD_CERTIFICATE_REQUESTS
from kvstack.agents.controllers.ownership import no_keys
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import Again, BaseController, Delete, Identity, Plan, View, Watch

Object: TypeAlias = dict[str, Any]

_ALL: Final = "all"
_PERIOD_S: Final = 300.0
_KEPT_S: Final = 900.0
_NOT_FOUND: Final = 404


class PodRequestCleaner(BaseController):
    """Deletes old requests, of every kind of end."""

    workers = 1

    def __init__(self) -> None:
        """Look at all requests from time to time."""
        name = "podcertificaterequest-cleaner-controller"
        self.identity: Identity = Identity(name, "podcertificaterequestcleaner", name)
        self.watches: Sequence[Watch] = (Watch(POD_CERTIFICATE_REQUESTS, no_keys),)

    @override
    def initial_keys(self) -> Iterable[str]:
        """Begin to look."""
        return (_ALL,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for all requests."""
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
            if outcome.code != _NOT_FOUND:
                outcome.result()
        return Again(_PERIOD_S)
