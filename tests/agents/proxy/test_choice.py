"""Which endpoints traffic goes to."""

from dataclasses import replace
from typing import Any

import pytest

from kvstack.agents.proxy.choice import Here, Served, Verdict, choose
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.endpoints import endpoints_of, merged
from kvstack.agents.proxy.services import PortName, ServicePort, ports_of
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service

HERE = Here("here", "east")
A, B, C = "10.244.0.1", "10.244.0.2", "10.244.1.3"
PORT = ServicePort(PortName("ns", "web", "", "TCP"), "10.96.0.10", 80)
INTERNAL = replace(PORT, is_internal_local=True)
EXTERNAL = replace(PORT, is_external_local=True, node_port=30080)
HERE_AND_THERE = (endpoint(A), endpoint(C, "there"))


def zones(*names: str) -> dict[str, Any]:
    return {"hints": {"forZones": [{"name": name} for name in names]}}


def nodes(*names: str) -> dict[str, Any]:
    return {"hints": {"forNodes": [{"name": name} for name in names]}}


def chosen(port: ServicePort, endpoints: tuple[dict[str, Any], ...], here: Here = HERE) -> Served:
    found = merged([endpoints_of(endpoint_slice(*endpoints), here.node)], ("", "TCP"))
    return choose(port, found, here)


def ips(endpoints: tuple[Any, ...]) -> list[str]:
    return [each.ip for each in endpoints]


@pytest.mark.parametrize(
    ("port", "endpoints", "cluster", "local"),
    [
        pytest.param(PORT, HERE_AND_THERE, [A, C], [], id="all that are ready"),
        pytest.param(
            PORT, (endpoint(A, "here", "not ready"), endpoint(B)), [B], [], id="not the unready"
        ),
        pytest.param(
            PORT, (endpoint(A, "here", "draining"), endpoint(B)), [B], [], id="ready before ending"
        ),
        pytest.param(
            PORT, (endpoint(A, "here", "draining"),), [A], [], id="ending where none is ready"
        ),
        pytest.param(INTERNAL, HERE_AND_THERE, [], [A], id="internal local"),
        pytest.param(EXTERNAL, HERE_AND_THERE, [A, C], [A], id="external local"),
        pytest.param(
            EXTERNAL,
            (endpoint(A, "here", "draining"), endpoint(C, "there")),
            [C],
            [A],
            id="each list falls back by itself",
        ),
        pytest.param(
            replace(PORT, is_external_local=True), HERE_AND_THERE, [A, C], [], id="nothing external"
        ),
        pytest.param(
            PORT,
            (endpoint(A, **zones("west")), endpoint(B, **zones("east", "west"))),
            [B],
            [],
            id="those of the zone",
        ),
        pytest.param(
            PORT, (endpoint(A, **zones("east")), endpoint(B)), [A, B], [], id="one without a hint"
        ),
        pytest.param(
            PORT,
            (endpoint(A, **zones("east")), endpoint(B, "here", "not ready")),
            [A],
            [],
            id="hints of those that are ready count",
        ),
        pytest.param(
            PORT, (endpoint(A, **zones("west")),), [A], [], id="none for this zone: all of them"
        ),
        pytest.param(
            PORT,
            (
                endpoint(A, hints={**nodes("there")["hints"], **zones("east")["hints"]}),
                endpoint(B, hints={**nodes("here")["hints"], **zones("west")["hints"]}),
            ),
            [B],
            [],
            id="the node before the zone",
        ),
        pytest.param(
            PORT,
            (endpoint(A, "here", "draining", **zones("west")),),
            [A],
            [],
            id="hints of those that end do not count",
        ),
    ],
)
def test_endpoints(
    port: ServicePort, endpoints: tuple[dict[str, Any], ...], cluster: list[str], local: list[str]
) -> None:
    found = chosen(port, endpoints)
    assert (ips(found.cluster), ips(found.local)) == (cluster, local)


