"""One sync of a DaemonSet after another: pods where they should be, and what wakes it."""

from typing import Any

import pytest

from kvstack.agents.client.built_in import CONTROLLER_REVISIONS, DAEMON_SETS, NODES, PODS
from kvstack.agents.controllers.workloads import history
from kvstack.agents.controllers.workloads.daemon_sets.controller import DaemonSetController
from kvstack.agents.controllers.workloads.daemon_sets.placement import node_of
from kvstack.agents.reconcile.plan import Action, Again, Create, Delete
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from tests.agents.support.worlds import World, refusal

KEY = "default/web"
LABELS = {"app": "web"}
HASH = "controller-revision-hash"


def template(image: str, **spec: Any) -> Object:
    containers = [{"name": "c", "image": image}]
    return {"metadata": {"labels": LABELS}, "spec": {"containers": containers, **spec}}


def rolling(**parts: Any) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": parts}


class Running:
    """A DaemonSet with its controller, on three nodes."""

    def __init__(self, *, annotations: Object | None = None, **spec: Any) -> None:
        self.world = World(DAEMON_SETS, PODS, NODES, CONTROLLER_REVISIONS)
        self.controller = DaemonSetController()
        for name in ("n1", "n2", "n3"):
            self.world.add(NODES, {"metadata": {"name": name}, "spec": {}})
        defaults = {"updateStrategy": rolling(maxUnavailable=1), "revisionHistoryLimit": 10}
        selector = {"selector": {"matchLabels": LABELS}, "template": template("img:1")}
        meta: Object = {"name": "web", "annotations": annotations or {}}
        whole = {"metadata": meta, "spec": {**selector, **defaults, **spec}}
        self.world.add(DAEMON_SETS, whole)

    def sync(self) -> tuple[list[Action], Any]:
        return self.world.run(self.controller, KEY)

    def settle(self) -> None:
        """Go on until all pods are bound and ready and nothing is to be done."""
        for _ in range(30):
            self.world.settle(self.controller, KEY)
            pending = [pod for pod in self.pods() if pod["status"]["phase"] == "Pending"]
            if not pending:
                return
            for pod in pending:
                self.ready(pod["metadata"]["name"])
        raise AssertionError("it never settles")

    def ready(self, name: str, *, is_ready: bool = True) -> None:
        pod = self.world.get(PODS, name)
        since = format_time(self.world.now_s)
        condition = {"type": "Ready", "status": str(is_ready), "lastTransitionTime": since}
        status = {"phase": "Running", "conditions": [condition]}
        spec = {**pod["spec"], "nodeName": node_of(pod)}
        self.world.change(PODS, name, status=status, spec=spec)

    def change(self, **spec: Any) -> None:
        before = self.world.get(DAEMON_SETS, "web")["spec"]
        self.world.change(DAEMON_SETS, "web", spec={**before, **spec})

    def pods(self) -> list[Object]:
        return [self.world.get(PODS, name) for name in self.world.names(PODS)]

    def on(self, node: str) -> list[Object]:
        return [pod for pod in self.pods() if node_of(pod) == node]

    def images(self) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pod in self.pods())

    @property
    def status(self) -> Object:
        found: Object = self.world.get(DAEMON_SETS, "web")["status"]
        return found

    def revisions(self) -> list[Object]:
        return history.ordered(
            self.world.get(CONTROLLER_REVISIONS, name)
            for name in self.world.names(CONTROLLER_REVISIONS)
        )


def test_a_selector_of_all_does_nothing() -> None:
    running = Running(selector={})
    assert running.sync() == ([], None)
    text = "This daemon set is selecting all pods. A non-empty selector is required."
    assert running.world.events == [("Warning", "SelectingAll", text)]


def test_a_set_that_goes_does_nothing() -> None:
    running = Running()
    meta = running.world.get(DAEMON_SETS, "web")["metadata"]
    gone = {**meta, "deletionTimestamp": "2027-01-15T08:00:00Z"}
    running.world.change(DAEMON_SETS, "web", metadata=gone)
    assert running.sync() == ([], None)


def test_pods_say_which_template_they_have() -> None:
    running = Running(annotations={"deprecated.daemonset.template.generation": "4"})
    running.sync()
    [revision] = running.revisions()
    hashed = revision["metadata"]["labels"][HASH]
    assert revision["metadata"]["name"] == f"web-{hashed}"
    for pod in running.pods():
        labels = pod["metadata"]["labels"]
        assert labels == {**LABELS, HASH: hashed, "pod-template-generation": "4"}


