"""Binding, eviction, deletion, and what kubelets are asked."""

from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.kinds.pods.deletion import grace_period
from kvstack.apiserver.kinds.pods.subresources.binding import bind, check_binding
from kvstack.apiserver.kinds.pods.subresources.eviction import (
    contended,
    covering_budgets,
    decide,
    delete_options,
    ignores_budgets,
    needs_version,
    still_processed,
)
from kvstack.apiserver.kinds.pods.subresources.node_requests import (
    attach_request,
    check_log_options,
    container_of,
    exec_request,
    log_request,
    port_forward_request,
)
from tests.apiserver.kinds.hooks import NOW
from tests.apiserver.kinds.pods.examples import pod_with


def binding(target: Object, **metadata: Any) -> Object:
    """Return a Binding of the pod `p`."""
    return {"metadata": {"name": "p", **metadata}, "target": target}


def test_binding() -> None:
    """The pod has its node, and what the binding has besides."""
    pod = pod_with({}, {"labels": {"a": "1", "b": "1"}}, {"nominatedNodeName": "m"})
    bind(pod, binding({"name": "n"}, labels={"b": "2"}, annotations={"x": "y"}), NOW)
    assert pod["spec"]["nodeName"] == "n"
    assert pod["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert pod["metadata"]["annotations"] == {"x": "y"}
    (condition,) = pod["status"].pop("conditions")
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert condition["lastTransitionTime"] == NOW
    assert pod["status"] == {}


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ({}, 500, "target.name: Required value"),
        ({"kind": "Node", "name": "a/b"}, 500, None),
        (
            {"kind": "Pod"},
            500,
            '[target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>",'
            " target.name: Required value]",
        ),
    ],
)
def test_bad_bindings(target: Object, code: int, message: str | None) -> None:
    """They come back as errors that were not expected."""
    with pytest.raises(ApiError) as caught:
        check_binding(binding(target), "p")
    assert caught.value.code == code
    if message is not None:
        assert caught.value.status["message"] == message


def test_bindings_name_their_pod() -> None:
    with pytest.raises(ApiError) as caught:
        check_binding(binding({"name": "n"}), "q")
    assert caught.value.code == 400
    check_binding(binding({"name": "n"}), "p")


@pytest.mark.parametrize(
    ("spec", "metadata", "why"),
    [
        ({"nodeName": "m"}, {}, 'is already assigned to node "m"'),
        ({"schedulingGates": [{"name": "g"}]}, {}, "has non-empty .spec.schedulingGates"),
        ({}, {"deletionTimestamp": NOW}, "is being deleted, cannot be assigned to a host"),
    ],
)
def test_bindings_that_come_too_late(spec: Object, metadata: Object, why: str) -> None:
    pod = pod_with(spec, metadata)
    with pytest.raises(ApiError) as caught:
        bind(pod, binding({"name": "n"}), NOW)
    assert caught.value.code == 409
    assert caught.value.status["message"] == (
        f'Operation cannot be fulfilled on pods/binding "p": pod p {why}'
    )
    assert pod == pod_with(spec, metadata)


@pytest.mark.parametrize(
    ("spec", "phase", "asked", "seconds"),
    [
        ({"nodeName": "n"}, "Running", None, 30),
        ({"nodeName": "n"}, "Running", 5, 5),
        ({"nodeName": "n"}, "Running", 0, 0),
        ({"nodeName": "n"}, "Running", -1, 1),
        ({"nodeName": "n"}, "Succeeded", None, 0),
        ({"nodeName": "n"}, "Failed", 5, 0),
        ({}, "Pending", 5, 0),
    ],
)
def test_grace_periods(spec: Object, phase: str, asked: int | None, seconds: int) -> None:
    pod = pod_with({"terminationGracePeriodSeconds": 30, **spec}, status={"phase": phase})
    assert grace_period(pod, asked) == seconds


def eviction(**options: Any) -> Object:
    """Return an Eviction of the pod `p`."""
    return {"metadata": {"name": "p"}, "deleteOptions": options}


@pytest.mark.parametrize(
    ("own", "query", "expected"),
    [([], [], []), (["All"], [], ["All"]), ([], ["All"], ["All"]), (["All"], ["All"], ["All"])],
)
def test_dry_runs(own: list[str], query: list[str], expected: list[str]) -> None:
    """Asked for in one place or in both."""
    options = delete_options(eviction(dryRun=own, gracePeriodSeconds=1), "p", query)
    assert (options["dryRun"], options["gracePeriodSeconds"]) == (expected, 1)


