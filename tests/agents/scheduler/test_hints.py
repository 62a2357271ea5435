"""Which changes let which waiting pods be tried again."""

from typing import Any

import pytest

from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_DELETE,
    NODE_LABEL,
    NODE_TAINT,
    OWN_TOLERATION,
    POD_ADD,
    POD_DELETE,
    POD_LABEL,
    POD_SCALE_DOWN,
    Change,
)
from kvstack.agents.scheduler.hints import may_help
from kvstack.agents.scheduler.scheduling_queue import SchedulingQueue
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

AWAY = "podAntiAffinity"


def pod(name: str, labels: Any = None, cpu: str = "2", **spec: Any) -> PodInfo:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels or {}}
    return PodInfo({"metadata": metadata, "spec": {"containers": [container], **spec}})


def placed(namespace: str = "default", affinity: Any = None, **labels: str) -> Any:
    return {
        "metadata": {"name": "p", "namespace": namespace, "uid": "p", "labels": labels},
        "spec": {"nodeName": "n", "containers": [], "affinity": affinity or {}},
    }


def near(color: str, kind: str = "podAffinity", **more: Any) -> Any:
    term = {"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": "zone", **more}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def node(*taints: str, **labels: str) -> Any:
    effects = [{"key": key, "effect": "NoSchedule"} for key in taints]
    return {"metadata": {"name": "n", "labels": labels}, "spec": {"taints": effects}}


def asking(cpu: str) -> Any:
    return pod("p", cpu=cpu, nodeName="n").obj


def claim(name: str, namespace: str = "default") -> Any:
    return {"metadata": {"name": name, "namespace": namespace}}


def using(name: str) -> Any:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": name}}
    return pod("p", nodeName="n", volumes=[volume]).obj


def drivers(**counts: int | None) -> Any:
    return {
        "metadata": {"name": "n"},
        "spec": {
            "drivers": [
                {"name": name, "allocatable": {} if count is None else {"count": count}}
                for name, count in counts.items()
            ]
        },
    }


def volume(**labels: str) -> Any:
    prefix = "topology.kubernetes.io/"
    return {"metadata": {"labels": {prefix + key: value for key, value in labels.items()}}}