@pytest.mark.parametrize(
    ("port", "endpoints", "internal", "external"),
    [
        (PORT, (), Verdict.REJECT, Verdict.REJECT),
        (PORT, (endpoint(A, "here", "not ready"),), Verdict.REJECT, Verdict.REJECT),
        (PORT, HERE_AND_THERE, Verdict.ENDPOINTS, Verdict.ENDPOINTS),
        (INTERNAL, (endpoint(C, "there"),), Verdict.DROP, Verdict.ENDPOINTS),
        (INTERNAL, (), Verdict.REJECT, Verdict.REJECT),
        (EXTERNAL, (endpoint(C, "there"),), Verdict.ENDPOINTS, Verdict.DROP),
        (EXTERNAL, (endpoint(C, "there", "draining"),), Verdict.ENDPOINTS, Verdict.DROP),
        (EXTERNAL, (), Verdict.REJECT, Verdict.REJECT),
    ],
)
def test_without_endpoints(
    port: ServicePort, endpoints: tuple[dict[str, Any], ...], internal: Verdict, external: Verdict
) -> None:
    found = chosen(port, endpoints)
    assert (found.internal, found.external) == (internal, external)


def test_a_node_whose_zone_is_unknown_takes_all() -> None:
    given = (endpoint(A, **zones("east")), endpoint(B, **zones("west")))
    assert ips(chosen(PORT, given, Here("here")).cluster) == [A, B]


def test_addresses_that_are_ready_here_are_counted_once() -> None:
    found = chosen(EXTERNAL, (endpoint(A), endpoint(A), endpoint(B), endpoint(C, "there")))
    assert found.local_ready == 2


def test_of_one_address_the_pod_that_does_not_end_counts() -> None:
    one = endpoints_of(endpoint_slice(endpoint(A, "here", "draining")), "here")
    two = endpoints_of(endpoint_slice(endpoint(A)), "here")
    for slices in ((one, two), (two, one)):
        assert [e.is_terminating for e in merged(slices, ("", "TCP"))] == [False]


def test_endpoints_are_in_the_order_of_their_text() -> None:
    given = (endpoint("10.0.0.2"), endpoint("10.0.0.10"), endpoint("10.0.0.1"))
    assert ips(chosen(PORT, given).cluster) == ["10.0.0.10", "10.0.0.1", "10.0.0.2"]


def test_what_is_read_in_a_service() -> None:
    given = balanced(
        "203.0.113.7",
        ports=[],
        clusterIP="10.96.0.10",
        clusterIPs=["10.96.0.10", "fd00:1::a"],
        externalIPs=["198.51.100.4", "fd00::4"],
        loadBalancerSourceRanges=[" 192.0.2.0/24", "fd00::/8"],
        externalTrafficPolicy="Local",
        healthCheckNodePort=31000,
        sessionAffinity="ClientIP",
    )
    given["spec"]["ports"] = [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30080}]
    name = PortName("ns", "web", "http", "TCP")
    assert ports_of(given, 4) == (
        ServicePort(
            name,
            "10.96.0.10",
            80,
            30080,
            10_800,
            ("198.51.100.4",),
            ("203.0.113.7",),
            ("192.0.2.0/24",),
            is_internal_local=False,
            is_external_local=True,
            health_check_port=31000,
        ),
    )
    (six,) = ports_of(given, 6)
    assert (six.cluster_ip, six.external_ips, six.balancer_ips) == ("fd00:1::a", ("fd00::4",), ())
    assert six.source_ranges == ("fd00::/8",)


@pytest.mark.parametrize(
    "given",
    [
        service(clusterIP="None"),
        service(clusterIP=""),
        service(type="ExternalName", clusterIP=""),
        service(type="ExternalName"),
        service(clusterIP="fd00::1"),
        service(labels={"service.kubernetes.io/service-proxy-name": "other"}),
    ],
)
def test_services_that_are_not_served(given: dict[str, Any]) -> None:
    assert ports_of(given, 4) == ()


def test_addresses_that_a_balancer_proxies_for_and_names_are_left_to_it() -> None:
    given = service(type="LoadBalancer")
    given["status"] = {
        "loadBalancer": {
            "ingress": [
                {"ip": "203.0.113.1", "ipMode": "Proxy"},
                {"hostname": "lb.example.com"},
                {"ip": "203.0.113.3"},
            ]
        }
    }
    (port,) = ports_of(given, 4)
    assert port.balancer_ips == ("203.0.113.3",)


def test_a_range_of_everything_is_no_restriction() -> None:
    given = service(loadBalancerSourceRanges=["10.0.0.0/8", "0.0.0.0/0"])
    assert ports_of(given, 4)[0].source_ranges == ()


