"""One sync of a Deployment after another, where it is not simply rolled over."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import DEPLOYMENTS, PODS, REPLICA_SETS
from kvstack.agents.controllers.ownership import controller_reference
from kvstack.agents.controllers.workloads.deployments.controller import DeploymentController
from kvstack.agents.reconcile.plan import Again, Create, Delete, Update
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.worlds import World, refusal

KEY = "default/web"
LABELS = {"app": "web"}
ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


def template(image: str) -> Object:
    return {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": image}]}}


class Running:
    """A Deployment with its controller, and ReplicaSets that have what they want."""

    def __init__(self, *, annotations: Object | None = None, **spec: Any) -> None:
        self.world = World(DEPLOYMENTS, REPLICA_SETS, PODS)
        self.controller = DeploymentController()
        defaults = {"replicas": 4, "strategy": ROLLING, "progressDeadlineSeconds": 600}
        selector = {"selector": {"matchLabels": LABELS}, "template": template("img:1")}
        meta: Object = {"name": "web", "annotations": annotations or {}}
        whole = {**selector, **defaults, "revisionHistoryLimit": 10, **spec}
        self.world.add(DEPLOYMENTS, {"metadata": meta, "spec": whole})

    def sync(self) -> tuple[list[Any], Any]:
        return self.world.run(self.controller, KEY)

    def settle(self) -> None:
        """Go on until nothing changes any more."""
        for _ in range(30):
            self.world.settle(self.controller, KEY)
            if not self.serve():
                return
        raise AssertionError("it never settles")

    def serve(self, *, available: bool = True) -> bool:
        """Let every ReplicaSet have what it wants; return whether any had not."""
        has_changed = False
        for name, each in self.sets.items():
            count = each["spec"]["replicas"]
            status = {"replicas": count, "terminatingReplicas": 0}
            status["observedGeneration"] = each["metadata"]["generation"]
            if available:
                status |= {"readyReplicas": count, "availableReplicas": count}
            if status != each.get("status"):
                self.world.change(REPLICA_SETS, name, status=status)
                has_changed = True
        return has_changed

    def change(self, **spec: Any) -> None:
        before = self.deployment["spec"]
        self.world.change(DEPLOYMENTS, "web", spec={**before, **spec})

    def annotate(self, **annotations: str) -> None:
        meta = self.deployment["metadata"]
        known = meta.get("annotations") or {}
        given = {name.replace("_", "."): text for name, text in annotations.items()}
        self.world.change(DEPLOYMENTS, "web", metadata={**meta, "annotations": {**known, **given}})

    @property
    def deployment(self) -> Object:
        return self.world.get(DEPLOYMENTS, "web")

    @property
    def sets(self) -> dict[str, Object]:
        return {name: self.world.get(REPLICA_SETS, name) for name in self.world.names(REPLICA_SETS)}

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the sets by their image."""
        return {
            each["spec"]["template"]["spec"]["containers"][0]["image"]: each["spec"]["replicas"]
            for each in self.sets.values()
        }

    def condition(self, type_: str = "Progressing") -> tuple[str, str, str] | None:
        found = find(self.deployment["status"].get("conditions"), type_)
        return None if found is None else (found["status"], found["reason"], found["message"])

    def name_of(self, image: str) -> str:
        [name] = [
            name
            for name, each in self.sets.items()
            if each["spec"]["template"]["spec"]["containers"][0]["image"] == image
        ]
        return name


def test_recreate_waits_for_the_end_of_all_old_pods() -> None:
    running = Running(strategy={"type": "Recreate"})
    running.settle()
    old = running.name_of("img:1")
    meta = {"name": "p", "ownerReferences": [controller_reference(running.sets[old])]}
    running.world.add(PODS, {"metadata": meta, "spec": {}})
    running.change(template=template("img:2"))
    running.sync()
    assert running.sizes() == {"img:1": 0}
    running.world.settle(running.controller, KEY)
    assert running.sizes() == {"img:1": 0}  # the old set has pods still, by its status
    running.serve()
    running.world.settle(running.controller, KEY)
    assert running.sizes() == {"img:1": 0}  # and one that has not ended
    running.world.change(PODS, "p", status={"phase": "Succeeded"})
    running.settle()
    assert running.sizes() == {"img:1": 0, "img:2": 4}
    assert running.condition() == (
        "True",
        "NewReplicaSetAvailable",
        f'ReplicaSet "{running.name_of("img:2")}" has successfully progressed.',
    )


