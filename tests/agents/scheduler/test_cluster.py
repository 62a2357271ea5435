"""Columns and indexes stay true to the pods and nodes there are, whatever comes and goes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.scheduler.snapshot import node_selectors
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.node_order import interleaved
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, PodMatch, selector_of
from kvstack.apimachinery.objects import labels as selectors
from kvstack.apimachinery.objects.json_object import Object

MATCH = PodMatch(
    frozenset(("default",)), selectors.NOTHING, selector_of({"matchLabels": {"app": "a"}})
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("node", "no node", "pod", "no pod")),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=40,
)


def node(number: int, zone: int) -> Object:
    return {
        "metadata": {"name": f"n{number}", "labels": {"zone": f"z{zone}"}},
        "status": {"allocatable": {"cpu": str(zone + 1), "pods": "10"}},
    }


def pod(number: int, app: int) -> PodInfo:
    requests = {"cpu": "1", "example.com/gpu": str(app)}
    return PodInfo(
        {
            "metadata": {
                "name": f"p{number}",
                "namespace": "default",
                "uid": f"u{number}",
                "labels": {"app": "ab"[app % 2]},
            },
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": requests}}],
            },
        }
    )


@pytest.mark.slow
@given(STEPS)
def test_a_cluster_that_changed_is_as_one_made_anew(steps: list[tuple[str, int, int]]) -> None:
    cluster = Cluster()
    cluster.label("zone")
    cluster.count((MATCH,), counts_terminating=True)
    nodes: dict[str, Object] = {}
    pods: dict[str, tuple[PodInfo, str]] = {}
    for what, number, other in steps:
        if what == "node":
            nodes[f"n{number}"] = node(number, other)
            cluster.set_node(nodes[f"n{number}"])
        elif what == "no node":
            nodes.pop(f"n{number}", None)
            cluster.remove_node(f"n{number}")
        elif what == "pod":
            pods[f"u{number}"] = (pod(number, other), f"n{other}")
            cluster.add_pod(*pods[f"u{number}"])
        else:
            pods.pop(f"u{number}", None)
            cluster.remove_pod(f"u{number}")
    for name, slot in cluster.slots.items():
        there = [info for info, place in pods.values() if place == name]
        assert cluster.is_valid[slot] == (name in nodes)
        assert cluster.used("cpu")[slot] == 1000 * len(there)
        assert cluster.used("pods")[slot] == len(there)
        assert cluster.used("example.com/gpu")[slot] == sum(
            info.requests["example.com/gpu"] for info in there
        )
        counted = cluster.count((MATCH,), counts_terminating=True)
        assert counted[slot] == sum(info.labels["app"] == "a" for info in there)
        ids, values = cluster.label("zone")
        if name in nodes:
            assert values.texts[ids[slot]] == nodes[name]["metadata"]["labels"]["zone"]
        else:
            assert ids[slot] == -1
    free = [slot for slot in range(cluster.size) if not cluster.names[slot]]
    assert not np.any(cluster.used("pods")[free])
    assert sorted(cluster.names[slot] for slot in cluster.order.tolist()) == sorted(nodes)


def test_a_pod_may_come_before_its_node() -> None:
    cluster = Cluster()
    cluster.set_node(node(0, 1))
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    assert node_selectors.term(cluster, term).tolist() == [True]
    cluster.add_pod(pod(1, 0), "n1")
    assert node_selectors.term(cluster, term).tolist() == [True, False]
    cluster.set_node(node(1, 2))
    assert node_selectors.term(cluster, term).tolist() == [True, True]
    assert cluster.used("cpu").tolist() == [0, 1000]


def test_zones_take_turns() -> None:
    zones = {0: ("", "a"), 1: ("", "a"), 2: ("", "b"), 3: ("", "a"), 4: ("", "c")}
    assert interleaved(zones) == [0, 2, 4, 1, 3]


def test_pods_that_are_alike_hold_requests_and_labels_once() -> None:
    first, second = pod(1, 2), pod(2, 2)
    assert first.requests == {"cpu": 1000, "example.com/gpu": 2}
    assert first.requests is second.requests
    assert first.scored_requests is second.scored_requests
    assert first.labels_key is second.labels_key
    assert pod(3, 1).requests == {"cpu": 1000, "example.com/gpu": 1}
