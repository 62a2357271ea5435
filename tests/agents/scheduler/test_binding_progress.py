"""When the wait for the claims of a placed pod is over, and when it is in vain."""

from collections.abc import Callable

import pytest

from kvstack.agents.scheduler.handle import PluginError
from kvstack.agents.scheduler.plugins.binding_progress import Progress
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object

SELECTED = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
POD = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
    "spec": {
        "containers": [],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
}


def claim(version: int, volume: str = "", **annotations: str) -> Object:
    spec = {"volumeName": volume} if volume else {}
    meta = {"name": "c", "namespace": "ns", "resourceVersion": str(version)}
    return {"metadata": {**meta, "annotations": annotations}, "spec": spec}


def volume(version: int = 1, zone: str = "a", uid: str = "uid") -> Object:
    expression = {"key": "zone", "operator": "In", "values": [zone]}
    terms = [{"matchExpressions": [expression]}]
    return {
        "metadata": {"name": "pv", "resourceVersion": str(version)},
        "spec": {
            "claimRef": {"uid": uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        },
    }


def cluster_of(pod: PodInfo) -> Cluster:
    cluster = Cluster()
    cluster.set_node({"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": {}, "status": {}})
    cluster.add_pod(pod, "n")
    return cluster


def scene(written: Object, **shown: Object) -> tuple[Cluster, Progress]:
    pod = PodInfo(POD)
    cluster = cluster_of(pod)
    if "claim" in shown:
        cluster.storage.claims["ns/c"] = shown["claim"]
    if "volume" in shown:
        cluster.storage.volumes["pv"] = shown["volume"]
    return cluster, Progress(cluster, pod, "n", [written])


def test_a_claim_that_is_provisioned() -> None:
    written = claim(5, **{SELECTED: "n"})
    cluster, progress = scene(written, claim=claim(4))
    assert not progress.is_done()  # as it was before it was written
    cluster.storage.claims["ns/c"] = written
    assert not progress.is_done()
    done = claim(9, "pv", **{SELECTED: "n", BOUND: "yes"})
    cluster.storage.claims["ns/c"] = done
    assert progress.is_done()  # its volume is not seen yet
    cluster.storage.volumes["pv"] = volume()
    assert progress.is_done()


def test_a_volume_that_is_bound() -> None:
    written = volume(5)
    bound = claim(9, "pv", **{BOUND: "yes"})
    cluster, progress = scene(written, claim=bound, volume=volume(4, uid=""))
    assert not progress.is_done()
    cluster.storage.volumes["pv"] = written
    assert progress.is_done()


@pytest.mark.parametrize(
    ("written", "shown", "text"),
    [
        (claim(5), {"claim": claim(6)}, 'provisioning failed for PVC "c"'),
        (claim(5), {"claim": claim(6, **{SELECTED: "m"})}, 'provisioning failed for PVC "c"'),
        (claim(5), {}, 'failed to check provisioning pvc: could not find pvc "ns/c"'),
        (volume(5), {}, 'failed to check binding: could not find pv "pv"'),
        (volume(5), {"volume": volume(6, uid="")}, 'ClaimRef got reset for pv "pv"'),
        (
            volume(5),
            {"volume": volume(6, zone="b")},
            'pv "pv" node affinity doesn\'t match node "n": no matching NodeSelectorTerms',
        ),
        (
            claim(5),
            {"claim": claim(6, "pv", **{SELECTED: "n"}), "volume": volume(zone="b")},
            'pv "pv" node affinity doesn\'t match node "n": no matching NodeSelectorTerms',
        ),
    ],
)
def test_what_is_taken_back_ends_the_wait(written: Object, shown: Object, text: str) -> None:
    _, progress = scene(written, **shown)
    with pytest.raises(PluginError) as raised:
        progress.is_done()
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda cluster: cluster.remove_pod("u"), 'pod does not exist any more: pod "p" not found'),
        (
            lambda cluster: cluster.remove_node("n"),
            'failed to get node "n": node "n" not found',
        ),
    ],
)
def test_nothing_is_waited_for_in_vain(change: Callable[[Cluster], None], text: str) -> None:
    cluster, progress = scene(volume(5), claim=claim(4), volume=volume(6))
    change(cluster)
    with pytest.raises(PluginError) as raised:
        progress.is_done()
    assert str(raised.value) == text