def test_the_end_of_a_pod_wakes_those_that_wait_for_it_only() -> None:
    keys_of = DeploymentController.watches[2].keys
    for strategy, keys in (({"type": "Recreate"}, [KEY]), (ROLLING, [])):
        running = Running(strategy=strategy)
        running.settle()
        [owner] = running.sets.values()
        pod = {
            "metadata": {
                "name": "p",
                "namespace": "default",
                "ownerReferences": [controller_reference(owner)],
            }
        }
        assert list(keys_of(pod, None, running.world.view)) == keys
        assert list(keys_of(pod, pod, running.world.view)) == []
        assert list(keys_of(None, pod, running.world.view)) == []


def test_a_paused_deployment_is_scaled_but_not_rolled_over() -> None:
    running = Running()
    running.settle()
    running.change(paused=True, template=template("img:2"), replicas=6)
    running.settle()
    assert running.sizes() == {"img:1": 6}
    assert running.condition() == ("Unknown", "DeploymentPaused", "Deployment is paused")
    running.change(paused=False)
    running.sync()
    assert running.condition() != ("Unknown", "DeploymentPaused", "Deployment is paused")
    running.settle()
    assert running.sizes() == {"img:1": 0, "img:2": 6}


def test_the_deadline_rests_while_a_deployment_is_paused() -> None:
    running = Running(progressDeadlineSeconds=60)
    running.sync()
    running.serve(available=False)
    running.change(paused=True)
    running.world.settle(running.controller, KEY)
    running.world.now_s += 1000
    running.world.settle(running.controller, KEY)
    assert running.condition() == ("Unknown", "DeploymentPaused", "Deployment is paused")
    running.change(paused=False)
    _, again = running.sync()
    assert running.condition() == ("Unknown", "DeploymentResumed", "Deployment is resumed")
    assert again == Again(61.0)


def test_a_deployment_that_stands_still_is_reported_until_it_moves() -> None:
    running = Running(progressDeadlineSeconds=60)
    _, again = running.sync()
    assert again == Again(61.0)
    running.serve(available=False)
    running.world.settle(running.controller, KEY)
    running.world.now_s += 61
    running.world.settle(running.controller, KEY)
    name = running.name_of("img:1")
    late = ("False", "ProgressDeadlineExceeded", f'ReplicaSet "{name}" has timed out progressing.')
    assert running.condition() == late
    assert running.sync() == ([], None)
    running.settle()
    assert running.condition() == (
        "True",
        "NewReplicaSetAvailable",
        f'ReplicaSet "{name}" has successfully progressed.',
    )


@pytest.mark.parametrize("seconds", [2**31 - 1, None])
def test_without_a_deadline_progress_is_not_reported(seconds: int | None) -> None:
    running = Running(progressDeadlineSeconds=seconds)
    _, again = running.sync()
    running.settle()
    assert again is None
    assert running.condition() is None
    assert running.condition("Available") == (
        "True",
        "MinimumReplicasAvailable",
        "Deployment has minimum availability.",
    )


def test_a_change_of_size_in_the_middle_of_a_rollout_is_spread() -> None:
    running = Running(
        replicas=10, strategy={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2}}
    )
    running.settle()
    running.change(template=template("img:2"))
    running.sync()
    running.serve(available=False)
    assert running.sizes() == {"img:1": 10, "img:2": 2}
    running.change(replicas=20)
    running.sync()
    assert running.sizes() == {"img:1": 18, "img:2": 4}
    for each in running.sets.values():
        told = each["metadata"]["annotations"]
        assert told["deployment.kubernetes.io/desired-replicas"] == "20"
        assert told["deployment.kubernetes.io/max-replicas"] == "22"
    running.settle()
    assert running.sizes() == {"img:1": 0, "img:2": 20}


def test_pods_that_are_not_available_go_first() -> None:
    running = Running(strategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}})
    running.settle()
    old = running.name_of("img:1")
    status = {**running.sets[old]["status"], "availableReplicas": 2, "readyReplicas": 2}
    running.world.change(REPLICA_SETS, old, status=status)
    running.change(template=template("img:2"))
    for _ in range(3):
        running.sync()
    # One may be missing, and two are: what is not available goes, what is stays.
    assert running.sizes()["img:1"] == 3
    assert running.sizes()["img:2"] == 1


def test_a_replica_set_with_the_template_is_taken_as_the_new_one() -> None:
    running = Running()
    running.settle()
    running.world.change(DEPLOYMENTS, "web", status={})
    running.sync()
    name = running.name_of("img:1")
    running.settle()
    assert list(running.sets) == [name]
    assert running.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1"


def test_going_back_to_an_earlier_template_takes_its_replica_set() -> None:
    running = Running()
    for image in ("img:1", "img:2", "img:1"):
        running.change(template=template(image))
        running.settle()
    assert running.sizes() == {"img:1": 4, "img:2": 0}
    annotations = running.sets[running.name_of("img:1")]["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/revision"] == "3"
    assert annotations["deployment.kubernetes.io/revision-history"] == "1"
    assert running.deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"


