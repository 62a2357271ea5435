"""What statuses of pods say."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods.status import refused_status, status_of
from kvstack.agents.kubelet.pods.worker import Memory, Waiting
from kvstack.agents.kubelet.runtime.runtime import Container
from tests.agents.kubelet.pods.test_worker import ALWAYS, NOW, container, init, pod

NEVER = {"policy": "Never"}


def status(obj: Any, *containers: Container, memory: Memory | None = None, **more: Any) -> Any:
    return status_of(
        obj, containers, memory or Memory(has_sandbox=True), "10.0.0.1", "process", NOW, **more
    )


@pytest.mark.parametrize(
    ("obj", "containers", "is_over", "phase"),
    [
        (pod(), (), False, "Pending"),
        (pod(names="ab"), (container("a"),), False, "Pending"),
        (pod(), (container("a"),), False, "Running"),
        (pod(), (container("a", 1),), False, "Running"),
        (pod(), (container("a", 1),), True, "Failed"),
        (pod(**NEVER), (container("a", 0),), False, "Succeeded"),
        (pod(**NEVER), (container("a", 1),), False, "Failed"),
        (pod(names="ab", **NEVER), (container("a", 0), container("b")), False, "Running"),
        (pod(init("i")), (container("i"),), False, "Pending"),
        (pod(init("i")), (container("i", 0),), False, "Pending"),
        (pod(init("i")), (container("i", 0), container("a")), False, "Running"),
        (pod(init("s", **ALWAYS), **NEVER), (container("s"), container("a", 0)), False, "Running"),
        (
            pod(init("s", **ALWAYS), **NEVER),
            (container("s", 143), container("a", 0)),
            True,
            "Succeeded",
        ),
        (pod(), (), True, "Failed"),
    ],
)
def test_phases(obj: Any, containers: tuple[Container, ...], is_over: bool, phase: str) -> None:  # noqa: FBT001
    assert status(obj, *containers, is_over=is_over)["phase"] == phase


def conditions(found: Any) -> dict[str, tuple[str, str | None]]:
    return {each["type"]: (each["status"], each["reason"]) for each in found["conditions"]}


def test_conditions_of_a_pod_that_waits_for_its_init_containers() -> None:
    found = status(pod(init("i"), init("j")), container("i", 0))
    assert conditions(found) == {
        "PodReadyToStartContainers": ("True", None),
        "Initialized": ("False", "ContainersNotInitialized"),
        "Ready": ("False", "ContainersNotReady"),
        "ContainersReady": ("False", "ContainersNotReady"),
        "PodScheduled": ("True", None),
    }
    messages = {each["type"]: each["message"] for each in found["conditions"]}
    assert messages["Initialized"] == "containers with incomplete status: [j]"
    assert messages["Ready"] == "containers with unready status: [a]"
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_pod_that_is_ready_and_its_gates() -> None:
    obj = pod()
    assert conditions(status(obj, container("a")))["Ready"] == ("True", None)
    obj["spec"]["readinessGates"] = [{"conditionType": "x/y"}]
    found = status(obj, container("a"))
    assert conditions(found)["Ready"] == ("False", "ReadinessGatesNotReady")
    assert conditions(found)["ContainersReady"] == ("True", None)
    obj["status"]["conditions"] = [{"type": "x/y", "status": "True"}]
    assert conditions(status(obj, container("a")))["Ready"] == ("True", None)


def test_a_crash_loop() -> None:
    memory = Memory()
    memory.back_off.restarted("a", NOW, NOW)
    memory.waiting["a"] = Waiting("CrashLoopBackOff", "", NOW + 10)
    found = status(pod(), container("a", 1), memory=memory)
    (state,) = found["containerStatuses"]
    assert state["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=a pod=p_n(u)",
    }
    assert state["lastState"]["terminated"]["exitCode"] == 1
    assert found["phase"] == "Running"


def test_states_of_containers() -> None:
    found = status(pod(), container("a", 1), container("a", attempt=1))
    (state,) = found["containerStatuses"]
    assert state["restartCount"] == 1
    assert state["containerID"] == "process://a1"
    assert state["lastState"]["terminated"]["containerID"] == "process://a0"
    assert state["state"] == {"running": {"startedAt": "2023-11-14T22:13:10Z"}}


def test_terminal_phases_stay() -> None:
    obj = pod()
    obj["status"]["phase"] = "Succeeded"
    found = status(obj, container("a", 137))
    assert found["phase"] == "Succeeded"
    assert conditions(found)["Ready"] == ("False", "PodCompleted")


def test_a_refused_pod() -> None:
    found = refused_status(pod(), "PodFeatureUnsupported", "no", NOW)
    assert found["phase"] == "Failed"
    assert found["message"] == "Pod was rejected: no"
