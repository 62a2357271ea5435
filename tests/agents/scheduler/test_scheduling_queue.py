"""Who is tried next, who waits for what, and how long."""

from typing import Any

from kvstack.agents.scheduler.configuration import DEFAULT
from kvstack.agents.scheduler.events.changes import (
    NODE_ADD,
    NODE_LABEL,
    POD_DELETE,
    Change,
)
from kvstack.agents.scheduler.hints import may_help
from kvstack.agents.scheduler.scheduling_queue import SchedulingQueue, Waiting
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

NO_CHANGE = Change(None, None)
ROOM = Change(None, {"status": {"allocatable": {"cpu": "8", "pods": "10"}}})
TOO_SMALL = Change(None, {"status": {"allocatable": {"cpu": "1", "pods": "10"}}})


def pod(name: str, priority: int = 0, **spec: Any) -> PodInfo:
    container = {"name": "c", "resources": {"requests": {"cpu": "2"}}}
    return PodInfo(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {"containers": [container], "priority": priority, **spec},
        }
    )


def popped(queue: SchedulingQueue, now_s: float) -> Waiting:
    waiting = queue.pop(now_s)
    assert waiting is not None
    return waiting


def gating_queue() -> SchedulingQueue:
    profile, cluster = DEFAULT.profiles["default-scheduler"], Cluster()
    return SchedulingQueue(gate_of=lambda pod: profile.gate_of(pod, cluster))


def refused(queue: SchedulingQueue, now_s: float, plugin: str = "NodeResourcesFit") -> Waiting:
    waiting = popped(queue, now_s)
    queue.back_unschedulable(waiting, {plugin}, now_s)
    return waiting


def test_the_higher_priority_goes_first_then_who_came_first() -> None:
    queue = SchedulingQueue()
    for name, priority, now_s in (("a", 0, 1.0), ("b", 5, 3.0), ("c", 5, 2.0)):
        queue.add(pod(name, priority), now_s)
    assert [popped(queue, 9.0).info.name for _ in range(3)] == ["c", "b", "a"]
    assert queue.pop(9.0) is None


def test_a_refused_pod_waits_for_an_event_that_may_help() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 10.0)
    refused(queue, 10.0)
    assert queue.sizes() == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 0}
    assert not queue.happened(NODE_LABEL, NO_CHANGE, 11.0)
    assert not queue.happened(NODE_ADD, TOO_SMALL, 11.0)
    assert queue.pop(11.0) is None
    assert queue.happened(NODE_ADD, ROOM, 11.0)
    # Nobody else is due, so it need not wait for the end of its back-off.
    assert popped(queue, 11.0).attempts == 2


def test_a_pod_backs_off_longer_with_each_refusal_while_others_are_due() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 0.0)
    ends = []
    now_s = 100.0
    for _ in range(6):
        refused(queue, now_s)
        queue.happened(NODE_ADD, ROOM, now_s)
        due_s = queue.next_due_s()
        assert due_s is not None
        ends.append(due_s - 1.0 - now_s)
        now_s += 100.0
    assert ends == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_a_failed_attempt_is_not_tried_before_its_back_off_is_over() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 10.0)
    queue.back_unschedulable(popped(queue, 10.0), set(), 10.0)
    assert queue.pop(11.9) is None
    assert popped(queue, 12.0).errors == 1


def test_what_happens_during_an_attempt_is_not_lost() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 10.0)
    waiting = popped(queue, 10.0)
    queue.happened(NODE_ADD, ROOM, 10.0)
    queue.back_unschedulable(waiting, {"NodeResourcesFit"}, 10.0)
    assert queue.sizes()["backoff"] == 1


def test_what_happened_before_an_attempt_does_not_count() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 10.0)
    queue.add(pod("b"), 11.0)
    first = popped(queue, 11.0)
    queue.happened(POD_DELETE, NO_CHANGE, 11.0)
    second = popped(queue, 11.0)
    queue.back_unschedulable(second, {"NodeResourcesFit"}, 11.0)
    assert queue.sizes()["unschedulable"] == 1
    queue.back_unschedulable(first, {"NodeResourcesFit"}, 11.0)
    assert queue.sizes()["backoff"] == 1


