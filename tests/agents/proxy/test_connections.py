"""Which flows of UDP lead astray: nothing here asks the kernel."""

from typing import Any

import pytest

from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import ClusterView
from kvstack.agents.proxy.connections import Flow, Tuple, frontends, stale
from tests.agents.proxy.objects import balanced, endpoint, endpoint_slice, service

CLIENT = "192.0.2.9"
DNS = {"port": 53, "protocol": "UDP"}


def flow(target: str, port: int, source: str, source_port: int) -> Flow:
    """Return a flow to a target that something answers."""
    original = Tuple(CLIENT, target, 4000, port)
    return Flow(original, Tuple(source, CLIENT, source_port, 4000), b"")


def stale_flows(view: ClusterView, *flows: Flow, changed: Any = None) -> list[Flow]:
    served = list(view.served()) if changed is None else changed
    return list(stale(flows, frontends(served, view)))


def view_of(obj: dict[str, Any], *endpoints: dict[str, Any], protocol: str = "UDP") -> ClusterView:
    view = ClusterView(4, Here("here"))
    view.set_service(None, obj)
    view.set_slice(None, endpoint_slice(*endpoints, protocol=protocol))
    view.take_changes()
    return view


def test_a_flow_from_before_the_first_endpoint() -> None:
    """It was not translated: what answers, if anything does, is the address that was asked."""
    before = flow("10.96.0.10", 53, "10.96.0.10", 53)
    assert stale_flows(view_of(service("web", DNS), endpoint("10.244.0.3")), before) == [before]
    assert stale_flows(view_of(service("web", DNS)), before) == [before]  # and while there is none


def test_a_flow_to_an_endpoint() -> None:
    view = view_of(service("web", DNS), endpoint("10.244.0.3"))
    kept, gone = (flow("10.96.0.10", 53, f"10.244.0.{last}", 8080) for last in (3, 4))
    other_port = flow("10.96.0.10", 53, "10.244.0.3", 8081)
    assert stale_flows(view, kept, gone, other_port) == [gone, other_port]


@pytest.mark.parametrize(
    ("conditions", "stale_count"), [("", 0), ("draining", 0), ("not ready", 1)]
)
def test_endpoints_that_still_serve_keep_their_flows(conditions: str, stale_count: int) -> None:
    """Whether others are ready or not, and wherever they are."""
    ends = endpoint("10.244.0.3"), endpoint("10.244.0.4", "there", conditions)
    obj = service("web", DNS, internalTrafficPolicy="Local")
    one = flow("10.96.0.10", 53, "10.244.0.4", 8080)
    assert stale_flows(view_of(obj, *ends), one) == [one] * stale_count


def test_a_flow_to_a_node_port() -> None:
    """By the port alone, since the addresses of nodes are many; only if something answers there."""
    obj = service("web", {**DNS, "nodePort": 30053}, type="NodePort")
    gone, kept = (flow("192.0.2.5", 30053, f"10.244.0.{last}", 8080) for last in (4, 3))
    assert stale_flows(view_of(obj, endpoint("10.244.0.3")), gone, kept) == [gone]
    assert stale_flows(view_of(obj), gone, kept) == []
    draining = endpoint("10.244.0.3", conditions="draining")
    assert stale_flows(view_of(obj, draining), gone, kept) == [gone]


def test_flows_to_external_addresses() -> None:
    obj = balanced("203.0.113.7", externalIPs=["198.51.100.4"])
    obj["spec"]["ports"] = [DNS]
    view = view_of(obj, endpoint("10.244.0.3"))
    flows = [
        flow(target, 53, f"10.244.0.{last}", 8080)
        for target in ("203.0.113.7", "198.51.100.4")
        for last in (3, 4)
    ]
    assert stale_flows(view, *flows) == [flows[1], flows[3]]


def test_other_flows_are_left_alone() -> None:
    view = view_of(service("web", DNS), endpoint("10.244.0.3"))
    others = [
        flow("10.96.0.11", 53, "10.244.0.9", 8080),
        flow("10.96.0.10", 54, "10.244.0.9", 8080),
        flow("10.244.0.9", 8080, "10.244.0.9", 8080),
    ]
    assert stale_flows(view, *others) == []


@pytest.mark.parametrize("protocol", ["TCP", "SCTP"])
def test_other_protocols_end_by_themselves(protocol: str) -> None:
    obj = service("web", {"port": 53, "protocol": protocol})
    view = view_of(obj, endpoint("10.244.0.3"), protocol=protocol)
    assert frontends(view.served(), view) == ({}, {})
    assert stale_flows(view, flow("10.96.0.10", 53, "10.244.0.4", 8080)) == []


def test_the_whole_pass_at_the_start_has_all_services() -> None:
    """A pass for a change has those that changed alone."""
    view = view_of(service("web", DNS), endpoint("10.244.0.3"))
    view.set_service(None, service("other", DNS, clusterIP="10.96.0.11"))
    changed = [each for each in view.take_changes().values() if each]
    flows = [flow(f"10.96.0.{last}", 53, "10.244.0.9", 8080) for last in (10, 11)]
    assert stale_flows(view, *flows, changed=changed) == [flows[1]]
    assert stale_flows(view, *flows) == flows
