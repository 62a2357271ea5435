"""What hollow pods do next, and what their statuses say."""

from ipaddress import IPv4Network
from typing import Any

import pytest

from kvstack.agents.kubelet.hollow import pods
from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime
from tests.support.clocks import HandClock

NOW = 1_700_000_000.25
NOW_TEXT = "2023-11-14T22:13:20Z"


def pod(
    *,
    annotations: dict[str, str] | None = None,
    images: tuple[str, ...] = ("web:1",),
    status: dict[str, Any] | None = None,
    is_deleted: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    meta: dict[str, Any] = {"namespace": "default", "name": "p", "uid": "u"}
    if annotations:
        meta["annotations"] = annotations
    if is_deleted:
        meta["deletionTimestamp"] = NOW_TEXT
    containers = [{"name": f"c{i}", "image": image} for i, image in enumerate(images)]
    spec = {"nodeName": "n", "restartPolicy": "Always", "containers": containers, **spec}
    return {"metadata": meta, "spec": spec, "status": status or {"phase": "Pending"}}


def begun(obj: dict[str, Any], address: str) -> dict[str, Any]:
    """Return the status of a pod whose containers its runtime has started."""
    runtime = HollowRuntime(IPv4Network("10.244.1.0/24"), HandClock(NOW), "n")
    runtime.connect_pod("u", is_on_host=False)
    started = {}
    for wanted, code in pods.containers_to_start(obj):
        found = started[wanted["name"]] = runtime.begin("u", wanted["name"], 0, wanted["image"])
        if code is not None:
            runtime.end(found, code)
    return pods.starting_status(obj, "127.0.0.11", address, started, NOW)


def running(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "status": begun(obj, "10.244.1.1")}


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


NEVER: dict[str, Any] = {"restartPolicy": "Never"}


@pytest.mark.parametrize(
    ("obj", "running_s", "expected", "step"),
    [
        (pod(), None, None, pods.Start()),
        (running(pod()), 1.0, True, None),
        (running(pod()), None, None, None),
        (running(pod(**NEVER)), 0.125, True, pods.Wait(0.375)),
        (running(pod(**NEVER)), 0.5, True, pods.Finish()),
        (running(pod(**NEVER)), None, None, pods.Finish()),
        (running(pod(restartPolicy="OnFailure")), 1.0, True, pods.Finish()),
        (running(pod(annotations={"hollow/run": "forever"}, **NEVER)), 9.0, True, None),
        (running(pod(annotations={"hollow/exit-code": "3"})), 9.0, False, None),
        (running(pod(annotations={"hollow/ready": "false"})), 9.0, False, None),
        (running(pod(annotations={"hollow/ready": "false"})), 9.0, True, pods.SetReady(False)),
        (running(pod()), 9.0, False, pods.SetReady(True)),
        (running(pod(images=("missing/a",))), 9.0, None, None),
        (pod(is_deleted=True), None, None, pods.Remove()),
        (
            pod(is_deleted=True, annotations={"hollow/finish-deletion": "never"}),
            None,
            None,
            None,
        ),
    ],
)
def test_the_next_step(
    obj: dict[str, Any], running_s: float | None, expected: object, step: pods.Step
) -> None:
    assert expected is None or isinstance(expected, bool)
    found = pods.next_step(obj, running_s, written_ready=expected)
    assert found == step
    assert type(found) is type(step)


def test_pods_may_run_for_a_while_before_they_are_ready() -> None:
    obj = running(pod())
    obj["status"]["conditions"] = []

    def step(running_s: float) -> pods.Step:
        return pods.next_step(obj, running_s, written_ready=False, ready_after_s=5.0)

    assert step(2.0) == pods.Wait(3.0)
    assert step(5.0) == pods.SetReady(is_ready=True)
    never = running(pod(annotations={"hollow/ready": "false"}))
    assert pods.next_step(never, 2.0, written_ready=False, ready_after_s=5.0) is None


def test_a_pod_that_runs() -> None:
    status = begun(pod(), "10.244.1.1")
    assert status["phase"] == "Running"
    assert status["startTime"] == NOW_TEXT
    assert status["hostIPs"] == [{"ip": "127.0.0.11"}]
    assert status["podIPs"] == [{"ip": "10.244.1.1"}]
    assert conditions(status) == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"), ("True", None)
    )
    assert status["containerStatuses"] == [
        {
            "name": "c0",
            "image": "web:1",
            "imageID": "web:1@hollow",
            "containerID": "hollow://u/c0",
            "restartCount": 0,
            "ready": True,
            "started": True,
            "state": {"running": {"startedAt": NOW_TEXT}},
            "lastState": {},
        }
    ]


