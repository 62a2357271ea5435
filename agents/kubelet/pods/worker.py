"""Which containers of a pod to start and stop now.

    init containers, one after the other ─► regular containers, all at once
         └ sidecars (restartPolicy Always) stay, and end after the regular ones
    ephemeral containers start at any time, once

    plan = step(pod, containers, memory, now_s)

`step` is pure but for `memory`, which belongs to one pod: its back-off and the errors of starts.
It is called after every change; what it plans is carried out once. The plan has the events of what
`step` decided; that of a stop is recorded once it begins, for it is planned until it is done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kvstack.agents.kubelet.pods.probes import Results, failed_probe, is_started
from kvstack.agents.kubelet.pods.resizes import Resize, restarts
from kvstack.agents.kubelet.pods.restarts import (
    BackOff,
    crash_loop_text,
    policy_of,
    restarts_all,
    should_restart,
    should_restart_init,
)
from kvstack.agents.kubelet.runtime.runtime import Container
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import parse_time

GRACE_MIN_S: Final = 2.0
"""No container gets less to end."""
CRASH_LOOP: Final = "CrashLoopBackOff"
DEADLINE_EXCEEDED: Final = "DeadlineExceeded"
DEADLINE_MESSAGE: Final = "Pod was active on the node longer than the specified deadline"
_DEFAULT_GRACE_S: Final = 30
_START_RETRY_S: Final = 10.0


@dataclass(slots=True)
class Waiting:
    """Why a container does not run though it should."""

    reason: str
    message: str
    until_s: float
    wait_s: float = 0.0
    """The whole of the wait, of a container that crashes."""


@dataclass(slots=True)
class Memory:
    """The state that is kept of a pod between steps."""

    back_off: BackOff = field(default_factory=BackOff)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """By name of the container."""
    results: Results = field(default_factory=dict)
    """The results of probes."""
    forgotten: set[str] = field(default_factory=set)
    """Ids of containers from before all of the pod's were restarted."""
    earlier: set[str] = field(default_factory=set)
    """Ids of containers of sandboxes that are gone: init containers run again."""
    resize: Resize = field(default_factory=Resize)
    is_restarting_all: bool = False
    has_sandbox: bool = False
    had_sandbox: bool = False
    """Whether the pod ever had a sandbox."""
    has_failed: bool = False
    """An init container failed for good, or the pod ran too long: it ends."""
    reason: str = ""
    message: str = ""
    """The message of the pod's status, if the node ends it."""
    is_disrupted: bool = False
    """Whether the node ends the pod for its own sake."""
    grace_s: float | None = None
    """The grace period of its containers, if the node sets it."""
    ends_s: float | None = None
    """When its termination grace period ends, since 1970."""


class PodEvent(NamedTuple):
    """An event to record for a pod."""

    type: str
    """Normal or Warning."""
    reason: str
    message: str
    container: str = ""
    """Name of the container that it is about; empty: it is about the pod."""


class Stop(NamedTuple):
    """A container that runs, and is to be stopped."""

    container: Container
    grace_s: float
    """The grace period."""
    why: str = ""
    """The text of the event if the container is restarted; empty: the pod ends."""


@dataclass(slots=True)
class Plan:
    """The next actions."""

    starts: list[tuple[Object, int]] = field(default_factory=list)
    """Containers of the spec, with attempts."""
    stops: list[Stop] = field(default_factory=list)
    again_s: float | None = None
    """The delay until the next step if nothing changes."""
    events: list[PodEvent] = field(default_factory=list)
    is_over: bool = False
    """Whether nothing runs, and nothing will be started."""


def back_off_key(container: Object) -> str:
    """Return under what the waits of a container are counted: another image begins anew."""
    resources = container.get("resources") or {}
    return f"{container['name']} {container['image']} {resources}"


def newest(containers: Iterable[Container]) -> dict[str, Container]:
    """Return the newest container of each name; they come oldest first."""
    return {each.name: each for each in containers}


def is_changed(container: Object, found: Container) -> bool:
    """Whether a container runs another image than its specification has now."""
    return bool(found.spec_image) and found.spec_image != container["image"]


def grace_s(pod: Object) -> float:
    """Return the seconds that containers have to end."""
    meta, spec = pod["metadata"], pod["spec"]
    grace = meta.get("deletionGracePeriodSeconds")
    if grace is None:
        grace = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_S)
    return max(float(grace), GRACE_MIN_S)


