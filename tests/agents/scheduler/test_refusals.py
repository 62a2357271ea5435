"""Which nodes did not take the pods that wait, and why."""

from kvstack.agents.scheduler.configuration import DEFAULT
from kvstack.agents.scheduler.live.refusals import NODES_MAX, PODS_MAX, Refusals
from kvstack.agents.scheduler.scheduling import Turn, schedule
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

PROFILE = DEFAULT.profiles["default-scheduler"]
TAINT = {"key": "a", "value": "b", "effect": "NoSchedule"}


def cluster_of(small: int, tainted: int) -> Cluster:
    cluster = Cluster()
    for number in range(small + tainted):
        spec = {"taints": [TAINT]} if number >= small else {}
        cluster.set_node(
            {
                "metadata": {"name": f"n{number:03}"},
                "spec": spec,
                "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
            }
        )
    return cluster


def pod(name: str) -> PodInfo:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "8"}}}
    meta = {"name": name, "namespace": "d", "uid": name}
    return PodInfo({"metadata": meta, "spec": {"containers": [container]}})


def noted(refusals: Refusals, name: str, cluster: Cluster, now_s: float) -> None:
    decision = schedule(pod(name), cluster, PROFILE, Turn())
    assert decision.node is None
    refusals.note(pod(name), decision.diagnosis, cluster.names, "none", now_s)


def test_each_reason_names_its_plugin_and_nodes() -> None:
    refusals = Refusals(lambda _key, _uid: True)
    noted(refusals, "p", cluster_of(NODES_MAX + 3, 2), 0.0)
    noted(refusals, "p", cluster_of(NODES_MAX + 3, 2), 60.0)
    (told,) = refusals.rows()
    assert (told["namespace"], told["name"], told["nodeCount"]) == ("d", "p", NODES_MAX + 5)
    assert (told["since"], told["time"]) == ("1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z")
    fit, taints = told["reasons"]
    assert (fit["plugin"], fit["count"]) == ("NodeResourcesFit", NODES_MAX + 3)
    assert "Insufficient cpu" in fit["text"]
    assert fit["nodes"] == [f"n{number:03}" for number in range(NODES_MAX)]
    assert (taints["plugin"], taints["count"]) == ("TaintToleration", 2)
    assert taints["nodes"] == ["n023", "n024"]


def test_pods_that_wait_no_more_are_forgotten_and_the_others_are_bounded() -> None:
    waiting = {f"p{number}" for number in range(PODS_MAX + 10)}
    refusals = Refusals(lambda key, uid: uid in waiting and key == f"d/{uid}")
    cluster = cluster_of(1, 0)
    for number in range(PODS_MAX + 10):
        noted(refusals, f"p{number}", cluster, float(number))
    found = refusals.rows()
    assert len(found) == PODS_MAX
    assert found[0]["name"] == "p10"
    refusals.forget("p10")
    waiting.discard("p11")
    assert refusals.rows()[0]["name"] == "p12"