def test_bad_options() -> None:
    with pytest.raises(ApiError, match="Non-matching dry-run options"):
        delete_options(eviction(dryRun=["All"]), "p", ["Some"])
    with pytest.raises(ApiError, match="name in URL does not match name in Eviction object"):
        delete_options(eviction(), "q", [])
    with pytest.raises(ApiError) as caught:
        delete_options(eviction(ignoreStoreReadErrorWithClusterBreakingPotential=True), "p", [])
    assert caught.value.status["message"] == (
        'Eviction.policy "p" is invalid:'
        " deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true:"
        " can not be set for pod eviction, try after removing the option"
    )


@pytest.mark.parametrize(
    ("phase", "metadata", "ignores", "needs"),
    [
        ("Running", {}, False, True),
        ("Unknown", {}, False, True),
        ("Pending", {}, True, True),
        ("Succeeded", {}, True, False),
        ("Failed", {}, True, False),
        ("Running", {"deletionTimestamp": NOW}, True, False),
    ],
)
def test_pods_beyond_budgets(phase: str, metadata: Object, ignores: bool, needs: bool) -> None:  # noqa: FBT001
    """Those that have not started or have ended; one that could start is watched."""
    pod = pod_with({}, metadata, {"phase": phase})
    assert (ignores_budgets(pod), needs_version(pod)) == (ignores, needs)


READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
UNREADY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}


def budget(selector: Object | None = None, spec: Object | None = None, **status: Any) -> Object:
    """Return a budget of the second generation."""
    return {
        "metadata": {"name": "b", "generation": 2},
        "spec": {"selector": {} if selector is None else selector, **(spec or {})},
        "status": {"observedGeneration": 2, **status},
    }


def test_budgets_of_a_pod() -> None:
    """Selectors that are empty select all, those that are absent or wrong none."""
    pod = pod_with({}, {"labels": {"a": "b"}})
    every, other = budget(), budget({"matchLabels": {"a": "c"}})
    without = {**budget(), "spec": {}}
    wrong = budget({"matchExpressions": [{"key": "a", "operator": "x"}]})
    assert covering_budgets(pod, [every, other, without, wrong]) == [every]


def test_a_disruption_is_taken() -> None:
    """The last one changes the condition."""
    pod = pod_with({}, status=READY)
    old = budget(disruptionsAllowed=2, disruptedPods={"q": NOW})
    decision = decide(pod, [old], NOW)
    assert decision.budget is not None
    status = decision.budget["status"]
    assert (status["disruptionsAllowed"], status["disruptedPods"]) == (1, {"q": NOW, "p": NOW})
    assert "conditions" not in status
    assert old["status"]["disruptionsAllowed"] == 2
    decision = decide(pod, [decision.budget], NOW)
    assert decision.budget is not None
    (condition,) = decision.budget["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "InsufficientPods")


@pytest.mark.parametrize(
    ("one", "code", "message", "cause", "seconds"),
    [
        (
            budget(observedGeneration=1, disruptionsAllowed=1),
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            "The disruption budget b is still being processed by the server.",
            10,
        ),
        (
            budget(disruptionsAllowed=-1),
            403,
            'poddisruptionbudget.policy "b" is forbidden: pdb disruptions allowed is negative',
            "The disruption budget b does not allow evicting pods currently:"
            " pdb disruptions allowed is negative",
            None,
        ),
        (
            budget(disruptionsAllowed=1, disruptedPods=dict.fromkeys(map(str, range(2001)), NOW)),
            403,
            'poddisruptionbudget.policy "b" is forbidden: DisruptedPods map too big - too many'
            " evictions not confirmed by PDB controller",
            "The disruption budget b does not allow evicting pods currently: too many pending"
            " evictions not confirmed by PDB controller",
            None,
        ),
        (
            budget(currentHealthy=2, desiredHealthy=2),
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            "The disruption budget b needs 2 healthy pods and has 2 currently",
            None,
        ),
        (
            budget(
                currentHealthy=3,
                desiredHealthy=2,
                conditions=[
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "SyncFailed",
                        "message": "m",
                    }
                ],
            ),
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            "The disruption budget b does not allow evicting pods currently because it failed"
            " sync: m",
            None,
        ),
        (
            budget(
                currentHealthy=3,
                desiredHealthy=2,
                conditions=[
                    {
                        "type": "DisruptionAllowed",
                        "status": "False",
                        "reason": "R",
                        "message": "m",
                    }
                ],
            ),
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            "The disruption budget b does not allow evicting pods currently (R): m",
            None,
        ),
        (
            budget(currentHealthy=3, desiredHealthy=2),
            429,
            "Cannot evict pod as it would violate the pod's disruption budget.",
            "The disruption budget b does not allow evicting pods currently",
            None,
        ),
    ],
)
def test_refused_evictions(
    one: Object, code: int, message: str, cause: str, seconds: int | None
) -> None:
    with pytest.raises(ApiError) as caught:
        decide(pod_with({}, status=READY), [one], NOW)
    status = caught.value.status
    assert (caught.value.code, status["message"]) == (code, message)
    assert status["details"]["causes"] == [{"reason": "DisruptionBudget", "message": cause}]
    assert status["details"].get("retryAfterSeconds") == seconds


