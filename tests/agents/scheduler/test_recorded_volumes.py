"""What is written on volumes and claims when a pod is placed is as with the real scheduler."""

import pytest

from kvstack.agents.client.object_store import key_of
from kvstack.agents.scheduler.plugins.volume_binding import VolumeBinding
from kvstack.agents.scheduler.scheduling import Turn, schedule
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.scheduler import worlds

CASES = [
    pytest.param(world, case, id=f"{world['name']}-{case['pending']['metadata']['name']}")
    for world in worlds.read("scheduler-scores.jsonl.gz")
    for case in world["cases"]
    if "writes" in case["result"]
]


@pytest.mark.parametrize(("world", "case"), CASES)
def test_volumes_are_bound_as_recorded(world: Object, case: Object) -> None:
    cluster = worlds.cluster_of(world)
    profile = worlds.profiles()[case["pending"]["spec"].get("schedulerName", "default-scheduler")]
    pod = PodInfo(worlds.stored(case["pending"], "pending"))
    decision = schedule(pod, cluster, profile, Turn())
    chosen = case["result"]["chosen"]
    (plugin,) = (each for each in profile.reserves if each.name == VolumeBinding.name)
    before = (dict(cluster.storage.volumes), dict(cluster.storage.claims))
    changed = plugin.reserve(decision.cycle, cluster.slots[chosen])
    wanted = {
        (each["resource"], each["name"]): {
            "annotations": each.get("annotations"),
            "claim": (each.get("claimRef") or {}).get("name"),
        }
        for each in case["result"]["writes"]
    }
    assert {_key(new): _written(new, old) for old, new in changed} == wanted
    for _, new in changed:
        kept = cluster.storage.claims if "namespace" in new["metadata"] else cluster.storage.volumes
        assert kept[key_of(new)] is new
    plugin.unreserve(cluster, changed)
    assert (cluster.storage.volumes, cluster.storage.claims) == before


def _key(obj: Object) -> tuple[str, str]:
    is_claim = "namespace" in obj["metadata"]
    kind = "persistentvolumeclaims" if is_claim else "persistentvolumes"
    return kind, obj["metadata"]["name"]


def _written(new: Object, old: Object) -> Object:
    before = old["metadata"].get("annotations") or {}
    after = new["metadata"].get("annotations") or {}
    added = {name: text for name, text in after.items() if before.get(name) != text}
    return {
        "annotations": added or None,
        "claim": (new["spec"].get("claimRef") or {}).get("name"),
    }
