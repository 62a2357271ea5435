"""Plays scheduler and kubelet for the pods of one namespace, as the recordings were made.

mode: bind, run, ready, kill, rule, outcome, limit
"""

import asyncio

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock

EVERY_S = 0.05
_HOST_IP = "192.0.2.1"
_INDEX = "batch.kubernetes.io/job-completion-index"
_MERGE = "application/merge-patch+json"


class Player:
    """One namespace's scheduler and kubelet."""

    def __init__(self, namespace: str, story: str, every_s: float) -> None:
        self._namespace = namespace
        self._every_s = every_s
        self._story = story
        self._api: Api
        self._clock: Clock
        self.mode: Object = {"bind": True, "run": True, "ready": True, "kill": True}
        self._bound = 0
        self._ran = 0
        self._ended = 0
        self.placed: dict[str, str] = {}
        """Where pods of fixed names were bound when the stage was recorded."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="player")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def move(self, api: Api, clock: Clock) -> None:
        """Play on another cluster from now on; not while it plays."""
        self._api, self._clock = api, clock

    def change(self, mode: Object) -> None:
        """Behave otherwise from now on."""
        if "outcome" in mode or "limit" in mode:
            self._ended = 0
        self.mode = {**self.mode, **mode}

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                pods = await self._api.list_all(PODS, self._namespace)
                pods.sort(key=_order)
                for pod in pods:
                    if (pod["metadata"].get("labels") or {}).get("player") != "off":
                        await self._play(pod)
            except (ApiError, UnreachableError):
                continue  # it changed meanwhile: look again

    async def _play(self, pod: Object) -> None:
        mode = self.mode
        meta, status = pod["metadata"], pod.get("status") or {}
        if meta.get("deletionTimestamp"):
            if mode.get("kill"):
                await self._kill(pod)
            return
        spec = pod["spec"]
        if not spec.get("nodeName"):
            if mode.get("bind") and not spec.get("schedulingGates"):
                await self._bind(pod)
            return
        phase = status.get("phase")
        if phase == "Pending" and mode.get("run"):
            await self._patch_status(pod, self._running(pod))
        elif phase == "Running":
            if mode.get("rule") != "manual" and not _is_ready(pod) and self._may_be_ready(pod):
                await self._patch_status(pod, _readiness(pod, "True", format_time(self._now())))
            outcome = self._outcome(pod)
            if outcome is not None and self._ended < mode.get("limit", 1 << 30):
                self._ended += 1
                await self._patch_status(pod, self._ending(pod, outcome))

    def _now(self) -> float:
        return self._clock.now_s()

    async def _kill(self, pod: Object) -> None:
        meta = pod["metadata"]
        if not meta.get("finalizers"):
            await self._api.delete(PODS, self._namespace, meta["name"], grace_s=0, uid=meta["uid"])
        elif (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed"):
            await self._patch_status(pod, self._ending(pod, "fail:137"))

    async def _bind(self, pod: Object) -> None:
        meta = pod["metadata"]
        node = _required_node(pod) or self.placed.get(meta["name"])
        if node is None:
            found = await self._api.list_all(NODES)
            names = sorted(
                (
                    each["metadata"]["name"]
                    for each in found
                    if each["metadata"]["name"].startswith(f"{self._story}-n")
                ),
                key=lambda name: (len(name), name),
            )
            if not names:
                return
            node = names[self._bound % len(names)]
            self._bound += 1
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"metadata": {"name": meta["name"]}, "target": target}
        await self._api.create(
            PODS, self._namespace, binding, name=meta["name"], subresource="binding"
        )

    def _may_be_ready(self, pod: Object) -> bool:
        ready = self.mode.get("ready")
        if isinstance(ready, str):
            return all(ready in each["image"] for each in pod["spec"]["containers"])
        return bool(ready)

    def _running(self, pod: Object) -> Object:
        self._ran += 1
        now = format_time(self._now())
        is_ready = self._may_be_ready(pod)
        ready = "True" if is_ready else "False"
        address = f"10.88.0.{self._ran + 1}"
        types = {
            "PodReadyToStartContainers": "True",
            "Initialized": "True",
            "Ready": ready,
            "ContainersReady": ready,
        }
        return {
            "phase": "Running",
            "observedGeneration": pod["metadata"].get("generation", 1),
            "conditions": [
                _condition(each, value, now, "" if is_ready else "ContainersNotReady")
                for each, value in types.items()
            ],
            "containerStatuses": [
                {
                    "name": each["name"],
                    "image": each["image"],
                    "imageID": "",
                    "ready": is_ready,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for each in pod["spec"]["containers"]
            ],
            "hostIP": _HOST_IP,
            "hostIPs": [{"ip": _HOST_IP}],
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": now,
        }

    def _outcome(self, pod: Object) -> str | None:
        outcome = self.mode.get("outcome")
        if isinstance(outcome, dict):
            index = (pod["metadata"].get("annotations") or {}).get(_INDEX)
            found: str | None = outcome.get(index)
            return found
        return outcome

    def _ending(self, pod: Object, outcome: str) -> Object:
        is_good = outcome == "succeed"
        code = 0 if is_good else int(outcome.partition(":")[2])
        now = format_time(self._now())
        status = pod.get("status") or {}
        started = status.get("startTime") or now
        return {
            "phase": "Succeeded" if is_good else "Failed",
            "conditions": [
                _condition("PodReadyToStartContainers", "False", now),
                _condition("Ready", "False", now, "PodCompleted" if is_good else "PodFailed"),
                _condition("ContainersReady", "False", now),
            ],
            "containerStatuses": [
                {
                    "name": each["name"],
                    "image": each["image"],
                    "imageID": "",
                    "ready": False,
                    "started": False,
                    "restartCount": 0,
                    "state": {
                        "terminated": {
                            "exitCode": code,
                            "reason": "Completed" if is_good else "Error",
                            "startedAt": started,
                            "finishedAt": now,
                        }
                    },
                }
                for each in pod["spec"]["containers"]
            ],
        }

    async def _patch_status(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]
        await self._api.patch(
            PODS,
            self._namespace,
            meta["name"],
            {"metadata": {"uid": meta["uid"]}, "status": status},
            STRATEGIC_MERGE_PATCH,
            subresource="status",
        )


def _order(pod: Object) -> tuple[str, int, str]:
    meta = pod["metadata"]
    index = (meta.get("annotations") or {}).get(_INDEX, "-1")
    return meta["creationTimestamp"], int(index), meta["name"]


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _condition(type_: str, status: str, now: str, reason: str = "") -> Object:
    """Return a condition; the reason is told of Ready alone."""
    told = {"reason": reason} if reason and type_ == "Ready" else {}
    return {"type": type_, "status": status, "lastTransitionTime": now, **told}


def _readiness(pod: Object, status: str, now: str) -> Object:
    return {
        "conditions": [_condition(each, status, now) for each in ("Ready", "ContainersReady")],
        "containerStatuses": [
            {**each, "ready": status == "True"}
            for each in (pod.get("status") or {}).get("containerStatuses") or ()
        ],
    }


def _required_node(pod: Object) -> str | None:
    """Return the node that a required `metadata.name In` term names."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name":
                name: str = field["values"][0]
                return name
    return None
