"""Which Services of type LoadBalancer get which addresses of nodes."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import NODES, SERVICES
from kvstack.agents.controllers.network.node_balancers import CLASS, NodeBalancers
from kvstack.agents.reconcile.plan import Record, Update
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.plans import drive, view_of


def service(
    name: str = "web", *ports: int, made: str = "2024-01-01T00:00:00Z", **spec: Any
) -> Object:
    known = spec.pop("known", ())
    meta = {"name": name, "namespace": "ns", "uid": name, "creationTimestamp": made}
    given = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], **spec}
    given["ports"] = [{"port": port, "protocol": "TCP"} for port in ports or (80,)]
    ingress = [{"ip": each, "ipMode": "VIP"} for each in known]
    return {"metadata": meta, "spec": given, "status": {"loadBalancer": {"ingress": ingress}}}


def node(name: str, address: str, ready: str = "True", **labels: str) -> Object:
    return {
        "metadata": {"name": name, "labels": labels},
        "status": {
            "addresses": [
                {"type": "Hostname", "address": name},
                {"type": "InternalIP", "address": address},
            ],
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


ONE, TWO = node("one", "192.0.2.1"), node("two", "192.0.2.2")


def balanced(services: list[Object], nodes: list[Object]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the addresses that were written, by Service, and what Events say."""
    view = view_of({SERVICES: services, NODES: nodes})
    asked, _ = drive(NodeBalancers().reconcile("all", view, 0.0))
    written = {
        each.obj["metadata"]["name"]: [
            one["ip"] for one in each.obj["status"]["loadBalancer"].get("ingress", ())
        ]
        for each in asked
        if isinstance(each, Update)
    }
    assert all(each.subresource == "status" for each in asked if isinstance(each, Update))
    return written, [each.message for each in asked if isinstance(each, Record)]


def test_a_service_gets_the_addresses_of_ready_nodes() -> None:
    nodes = [
        TWO,
        ONE,
        node("three", "192.0.2.3", "False"),
        node(
            "four", "192.0.2.4", **{"node.kubernetes.io/exclude-from-external-load-balancers": ""}
        ),
        node("five", "127.0.0.1"),
        node("six", "fd00::6"),
    ]
    written, told = balanced([service()], nodes)
    assert written == {"web": ["192.0.2.1", "192.0.2.2"]}
    assert told == ["Ensured load balancer"]


HOSTILE = (
    "nowhere", "", "0.0.0.0", "224.0.0.1", "169.254.169.254", "127.0.0.1", "255.255.255.255",
    "fe80::1%eth0", "192.0.2.1 }", "10.244.0.7",
)  # fmt: skip


@pytest.mark.parametrize("address", HOSTILE)
def test_a_hostile_node_gives_no_address_and_stops_nothing(address: str) -> None:
    """What a node says of itself is neither checked by the API nor believed here."""
    own = {**ONE, "spec": {"podCIDRs": ["10.244.0.0/24", "none"]}}
    hostile = node("hostile", address)
    hostile["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    written, _ = balanced([service()], [own, hostile])
    assert written == {"web": ["192.0.2.1"]}
    controller = NodeBalancers()
    [_, of_nodes] = controller.watches
    view = view_of({SERVICES: [], NODES: []})
    younger = {**hostile, "spec": {"podCIDRs": ["192.0.2.0/24", "0.0.0.0/0"]}}
    younger["metadata"] = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}
    assert balanced([service()], [younger, own])[0] == {"web": ["192.0.2.1"]}
    assert list(of_nodes.keys(None, hostile, view)) == [] or address == "10.244.0.7"


def test_what_is_right_is_not_written() -> None:
    assert balanced([service(known=("192.0.2.1",))], [ONE]) == ({}, [])


@pytest.mark.parametrize(
    ("one", "is_written"),
    [
        (service(loadBalancerClass="other.io/x"), False),
        (service(loadBalancerClass=CLASS), True),
        (service(type="ClusterIP"), False),
        (service(type="NodePort"), False),
    ],
)
def test_services_of_others_are_left_to_them(one: Object, is_written: bool) -> None:  # noqa: FBT001
    assert bool(balanced([one], [ONE])[0]) is is_written


def test_a_service_that_is_balanced_no_more_gives_its_addresses_back() -> None:
    written, _ = balanced([service(type="ClusterIP", known=("192.0.2.1",))], [ONE])
    assert written == {"web": []}


def test_a_port_is_the_oldest_services() -> None:
    services = [
        service("young", made="2024-01-02T00:00:00Z"),
        service("old", made="2024-01-01T00:00:00Z"),
        service("other", 81, made="2024-01-03T00:00:00Z"),
    ]
    written, told = balanced(services, [ONE])
    assert written == {"old": ["192.0.2.1"], "other": ["192.0.2.1"]}
    assert "port 80/TCP is taken by Service ns/old" in told


@pytest.mark.parametrize("port", [22, 6443, 10250, 10256])
def test_ports_of_the_nodes_themselves_are_given_to_nobody(port: int) -> None:
    written, told = balanced([service("web", port)], [ONE])
    assert written == {}
    assert told == [f"port {port} is the nodes' own"]


def test_what_concerns_it() -> None:
    services, nodes = NodeBalancers().watches
    view = view_of({SERVICES: [], NODES: []})
    assert list(services.keys(None, service(), view))
    assert not list(services.keys(None, service(type="ClusterIP"), view))
    assert list(services.keys(service(), service(type="ClusterIP", known=("192.0.2.1",)), view))
    assert list(nodes.keys(None, ONE, view))
    assert not list(nodes.keys(ONE, {**ONE, "spec": {}}, view))
    assert list(nodes.keys(ONE, None, view))
