"""Endpoints and EndpointSlices of services: which pods, ports and labels; what is told; mirrors."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    IP_ADDRESSES,
    NODES,
    PODS,
    SERVICE_CIDRS,
    SERVICES,
)
from kvstack.agents.controllers.network.endpoints import EndpointsController
from kvstack.agents.controllers.network.service_ranges import ServiceRanges
from kvstack.agents.controllers.network.slices.mirroring import Mirroring
from kvstack.agents.controllers.network.slices.service_slices import (
    ServiceSlices,
    SkippedPodError,
)
from kvstack.agents.reconcile.plan import Action, Create, Delete, Enqueue, Record, Update
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from tests.agents.support.plans import Answer, drive, refusal, view_of

MADE = "2024-01-01T00:00:00Z"
PORT = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}


def service(labels: Object | None = None, **spec: Any) -> Object:
    meta = {"name": "s", "namespace": "n", "uid": "u-s", "creationTimestamp": MADE}
    given = {"selector": {"a": "b"}, "clusterIP": "10.0.0.1", "ipFamilies": ["IPv4"], **spec}
    return {"metadata": {**meta, "labels": labels or {}}, "spec": {"ports": [PORT], **given}}


def pod(
    name: str = "p",
    ips: tuple[str, ...] = ("10.1.0.1",),
    ready: str = "True",
    phase: str = "Running",
    **more: Any,
) -> Object:
    meta = {"name": name, "namespace": "n", "uid": f"u-{name}", "labels": {"a": "b"}}
    container = {"name": "c", "ports": [{"name": "web", "containerPort": 8081, "protocol": "TCP"}]}
    spec = {"nodeName": "n1", "containers": [container], **more.pop("spec", {})}
    status = {
        "phase": phase,
        "podIPs": [{"ip": ip} for ip in ips],
        "podIP": ips[0] if ips else "",
        "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": MADE}],
    }
    return {"metadata": {**meta, **more}, "spec": spec, "status": status}


def node(name: str = "n1", zone: str = "z") -> Object:
    labels = {"topology.kubernetes.io/zone": zone}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


def view_with(
    services: list[Object],
    pods: list[Object] | None = None,
    endpoints: list[Object] | None = None,
    slices: list[Object] | None = None,
    nodes: list[Object] | None = None,
) -> Any:
    objects = {
        SERVICES: services,
        PODS: pods or [],
        ENDPOINTS: endpoints or [],
        ENDPOINT_SLICES: slices or [],
        NODES: [node()] if nodes is None else nodes,
    }
    return view_of(objects, ServiceSlices(100).indexes)


def done(action: Action) -> Answer:
    """Answer as a server that does what it is asked."""
    if isinstance(action, Create):
        meta = {"name": "made", "uid": "u-made", "resourceVersion": "9", **action.obj["metadata"]}
        return {**action.obj, "metadata": meta}
    if isinstance(action, Update):
        meta = {"uid": "u-old", "resourceVersion": "9", **action.obj["metadata"]}
        return {**action.obj, "metadata": meta}
    return {}


def endpoints_of(services: list[Object], pods: list[Object], known: Any = None) -> list[Action]:
    view = view_with(services, pods, known)
    return drive(EndpointsController().reconcile("n/s", view, 0.0), done)[0]


# Endpoints.


@pytest.mark.parametrize(
    ("found", "spec", "expected"),
    [
        (pod(), {}, {"addresses": ["10.1.0.1"]}),
        (pod(ready="False"), {}, {"notReadyAddresses": ["10.1.0.1"]}),
        (
            pod(ready="False"),
            {"publishNotReadyAddresses": True},
            {"addresses": ["10.1.0.1"]},
        ),
        (pod(deletionTimestamp="t"), {}, None),
        (
            pod(deletionTimestamp="t"),
            {"publishNotReadyAddresses": True},
            {"addresses": ["10.1.0.1"]},
        ),
        (pod(phase="Succeeded"), {}, None),
        (pod(phase="Failed"), {"publishNotReadyAddresses": True}, None),
        (pod(ips=()), {}, None),
        (pod(ips=("10.1.0.1", "fd00::1")), {"ipFamilies": ["IPv6"]}, {"addresses": ["fd00::1"]}),
        (
            pod(ips=("10.1.0.1", "fd00::1")),
            {"ipFamilies": ["IPv4", "IPv6"]},
            {"addresses": ["10.1.0.1"]},
        ),
        (
            pod(ips=("10.1.0.1", "fd00::1")),
            {"ipFamilies": None, "clusterIP": "fd00::2"},
            {"addresses": ["fd00::1"]},
        ),
        (
            pod(ips=("fd00::1", "10.1.0.1")),
            {"ipFamilies": None, "clusterIP": "None"},
            {"addresses": ["fd00::1"]},
        ),
    ],
)
def test_which_pods_and_addresses(found: Object, spec: Object, expected: Object | None) -> None:
    [made] = endpoints_of([service(**spec)], [found])
    assert isinstance(made, Create)
    rows = [
        {name: [each["ip"] for each in row[name]] for name in row if name != "ports"}
        for row in made.obj["subsets"]
    ]
    assert rows == ([] if expected is None else [expected])


SIDECAR = {
    "name": "i",
    "restartPolicy": "Always",
    "ports": [{"name": "side", "containerPort": 9, "protocol": "TCP"}],
}


@pytest.mark.parametrize(
    ("port", "spec", "expected"),
    [
        (PORT, {}, {"name": "http", "port": 8080, "protocol": "TCP"}),
        ({"port": 80, "protocol": "TCP"}, {}, {"port": 80, "protocol": "TCP"}),
        ({**PORT, "targetPort": "web"}, {}, {"name": "http", "port": 8081, "protocol": "TCP"}),
        ({**PORT, "targetPort": "web", "protocol": "UDP"}, {}, None),
        ({**PORT, "targetPort": "none"}, {}, None),
        (
            {**PORT, "targetPort": "side", "appProtocol": "h2c"},
            {"initContainers": [SIDECAR]},
            {"name": "http", "port": 9, "protocol": "TCP", "appProtocol": "h2c"},
        ),
        (
            {**PORT, "targetPort": "side"},
            {"initContainers": [{**SIDECAR, "restartPolicy": None}]},
            None,
        ),
    ],
)
def test_ports_of_pods(port: Object, spec: Object, expected: Object | None) -> None:
    [made] = endpoints_of([service(ports=[port])], [pod(spec=spec)])
    assert isinstance(made, Create)
    assert [row["ports"] for row in made.obj["subsets"]] == (
        [] if expected is None else [[expected]]
    )


def test_a_headless_service_without_ports_and_names_of_pods() -> None:
    named = pod(spec={"hostname": "h", "subdomain": "s"})
    headless = service({"x": "y"}, clusterIP="None", ports=None)
    [made] = endpoints_of([headless], [named])
    assert isinstance(made, Create)
    [row] = made.obj["subsets"]
    assert row["addresses"][0]["hostname"] == "h"
    assert "ports" not in row
    assert made.obj["metadata"]["labels"] == {
        "x": "y",
        "service.kubernetes.io/headless": "",
        "endpoints.kubernetes.io/managed-by": "endpoint-controller",
    }
    assert made.obj["metadata"]["annotations"] == {
        "endpoints.kubernetes.io/last-change-trigger-time": MADE
    }
    [made] = endpoints_of([service(ports=None)], [named])
    assert isinstance(made, Create)
    assert made.obj["subsets"] == []


def test_too_many_addresses_are_cut_and_reported() -> None:
    pods = [pod(f"p{at}", (f"10.1.{at // 250}.{at % 250 + 1}",)) for at in range(1001)]
    [made] = endpoints_of([service()], pods)
    assert isinstance(made, Create)
    assert sum(len(row["addresses"]) for row in made.obj["subsets"]) == 1000
    annotations = made.obj["metadata"]["annotations"]
    assert annotations["endpoints.kubernetes.io/over-capacity"] == "truncated"
    meta = {"name": "s", "namespace": "n", **made.obj["metadata"]}
    [again] = endpoints_of([service()], [pod()], [{**made.obj, "metadata": meta}])
    assert isinstance(again, Update)
    assert "endpoints.kubernetes.io/over-capacity" not in again.obj["metadata"]["annotations"]


def test_endpoints_go_with_their_service_and_stay_without_a_selector() -> None:
    known = {"metadata": {"name": "s", "namespace": "n"}}
    [gone] = endpoints_of([], [], [known])
    assert gone == Delete(ENDPOINTS, "n", "s")
    assert endpoints_of([service(selector=None)], [pod()], [known]) == []
    assert endpoints_of([service(type="ExternalName")], [pod()], [known]) == []


def test_at_the_start_all_are_looked_at_but_those_of_leaders() -> None:
    leader = {"control-plane.alpha.kubernetes.io/leader": "{}"}
    found: list[dict[str, Any]] = [
        {"metadata": {"name": "s", "namespace": "n"}},
        {"metadata": {"name": "l", "namespace": "n", "annotations": leader}},
    ]
    controller = EndpointsController()
    [key] = controller.initial_keys()
    assert isinstance(key, str)
    asked, _ = drive(controller.reconcile(key, view_with([], endpoints=found), 0.0))
    assert asked == [Enqueue(("n/s",))]


@pytest.mark.parametrize(
    ("known", "reason", "text"),
    [
        ([], "FailedToCreateEndpoint", "Failed to create endpoint for service n/s: no"),
        (
            [{"metadata": {"name": "s", "namespace": "n"}}],
            "FailedToUpdateEndpoint",
            "Failed to update endpoint n/s: no",
        ),
    ],
)
def test_what_cannot_be_written_is_reported(known: list[Object], reason: str, text: str) -> None:
    told: list[Record] = []

    def answer(action: Action) -> Answer:
        told.extend([action] if isinstance(action, Record) else [])
        return None if isinstance(action, Record) else refusal(403, "no")

    view = view_with([service()], [pod()], known)
    with pytest.raises(ApiError):
        drive(EndpointsController().reconcile("n/s", view, 0.0), answer)
    assert [(each.type, each.reason, each.message) for each in told] == [("Warning", reason, text)]


# EndpointSlices.


def slices_of(found: Any) -> list[Action]:
    return drive(ServiceSlices(100).reconcile("n/s", found, 0.0), done)[0]


def existing(*endpoints: Object, uid: str = "u-s", **meta: Any) -> Object:
    labels = {
        "kubernetes.io/service-name": "s",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        **meta.pop("labels", {}),
    }
    owner = {"apiVersion": "v1", "kind": "Service", "name": "s", "uid": uid, "controller": True}
    own = {"name": "s-x", "namespace": "n", "uid": "u-x", "resourceVersion": "5", **meta}
    return {
        "metadata": {**own, "labels": labels, "ownerReferences": [owner]},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }


@pytest.mark.parametrize(
    ("found", "spec", "expected"),
    [
        (pod(), {}, (True, True, False)),
        (pod(ready="False"), {}, (False, False, False)),
        (pod(ready="False"), {"publishNotReadyAddresses": True}, (True, False, False)),
        (pod(deletionTimestamp="t"), {}, (False, True, True)),
        (
            pod(deletionTimestamp="t", ready="False"),
            {"publishNotReadyAddresses": True},
            (True, False, True),
        ),
        (pod(phase="Failed"), {}, None),
        (pod(ips=()), {}, None),
    ],
)
def test_conditions_of_endpoints(
    found: Object, spec: Object, expected: tuple[bool, bool, bool] | None
) -> None:
    [made] = slices_of(view_with([service(**spec)], [found]))
    assert isinstance(made, Create)
    names = ("ready", "serving", "terminating")
    rows = [tuple(row["conditions"][name] for name in names) for row in made.obj["endpoints"]]
    assert rows == ([] if expected is None else [expected])


def test_an_endpoint_and_its_slice() -> None:
    named = pod(spec={"hostname": "h", "subdomain": "s"})
    [made] = slices_of(view_with([service({"x": "y"}, clusterIP="None")], [named]))
    assert isinstance(made, Create)
    meta = made.obj["metadata"]
    assert meta["generateName"] == "s-"
    assert meta["labels"] == {
        "x": "y",
        "kubernetes.io/service-name": "s",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "service.kubernetes.io/headless": "",
    }
    [owner] = meta["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Service", "u-s", True)
    [row] = made.obj["endpoints"]
    assert (row["hostname"], row["nodeName"], row["zone"]) == ("h", "n1", "z")
    assert row["targetRef"] == {"kind": "Pod", "namespace": "n", "name": "p", "uid": "u-p"}


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({"ipFamilies": ["IPv6", "IPv4"]}, ["IPv4", "IPv6"]),
        ({"ipFamilies": None}, ["IPv4"]),
        ({"ipFamilies": None, "clusterIP": "fd00::2"}, ["IPv6"]),
        ({"ipFamilies": None, "clusterIP": "None"}, ["IPv4", "IPv6"]),
    ],
)
def test_address_types(spec: Object, types: list[str]) -> None:
    asked = slices_of(view_with([service(**spec)], [pod(ips=("10.1.0.1", "fd00::1"))]))
    made = [each.obj for each in asked if isinstance(each, Create)]
    assert [each["addressType"] for each in made] == types
    assert all(len(each["endpoints"]) == 1 for each in made)


def test_a_service_without_endpoints_has_a_slice_without_any() -> None:
    [made] = slices_of(view_with([service()]))
    assert isinstance(made, Create)
    assert (made.obj["endpoints"], made.obj["ports"]) == ([], [])
    empty = {**existing(), "ports": []}
    assert slices_of(view_with([service()], slices=[empty])) == []


def test_a_pod_whose_node_is_not_known_is_left_out_and_reported() -> None:
    told: list[Record] = []

    def answer(action: Action) -> Answer:
        told.extend([action] if isinstance(action, Record) else [])
        return done(action)

    view = view_with([service()], [pod(), pod("q", spec={"nodeName": "lost"})])
    with pytest.raises(SkippedPodError):
        drive(ServiceSlices(100).reconcile("n/s", view, 0.0), answer)
    text = "skipping Pod q for Service n/s: Node lost Not Found"
    assert [(each.reason, each.message) for each in told] == [
        ("FailedToUpdateEndpointSlices", f"Error updating Endpoint Slices for Service n/s: {text}")
    ]
    lost = view_with([service(publishNotReadyAddresses=True)], [pod()], nodes=[])
    [made] = slices_of(lost)
    assert isinstance(made, Create)
    assert len(made.obj["endpoints"]) == 1


def test_a_slice_of_an_older_service_of_the_name_goes() -> None:
    theirs = existing(uid="older")
    asked = slices_of(view_with([service()], [pod()], slices=[theirs]))
    assert [type(each) for each in asked] == [Create, Delete]


def test_labels_of_the_service_are_followed() -> None:
    [made] = slices_of(view_with([service()], [pod()]))
    assert isinstance(made, Create)
    known = {**existing(*made.obj["endpoints"])}
    assert slices_of(view_with([service()], [pod()], slices=[known])) == []
    [changed] = slices_of(view_with([service({"x": "y"})], [pod()], slices=[known]))
    assert isinstance(changed, Update)
    assert changed.obj["metadata"]["labels"]["x"] == "y"


def test_own_writes_are_no_news() -> None:
    controller = ServiceSlices(100)
    drive(controller.reconcile("n/s", view_with([service()], [pod()]), 0.0), done)
    own = drive(controller.reconcile("slice n/s u-made 9", view_with([]), 0.0))
    assert own == ([], None)
    [again], _ = drive(controller.reconcile("slice n/s u-made 10", view_with([]), 0.0))
    assert again == Enqueue(("n/s",))


# Mirrors.


def endpoints(*ips: str, labels: Object | None = None, **annotations: str) -> Object:
    meta = {"name": "s", "namespace": "n", "uid": "u-e", "labels": labels or {}}
    names = {
        "applied": "kubectl.kubernetes.io/last-applied-configuration",
        "leader": "control-plane.alpha.kubernetes.io/leader",
    }
    given_annotations = {names.get(name, name): value for name, value in annotations.items()}
    subset = {
        "addresses": [{"ip": ip} for ip in ips],
        "ports": [{"name": "http", "port": 1, "protocol": "TCP", "appProtocol": "h2c"}],
    }
    return {"metadata": {**meta, "annotations": given_annotations}, "subsets": [subset]}


def mirrored(
    found: Object, limit: int = 1000, slices: list[Object] | None = None, **spec: Any
) -> list[Action]:
    view = view_with([service(**{"selector": None, **spec})], endpoints=[found], slices=slices)
    return drive(Mirroring(limit).reconcile("n/s", view, 0.0), done)[0]


def test_a_mirror_has_what_was_written_by_hand() -> None:
    asked = mirrored(endpoints("10.1.0.1", "fd00::1", labels={"x": "y"}, applied="{}", own="1"))
    made = [each.obj for each in asked if isinstance(each, Create)]
    assert {each["addressType"] for each in made} == {"IPv4", "IPv6"}
    for each in made:
        meta = each["metadata"]
        assert meta["labels"] == {
            "x": "y",
            "kubernetes.io/service-name": "s",
            "endpointslice.kubernetes.io/managed-by": ("endpointslicemirroring-controller.k8s.io"),
        }
        assert meta["annotations"] == {"own": "1"}
        [owner] = meta["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Endpoints", "u-e")
        assert each["endpoints"][0]["conditions"] == {"ready": True}
        assert each["ports"][0]["appProtocol"] == "h2c"


@pytest.mark.parametrize(
    ("found", "spec"),
    [
        (endpoints("10.1.0.1", labels={"endpointslice.kubernetes.io/skip-mirror": "true"}), {}),
        (endpoints("10.1.0.1", leader="{}"), {}),
        (endpoints("10.1.0.1"), {"selector": {"a": "b"}}),
    ],
)
def test_what_is_not_mirrored_has_its_mirrors_deleted(found: Object, spec: Object) -> None:
    managed = {"endpointslice.kubernetes.io/managed-by": "endpointslicemirroring-controller.k8s.io"}
    assert mirrored(found, **spec) == []
    [gone] = mirrored(found, slices=[existing(labels=managed)], **spec)
    assert isinstance(gone, Delete)


def test_what_cannot_be_mirrored_is_reported() -> None:
    asked = mirrored(endpoints("10.1.0.1", "nonsense"))
    assert [(each.reason, each.message) for each in asked if isinstance(each, Record)] == [
        ("InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices")
    ]
    asked = mirrored(endpoints("10.1.0.1", "10.1.0.2", "10.1.0.3"), limit=2)
    text = (
        "A max of 2 addresses can be mirrored to EndpointSlices per Endpoints subset. 1 addresses"
        " were skipped"
    )
    assert [(each.reason, each.message) for each in asked if isinstance(each, Record)] == [
        ("TooManyAddressesToMirror", text)
    ]


# Ranges of services.


def test_an_address_that_goes_has_the_ranges_around_it_looked_at() -> None:
    ranges = [
        {"metadata": {"name": name}, "spec": {"cidrs": [cidr]}}
        for name, cidr in (("a", "10.0.0.0/24"), ("b", "10.1.0.0/24"), ("c", "10.0.0.0/16"))
    ]
    view = view_of({SERVICE_CIDRS: ranges, IP_ADDRESSES: []})
    by_range, by_address = ServiceRanges().watches
    address = {"metadata": {"name": "10.0.0.7"}}
    assert sorted(map(str, by_address.keys(address, None, view))) == ["a", "c"]
    assert list(by_address.keys(None, address, view)) == []
    assert sorted(map(str, by_range.keys(None, ranges[0], view))) == ["a", "c"]


def test_a_range_whose_status_cannot_be_set_is_reported() -> None:
    new = {"metadata": {"name": "a"}, "spec": {"cidrs": ["10.0.0.0/24"]}}
    told: list[Record] = []

    def answer(action: Action) -> Answer:
        if isinstance(action, Record):
            told.append(action)
        is_status = getattr(action, "subresource", "") == "status"
        return refusal(500) if is_status else {}

    view = view_of({SERVICE_CIDRS: [new], IP_ADDRESSES: []})
    with pytest.raises(ApiError):
        drive(ServiceRanges().reconcile("a", view, 0.0), answer)
    assert [(each.type, each.reason) for each in told] == [
        ("Warning", "KubernetesServiceCIDRError")
    ]
