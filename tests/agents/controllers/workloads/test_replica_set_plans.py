"""ReplicaSets and ReplicationControllers: how many pods, which go first, and what is told."""

from itertools import permutations
from typing import Any

import pytest

from kvstack.agents.client.built_in import PODS, REPLICA_SETS, REPLICATION_CONTROLLERS
from kvstack.agents.controllers.ownership import OwnerKeys, controller_reference
from kvstack.agents.controllers.workloads.pod_rules import (
    DeletionOrder,
    NoLabelsError,
    from_template,
    is_available,
)
from kvstack.agents.controllers.workloads.replica_sets import (
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    ReplicaController,
)
from kvstack.agents.reconcile.plan import Again, Create, Delete, Patch, Update
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.worlds import START_S, World, refusal

KEY = "default/web"
LABELS = {"app": "web"}


def pod(
    name: str = "p",
    *,
    node: str = "n1",
    phase: str = "Running",
    ready_s: float | None = None,
    created_s: float = 1000,
    restarts: int = 0,
    side: int = 0,
    cost: str | None = None,
) -> Object:
    """Return a pod; ready_s, created_s: how long ago."""
    meta: Object = {
        "name": name,
        "uid": name,
        "creationTimestamp": format_time(START_S - created_s),
        "labels": LABELS,
    }
    if cost is not None:
        meta["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    status: Object = {
        "phase": phase,
        "containerStatuses": [{"name": "c", "restartCount": restarts}],
        "initContainerStatuses": [
            {"name": "side", "restartCount": side},
            {"name": "init", "restartCount": 99},
        ],
    }
    if ready_s is not None:
        since = format_time(START_S - ready_s)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        status["conditions"] = [ready]
    init = [{"name": "side", "restartPolicy": "Always"}, {"name": "init"}]
    spec = {"nodeName": node, "initContainers": init, "containers": [{"name": "c"}]}
    return {"metadata": meta, "spec": spec, "status": status}


@pytest.mark.parametrize(
    "order",
    [
        [pod("b", node=""), pod("a")],
        [pod("c", phase="Pending"), pod("b", phase="Unknown"), pod("a")],
        [pod("b"), pod("a", ready_s=1)],
        [pod("c", cost="-5"), pod("b"), pod("a", cost="10")],
        [pod("b", cost="x", restarts=1), pod("a", cost="0")],
        [pod("b", cost="3000000000", restarts=1), pod("a")],
        [pod("b", node="crowded"), pod("a", node="n1")],
        [pod("c", ready_s=10), pod("b", ready_s=100), pod("a", ready_s=1000)],
        [pod("b", ready_s=500, restarts=5), pod("a", ready_s=500)],
        [pod("b", side=2), pod("a", side=1)],
        [pod("b", created_s=10), pod("a", created_s=1000)],
        # About as old: the uid decides.
        [pod("a", created_s=1000), pod("b", created_s=1001)],
        # What comes first in the order counts more.
        [pod("b", node="", cost="9"), pod("a", phase="Pending", cost="-9")],
        [pod("b", cost="9"), pod("a", ready_s=5, cost="-9")],
        [pod("b", cost="-9", ready_s=9000), pod("a", node="crowded", ready_s=5)],
        [pod("b", node="crowded", ready_s=9000), pod("a", ready_s=5, restarts=9)],
    ],
)
def test_which_pods_go_first(order: list[Object]) -> None:
    key = DeletionOrder({"crowded": 3, "n1": 1}, START_S)
    for each in permutations(order):
        names = [found["metadata"]["name"] for found in sorted(each, key=key)]
        assert names == [found["metadata"]["name"] for found in order]


@pytest.mark.parametrize(
    ("found", "min_ready_s", "available"),
    [
        (pod(), 0, False),
        (pod(ready_s=0), 0, True),
        (pod(ready_s=9), 10, False),
        (pod(ready_s=10), 10, True),
    ],
)
def test_when_a_pod_is_available(found: Object, min_ready_s: int, available: bool) -> None:  # noqa: FBT001
    assert is_available(found, min_ready_s, START_S) is available


def replica_set(**spec: Any) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c"}]}}
    selector = {"matchLabels": LABELS}
    return {
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "selector": selector, "template": template, **spec},
    }


def a_world(**spec: Any) -> tuple[World, ReplicaController]:
    world = World(REPLICA_SETS, PODS)
    world.add(REPLICA_SETS, replica_set(**spec))
    return world, ReplicaController(REPLICA_SET)


def status_of(world: World) -> Object:
    found: Object = world.get(REPLICA_SETS, "web")["status"]
    return found


def own(world: World, *pods: Object) -> None:
    reference = controller_reference(world.get(REPLICA_SETS, "web"))
    for each in pods:
        world.add(PODS, {**each, "metadata": {**each["metadata"], "ownerReferences": [reference]}})


