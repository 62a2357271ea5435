"""ServiceCIDRs: when one may go."""

from typing import Any

from kvstack.agents.client.built_in import IP_ADDRESSES, SERVICE_CIDRS
from kvstack.agents.controllers.network.service_ranges import ServiceRanges
from kvstack.agents.reconcile.plan import Again, Patch
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import drive, view_of

FINALIZER = "networking.k8s.io/service-cidr-finalizer"
DELETED = "2023-11-14T22:13:20Z"
DELETED_S = 1_700_000_000.0


def a_range(name: str, cidr: str, **meta: Any) -> Object:
    found = {"name": name, "finalizers": [FINALIZER], **meta}
    return {"metadata": found, "spec": {"cidrs": [cidr]}}


def address(ip: str) -> Object:
    labels = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
    return {"metadata": {"name": ip, "labels": labels}}


GOING = a_range("b", "10.1.0.0/24", deletionTimestamp=DELETED)


def patches(ranges: list[Object], addresses: list[Object], now_s: float) -> tuple[Any, Any]:
    view = view_of({SERVICE_CIDRS: ranges, IP_ADDRESSES: addresses})
    asked, again = drive(ServiceRanges().reconcile("b", view, now_s))
    return [each.body for each in asked if isinstance(each, Patch)], again


def test_a_new_one_is_protected_and_ready() -> None:
    bodies, _ = patches([a_range("b", "10.1.0.0/24", finalizers=[])], [], 0.0)
    assert bodies[0] == {"metadata": {"finalizers": [FINALIZER]}}
    assert bodies[1]["status"]["conditions"][0]["status"] == "True"


def test_one_in_use_stays() -> None:
    bodies, again = patches([GOING], [address("10.1.0.7")], DELETED_S + 60)
    assert [each["status"]["conditions"][0]["reason"] for each in bodies] == ["Terminating"]
    assert again is None


def test_one_that_is_not_goes_after_a_while() -> None:
    assert patches([GOING], [address("10.2.0.7")], DELETED_S + 4) == ([], Again(6.0))
    bodies, _ = patches([GOING], [], DELETED_S + 10)
    assert bodies == [{"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}]


def test_one_that_another_contains_goes() -> None:
    ranges = [GOING, a_range("a", "10.1.0.0/16")]
    bodies, _ = patches(ranges, [address("10.1.0.7")], DELETED_S + 10)
    assert bodies == [{"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}]