def step(
    pod: Object,
    containers: Sequence[Container],
    memory: Memory,
    now_s: float,
    *,
    has_sandbox: bool = True,
) -> Plan:
    """Return what is to be done for a pod now.

    has_sandbox: whether what its containers share is there, if there was one.
    """
    plan = Plan()
    newest_by_name = newest(containers)
    if pod["metadata"].get("deletionTimestamp") or is_ended(pod) or memory.has_failed:
        _end(pod, newest_by_name, memory, now_s, plan)
        return plan
    if _is_too_old(pod, now_s, plan):
        memory.has_failed = True
        memory.reason, memory.message = DEADLINE_EXCEEDED, DEADLINE_MESSAGE
        plan.events.append(PodEvent("Normal", DEADLINE_EXCEEDED, DEADLINE_MESSAGE))
        _end(pod, newest_by_name, memory, now_s, plan)
        return plan
    if _restarts_all(pod, containers, memory, plan):
        return plan
    if not has_sandbox and _lost_sandbox(pod, newest_by_name, memory, plan):
        return plan
    attempts = {name: each.attempt + 1 for name, each in newest_by_name.items()}
    newest_by_name = newest(each for each in containers if each.id not in memory.forgotten)
    _start_ephemeral(pod, newest_by_name, plan)
    is_done = _start_inits(pod, newest_by_name, memory, now_s, plan)
    if is_done is None:
        memory.has_failed = True
        _end(pod, newest_by_name, memory, now_s, plan)
    elif is_done:
        _start_regular(pod, newest_by_name, memory, now_s, plan)
    plan.starts = [(each, attempts.get(each["name"], 0)) for each, _ in plan.starts]
    return plan


def _restarts_all(pod: Object, containers: Sequence[Container], memory: Memory, plan: Plan) -> bool:
    """Restart the whole pod if a container's rule says so; return whether it is ending."""
    known = newest(containers)
    current = {name: each for name, each in known.items() if each.id not in memory.forgotten}
    if not memory.is_restarting_all:
        memory.is_restarting_all = any(
            not current[each["name"]].is_running
            and restarts_all(each, current[each["name"]].exit_code)
            for each in [*(pod["spec"].get("initContainers") or ()), *pod["spec"]["containers"]]
            if each["name"] in current
        )
    if not memory.is_restarting_all:
        return False
    running = [each for each in current.values() if each.is_running]
    plan.stops += [Stop(each, GRACE_MIN_S) for each in running]
    if not running:
        # Those of earlier rounds, too: the runtime keeps some that have ended.
        memory.forgotten = {each.id for each in containers}
        memory.is_restarting_all = False
        memory.waiting.clear()
    return bool(running)


def _lost_sandbox(
    pod: Object, newest_by_name: Mapping[str, Container], memory: Memory, plan: Plan
) -> bool:
    """Restart a pod whose sandbox is gone; return whether containers of it still end.

    A pod in which nothing is to run again gets no other sandbox.
    """
    running = [each for each in newest_by_name.values() if each.is_running]
    if running:
        plan.stops += [Stop(each, grace_s(pod)) for each in running]
        return True
    regular = [newest_by_name.get(each["name"]) for each in pod["spec"]["containers"]]
    if newest_by_name and any(
        found is None or should_restart(pod, container, found.exit_code)
        for container, found in zip(pod["spec"]["containers"], regular, strict=True)
    ):
        is_never = pod["spec"].get("restartPolicy") == "Never"
        memory.earlier |= set() if is_never else {each.id for each in newest_by_name.values()}
    return False


def _start_ephemeral(pod: Object, known: Mapping[str, Container], plan: Plan) -> None:
    for container in pod["spec"].get("ephemeralContainers") or ():
        if container["name"] not in known:
            plan.starts.append((container, 0))


def _is_too_old(pod: Object, now_s: float, plan: Plan) -> bool:
    """Whether a pod has exceeded its active deadline; if not, its end is scheduled."""
    deadline_s = pod["spec"].get("activeDeadlineSeconds")
    started = (pod.get("status") or {}).get("startTime")
    if deadline_s is None or started is None:
        return False
    rest_s: float = parse_time(started).seconds + deadline_s - now_s
    if rest_s > 0:
        _look_again(plan, rest_s)
    return rest_s <= 0


def _start_inits(
    pod: Object, newest_by_name: Mapping[str, Container], memory: Memory, now_s: float, plan: Plan
) -> bool | None:
    """Bring init containers forward; return whether regular ones may start, None: never."""
    spec = pod["spec"]
    started = [
        newest_by_name[each["name"]]
        for each in spec["containers"]
        if each["name"] in newest_by_name
    ]
    is_initialized = any(each.id not in memory.earlier for each in started)
    for container in spec.get("initContainers") or ():
        last = newest_by_name.get(container["name"])
        if is_sidecar(container):
            if last is None or not last.is_running:
                _start(pod, container, last, memory, now_s, plan)
                if not is_initialized:
                    return False
                continue
            _stop_unhealthy(pod, container, last, memory, plan)
            if not is_initialized and not is_started(container, last, memory.results):
                return False
            continue
        if is_initialized:
            continue
        if last is None or last.id in memory.earlier:
            _start(pod, container, last, memory, now_s, plan)
            return False
        if last.is_running:
            return False
        if last.exit_code == 0:
            continue
        if should_restart_init(pod, container, last.exit_code):
            _start(pod, container, last, memory, now_s, plan)
            return False
        return None
    return True