@pytest.mark.parametrize(
    ("taint", "pods"),
    [
        ({"key": "a", "effect": "NoSchedule"}, 3),
        ({"key": "a", "effect": "NoExecute"}, 2),
        ({"key": "a", "effect": "PreferNoSchedule"}, 3),
    ],
)
def test_a_taint_that_comes_ends_a_pod_only_if_it_evicts(taint: Object, pods: int) -> None:
    running = Running()
    running.settle()
    running.world.change(NODES, "n2", spec={"taints": [taint]})
    running.settle()
    assert len(running.pods()) == pods
    is_soft = taint["effect"] == "PreferNoSchedule"
    assert running.status["desiredNumberScheduled"] == (3 if is_soft else 2)
    assert running.status["numberMisscheduled"] == (1 if taint["effect"] == "NoSchedule" else 0)


def test_a_pod_for_a_node_that_is_gone_is_deleted_unless_it_is_bound() -> None:
    running = Running()
    running.sync()
    [bound] = running.on("n1")
    running.ready(bound["metadata"]["name"])
    running.world.remove(NODES, "n1")
    running.world.remove(NODES, "n2")
    running.world.settle(running.controller, KEY)
    assert [node_of(pod) for pod in running.pods()] == ["n1", "n3"] or (
        sorted(node_of(pod) for pod in running.pods()) == ["n1", "n3"]
    )


def test_of_several_pods_on_a_node_the_first_stays() -> None:
    running = Running()
    running.settle()
    [pod] = running.on("n1")
    copy = {**pod, "metadata": {**pod["metadata"], "name": "later", "uid": "later"}}
    copy["metadata"]["creationTimestamp"] = "2027-02-01T00:00:00Z"
    running.world.add(PODS, copy)
    done, _ = running.sync()
    assert [each.name for each in done if isinstance(each, Delete)] == ["later"]


def test_a_pod_that_succeeded_is_replaced() -> None:
    running = Running()
    running.settle()
    [pod] = running.on("n1")
    name = pod["metadata"]["name"]
    running.world.change(PODS, name, status={"phase": "Succeeded"})
    running.settle()
    text = f"Found succeeded daemon pod default/{name} on node n1, will try to delete it"
    assert ("Normal", "SucceededDaemonPod", text) in running.world.events
    assert len(running.pods()) == 3


def test_failed_pods_of_a_node_are_left_longer_each_time() -> None:
    running = Running()
    waits = []
    for _ in range(4):
        running.settle()
        [pod] = running.on("n1")
        running.world.change(PODS, pod["metadata"]["name"], status={"phase": "Failed"})
        _, again = running.sync()
        if isinstance(again, Again):
            waits.append(again.after_s)
            running.world.now_s += again.after_s
            running.sync()
        running.world.settle(running.controller, KEY)
    assert waits == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("strategy", "replaced"),
    [
        (rolling(maxUnavailable=1), 1),
        (rolling(maxUnavailable=2), 2),
        (rolling(maxUnavailable="34%"), 2),  # rounded up
        (rolling(maxUnavailable=0, maxSurge=0), 1),
        ({"type": "OnDelete"}, 0),
    ],
)
def test_how_many_are_replaced_at_once(strategy: Object, replaced: int) -> None:
    running = Running(updateStrategy=strategy)
    running.settle()
    running.change(template=template("img:2"))
    done, _ = running.sync()
    assert len([each for each in done if isinstance(each, Delete)]) == replaced
    running.settle()
    assert running.images() == (["img:2"] * 3 if replaced else ["img:1"] * 3)
    assert running.status.get("updatedNumberScheduled", 0) == (3 if replaced else 0)


def test_pods_that_are_not_available_are_replaced_first() -> None:
    running = Running()
    running.settle()
    [pod] = running.on("n2")
    running.ready(pod["metadata"]["name"], is_ready=False)
    running.change(template=template("img:2"))
    done, _ = running.sync()
    assert [each.name for each in done if isinstance(each, Delete)] == [pod["metadata"]["name"]]


def test_with_surge_a_new_pod_comes_before_the_old_one_goes() -> None:
    running = Running(updateStrategy=rolling(maxSurge=1, maxUnavailable=0))
    running.settle()
    running.change(template=template("img:2"))
    running.sync()
    assert running.images() == ["img:1", "img:1", "img:1", "img:2"]
    [node] = [node for node in ("n1", "n2", "n3") if len(running.on(node)) == 2]
    running.world.settle(running.controller, KEY)
    assert len(running.pods()) == 4
    [new] = [pod for pod in running.on(node) if "2" in pod["spec"]["containers"][0]["image"]]
    running.ready(new["metadata"]["name"])
    done, _ = running.sync()
    gone = [each.name for each in done if isinstance(each, Delete)]
    assert len(gone) == 1
    assert [pod["metadata"]["name"] for pod in running.on(node)] == [new["metadata"]["name"]]
    running.settle()
    assert running.images() == ["img:2"] * 3


