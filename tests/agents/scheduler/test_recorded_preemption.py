"""Who is pushed away, and what is told, is as with the real scheduler."""

import pytest

from kvstack.agents.scheduler.plugin import Unplaced
from kvstack.agents.scheduler.preemption import Limits, preempt
from kvstack.agents.scheduler.scheduling import Turn, schedule
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.scheduler import worlds

WORLDS = list(worlds.read("scheduler-preemption.jsonl.gz"))
NOW_S = 2e9


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world["name"])
def test_preemption_is_as_recorded(world: Object) -> None:
    cluster = worlds.cluster_of(world)
    profile = worlds.profiles()["default-scheduler"]
    pod = PodInfo(worlds.stored(world["pending"], "pending"))
    before = {uid: cluster.node_of(uid) for uid in cluster.pods}
    decision = schedule(pod, cluster, profile, Turn())
    results = world["alternatives"] if "alternatives" in world else [world["result"]]
    if decision.node is not None:
        assert results[0]["condition"] is None
        return
    unplaced = Unplaced(decision.cycle, decision.diagnosis, profile.filters)
    found = preempt(unplaced, Limits(), NOW_S, 0)
    assert {uid: cluster.node_of(uid) for uid in cluster.pods} == before
    wanted = [(each["condition"]["message"], each["nominated"] or "") for each in results]
    assert (decision.diagnosis.message(found.text), found.node) in wanted
    names = sorted(each.name for each in found.victims if not each.is_terminating)
    assert names in [sorted(each["name"] for each in one["victims"]) for one in results]
