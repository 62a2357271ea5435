"""Rows of Tables of the core kinds."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.strategy import Strategy
from kvstack.apiserver.kinds.table import strategy_of
from tests.apiserver.kinds.hooks import NOW, cells_of


def strategy(resource: str, group: str = "") -> Strategy:
    """Return the strategy of a resource."""
    found = strategy_of(group, resource)
    assert found is not None
    return found


def meta(**members: Any) -> dict[str, Any]:
    """Return the metadata of an object named `a`."""
    return {"name": "a", **members}


@pytest.mark.parametrize(
    ("resource", "members", "expected"),
    [
        ("configmaps", {"data": {"a": ""}, "binaryData": {"b": ""}}, ["a", 2, "3m"]),
        ("secrets", {"data": {"a": "", "b": ""}}, ["a", "Opaque", 2, "3m"]),
        ("serviceaccounts", {}, ["a", "3m"]),
        ("limitranges", {}, ["a", NOW]),
        ("namespaces", {}, ["a", "Active", "3m"]),
        ("endpoints", {}, ["a", "<none>", "3m"]),
        ("componentstatuses", {}, ["a", "Unknown", "", ""]),
    ],
)
def test_simple_rows(resource: str, members: dict[str, Any], expected: list[Any]) -> None:
    """Name, what is counted, age."""
    assert cells_of(strategy(resource), {"metadata": meta(), **members}) == expected


@pytest.mark.parametrize(
    ("subsets", "expected"),
    [
        ([{"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}], "10.0.0.1,fd00::1"),
        ([{"notReadyAddresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 1}]}], ""),
        (
            [
                {
                    "addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
                    "ports": [{"port": 80}, {"port": 443}],
                }
            ],
            "10.0.0.1:80,[fd00::1]:80,10.0.0.1:443 + 1 more...",
        ),
    ],
)
def test_endpoints(subsets: list[dict[str, Any]], expected: str) -> None:
    """Three at most."""
    row = cells_of(strategy("endpoints"), {"metadata": meta(), "subsets": subsets})
    assert row == ["a", expected, "3m"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ({"type": "Healthy", "status": "True", "message": "ok"}, ["a", "Healthy", "ok", ""]),
        ({"type": "Healthy", "status": "False", "error": "e"}, ["a", "Unhealthy", "", "e"]),
        ({"type": "Other", "status": "True"}, ["a", "Unknown", "", ""]),
    ],
)
def test_component_status(condition: dict[str, str], expected: list[str]) -> None:
    """Only the condition Healthy counts."""
    obj = {"metadata": meta(), "conditions": [condition]}
    assert cells_of(strategy("componentstatuses"), obj) == expected


def test_node() -> None:
    """Roles come from two labels; addresses are the first of their type."""
    node = {
        "metadata": meta(
            labels={
                "node-role.kubernetes.io/worker": "",
                "node-role.kubernetes.io/": "",
                "kubernetes.io/role": "control-plane",
            }
        ),
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "addresses": [
                {"type": "Hostname", "address": "h"},
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "10.0.0.2"},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.37.1",
                "osImage": "Linux",
                "kernelVersion": "6.1",
                "architecture": "arm64",
                "containerRuntimeVersion": "containerd://2",
            },
        },
    }
    assert cells_of(strategy("nodes"), node) == [
        "a",
        "NotReady,SchedulingDisabled",
        "control-plane,worker",
        "3m",
        "v1.37.1",
        "10.0.0.1",
        "<none>",
        "Linux",
        "6.1 (arm64)",
        "containerd://2",
    ]


def test_node_that_says_nothing() -> None:
    """Nothing is known then."""
    node = {"metadata": meta(), "spec": {}, "status": {"nodeInfo": {"kernelVersion": "6.1"}}}
    assert cells_of(strategy("nodes"), node) == [
        "a",
        "Unknown",
        "<none>",
        "3m",
        "",
        "<none>",
        "<none>",
        "<unknown>",
        "6.1",
        "<unknown>",
    ]


def test_resource_quota() -> None:
    """Limits stand apart; what is not counted yet is 0."""
    quota = {
        "metadata": meta(),
        "spec": {},
        "status": {
            "hard": {"pods": "10", "limits.cpu": "2", "cpu": "1"},
            "used": {"pods": "3", "limits.cpu": "500m"},
        },
    }
    row = cells_of(strategy("resourcequotas"), quota)
    assert row == ["a", "cpu: 0/1, pods: 3/10", "limits.cpu: 500m/2", "3m"]


EVENT: dict[str, Any] = {
    "metadata": meta(),
    "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
    "reason": "Started",
    "message": " it runs\n",
    "type": "Normal",
    "source": {"component": "kubelet", "host": "n1"},
    "firstTimestamp": NOW,
    "lastTimestamp": "2026-01-02T03:05:05Z",
    "count": 4,
}


@pytest.mark.parametrize("group", ["", "events.k8s.io"])
def test_event(group: str) -> None:
    """Last seen comes first; the message is trimmed."""
    assert cells_of(strategy("events", group), EVENT) == [
        "2m",
        "Normal",
        "Started",
        "pod/p",
        "spec",
        "kubelet, n1",
        "it runs",
        "3m",
        4,
        "a",
    ]


def test_event_of_a_series() -> None:
    """When it was last seen and how often are the series' then."""
    event = {
        "metadata": meta(),
        "involvedObject": {"kind": "Node"},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingComponent": "example.com/c",
        "reportingInstance": "i",
        "series": {"count": 7, "lastObservedTime": "2026-01-02T03:06:05.000000Z"},
    }
    row = cells_of(strategy("events"), event)
    assert row == ["60s", "", "", "node", "", "example.com/c, i", "", "3m", 7, "a"]


def test_event_that_was_seen_once() -> None:
    """Without a last time, the first stands for it."""
    row = cells_of(strategy("events"), {"metadata": meta(), "firstTimestamp": NOW})
    assert row == ["3m", "", "", "", "", "", "", "3m", 1, "a"]


def test_lease() -> None:
    """Who holds it."""
    lease = {"metadata": meta(), "spec": {"holderIdentity": "me"}}
    assert cells_of(strategy("leases", "coordination.k8s.io"), lease) == ["a", "me", "3m"]


def test_runtime_class() -> None:
    """How it runs containers."""
    obj = {"metadata": meta(), "handler": "runsc"}
    assert cells_of(strategy("runtimeclasses", "node.k8s.io"), obj) == ["a", "runsc", "3m"]


def test_priority_class() -> None:
    """The preemption policy stands last."""
    obj = {"metadata": meta(), "value": 77, "preemptionPolicy": "Never"}
    row = cells_of(strategy("priorityclasses", "scheduling.k8s.io"), obj)
    assert row == ["a", 77, False, "3m", "Never"]