@pytest.mark.parametrize(
    ("target", "image", "reason"),
    [
        ("0", "img:2", "DeploymentRollback"),
        ("1", "img:1", "DeploymentRollback"),
        ("3", "img:3", "DeploymentRollbackTemplateUnchanged"),
        ("9", "img:3", "DeploymentRollbackRevisionNotFound"),
    ],
)
def test_the_deprecated_annotation_rolls_back(target: str, image: str, reason: str) -> None:
    running = Running()
    for each in ("img:1", "img:2", "img:3"):
        running.change(template=template(each))
        running.settle()
    running.annotate(deprecated_deployment_rollback_to=target)
    running.sync()
    assert running.world.events[-1][1] == reason
    found = running.deployment["spec"]["template"]
    assert found["spec"]["containers"][0]["image"] == image
    assert found["metadata"]["labels"] == LABELS
    annotations = running.deployment["metadata"]["annotations"]
    assert "deprecated.deployment.rollback.to" not in annotations


def test_annotations_are_copied_but_for_those_of_tools() -> None:
    mine = {"team": "a", "kubectl.kubernetes.io/last-applied-configuration": "{}"}
    running = Running(annotations=mine)
    running.settle()
    running.annotate(more="b")
    running.settle()
    annotations = running.sets[running.name_of("img:1")]["metadata"]["annotations"]
    assert (annotations["team"], annotations["more"]) == ("a", "b")
    assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations


def test_ready_seconds_are_given_on() -> None:
    running = Running(minReadySeconds=5)
    running.settle()
    assert running.sets[running.name_of("img:1")]["spec"]["minReadySeconds"] == 5
    running.change(minReadySeconds=7)
    running.settle()
    assert running.sets[running.name_of("img:1")]["spec"]["minReadySeconds"] == 7


def test_what_a_replica_set_fails_at_is_reported_for_the_deployment() -> None:
    running = Running()
    running.sync()
    name = running.name_of("img:1")
    moment = format_time(running.world.now_s)
    failure = {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": moment}
    failure |= {"reason": "FailedCreate", "message": "quota"}
    running.world.change(REPLICA_SETS, name, status={"replicas": 0, "conditions": [failure]})
    running.sync()
    assert running.condition("ReplicaFailure") == ("True", "FailedCreate", "quota")
    running.settle()
    assert running.condition("ReplicaFailure") is None


def test_a_deployment_that_goes_only_counts() -> None:
    running = Running()
    running.settle()
    meta = running.deployment["metadata"]
    running.world.change(
        DEPLOYMENTS, "web", metadata={**meta, "deletionTimestamp": "2027-01-15T08:00:00Z"}
    )
    running.change(template=template("img:2"), replicas=9)
    done, _ = running.sync()
    assert all(isinstance(each, Update) and each.subresource == "status" for each in done)
    assert running.sizes() == {"img:1": 4}


def test_the_oldest_empty_sets_go_beyond_the_limit() -> None:
    running = Running(revisionHistoryLimit=1)
    for number in range(1, 5):
        running.change(template=template(f"img:{number}"))
        running.settle()
    assert running.sizes() == {"img:3": 0, "img:4": 4}


def test_a_set_that_has_pods_is_not_deleted() -> None:
    running = Running(revisionHistoryLimit=0)
    running.settle()
    running.change(template=template("img:2"))
    for _ in range(3):
        running.sync()
        running.serve(available=False)
    done, _ = running.sync()
    assert not any(isinstance(each, Delete) for each in done)
    running.settle()
    assert running.sizes() == {"img:2": 4}


def test_a_set_of_the_same_name_and_template_that_the_view_lacked_is_taken() -> None:
    running = Running()
    running.world.refuse = lambda asked: (
        refusal(409, "already exists") if isinstance(asked, Create) else None
    )
    with pytest.raises(ApiError):
        running.sync()
    assert "collisionCount" not in running.deployment.get("status", {})


def test_a_conflict_with_a_change_of_the_status_alone_does_not_break_the_scaling_off() -> None:
    running = Running()
    running.settle()
    running.change(replicas=2)
    refusals = [refusal(409)]

    def refuse(asked: Any) -> ApiError | None:
        is_scaling = isinstance(asked, Update) and asked.resource == REPLICA_SETS
        return refusals.pop() if is_scaling and refusals else None

    running.world.refuse = refuse
    running.sync()
    assert running.sizes() == {"img:1": 2}
    name = running.name_of("img:1")
    assert running.world.events[-1] == (
        "Normal",
        "ScalingReplicaSet",
        f"Scaled down replica set {name} from 4 to 2",
    )
