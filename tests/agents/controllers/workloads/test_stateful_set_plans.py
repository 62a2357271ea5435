"""One sync of a StatefulSet after another: what it waits for, replaces, keeps and tells."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import (
    CONTROLLER_REVISIONS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    STATEFUL_SETS,
)
from kvstack.agents.controllers.workloads import history
from kvstack.agents.controllers.workloads.stateful_sets.controller import StatefulSetController
from kvstack.agents.reconcile.plan import Action, Again, Create, Delete, Retry, Update
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.worlds import World, refusal

KEY = "default/web"
LABELS = {"app": "web"}
CLAIMS = [{"metadata": {"name": "data"}, "spec": {}}]


def template(image: str) -> Object:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}


def rolling(**parts: Any) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"partition": 0, **parts}}


class Running:
    """A StatefulSet with its controller."""

    def __init__(self, **spec: Any) -> None:
        self.world = World(STATEFUL_SETS, PODS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS)
        self.controller = StatefulSetController()
        defaults = {"replicas": 3, "serviceName": "web", "revisionHistoryLimit": 10}
        selector = {"selector": {"matchLabels": LABELS}, "template": template("img:1")}
        whole = {**selector, **defaults, "updateStrategy": rolling(), **spec}
        self.world.add(STATEFUL_SETS, {"metadata": {"name": "web"}, "spec": whole})

    def sync(self) -> tuple[list[Action], Any]:
        return self.world.run(self.controller, KEY)

    def settle(self) -> None:
        """Go on until all pods are ready and nothing is to be done."""
        for _ in range(30):
            self.world.settle(self.controller, KEY)
            pending = [
                name
                for name in self.world.names(PODS)
                if self.pod(name)["status"]["phase"] == "Pending"
            ]
            if not pending:
                return
            for name in pending:
                self.ready(name)
        raise AssertionError("it never settles")

    def ready(self, name: str, *, is_ready: bool = True) -> None:
        since = format_time(self.world.now_s)
        condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": since}
        self.world.change(PODS, name, status={"phase": "Running", "conditions": [condition]})

    def change(self, **spec: Any) -> None:
        self.world.change(STATEFUL_SETS, "web", spec={**self.set["spec"], **spec})

    def mark_deleted(self, name: str) -> None:
        meta = {**self.pod(name)["metadata"], "deletionTimestamp": format_time(self.world.now_s)}
        self.world.change(PODS, name, metadata=meta)

    @property
    def set(self) -> Object:
        return self.world.get(STATEFUL_SETS, "web")

    def pod(self, name: str) -> Object:
        return self.world.get(PODS, name)

    def images(self) -> dict[str, str]:
        return {
            name: self.pod(name)["spec"]["containers"][0]["image"]
            for name in self.world.names(PODS)
        }

    def deleted(self) -> list[str]:
        """Sync once; return the pods that were deleted."""
        return [each.name for each in self.sync()[0] if isinstance(each, Delete)]


@pytest.mark.parametrize(
    ("strategy", "is_complete"), [(rolling(), True), ({"type": "OnDelete"}, False)]
)
def test_only_a_rolling_update_is_ever_complete(strategy: Object, is_complete: bool) -> None:  # noqa: FBT001
    running = Running(updateStrategy=strategy)
    running.settle()
    first = running.set["status"]["currentRevision"]
    running.change(template=template("img:2"))
    for name in running.world.names(PODS):
        running.settle()
        if not is_complete:
            assert running.images()[name] == "img:1"
            running.world.remove(PODS, name)
    running.settle()
    assert set(running.images().values()) == {"img:2"}
    status = running.set["status"]
    assert status["updatedReplicas"] == 3
    assert (status["currentRevision"] == status["updateRevision"]) is is_complete
    assert (status["currentRevision"] == first) is not is_complete


@pytest.mark.parametrize("null_in", ["metadata", "spec"])
def test_a_revision_of_an_older_controller_is_the_same_template(null_in: str) -> None:
    running = Running()
    running.settle()
    [name] = running.world.names(CONTROLLER_REVISIONS)
    data = running.world.get(CONTROLLER_REVISIONS, name)["data"]
    wrote = data["spec"]["template"]
    older = {**wrote, null_in: {**wrote[null_in], "creationTimestamp": None}}
    running.world.change(CONTROLLER_REVISIONS, name, data={"spec": {"template": older}})
    assert running.sync() == ([], None)
    assert running.world.names(CONTROLLER_REVISIONS) == [name]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"a": None}, {}, True),
        ({"a": [{"b": None, "c": 1}]}, {"a": [{"c": 1}]}, True),
        ({"a": {}}, {}, False),
        ({"a": [None]}, {"a": []}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 2}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
    ],
)
def test_when_templates_are_the_same(one: Object, other: Object, is_same: bool) -> None:  # noqa: FBT001
    assert history.is_same(one, other) is is_same
    assert history.is_same(other, one) is is_same


def test_going_back_gives_the_earlier_revision_a_new_number() -> None:
    running = Running()
    for image in ("img:1", "img:2", "img:1"):
        running.change(template=template(image))
        running.settle()
    revisions = {
        each["revision"]: history.template_of(each)["spec"]["containers"][0]["image"]
        for name in running.world.names(CONTROLLER_REVISIONS)
        for each in [running.world.get(CONTROLLER_REVISIONS, name)]
    }
    assert revisions == {2: "img:2", 3: "img:1"}
    assert set(running.images().values()) == {"img:1"}


def test_a_name_that_another_template_has_is_a_collision() -> None:
    running = Running()
    data = history.data_of(template("img:1"))
    taken = history.revision_name(running.set, history.data_hash(data, 0))
    other = {"metadata": {"name": taken}, "data": {"spec": {}}, "revision": 1}
    running.world.add(CONTROLLER_REVISIONS, other)
    running.sync()
    assert running.set["status"]["collisionCount"] == 1
    made = history.revision_name(running.set, history.data_hash(data, 1))
    assert running.set["status"]["updateRevision"] == made


def test_a_pod_waits_until_the_claims_of_the_one_before_are_gone() -> None:
    policy = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    running = Running(volumeClaimTemplates=CLAIMS, persistentVolumeClaimRetentionPolicy=policy)
    running.settle()
    gone = running.pod("web-2")["metadata"]["uid"]
    running.change(replicas=2)
    running.settle()
    [owner] = running.world.get(PERSISTENT_VOLUME_CLAIMS, "data-web-2")["metadata"][
        "ownerReferences"
    ]
    assert (owner["kind"], owner["uid"]) == ("Pod", gone)
    running.change(replicas=3)
    _, again = running.sync()
    # Nothing that is watched tells when the garbage collector is done with the claim.
    assert isinstance(again, Retry)
    assert "web-2" not in running.world.names(PODS)
    running.world.remove(PERSISTENT_VOLUME_CLAIMS, "data-web-2")
    running.settle()
    assert "web-2" in running.world.names(PODS)
    assert "data-web-2" in running.world.names(PERSISTENT_VOLUME_CLAIMS)


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
def test_a_pod_that_has_ended_is_made_anew(phase: str) -> None:
    running = Running()
    running.settle()
    running.world.change(PODS, "web-1", status={"phase": phase})
    assert running.deleted() == ["web-1"]
    running.settle()
    assert sorted(running.images()) == ["web-0", "web-1", "web-2"]


def test_in_order_nothing_is_made_beyond_a_pod_that_goes_or_is_not_ready() -> None:
    running = Running()
    running.settle()
    for break_it in (
        lambda: running.mark_deleted("web-0"),
        lambda: running.ready("web-0", is_ready=False),
    ):
        running.settle()
        running.world.remove(PODS, "web-2")
        break_it()
        running.world.settle(running.controller, KEY)
        assert "web-2" not in running.world.names(PODS)
        if running.pod("web-0")["metadata"].get("deletionTimestamp"):
            running.world.remove(PODS, "web-0")


def test_in_order_pods_go_one_by_one_and_only_while_the_others_are_available() -> None:
    running = Running(replicas=4)
    running.settle()
    running.change(replicas=1)
    running.ready("web-0", is_ready=False)
    # The first that is not available is one that stays: it is waited for.
    assert running.deleted() == []
    running.ready("web-0")
    running.ready("web-2", is_ready=False)
    assert running.deleted() == ["web-3"]
    # This one may go though it is not available: it is the first of those.
    assert running.deleted() == ["web-2"]
    assert running.deleted() == ["web-1"]
    assert running.deleted() == []


def test_in_parallel_all_go_at_once() -> None:
    running = Running(replicas=4, podManagementPolicy="Parallel")
    running.settle()
    running.change(replicas=1)
    running.ready("web-0", is_ready=False)
    assert running.deleted() == ["web-3", "web-2", "web-1"]


@pytest.mark.parametrize(
    ("policy", "strategy", "unready", "gone"),
    [
        ("OrderedReady", rolling(), [], ["web-4"]),
        ("OrderedReady", rolling(maxUnavailable=2), [], ["web-4", "web-3"]),
        ("OrderedReady", rolling(maxUnavailable="50%"), [], ["web-4", "web-3"]),
        ("OrderedReady", rolling(maxUnavailable="1%"), [], ["web-4"]),
        ("OrderedReady", rolling(maxUnavailable=3, partition=3), [], ["web-4", "web-3"]),
        ("OrderedReady", rolling(partition=5), [], []),
        ("Parallel", rolling(maxUnavailable=2), [], ["web-4", "web-3"]),
        # What is not available goes whatever the budget, and uses it up.
        ("Parallel", rolling(maxUnavailable=2), ["web-0"], ["web-0", "web-4"]),
        ("Parallel", rolling(maxUnavailable=1), ["web-0", "web-1"], ["web-1", "web-0"]),
        ("Parallel", rolling(maxUnavailable=1, partition=1), ["web-0"], []),
    ],
)
def test_how_many_are_replaced_at_once(
    policy: str, strategy: Object, unready: list[str], gone: list[str]
) -> None:
    running = Running(replicas=5, podManagementPolicy=policy)
    running.settle()
    running.change(template=template("img:2"), updateStrategy=strategy)
    for name in unready:
        running.ready(name, is_ready=False)
    assert running.deleted() == gone


def test_ordinals_and_partition_count_from_the_start() -> None:
    running = Running(ordinals={"start": 5}, updateStrategy=rolling(partition=2))
    running.settle()
    assert sorted(running.images()) == ["web-5", "web-6", "web-7"]
    running.change(template=template("img:2"))
    running.settle()
    assert running.images() == {"web-5": "img:1", "web-6": "img:1", "web-7": "img:2"}
    running.world.remove(PODS, "web-5")
    running.world.remove(PODS, "web-7")
    running.settle()
    assert running.images() == {"web-5": "img:1", "web-6": "img:1", "web-7": "img:2"}


def test_labels_and_volumes_of_a_pod_are_repaired() -> None:
    running = Running(volumeClaimTemplates=CLAIMS)
    running.settle()
    before = running.pod("web-1")
    revision = before["metadata"]["labels"]["controller-revision-hash"]
    meta = {**before["metadata"], "labels": {**LABELS, "controller-revision-hash": revision}}
    running.world.change(PODS, "web-1", metadata=meta, spec={**before["spec"], "volumes": []})
    running.sync()
    after = running.pod("web-1")
    labels = after["metadata"]["labels"]
    assert labels["statefulset.kubernetes.io/pod-name"] == "web-1"
    assert labels["apps.kubernetes.io/pod-index"] == "1"
    assert after["spec"]["volumes"] == before["spec"]["volumes"]
    assert running.world.events[-1] == (
        "Normal",
        "SuccessfulUpdate",
        "Update Pod web-1 in StatefulSet web successful",
    )


def test_claims_of_something_else_are_reported_and_left_alone() -> None:
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    running = Running(volumeClaimTemplates=CLAIMS, persistentVolumeClaimRetentionPolicy=policy)
    reference = {"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": True}
    meta = {"name": "data-web-0", "ownerReferences": [reference]}
    running.world.add(PERSISTENT_VOLUME_CLAIMS, {"metadata": meta, "spec": {}})
    running.settle()
    found = running.world.get(PERSISTENT_VOLUME_CLAIMS, "data-web-0")["metadata"]
    assert found["ownerReferences"] == [reference]
    texts = [text for _, reason, text in running.world.events if reason == "ConflictingController"]
    assert texts[0] == (
        "PersistentVolumeClaim data-web-0 has a conflicting OwnerReference that acts as a manging"
        " controller, the retention policy is ignored for this claim"
    )
    own = running.world.get(PERSISTENT_VOLUME_CLAIMS, "data-web-1")["metadata"]["ownerReferences"]
    assert [each["kind"] for each in own] == ["StatefulSet"]


@pytest.mark.parametrize(("code", "events"), [(403, 1), (409, 0)])
def test_a_pod_that_is_refused_is_reported_unless_it_is_there_already(
    code: int, events: int
) -> None:
    running = Running()

    def refuse(asked: Action) -> ApiError | None:
        is_pod = isinstance(asked, Create) and asked.resource == PODS
        return refusal(code, "no") if is_pod else None

    running.world.refuse = refuse
    with pytest.raises(ApiError):
        running.sync()
    told = [("Warning", "FailedCreate", "Create Pod web-0 in StatefulSet web failed error: no")]
    assert running.world.events == told * events
    assert running.set["status"]["replicas"] == 0


def test_a_set_that_goes_only_counts() -> None:
    running = Running()
    running.settle()
    running.change(replicas=5)
    meta = {**running.set["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
    running.world.change(STATEFUL_SETS, "web", metadata=meta)
    done, _ = running.sync()
    assert all(isinstance(each, Update) and each.subresource == "status" for each in done)


def test_a_status_is_written_on_top_of_what_changed_meanwhile() -> None:
    running = Running(replicas=0)
    refusals = [refusal(409)]
    running.world.refuse = lambda asked: (
        refusals.pop() if refusals and isinstance(asked, Update) else None
    )
    running.sync()
    assert running.set["status"]["observedGeneration"] == 1


def test_ready_pods_are_waited_for_until_they_are_available() -> None:
    running = Running(minReadySeconds=30)
    running.sync()
    running.ready("web-0")
    running.world.now_s += 10
    _, again = running.sync()
    assert again == Again(20.0)
    assert running.world.names(PODS) == ["web-0"]
    status = running.set["status"]
    assert (status["readyReplicas"], status["availableReplicas"]) == (1, 0)
    running.world.now_s += 20
    running.sync()
    assert running.world.names(PODS) == ["web-0", "web-1"]