@pytest.mark.parametrize(
    "change",
    [
        {"clusterIP": "10.96.0.1; flush ruleset", "clusterIPs": ["10.96.0.1; flush ruleset"]},
        {"externalIPs": ["10.0.0.1 }"]},
        {"loadBalancerSourceRanges": ["0.0.0.0/0 } accept"]},
        {"ports": [{"port": 80, "protocol": 'TCP"'}]},
        {"ports": [{"port": 70_000, "protocol": "TCP"}]},
        {"ports": [{"port": "80 }", "protocol": "TCP"}]},
        {"ports": [{"name": "a b", "port": 80, "protocol": "TCP"}]},
    ],
)
def test_what_could_become_another_rule_is_refused(change: dict[str, Any]) -> None:
    given = service()
    given["spec"] |= change
    with pytest.raises(ValueError, match=r"."):
        ports_of(given, 4)


def test_a_view_tells_what_has_changed_and_nothing_else() -> None:
    view = ClusterView(4, HERE)
    view.set_service(None, service())
    view.set_service(None, service("other", clusterIP="10.96.0.11"))
    view.set_slice(None, endpoint_slice(endpoint(A)))
    first = view.take_changes()
    assert {name.service for name in first} == {"web", "other"}
    assert view.take_changes() == {}

    slice_ = endpoint_slice(endpoint(A), endpoint(B))
    view.set_slice(endpoint_slice(endpoint(A)), slice_)
    changes = view.take_changes()
    (served,) = changes.values()
    assert served is not None
    assert ips(served.cluster) == [A, B]

    view.set_slice(slice_, slice_)
    assert view.take_changes() == {}
    view.set_service(service("other"), None)
    assert list(view.take_changes().values()) == [None]
    assert view.count == 1


def test_labels_take_objects_away() -> None:
    view = ClusterView(4, HERE)
    one, slice_ = service(), endpoint_slice(endpoint(A))
    view.set_service(None, one)
    view.set_slice(None, slice_)
    assert len(view.take_changes()) == 1

    headless = endpoint_slice(endpoint(A))
    headless["metadata"]["labels"]["service.kubernetes.io/headless"] = ""
    view.set_slice(slice_, headless)
    (served,) = view.take_changes().values()
    assert served is not None
    assert not served.has_any

    view.set_service(one, service(labels={"service.kubernetes.io/service-proxy-name": "x"}))
    assert list(view.take_changes().values()) == [None]


def test_a_service_comes_after_its_slice() -> None:
    view = ClusterView(4, HERE)
    view.set_slice(None, endpoint_slice(endpoint(A)))
    assert view.take_changes() == {}
    view.set_service(None, service())
    (served,) = view.take_changes().values()
    assert served is not None
    assert ips(served.cluster) == [A]


def test_ports_meet_by_name() -> None:
    view = ClusterView(4, HERE)
    given = service("web", {"name": "http", "port": 80}, {"name": "dns", "port": 53})
    view.set_service(None, given)
    view.set_slice(None, endpoint_slice(endpoint(A), port_name="http", port=8080))
    found = {name.port: served for name, served in view.take_changes().items() if served}
    assert [each.text for each in found["http"].cluster] == [f"{A}:8080"]
    assert found["dns"].internal is Verdict.REJECT


def test_a_port_that_is_renamed_leaves_nothing() -> None:
    view = ClusterView(4, HERE)
    view.set_service(None, service("web", {"name": "a", "port": 80}))
    view.take_changes()
    view.set_service(None, service("web", {"name": "b", "port": 80}))
    changes = {name.port: served is not None for name, served in view.take_changes().items()}
    assert changes == {"a": False, "b": True}


def test_the_zone_of_the_node_may_come_late() -> None:
    view = ClusterView(4, Here("here"))
    view.set_service(None, service())
    given = (endpoint(A, **zones("east")), endpoint(B, **zones("west")))
    view.set_slice(None, endpoint_slice(*given))
    view.take_changes()
    assert view.move_to(HERE)
    (served,) = view.take_changes().values()
    assert served is not None
    assert ips(served.cluster) == [A]
    assert not view.move_to(HERE)


def test_an_object_that_cannot_be_meant_is_reported_and_the_others_are_served() -> None:
    view = ClusterView(4, HERE)
    bad = service("bad")
    bad["spec"]["ports"][0]["protocol"] = "{"
    view.set_service(None, bad)
    view.set_service(None, service())
    assert [each.what for each in view.refused] == ["Service ns/bad"]
    assert len(view.take_changes()) == 1