def _start_regular(
    pod: Object, newest_by_name: Mapping[str, Container], memory: Memory, now_s: float, plan: Plan
) -> None:
    is_kept = False
    for container in pod["spec"]["containers"]:
        found = newest_by_name.get(container["name"])
        if found is not None and found.is_running:
            is_kept = True
            _stop_unhealthy(pod, container, found, memory, plan)
        elif found is None or begins_again(pod, container, found, memory):
            is_kept = True
            _start(pod, container, found, memory, now_s, plan)
    if not is_kept:
        plan.starts.clear()  # sidecars are not begun again for what is over
        _end(pod, newest_by_name, memory, now_s, plan)


def _stop_unhealthy(
    pod: Object, container: Object, running: Container, memory: Memory, plan: Plan
) -> None:
    """Stop a container that fails a probe, or has another image now, so that it starts again.

    So does one whose amounts change and that has to start anew for it.
    """
    kind = failed_probe(running, memory.results)
    if kind:
        own = (container.get(f"{kind}Probe") or {}).get("terminationGracePeriodSeconds")
        within_s = grace_s(pod) if own is None else max(float(own), GRACE_MIN_S)
        plan.stops.append(Stop(running, within_s, _failed_probe_text(pod, container, kind)))
    elif is_changed(container, running):
        text = f"Container {running.name} definition changed, will be restarted"
        plan.stops.append(Stop(running, grace_s(pod), text))
    elif (applied := memory.resize.applied.get(running.name)) and restarts(container, applied):
        memory.resize.restarting.add(running.id)
        text = f"Container {running.name} resize requires restart"
        plan.stops.append(Stop(running, grace_s(pod), text))


def begins_again(pod: Object, container: Object, found: Container, memory: Memory) -> bool:
    """Whether a container that has ended is restarted."""
    is_resized = found.id in memory.resize.restarting
    return is_resized or should_restart(pod, container, found.exit_code)


def _failed_probe_text(pod: Object, container: Object, kind: str) -> str:
    name = container["name"]
    if any(each["name"] == name for each in pod["spec"].get("initContainers") or ()):
        return f"Init container {name} failed {kind} probe"
    text = f"Container {name} failed {kind} probe"
    return text if policy_of(pod, container) == "Never" else f"{text}, will be restarted"


def _start(
    pod: Object,
    container: Object,
    last: Container | None,
    memory: Memory,
    now_s: float,
    plan: Plan,
) -> None:
    """Start a container, unless it is in back-off."""
    name = container["name"]
    waiting = memory.waiting.get(name)
    is_crash = waiting is not None and waiting.reason == CRASH_LOOP
    if waiting is not None and not is_crash and waiting.until_s > now_s:
        _look_again(plan, waiting.until_s - now_s)
        return
    if last is not None:
        key = back_off_key(container)
        rest_s = memory.back_off.rest_s(key, last.finished_s, now_s)
        if rest_s > 0:
            if not is_crash:
                wait_s = memory.back_off.wait_s(key)
                memory.waiting[name] = Waiting(CRASH_LOOP, "", now_s + rest_s, wait_s)
                text = crash_loop_text(pod, name)
                plan.events.append(PodEvent("Warning", "BackOff", text, name))
            _look_again(plan, rest_s)
            return
        memory.back_off.restarted(key, last.finished_s, now_s)
    memory.waiting.pop(name, None)
    plan.starts.append((container, 0 if last is None else last.attempt + 1))


def not_started(memory: Memory, name: str, reason: str, message: str, now_s: float) -> None:
    """Remember that a container could not be started; it is tried again later."""
    memory.waiting[name] = Waiting(reason, message, now_s + _START_RETRY_S)


def _look_again(plan: Plan, after_s: float) -> None:
    plan.again_s = after_s if plan.again_s is None else min(plan.again_s, after_s)


def _end(
    pod: Object, newest_by_name: Mapping[str, Container], memory: Memory, now_s: float, plan: Plan
) -> None:
    """Stop what runs: regular containers first, then sidecars in reverse order.

    All of them share one time to end; each has the least of it nevertheless.
    """
    grace = grace_s(pod)
    if memory.grace_s is not None:
        grace = min(grace, memory.grace_s)
    memory.ends_s = min(now_s + grace, memory.ends_s or now_s + grace)
    grace = max(memory.ends_s - now_s, GRACE_MIN_S)
    sidecars = [each["name"] for each in pod["spec"].get("initContainers") or ()]
    running = {name: each for name, each in newest_by_name.items() if each.is_running}
    first = [each for name, each in running.items() if name not in sidecars]
    if first:
        plan.stops += [Stop(each, grace) for each in first]
    else:
        last = next((name for name in reversed(sidecars) if name in running), None)
        if last is not None:
            plan.stops.append(Stop(running[last], grace))
    plan.is_over = not running
    plan.again_s = None