def test_gated_pods_wait_until_their_gates_are_gone() -> None:
    queue = gating_queue()
    queue.add(pod("a", schedulingGates=[{"name": "later"}]), 1.0)
    assert queue.sizes()["gated"] == 1
    assert not queue.happened(NODE_ADD, ROOM, 2.0)
    assert queue.pop(2.0) is None
    queue.add(pod("a"), 3.0)
    assert popped(queue, 3.0).info.name == "a"


def test_a_pod_that_was_removed_during_its_attempt_does_not_come_back() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 1.0)
    waiting = popped(queue, 1.0)
    queue.remove("a")
    queue.back_unschedulable(waiting, set(), 1.0)
    assert len(queue) == 0
    assert queue.pop(100.0) is None


def test_a_pod_that_waited_five_minutes_is_tried_again() -> None:
    queue = SchedulingQueue()
    queue.add(pod("a"), 10.0)
    refused(queue, 10.0)
    assert queue.pop(300.0) is None
    assert popped(queue, 341.0).info.name == "a"


def test_a_pod_whose_claim_is_missing_is_not_tried_until_there_is_one() -> None:
    missing = {"gpu"}
    queue = SchedulingQueue(gate_of=lambda _: "DynamicResources" if missing else "")
    wanted = [{"name": "gpu", "resourceClaimName": "gpu"}]
    queue.add(pod("a", resourceClaims=wanted), 0.0)
    claim = {"metadata": {"name": "gpu", "namespace": "default"}}
    other = {"metadata": {"name": "other", "namespace": "default"}}
    assert queue.sizes()["gated"] == 1
    assert not queue.happened("AssignedPodDelete", NO_CHANGE, 1.0)
    assert not queue.happened("ResourceClaimAdd", Change(None, other), 1.0)
    missing.clear()
    assert queue.happened("ResourceClaimAdd", Change(None, claim), 1.0)
    assert popped(queue, 1.0).info.name == "a"


def test_which_changes_of_claims_help() -> None:
    wanted = pod("a", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    own = {"metadata": {"name": "gpu", "namespace": "default"}}
    other = {"metadata": {"name": "other", "namespace": "default"}}
    allocated: Any = {"status": {"allocation": {"devices": {}}}}

    def helps(old: Any, new: Any) -> bool:
        return may_help("DynamicResources", "ResourceClaimUpdate", wanted, Change(old, new))

    assert helps(None, own)
    assert not helps(None, other)
    assert not helps(own, {**own, "spec": {}})
    assert helps(own, {**own, **allocated})
    assert not helps(other, {**other, **allocated})
    assert helps({**other, **allocated}, other)  # its devices are free
    assert helps({**other, **allocated}, None)
    assert not helps(other, None)


def test_the_queue_counts_why_pods_come_to_which_queue() -> None:
    queue = gating_queue()
    queue.add(pod("a"), 10.0)
    queue.add(pod("b", schedulingGates=[{"name": "g"}]), 10.0)
    refused(queue, 10.0)
    queue.happened(NODE_ADD, ROOM, 11.0)
    popped(queue, 11.0)
    queue.back_unschedulable(queue.waiting("a") or popped(queue, 11.0), set(), 11.0)
    assert queue.pop(12.0) is None  # its attempt failed: it waits for its back-off
    popped(queue, 14.0)
    assert dict(queue.incoming) == {
        ("active", "UnscheduledPodAdd"): 1,
        ("gated", "UnscheduledPodAdd"): 1,
        ("unschedulable", "ScheduleAttemptFailure"): 1,
        ("backoff", NODE_ADD): 1,
        ("active", "PopFromBackoffQ"): 1,
        ("backoff", "ScheduleAttemptFailure"): 1,
        ("active", "BackoffComplete"): 1,
    }