def test_of_several_revisions_of_one_template_the_newest_is_kept() -> None:
    running = Running()
    running.settle()
    [kept] = running.revisions()
    labels = {**LABELS, HASH: "older"}
    meta = {**kept["metadata"], "name": "web-older", "uid": "older", "labels": labels}
    # As an older controller wrote it: a member that is null says nothing.
    wrote = kept["data"]["spec"]["template"]
    older = {**wrote, "metadata": {**wrote["metadata"], "creationTimestamp": None}}
    data = {"spec": {"template": older}}
    running.world.add(CONTROLLER_REVISIONS, {"metadata": meta, "data": data, "revision": 0})
    [pod] = running.on("n1")
    name = pod["metadata"]["name"]
    before = pod["metadata"]
    running.world.change(PODS, name, metadata={**before, "labels": labels})
    [of_another] = running.on("n2")
    stale = of_another["metadata"]
    old_labels = {**LABELS, HASH: "of-another-template"}
    running.world.change(PODS, stale["name"], metadata={**stale, "labels": old_labels})
    done, _ = running.sync()
    gone = [each.name for each in done if isinstance(each, Delete) and each.resource == PODS]
    assert gone == [stale["name"]]  # its template is another, whatever the label says
    running.settle()
    assert [each["metadata"]["name"] for each in running.revisions()] == [kept["metadata"]["name"]]
    assert (
        running.world.get(PODS, name)["metadata"]["labels"][HASH]
        == (kept["metadata"]["labels"][HASH])
    )
    assert running.status["updatedNumberScheduled"] == 3


def test_going_back_gives_the_earlier_revision_a_new_number() -> None:
    running = Running()
    for image in ("img:1", "img:2", "img:1"):
        running.change(template=template(image))
        running.settle()
    numbers = {
        history.template_of(each)["spec"]["containers"][0]["image"]: each["revision"]
        for each in running.revisions()
    }
    assert numbers == {"img:1": 3, "img:2": 2}
    assert running.images() == ["img:1"] * 3


def test_a_name_that_another_template_has_is_a_collision() -> None:
    running = Running()
    first = Running()
    first.sync()
    [taken] = first.revisions()
    meta = {"name": taken["metadata"]["name"]}
    running.world.add(CONTROLLER_REVISIONS, {"metadata": meta, "data": {}, "revision": 1})
    with pytest.raises(ApiError):
        running.sync()
    assert running.status["collisionCount"] == 1
    running.settle()
    assert len(running.pods()) == 3


def test_the_oldest_unused_revisions_go() -> None:
    running = Running(revisionHistoryLimit=1)
    for number in range(1, 5):
        running.change(template=template(f"img:{number}"))
        running.settle()
    running.sync()
    assert [each["revision"] for each in running.revisions()] == [3, 4]


@pytest.mark.parametrize(
    ("action", "reason", "text"),
    [
        (Create, "FailedCreate", "Error creating: no"),
        (Delete, "FailedDelete", "Error deleting: no"),
    ],
)
def test_what_is_refused_is_reported_and_the_status_is_written(
    action: type, reason: str, text: str
) -> None:
    running = Running()
    if action is Delete:
        running.settle()
        taint = {"key": "a", "effect": "NoExecute"}
        running.world.change(NODES, "n1", spec={"taints": [taint]})

    def refused(asked: object) -> ApiError | None:
        is_pod = isinstance(asked, Create | Delete) and asked.resource == PODS
        return refusal(403, "no") if is_pod and isinstance(asked, action) else None

    running.world.refuse = refused
    with pytest.raises(ApiError):
        running.sync()
    assert ("Warning", reason, text) in running.world.events
    assert running.status["desiredNumberScheduled"] == (3 if action is Create else 2)


def test_ready_pods_are_looked_at_again_when_they_become_available() -> None:
    running = Running(minReadySeconds=30)
    running.world.settle(running.controller, KEY)
    for pod in running.pods():
        running.ready(pod["metadata"]["name"])
    running.world.now_s += 10
    _, again = running.sync()
    assert again == Again(20.0)
    assert running.status["numberUnavailable"] == 3


def node(name: str, *, taints: list[Object] | None = None, **labels: str) -> Object:
    spec = {"taints": taints} if taints else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": spec}


EVICTS = [{"key": "a", "effect": "NoExecute"}]


@pytest.mark.parametrize(
    ("old", "new", "wakes"),
    [
        (None, node("n9"), True),
        (None, node("n9", taints=EVICTS), False),
        (node("n1"), node("n1"), False),
        (node("n1"), node("n1", a="b"), False),
        (node("n1"), node("n1", taints=EVICTS), True),
        (node("n9", taints=EVICTS), node("n9"), True),
        (node("n1"), None, True),
    ],
)
def test_which_changes_of_nodes_wake_a_set(
    old: Object | None,
    new: Object | None,
    wakes: bool,  # noqa: FBT001
) -> None:
    running = Running()
    running.settle()
    keys = running.controller.watches[2].keys(old, new, running.world.view)
    assert list(keys) == ([KEY] if wakes else [])