def test_a_pod_of_a_template() -> None:
    owner = {"apiVersion": "v1", "kind": "K", "metadata": {"name": "web", "uid": "u"}}
    meta = {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e/f"]}
    made = from_template({"metadata": meta, "spec": {"x": 1}}, owner)
    assert made["metadata"] == {
        **meta,
        "generateName": "web-",
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "K",
                "name": "web",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    # Of what may not begin a name there is no prefix with a dash: the server refuses it as it is.
    odd = {**owner, "metadata": {"name": "a:b", "uid": "u"}}
    assert from_template({"metadata": meta, "spec": {}}, odd)["metadata"]["generateName"] == "a:b"
    with pytest.raises(NoLabelsError, match="unable to create pods, no labels"):
        from_template({"spec": {}}, owner)


def test_pods_are_made_and_counted() -> None:
    world, controller = a_world()
    done, _ = world.run(controller, KEY)
    assert sum(isinstance(each, Create) for each in done) == 3
    assert status_of(world) == {"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 1}
    names = world.names(PODS)
    assert world.events == [("Normal", "SuccessfulCreate", f"Created pod: {x}") for x in names]
    world.change(PODS, names[0], status=pod(ready_s=5)["status"])
    deleted = {**world.get(PODS, names[1])["metadata"], "deletionTimestamp": format_time(START_S)}
    world.change(PODS, names[1], metadata=deleted)
    world.change(PODS, names[2], status={"phase": "Failed"})
    world.settle(controller, KEY)
    # One is ready, one going, one has ended: two new ones take their places.
    assert status_of(world) == {
        "replicas": 3,
        "fullyLabeledReplicas": 3,
        "readyReplicas": 1,
        "availableReplicas": 1,
        "terminatingReplicas": 1,
        "observedGeneration": 1,
    }
    assert len(world.names(PODS)) == 5


def test_at_most_five_hundred_pods_are_made_or_deleted_at_once() -> None:
    world, controller = a_world(replicas=600)
    counts = [len(world.run(controller, KEY)[0]) for _ in range(3)]
    assert counts[:2] == [501, 101]
    world.change(
        REPLICA_SETS, "web", spec={**world.get(REPLICA_SETS, "web")["spec"], "replicas": 0}
    )
    done, _ = world.run(controller, KEY)
    assert sum(isinstance(each, Delete) for each in done) == 500
    assert world.events[-1][1] == "SuccessfulDelete"


@pytest.mark.parametrize(
    ("action", "reason", "text"),
    [
        (Create, "FailedCreate", "Error creating: no"),
        (Delete, "FailedDelete", "Error deleting: no"),
    ],
)
def test_what_fails_is_reported_until_it_succeeds(action: type, reason: str, text: str) -> None:
    world, controller = a_world(replicas=3 if action is Create else 0)
    if action is Delete:
        own(world, pod("a"))
    world.refuse = lambda asked: refusal(403, "no") if isinstance(asked, action) else None
    with pytest.raises(ApiError, match="no"):
        world.run(controller, KEY)
    condition = find(status_of(world)["conditions"], "ReplicaFailure")
    assert condition is not None
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "True",
        reason,
        "no",
    )
    assert world.events == [("Warning", reason, text)] * len(world.events)
    world.refuse = lambda asked: None
    world.settle(controller, KEY)
    assert "conditions" not in status_of(world)


def test_a_namespace_that_goes_away_is_no_failure() -> None:
    world, controller = a_world()
    cause = {"causes": [{"reason": "NamespaceTerminating"}]}
    world.refuse = lambda asked: (
        refusal(403, "going", **cause) if isinstance(asked, Create) else None
    )
    world.run(controller, KEY)
    assert world.events == []
    assert "conditions" not in status_of(world)


def test_a_pod_that_is_gone_already_is_no_failure() -> None:
    world, controller = a_world(replicas=0)
    own(world, pod("a"))
    world.refuse = lambda asked: refusal(404) if isinstance(asked, Delete) else None
    world.run(controller, KEY)
    assert world.events == []


def test_pods_are_adopted_and_released() -> None:
    world, controller = a_world(replicas=2)
    own(world, pod("mine"), {**pod("other"), "metadata": {"name": "other", "labels": {"a": "b"}}})
    world.add(PODS, pod("orphan"))
    done, _ = world.run(controller, KEY)
    patches = {each.name: each.body for each in done if isinstance(each, Patch)}
    uid = world.get(REPLICA_SETS, "web")["metadata"]["uid"]
    released = world.get(PODS, "other")["metadata"]
    assert patches == {
        "other": {
            "metadata": {
                "uid": released["uid"],
                "ownerReferences": [{"$patch": "delete", "uid": uid}],
            }
        },
        "orphan": {
            "metadata": {
                "uid": "orphan",
                "ownerReferences": [controller_reference(world.get(REPLICA_SETS, "web"))],
            }
        },
    }
    assert len(world.names(PODS)) == 3
    assert status_of(world)["replicas"] == 2


def test_a_set_that_goes_does_nothing_to_pods() -> None:
    world, controller = a_world(replicas=5)
    own(world, pod("mine"))
    world.add(PODS, pod("orphan"))
    meta = world.get(REPLICA_SETS, "web")["metadata"]
    world.change(REPLICA_SETS, "web", metadata={**meta, "deletionTimestamp": format_time(START_S)})
    done, _ = world.run(controller, KEY)
    assert [type(each) for each in done] == [Update]
    assert status_of(world)["replicas"] == 1


def test_a_set_that_was_deleted_meanwhile_adopts_nothing() -> None:
    world, controller = a_world(replicas=1)
    world.add(PODS, pod("orphan"))
    old = world.get(REPLICA_SETS, "web")
    plan_world = world.view

    class Stale:
        """Shows the set as it was."""

        def get(self, resource: Any, key: str) -> Object | None:
            return old if resource == REPLICA_SETS else plan_world.get(resource, key)

        list = plan_world.list
        by_index = plan_world.by_index

    meta = {**old["metadata"], "deletionTimestamp": format_time(START_S)}
    world.change(REPLICA_SETS, "web", metadata=meta)
    world.view = Stale()  # type: ignore[assignment]
    with pytest.raises(Exception, match="default/web has just been deleted at"):
        world.run(controller, KEY)


def test_a_status_is_written_on_top_of_what_changed_meanwhile() -> None:
    world, controller = a_world(replicas=0)
    refusals = [refusal(409)]
    world.refuse = lambda asked: refusals.pop() if refusals and isinstance(asked, Update) else None
    world.run(controller, KEY)
    assert status_of(world)["observedGeneration"] == 1


def test_a_selector_that_is_none_ends_the_sync() -> None:
    bad = {"matchExpressions": [{"key": "a", "operator": "Sometimes"}]}
    world, controller = a_world(selector=bad)
    assert world.run(controller, KEY) == ([], None)


def test_ready_pods_are_looked_at_again_when_they_become_available() -> None:
    world, controller = a_world(replicas=2, minReadySeconds=30)
    own(world, pod("a", ready_s=10), pod("b", ready_s=25))
    _, again = world.run(controller, KEY)
    assert again == Again(5.0)
    assert "availableReplicas" not in status_of(world)
    world.now_s += 5
    _, again = world.run(controller, KEY)
    assert again == Again(15.0)
    assert status_of(world)["availableReplicas"] == 1


def test_a_replication_controller_is_the_same_without_terminating_pods() -> None:
    world = World(REPLICATION_CONTROLLERS, PODS)
    world.add(REPLICATION_CONTROLLERS, replica_set(selector=LABELS, replicas=1))
    world.settle(ReplicaController(REPLICATION_CONTROLLER), KEY)
    [name] = world.names(PODS)
    [reference] = world.get(PODS, name)["metadata"]["ownerReferences"]
    assert (reference["apiVersion"], reference["kind"]) == ("v1", "ReplicationController")
    assert world.get(REPLICATION_CONTROLLERS, "web")["status"] == {
        "replicas": 1,
        "fullyLabeledReplicas": 1,
        "observedGeneration": 1,
    }


def orphan(labels: Object | None, **meta: Any) -> Object:
    return {"metadata": {"name": "p", "namespace": "default", "labels": labels, **meta}}


def owned(name: str = "web", kind: str = "ReplicaSet", version: str = "apps/v1") -> Object:
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": True}
    return orphan(LABELS, ownerReferences=[reference])


@pytest.mark.parametrize(
    ("old", "new", "keys"),
    [
        (None, owned(), {KEY}),
        (owned(), owned(), {KEY}),
        (owned(), None, {KEY}),
        (owned("first"), owned("second"), {"default/first", "default/second"}),
        (owned(), orphan({"a": "b"}), {KEY}),
        (None, owned(kind="Job", version="batch/v1"), set()),
        (None, owned(version="other/v1"), set()),
        # Who may adopt it hears of an orphan that is new, or has new labels; and not again.
        (None, orphan(LABELS), {KEY}),
        (orphan({"a": "b"}), orphan(LABELS), {KEY}),
        (owned("first"), orphan(LABELS), {KEY, "default/first"}),
        (orphan(LABELS), orphan(LABELS), set()),
        (None, orphan({"a": "b"}), set()),
        (None, orphan(LABELS, deletionTimestamp="2027-01-15T08:00:00Z"), set()),
        (orphan(LABELS), None, set()),
    ],
)
def test_whom_a_change_of_a_pod_concerns(
    old: Object | None, new: Object | None, keys: set[str]
) -> None:
    world, _ = a_world()
    assert set(OwnerKeys(REPLICA_SETS)(old, new, world.view)) == keys