@pytest.mark.parametrize(
    ("one", "is_free"),
    [
        (budget(spec={"unhealthyPodEvictionPolicy": "AlwaysAllow"}), True),
        (budget(currentHealthy=2, desiredHealthy=2), True),
        (budget(currentHealthy=1, desiredHealthy=2, disruptionsAllowed=1), False),
        (budget(currentHealthy=0, desiredHealthy=0, disruptionsAllowed=1), False),
    ],
)
def test_unready_pods(one: Object, is_free: bool) -> None:  # noqa: FBT001
    """They go without taking a disruption, if the budget is met by others."""
    decision = decide(pod_with({}, status=UNREADY), [one], NOW)
    assert decision.only_this_version is is_free
    assert (decision.budget is None) is is_free


def test_no_budget_and_several() -> None:
    pod = pod_with({}, status=READY)
    assert decide(pod, [], NOW).budget is None
    with pytest.raises(ApiError, match="more than one PodDisruptionBudget") as caught:
        decide(pod, [budget(), budget()], NOW)
    assert caught.value.code == 500


def test_answers_of_contended_budgets() -> None:
    assert still_processed("b").status["details"]["retryAfterSeconds"] == 10
    error = contended("b")
    assert error.code == 504
    assert 'couldn\'t update PodDisruptionBudget "b" due to conflicts' in error.status["message"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tailLines": 0, "limitBytes": 1, "sinceSeconds": 1}, []),
        (
            {"tailLines": -1, "limitBytes": 0, "sinceSeconds": 0},
            [
                "tailLines: Invalid value: -1: must be greater than or equal to 0",
                "limitBytes: Invalid value: 0: must be greater than 0",
                "sinceSeconds: Invalid value: 0: must be greater than 0",
            ],
        ),
        (
            {"sinceSeconds": 0, "sinceTime": NOW},
            ["[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"],
        ),
        ({"stream": "All"}, ["stream: Forbidden: may not be specified"]),
    ],
)
def test_log_options(options: Object, expected: list[str]) -> None:
    assert [str(each) for each in check_log_options(options)] == expected


SEVERAL = pod_with(
    {
        "nodeName": "n",
        "initContainers": [{"name": "i"}],
        "containers": [{"name": "c"}, {"name": "d"}],
        "ephemeralContainers": [{"name": "e"}],
    }
)
ONE = pod_with({"nodeName": "n", "initContainers": [{"name": "i"}]})


def test_choice_of_containers() -> None:
    """A name, or the only one; init containers do not count."""
    assert container_of(ONE, "") == "c"
    assert container_of(SEVERAL, "e") == "e"
    with pytest.raises(ApiError, match="container x is not valid for pod p"):
        container_of(ONE, "x")
    with pytest.raises(ApiError) as caught:
        container_of(SEVERAL, "")
    assert caught.value.status["message"] == (
        "a container name must be specified for pod p, choose one of: [i c d e]"
    )
    with pytest.raises(ApiError, match="a container name must be specified for pod p"):
        container_of(pod_with({"containers": []}), "")


def test_requests_to_kubelets() -> None:
    """Paths and queries, parameters sorted by name."""
    logs = log_request(ONE, {"tailLines": 3, "follow": True, "previous": False})
    assert logs is not None
    assert logs.path == "/containerLogs/ns/p/c"
    assert logs.query == [("follow", "true"), ("tailLines", "3")]
    assert log_request(pod_with({}), {}) is None
    run = exec_request(
        SEVERAL, {"container": "d", "command": ["b", "a"], "stdout": True, "tty": True}
    )
    assert run.path == "/exec/ns/p/d"
    assert run.query == [("command", "b"), ("command", "a"), ("output", "1"), ("tty", "1")]
    assert attach_request(ONE, {"stdin": True}).query == [("input", "1")]
    ports = port_forward_request(ONE, {"ports": [80, 81]})
    assert (ports.path, ports.query) == ("/portForward/ns/p", [("port", "80,81")])
    for ask in (exec_request, attach_request, port_forward_request):
        with pytest.raises(ApiError, match="pod p does not have a host assigned"):
            ask(pod_with({}), {})
