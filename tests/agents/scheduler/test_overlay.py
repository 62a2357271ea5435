"""An overlay shows a cluster with other pods, and leaves the cluster as it is."""

import random
from typing import Any

import pytest

from kvstack.agents.scheduler.configuration import DEFAULT
from kvstack.agents.scheduler.scheduling import Turn, schedule
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.overlay import Overlay
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, PodMatch, selector_of

NODES = [f"n{number}" for number in range(6)]
COLORS = ("red", "blue", "green")
NOTHING = selector_of(None)
MATCHES = [
    (PodMatch(frozenset(("d",)), NOTHING, selector_of({"matchLabels": {"color": color}})),)
    for color in COLORS
]
PROFILE = DEFAULT.profiles["default-scheduler"]


def node(name: str, cpu: str = "4") -> Any:
    labels = {"kubernetes.io/hostname": name, "zone": f"z{int(name[1:]) % 2}"}
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110", "example.com/gpu": "4"}
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": amounts}}


def pod(rng: random.Random, uid: str, priority: int = 0) -> PodInfo:
    requests = {"cpu": f"{rng.randrange(900)}m"}
    if rng.random() < 0.3:
        requests["example.com/gpu"] = "1"
    container: Any = {"name": "c", "resources": {"requests": requests}}
    if rng.random() < 0.4:
        container["ports"] = [{"hostPort": 80 + rng.randrange(3)}]
    spec: Any = {"containers": [container], "priority": priority}
    if rng.random() < 0.5:
        term = {
            "labelSelector": {"matchLabels": {"color": rng.choice(COLORS)}},
            "topologyKey": rng.choice(("zone", "kubernetes.io/hostname")),
        }
        kind = rng.choice(("podAffinity", "podAntiAffinity"))
        spec["affinity"] = {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    meta: Any = {"name": uid, "namespace": "d", "uid": uid, "labels": {}}
    meta["labels"] = {"color": rng.choice(COLORS)}
    if rng.random() < 0.2:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return PodInfo({"metadata": meta, "spec": spec})


def cluster_with(pods: dict[str, tuple[PodInfo, str]]) -> Cluster:
    cluster = Cluster()
    for name in NODES:
        cluster.set_node(node(name))
    for info, name in pods.values():
        cluster.add_pod(info, name)
    return cluster


def seen(cluster: Cluster) -> Any:
    """Return all that plugins read of the pods of a cluster."""
    means = [PodInfo(probe("p", color)) for color in COLORS]
    return {
        "pods": {uid: cluster.node_of(uid) for uid in cluster.pods},
        "count": len(cluster.pods),
        "pods_on": [sorted(pods) for pods in cluster.pods_on],
        "used": {name: cluster.used(name).tolist() for name in ("cpu", "pods", "example.com/gpu")},
        "scored": [cluster.scored_used(name).tolist() for name in ("cpu", "memory")],
        "ports": {port: dict(users) for port, users in cluster.ports.items() if users},
        "counts": [
            cluster.count(match, counts_terminating=is_counted).tolist()
            for match in MATCHES
            for is_counted in (True, False)
        ],
        "carried": [
            {
                (each.kind, each.term): (each.column.data[: cluster.size].tolist(), each.total)
                for each in cluster.index.carried_for(info)
            }
            for info in means
        ],
    }


def probe(name: str, color: str, **spec: Any) -> Any:
    meta = {"name": name, "namespace": "d", "uid": name, "labels": {"color": color}}
    return {"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_read_first", [True, False])
def test_an_overlay_reads_as_a_cluster_with_its_pods(seed: int, *, is_read_first: bool) -> None:
    chance = random.Random(seed)
    pods = {
        uid: (pod(chance, uid), chance.choice(NODES))
        for uid in (f"p{number}" for number in range(20))
    }
    cluster = cluster_with(pods)
    before = seen(cluster_with(pods))
    if is_read_first:  # counts that the cluster keeps, or that nobody has asked for yet
        assert seen(cluster) == before
    overlay, changed = Overlay(cluster), dict(pods)
    for step in range(40):
        uid = f"p{chance.randrange(30)}"
        if chance.random() < 0.5:
            overlay.remove_pod(uid)
            changed.pop(uid, None)
        else:
            other = pods[uid][0] if uid in pods and chance.random() < 0.5 else pod(chance, uid)
            changed.pop(uid, None)
            changed[uid] = (other, chance.choice(NODES))
            overlay.add_pod(*changed[uid])
        if step % 10 == 9:
            assert seen(overlay) == seen(cluster_with(changed))
    assert seen(cluster) == before


def test_an_overlay_has_the_nodes_of_its_cluster() -> None:
    overlay = Overlay(cluster_with({}))
    with pytest.raises(TypeError, match="shares the nodes"):
        overlay.set_node(node("n0"))
    with pytest.raises(TypeError, match="shares the nodes"):
        overlay.remove_node("n0")
    overlay.add_pod(PodInfo(probe("p", "red")), "n0")
    overlay.remove_pod("p")
    with pytest.raises(KeyError):
        overlay.pods["p"]
    assert overlay.names == NODES


def test_a_decision_leaves_the_cluster_and_its_turn_as_they_are() -> None:
    chance = random.Random(7)
    cluster = cluster_with({f"p{n}": (pod(chance, f"p{n}"), NODES[n % 6]) for n in range(12)})
    important = PodInfo(probe("i", "red", priority=10))
    cluster.nominate(important, "n2")
    before, turn = seen(cluster), Turn()
    decision = schedule(PodInfo(probe("q", "blue")), cluster, PROFILE, turn)
    again = schedule(PodInfo(probe("q", "blue")), cluster, PROFILE, turn)
    assert decision.node is not None
    assert (decision.node, decision.turn) == (again.node, again.turn)
    assert turn == Turn() != decision.turn
    assert seen(cluster) == before
