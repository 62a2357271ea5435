"""Which containers start and stop."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods.restarts import BackOff
from kvstack.agents.kubelet.pods.worker import (
    Memory,
    Plan,
    PodEvent,
    back_off_key,
    not_started,
    step,
)
from kvstack.agents.kubelet.runtime.runtime import Container

NOW = 1_700_000_000.0
KEY = back_off_key({"name": "a", "image": "x"})
ALWAYS = {"restartPolicy": "Always"}


def pod(*inits: dict[str, Any], policy: str = "Always", names: str = "a", **meta: Any) -> Any:
    return {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **meta},
        "spec": {
            "restartPolicy": policy,
            "initContainers": list(inits),
            "containers": [{"name": name, "image": "x"} for name in names],
        },
        "status": {"phase": "Pending", "startTime": "2023-11-14T22:13:20Z"},
    }


def container(name: str, exit_code: int | None = None, attempt: int = 0) -> Container:
    found = Container(f"{name}{attempt}", "u", name, attempt, "x", "", NOW - 10)
    if exit_code is not None:
        found.is_running, found.exit_code, found.finished_s = False, exit_code, NOW
    return found


def init(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "x", **more}


def starts(obj: Any, *containers: Container, memory: Memory | None = None) -> list[tuple[str, int]]:
    plan = step(obj, containers, memory or Memory(), NOW)
    assert not plan.stops
    return [(each["name"], attempt) for each, attempt in plan.starts]


@pytest.mark.parametrize(
    ("obj", "containers", "started"),
    [
        (pod(names="ab"), (), [("a", 0), ("b", 0)]),
        (pod(names="ab"), (container("a"),), [("b", 0)]),
        (pod(init("i"), init("j")), (), [("i", 0)]),
        (pod(init("i"), init("j")), (container("i"),), []),
        (pod(init("i"), init("j")), (container("i", 0),), [("j", 0)]),
        (pod(init("i"), init("j")), (container("i", 0), container("j", 0)), [("a", 0)]),
        (pod(init("i")), (container("i", 1),), [("i", 1)]),
        (pod(init("s", **ALWAYS)), (), [("s", 0)]),
        (pod(init("s", **ALWAYS)), (container("s"),), [("a", 0)]),
        (pod(init("s", **ALWAYS)), (container("a"), container("s", 0)), [("s", 1)]),
        (pod(), (container("a", 0),), [("a", 1)]),
        (pod(policy="OnFailure"), (container("a", 1),), [("a", 1)]),
        (pod(policy="OnFailure"), (container("a", 0),), []),
        (pod(policy="Never"), (container("a", 1),), []),
    ],
)
def test_what_starts(
    obj: Any, containers: tuple[Container, ...], started: list[tuple[str, int]]
) -> None:
    assert starts(obj, *containers) == started


def test_the_first_restart_is_at_once_and_later_ones_wait() -> None:
    memory = Memory()
    assert starts(pod(), container("a", 1), memory=memory) == [("a", 1)]
    second = container("a", 1, attempt=1)
    plan = step(pod(), (second,), memory, NOW)
    assert not plan.starts
    assert plan.again_s == 10.0
    assert memory.waiting["a"].reason == "CrashLoopBackOff"
    text = "Back-off restarting failed container a in pod p_n(u)"
    assert plan.events == [PodEvent("Warning", "BackOff", text, "a")]
    assert not step(pod(), (second,), memory, NOW + 1).events  # once for each wait
    plan = step(pod(), (second,), memory, NOW + 10)
    assert [attempt for _, attempt in plan.starts] == [2]
    assert not memory.waiting
    assert memory.back_off.wait_s(KEY) == 20.0


def test_a_long_life_forgets_the_back_off() -> None:
    memory = Memory()
    step(pod(), (container("a", 1),), memory, NOW)
    late = container("a", 1, attempt=1)
    late.finished_s = NOW + 601
    plan = step(pod(), (late,), memory, NOW + 601)
    assert len(plan.starts) == 1
    assert memory.back_off.wait_s(KEY) == 10.0


def test_a_failed_start_is_tried_again_later() -> None:
    memory = Memory()
    not_started(memory, "a", "ErrImagePull", "no", NOW)
    plan = step(pod(names="ab"), (), memory, NOW)
    assert [each["name"] for each, _ in plan.starts] == ["b"]
    assert plan.again_s == 10.0
    assert len(step(pod(), (), memory, NOW + 10).starts) == 1


def test_an_init_container_that_fails_ends_a_pod_that_never_restarts() -> None:
    memory = Memory()
    plan = step(pod(init("i"), policy="Never"), (container("i", 1),), memory, NOW)
    assert memory.has_failed
    assert plan.is_over


def test_sidecars_end_after_the_others_in_reverse_order() -> None:
    obj = pod(init("s", **ALWAYS), init("t", **ALWAYS), deletionTimestamp="x")
    obj["spec"]["terminationGracePeriodSeconds"] = 7
    a, s, t = container("a"), container("s"), container("t")
    order = []
    while running := [each for each in (a, s, t) if each.is_running]:
        plan = step(obj, (s, t, a), Memory(), NOW)
        assert not plan.is_over
        assert len(plan.stops) <= len(running)
        for stopped, grace_s, _ in plan.stops:
            assert grace_s == 7
            order.append(stopped.name)
            stopped.is_running = False
    assert order == ["a", "t", "s"]
    assert step(obj, (s, t, a), Memory(), NOW).is_over


def test_sidecars_end_when_all_others_have_ended() -> None:
    obj = pod(init("s", **ALWAYS), policy="Never")
    plan = step(obj, (container("s"), container("a", 0)), Memory(), NOW)
    assert [each.container.name for each in plan.stops] == ["s"]


def test_no_container_gets_less_than_two_seconds() -> None:
    obj = pod(deletionTimestamp="x", deletionGracePeriodSeconds=0)
    plan = step(obj, (container("a"),), Memory(), NOW)
    assert [each.grace_s for each in plan.stops] == [2.0]


def test_a_pod_that_runs_too_long_ends() -> None:
    obj = pod()
    obj["spec"]["activeDeadlineSeconds"] = 5
    memory = Memory()
    assert step(obj, (container("a"),), memory, NOW + 1).again_s == 4.0
    plan = step(obj, (container("a"),), memory, NOW + 5)
    assert [each.container.name for each in plan.stops] == ["a"]
    assert memory.reason == "DeadlineExceeded"
    text = "Pod was active on the node longer than the specified deadline"
    assert plan.events == [PodEvent("Normal", "DeadlineExceeded", text)]
    assert not step(obj, (container("a"),), memory, NOW + 6).events


def test_ephemeral_containers_start_at_any_time_and_once() -> None:
    obj = pod()
    obj["spec"]["ephemeralContainers"] = [{"name": "e", "image": "x"}]
    assert starts(obj, container("a")) == [("e", 0)]
    assert starts(obj, container("a"), container("e", 1)) == []


def test_all_containers_start_again_by_a_rule() -> None:
    rule = {
        "action": "RestartAllContainers",
        "exitCodes": {"operator": "In", "values": [42]},
    }
    obj = pod(init("i"), policy="Never", names="ab")
    obj["spec"]["containers"][0]["restartPolicyRules"] = [rule]
    memory = Memory()
    before = [container("i", 0), container("a", 42), container("b")]
    plan = step(obj, before, memory, NOW)
    assert [each.container.name for each in plan.stops] == ["b"]
    assert memory.is_restarting_all
    before[2] = container("b", 137)
    assert starts(obj, *before, memory=memory) == [("i", 1)]
    assert not memory.is_restarting_all
    again = [*before, container("i", 0, 1)]
    assert starts(obj, *again, memory=memory) == [("a", 1), ("b", 1)]


def test_all_containers_start_again_as_often_as_the_rule_says() -> None:
    """The runtime still lists what ended in all the rounds before."""
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    obj = pod(init("i"), policy="Never", names="ab")
    obj["spec"]["containers"][0]["restartPolicyRules"] = [rule]
    memory = Memory()
    listed: list[Container] = []
    for attempt in range(4):
        assert starts(obj, *listed, memory=memory) == [("i", attempt)]
        listed.append(container("i", 0, attempt))
        assert starts(obj, *listed, memory=memory) == [("a", attempt), ("b", attempt)]
        listed += [container("a", 42, attempt), container("b", attempt=attempt)]
        plan = step(obj, listed, memory, NOW)
        assert [each.container.id for each in plan.stops] == [f"b{attempt}"]
        listed[-1] = container("b", 137, attempt)
    assert memory.forgotten <= {each.id for each in listed}


def test_a_container_of_another_image_is_replaced() -> None:
    obj = pod()
    found = container("a")
    found.spec_image = "y"
    plan = step(obj, [found], Memory(), NOW)
    assert [each.container.name for each in plan.stops] == ["a"]
    found.spec_image = "x"
    assert not step(obj, [found], Memory(), NOW).stops


@pytest.mark.parametrize(
    ("obj", "name", "kind", "text"),
    [
        (pod(), "a", "liveness", "Container a failed liveness probe, will be restarted"),
        (pod(), "a", "startup", "Container a failed startup probe, will be restarted"),
        (pod(policy="Never"), "a", "liveness", "Container a failed liveness probe"),
        (pod(init("s", **ALWAYS)), "s", "liveness", "Init container s failed liveness probe"),
    ],
)
def test_why_containers_are_stopped(obj: Any, name: str, kind: str, text: str) -> None:
    found = container(name)
    memory = Memory(results={(found.id, kind): False})
    (stop,) = step(obj, (found,), memory, NOW).stops
    assert (stop.container, stop.why) == (found, text)
    obj["metadata"] = {**obj["metadata"], "deletionTimestamp": "x"}
    (stop,) = step(obj, (found,), memory, NOW).stops
    assert not stop.why


def test_why_a_container_of_another_image_is_stopped() -> None:
    found = container("a")
    found.spec_image = "other"
    (stop,) = step(pod(), (found,), Memory(), NOW).stops
    assert stop.why == "Container a definition changed, will be restarted"


def test_a_pod_that_the_node_ends_has_the_nodes_time() -> None:
    memory = Memory(has_failed=True, grace_s=1.0)
    plan = step(pod(), [container("a")], memory, NOW)
    assert [each.grace_s for each in plan.stops] == [2.0]


def names_of(plan: Plan) -> list[str]:
    return [each["name"] for each, _ in plan.starts]


def test_a_lost_sandbox_begins_with_the_init_containers() -> None:
    obj, memory = pod(init("i")), Memory()
    before = (container("i", 0), container("a", 137))
    plan = step(obj, before, memory, NOW, has_sandbox=False)
    assert names_of(plan) == ["i"]
    again = container("i", attempt=1)
    assert names_of(step(obj, (*before, again), memory, NOW)) == []
    again.is_running = False
    assert names_of(step(obj, (*before, again), memory, NOW)) == ["a"]
    after = (*before, again, container("a", attempt=1))
    assert names_of(step(obj, after, memory, NOW)) == []


def test_what_runs_without_its_sandbox_ends_first() -> None:
    running = container("a")
    plan = step(pod(), (running,), Memory(), NOW, has_sandbox=False)
    assert [each.container for each in plan.stops] == [running]
    assert not plan.starts


@pytest.mark.parametrize(("policy", "code"), [("Never", 1), ("OnFailure", 0)])
def test_a_pod_that_has_ended_gets_no_other_sandbox(policy: str, code: int) -> None:
    before = (container("i", 0), container("a", code))
    plan = step(pod(init("i"), policy=policy), before, Memory(), NOW, has_sandbox=False)
    assert plan.is_over


def test_the_longest_wait_may_be_shorter() -> None:
    back_off, waits = BackOff(25.0), []
    for number in range(4):
        back_off.restarted("a", NOW + number, NOW + number)
        waits.append(back_off.wait_s("a"))
    assert waits == [10.0, 20.0, 25.0, 25.0]


def test_all_containers_share_the_time_to_end() -> None:
    obj = pod(init("s", **ALWAYS), deletionTimestamp="x")
    obj["spec"]["terminationGracePeriodSeconds"] = 10
    memory, a, s = Memory(), container("a"), container("s")
    assert [each.grace_s for each in step(obj, (s, a), memory, NOW).stops] == [10]
    a.is_running = False
    assert [each.grace_s for each in step(obj, (s, a), memory, NOW + 7).stops] == [3]
    assert [each.grace_s for each in step(obj, (s, a), memory, NOW + 10).stops] == [2]
    obj["metadata"]["deletionGracePeriodSeconds"] = 1
    early = Memory()
    step(obj, (s, a), early, NOW)
    obj["metadata"]["deletionGracePeriodSeconds"] = 30
    assert [each.grace_s for each in step(obj, (s, a), early, NOW).stops] == [2]  # never longer


def test_a_container_of_another_image_does_not_wait_for_the_one_before() -> None:
    memory = Memory()
    step(pod(), (container("a", 1),), memory, NOW)
    second = container("a", 1, attempt=1)
    assert not step(pod(), (second,), memory, NOW).starts
    obj = pod()
    obj["spec"]["containers"][0]["image"] = "y"
    assert len(step(obj, (second,), memory, NOW).starts) == 1