SPREAD = pod(
    "a",
    nodeSelector={"disk": "ssd"},
    topologySpreadConstraints=[
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"},
        {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"},
    ],
)
ON_SSD = pod("a", nodeSelector={"disk": "ssd"})
WITH_CLAIM = PodInfo(using("data"))
INLINE_DISK = pod("a", volumes=[{"name": "v", "rbd": {"image": "i"}}])
CORDON = "node.kubernetes.io/unschedulable"
TOLERANT = pod("a", tolerations=[{"key": CORDON, "operator": "Exists"}])


@pytest.mark.parametrize(
    ("plugin", "waiting", "event", "old", "new", "expected"),
    [
        ("NodeUnschedulable", pod("a"), OWN_TOLERATION, None, None, False),
        ("NodeUnschedulable", TOLERANT, OWN_TOLERATION, None, None, True),
        ("NodeAffinity", ON_SSD, NODE_ADD, None, node(disk="ssd"), True),
        ("NodeAffinity", ON_SSD, NODE_ADD, None, node(disk="hdd"), False),
        ("NodeAffinity", ON_SSD, NODE_LABEL, node(disk="hdd"), node(disk="ssd"), True),
        ("NodeAffinity", ON_SSD, NODE_LABEL, node(disk="ssd"), node(disk="ssd", a="b"), False),
        ("NodeResourcesFit", pod("a"), POD_SCALE_DOWN, asking("3"), asking("2"), True),
        ("NodeResourcesFit", pod("a"), POD_SCALE_DOWN, asking("2"), asking("2"), False),
        ("VolumeRestrictions", WITH_CLAIM, POD_DELETE, using("data"), None, True),
        ("VolumeRestrictions", WITH_CLAIM, POD_DELETE, using("other"), None, False),
        ("VolumeRestrictions", INLINE_DISK, POD_DELETE, INLINE_DISK.obj, None, True),
        ("VolumeRestrictions", INLINE_DISK, POD_DELETE, using("data"), None, False),
        ("NodeVolumeLimits", WITH_CLAIM, POD_DELETE, using("other"), None, True),
        ("NodeVolumeLimits", WITH_CLAIM, POD_DELETE, asking("1"), None, False),
        ("NodeVolumeLimits", pod("a"), "CSINodeUpdate", drivers(d=1), drivers(d=2), True),
        ("NodeVolumeLimits", pod("a"), "CSINodeUpdate", drivers(d=1), drivers(d=None), True),
        ("NodeVolumeLimits", pod("a"), "CSINodeUpdate", drivers(), drivers(d=1), True),
        ("NodeVolumeLimits", pod("a"), "CSINodeUpdate", drivers(d=2), drivers(d=1), False),
        ("NodeVolumeLimits", WITH_CLAIM, "VolumeAttachmentDelete", {}, None, True),
        ("NodeVolumeLimits", pod("a"), "VolumeAttachmentDelete", {}, None, False),
        ("VolumeBinding", WITH_CLAIM, "PersistentVolumeClaimAdd", None, claim("data"), True),
        ("VolumeBinding", WITH_CLAIM, "PersistentVolumeClaimAdd", None, claim("x"), False),
        ("VolumeBinding", WITH_CLAIM, "PersistentVolumeClaimAdd", None, claim("data", "x"), False),
        ("VolumeBinding", pod("a"), "StorageClassUpdate", {}, {"allowedTopologies": [1]}, True),
        ("VolumeBinding", pod("a"), "StorageClassUpdate", {}, {"reclaimPolicy": "Retain"}, False),
        ("VolumeBinding", pod("a"), "CSINodeUpdate", drivers(d=1), drivers(d=2), False),
        (
            "VolumeBinding",
            pod("a"),
            "CSIStorageCapacityUpdate",
            {"capacity": "1Gi"},
            {"capacity": "2Gi"},
            True,
        ),
        (
            "VolumeBinding",
            pod("a"),
            "CSIStorageCapacityUpdate",
            {"capacity": "2Gi"},
            {"capacity": "1Gi"},
            False,
        ),
        (
            "VolumeBinding",
            pod("a"),
            "CSIDriverUpdate",
            {"spec": {"storageCapacity": True}},
            {"spec": {"storageCapacity": False}},
            True,
        ),
        ("VolumeZone", pod("a"), "PersistentVolumeAdd", None, volume(), True),
        ("VolumeZone", pod("a"), "PersistentVolumeUpdate", volume(zone="a"), volume(), True),
        ("VolumeZone", pod("a"), "PersistentVolumeUpdate", volume(a="b"), volume(), False),
        (
            "VolumeZone",
            pod("a"),
            "StorageClassAdd",
            None,
            {"volumeBindingMode": "WaitForFirstConsumer"},
            True,
        ),
        ("VolumeZone", pod("a"), "StorageClassAdd", None, {}, False),
        ("PodTopologySpread", SPREAD, NODE_ADD, None, node(zone="a"), True),
        ("PodTopologySpread", SPREAD, NODE_ADD, None, node(rack="a"), False),
        ("PodTopologySpread", SPREAD, NODE_DELETE, node(zone="a"), None, True),
        ("PodTopologySpread", SPREAD, NODE_DELETE, node(), None, False),
        ("PodTopologySpread", SPREAD, NODE_LABEL, node(zone="a"), node(zone="b"), True),
        ("PodTopologySpread", SPREAD, NODE_LABEL, node(zone="a"), node(), True),
        ("PodTopologySpread", SPREAD, NODE_LABEL, node(zone="a"), node(zone="a", b="c"), False),
        (
            "PodTopologySpread",
            SPREAD,
            NODE_LABEL,
            node(zone="a", disk="ssd"),
            node(zone="a"),
            True,
        ),
        ("PodTopologySpread", SPREAD, NODE_TAINT, node("t", zone="a"), node(zone="a"), True),
        ("PodTopologySpread", pod("a"), NODE_LABEL, node(), node(), True),
        ("InterPodAffinity", pod("a", affinity=near("x")), NODE_ADD, None, node(), False),
        ("InterPodAffinity", pod("a", affinity=near("x")), NODE_ADD, None, node(zone="a"), True),
        (
            "InterPodAffinity",
            pod("a", affinity=near("x")),
            NODE_LABEL,
            node(zone="a"),
            node(zone="a", b="c"),
            False,
        ),
        ("InterPodAffinity", pod("a", affinity=near("x", AWAY)), NODE_ADD, None, node(), True),
        (
            "InterPodAffinity",
            pod("a", affinity=near("x", AWAY)),
            NODE_LABEL,
            node(zone="a"),
            node(zone="b"),
            True,
        ),
        (
            "InterPodAffinity",
            pod("a", affinity=near("x", AWAY)),
            NODE_LABEL,
            node(),
            node(zone="b"),
            False,
        ),
        ("InterPodAffinity", pod("a"), NODE_LABEL, node(), node(), True),
    ],
)
def test_a_change_helps_whom_it_can(
    plugin: str, waiting: PodInfo, event: str, old: Any, new: Any, expected: Any
) -> None:
    assert may_help(plugin, event, waiting, Change(old, new)) is expected


def test_room_that_is_given_up_helps_no_pod_of_higher_priority() -> None:
    queue = SchedulingQueue(initial_back_off_s=0.0)
    gone = Change(asking("1"), None)
    for name, priority in (("low", 1), ("high", 9)):
        queue.add(pod(name, priority=priority), 1.0)
    for _ in range(2):
        waiting = queue.pop(1.0)
        assert waiting is not None
        queue.back_unschedulable(waiting, {"NodeResourcesFit"}, 1.0)
    assert queue.happened(POD_DELETE, gone, 5.0, priority_max=5)
    moved = queue.pop(5.0)
    assert moved is not None
    assert moved.info.name == "low"
    assert queue.pop(5.0) is None


@pytest.mark.parametrize(
    ("affinity", "event", "old", "new", "expected"),
    [
        (near("red"), POD_ADD, None, placed(color="red"), True),
        (near("red"), POD_ADD, None, placed(color="blue"), False),
        (near("red"), POD_ADD, None, placed("other", color="red"), False),
        (near("red", namespaceSelector={}), POD_ADD, None, placed("other", color="red"), True),
        (near("red"), POD_DELETE, placed(color="red"), None, False),
        (near("red"), POD_LABEL, placed(color="blue"), placed(color="red"), True),
        (near("red"), POD_LABEL, placed(color="red"), placed(color="red", a="b"), False),
        (near("red", AWAY), POD_ADD, None, placed(color="red"), False),
        (near("red", AWAY), POD_DELETE, placed(color="red"), None, True),
        (near("red", AWAY), POD_DELETE, placed(color="blue"), None, False),
        (near("red", AWAY), POD_LABEL, placed(color="red"), placed(color="blue"), True),
        (near("red", AWAY), POD_LABEL, placed(color="red"), placed(color="red", a="b"), False),
        (None, POD_DELETE, placed(affinity=near("own", AWAY)), None, True),
        (None, POD_DELETE, placed(affinity=near("other", AWAY)), None, False),
    ],
)
def test_which_placed_pods_help_pods_that_affinity_refused(
    affinity: Any, event: str, old: Any, new: Any, expected: Any
) -> None:
    waiting = pod("a", {"color": "own"}, affinity=affinity)
    assert may_help("InterPodAffinity", event, waiting, Change(old, new)) is expected


def test_which_placed_pods_help_pods_that_spreading_refused() -> None:
    def waiting(when: str) -> PodInfo:
        selector = {"matchLabels": {"color": "red"}}
        constraint = {
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": when,
            "labelSelector": selector,
        }
        return pod("a", topologySpreadConstraints=[constraint])

    def helps(old: Any, new: Any, when: str = "DoNotSchedule") -> bool:
        return may_help("PodTopologySpread", POD_LABEL, waiting(when), Change(old, new))

    red, blue = placed(color="red"), placed(color="blue")
    assert helps(None, red)
    assert helps(red, None)
    assert helps(red, blue)
    assert helps(blue, red)
    assert not helps(red, placed(color="red", a="b"))
    assert not helps(None, blue)
    assert not helps(None, placed("other", color="red"))
    assert not helps(None, red, "ScheduleAnyway")
    assert may_help("PodTopologySpread", POD_ADD, pod("a"), Change(None, blue))
    other = Change(None, placed("other"))
    assert not may_help("PodTopologySpread", POD_ADD, pod("a"), other)
