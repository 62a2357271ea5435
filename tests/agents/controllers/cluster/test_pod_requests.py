"""Old PodCertificateRequests go."""

import pytest

from kvstack.agents.client.built_in import POD_CERTIFICATE_REQUESTS
from kvstack.agents.controllers.cluster.certificates.pod_requests import PodRequestCleaner
from kvstack.agents.reconcile.plan import Again, Delete
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.support.plans import drive, refusal, view_of

NOW_S = 1_700_000_000.0
MADE = "2023-11-14T22:13:20Z"
"""At NOW_S."""


@pytest.mark.parametrize(("age_s", "goes"), [(899, False), (900, True)])
def test_a_request_lasts_a_quarter_of_an_hour(age_s: int, *, goes: bool) -> None:
    meta = {"name": "r", "namespace": "n", "uid": "u", "creationTimestamp": MADE}
    view = view_of({POD_CERTIFICATE_REQUESTS: [{"metadata": meta}]})
    asked, after = drive(PodRequestCleaner().reconcile("all", view, NOW_S + age_s))
    wanted = Delete(POD_CERTIFICATE_REQUESTS, "n", "r", uid="u")
    assert asked == ([wanted] if goes else [])
    assert after == Again(300.0, is_routine=True)


def test_that_one_is_gone_already_is_fine_and_a_refusal_is_not() -> None:
    meta = {"name": "r", "namespace": "n", "uid": "u", "creationTimestamp": MADE}
    view = view_of({POD_CERTIFICATE_REQUESTS: [{"metadata": meta}]})
    drive(PodRequestCleaner().reconcile("all", view, NOW_S + 900), lambda _: refusal(404))
    with pytest.raises(ApiError):
        drive(PodRequestCleaner().reconcile("all", view, NOW_S + 900), lambda _: refusal(403))