def test_a_pod_of_the_host_network() -> None:
    status = begun(pod(hostNetwork=True), "")
    assert status["podIP"] == "127.0.0.1"


def test_init_containers_have_ended_and_sidecars_run() -> None:
    inits = [
        {"name": "i", "image": "i"},
        {"name": "s", "image": "s", "restartPolicy": "Always"},
    ]
    obj = running(pod(initContainers=inits, **NEVER))
    first, sidecar = obj["status"]["initContainerStatuses"]
    assert first["state"]["terminated"]["reason"] == "Completed"
    assert first["ready"]
    assert "running" in sidecar["state"]
    first, sidecar = pods.ended_status(obj, NOW + 1)["initContainerStatuses"]
    assert first["state"]["terminated"]["finishedAt"] == NOW_TEXT
    assert sidecar["state"]["terminated"]["exitCode"] == 0


def test_an_image_that_is_missing() -> None:
    status = begun(pod(images=("missing/a", "b")), "10.0.0.1")
    assert status["phase"] == "Pending"
    assert "podIP" not in status
    assert [each["state"]["waiting"] for each in status["containerStatuses"]] == [
        {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "missing/a"'},
        {"reason": "ContainerCreating"},
    ]
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert ready["message"] == "containers with unready status: [c0 c1]"


def test_a_crash_loop() -> None:
    obj = pod(annotations={"hollow/exit-code": "7"})
    status = begun(obj, "10.0.0.1")
    assert status["phase"] == "Running"
    assert conditions(status)["Ready"] == ("False", "ContainersNotReady")
    (container,) = status["containerStatuses"]
    assert container["restartCount"] == 1
    assert container["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": "back-off 10s restarting failed container=c0 pod=p",
    }
    assert container["lastState"]["terminated"]["exitCode"] == 7
    assert container["lastState"]["terminated"]["reason"] == "Error"


@pytest.mark.parametrize(
    ("code", "phase", "reason", "of_container"),
    [("", "Succeeded", "PodCompleted", "Completed"), ("3", "Failed", "PodFailed", "Error")],
)
def test_how_a_pod_ends(code: str, phase: str, reason: str, of_container: str) -> None:
    annotations = {"hollow/exit-code": code} if code else None
    obj = running(pod(annotations=annotations, **NEVER))
    assert obj["status"]["phase"] == "Running"
    status = pods.ended_status(obj, NOW + 1)
    assert status["phase"] == phase
    assert conditions(status)["Ready"] == ("False", reason)
    assert ("Initialized" in conditions(status)) == (phase == "Succeeded")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert ended["reason"] == of_container
    assert ended["exitCode"] == int(code or 0)
    assert ended["startedAt"] == NOW_TEXT
    assert ended["finishedAt"] == "2023-11-14T22:13:21Z"


def test_readiness_changes_alone() -> None:
    obj = running(pod())
    status = pods.ready_status(obj, NOW, is_ready=False)
    assert set(status) == {"conditions", "containerStatuses"}
    assert conditions(status) == dict.fromkeys(
        ("Ready", "ContainersReady"), ("False", "ContainersNotReady")
    )
    assert not status["containerStatuses"][0]["ready"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_not_started_although_nobody_said_when_it_began(phase: str) -> None:
    ended = pod(status={"phase": phase, "reason": "Evicted"})
    assert pods.next_step(ended, None, written_ready=None) is None
    gone = pod(status={"phase": phase}, is_deleted=True)
    assert isinstance(pods.next_step(gone, None, written_ready=None), pods.Remove)
