"""What statuses of pods say."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods.environment import Addresses
from kvstack.agents.kubelet.pods.status import refused_status, status_of
from kvstack.agents.kubelet.pods.worker import Memory, Waiting
from kvstack.agents.kubelet.runtime.runtime import Container, User
from tests.agents.kubelet.pods.test_worker import ALWAYS, NOW, container, init, pod

NEVER = {"policy": "Never"}


def status(
    obj: Any, *containers: Container, memory: Memory | None = None, pod_ip: str = "", **more: Any
) -> Any:
    memory = memory or Memory(has_sandbox=True)
    addresses = Addresses(("10.0.0.1",), tuple(filter(None, pod_ip.split(","))))
    return status_of(obj, containers, memory, addresses, "process", NOW, **more)


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
    memory.waiting["a"] = Waiting("CrashLoopBackOff", "", NOW + 10, 10.0)
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


def test_sidecars_that_are_not_ready_count() -> None:
    helper = init("s", **ALWAYS, readinessProbe={"periodSeconds": 1})
    memory = Memory(has_sandbox=True)
    found = status(pod(helper), container("s"), container("a"), memory=memory)
    messages = {each["type"]: each["message"] for each in found["conditions"]}
    assert messages["ContainersReady"] == "containers with unready status: [s]"
    memory.results["s0", "readiness"] = True
    found = status(pod(helper), container("s"), container("a"), memory=memory)
    assert conditions(found)["Ready"] == ("True", None)


def test_what_a_sandbox_was() -> None:
    for memory, message in (
        (Memory(), "no pod sandbox exists"),
        (Memory(had_sandbox=True), "pod sandbox is not ready"),
    ):
        condition = status(pod(), memory=memory)["conditions"][0]
        assert (condition["reason"], condition["message"]) == ("PodSandboxNotReady", message)


def test_nothing_waits_in_a_pod_that_ends() -> None:
    memory = Memory(has_sandbox=True)
    memory.waiting["a"] = Waiting("CrashLoopBackOff", "", NOW + 10, 10.0)
    found = status(pod(deletionTimestamp="x"), container("a", 1), memory=memory)
    assert found["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_containers_that_were_never_seen_have_ended_with_their_pod() -> None:
    obj = pod(init("i"), names="ab", deletionTimestamp="x")
    found = status(obj, container("a", 0), is_over=True)
    (first,) = found["initContainerStatuses"]
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert first["ready"]
    _, missing = found["containerStatuses"]
    assert missing["state"]["terminated"] == {
        "exitCode": 137,
        "reason": "ContainerStatusUnknown",
        "message": "The container could not be located when the pod was terminated",
    }
    found = status(pod(names="a", deletionTimestamp="x"), is_over=True)
    assert "waiting" in found["containerStatuses"][0]["state"]  # it never began


def test_termination_messages_share_their_limit() -> None:
    ended = [container(name, 1) for name in "abcd"]
    for each in ended:
        each.message = "x" * 4096
    found = status(pod(names="abcd", **NEVER), *ended)
    lengths = [len(each["state"]["terminated"]["message"]) for each in found["containerStatuses"]]
    assert lengths == [3072] * 4
    alone = status(pod(**NEVER), ended[0])["containerStatuses"][0]
    assert len(alone["state"]["terminated"]["message"]) == 4096


def test_as_whom_a_container_runs() -> None:
    found = container("a")
    assert "user" not in status(pod(), found)["containerStatuses"][0]
    found.user = User(7, 8, (8, 9))
    assert status(pod(), found)["containerStatuses"][0]["user"] == {
        "linux": {"uid": 7, "gid": 8, "supplementalGroups": [8, 9]}
    }
