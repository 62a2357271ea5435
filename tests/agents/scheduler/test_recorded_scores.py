"""Decisions are those of the real scheduler: nodes that will do, reasons, scores, totals, texts."""

import pytest

from kvstack.agents.scheduler.cycle import Code
from kvstack.agents.scheduler.scheduling import Decision, Turn, schedule
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.scheduler import worlds

WORLDS = list(worlds.read("scheduler-scores.jsonl.gz"))


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world["name"])
def test_decisions_are_as_recorded(world: Object) -> None:
    cluster = worlds.cluster_of(world)
    for case in world["cases"]:
        pod = case["pending"]
        if pod["spec"].get("schedulingGates"):
            continue
        profile = worlds.profiles()[pod["spec"].get("schedulerName", "default-scheduler")]
        info = PodInfo(worlds.stored(pod, "pending"))
        decision = schedule(info, cluster, profile, Turn())
        assert (pod["metadata"]["name"], _decided(decision)) == (
            pod["metadata"]["name"],
            _recorded(case["result"]),
        )


def _recorded(result: Object) -> Object:
    wanted: Object = {
        name: result[name] for name in ("feasible", "scores", "totals") if name in result
    }
    wanted["feasible"] = sorted(wanted["feasible"])
    if "best" in result:
        wanted["best"] = sorted(result["best"])
    if result["feasible"] or "*" in result["filtered"]:
        wanted["text"] = result.get("filtered", {}).get("*", [""])[0].removesuffix(" not found")
    else:
        wanted["text"] = result["condition"]["message"].partition(" preemption:")[0]
    wanted["filtered"] = (
        {node: sorted(texts) for node, texts in result["filtered"].items() if node != "*"}
        if "filtered" in result and "filtered_partial" not in result
        else {}
    )
    wanted["tried"] = sorted(result.get("tried_for_preemption", ()))
    return wanted


def _decided(decision: Decision) -> Object:
    cluster = decision.cycle.cluster
    names = [cluster.names[slot] for slot in decision.feasible.tolist()]
    told: Object = {"feasible": sorted(names), "filtered": {}, "text": "", "tried": []}
    if decision.scores:
        totals = dict(zip(names, decision.totals.tolist(), strict=True))
        told["totals"] = totals
        told["best"] = sorted(name for name in names if totals[name] == max(totals.values()))
        told["scores"] = {
            plugin: dict(zip(names, scores.tolist(), strict=True))
            for plugin, scores in decision.scores.items()
        }
        assert decision.node in told["best"]
    diagnosis = decision.diagnosis
    if not names:
        told["text"] = diagnosis.message()
    if diagnosis.refusal is None:
        told["filtered"] = {
            name: sorted(reason.texts)
            for slot, name in enumerate(cluster.names)
            if (reason := diagnosis.reason_of(slot)) is not None
        }
        if not names:
            told["tried"] = [cluster.names[slot] for slot in diagnosis.slots_of(Code.UNSCHEDULABLE)]
    return told
