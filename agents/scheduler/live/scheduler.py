"""The running scheduler: takes pods from the queue, decides, assumes, binds, reports.

    scheduler = Scheduler(api, informers, clock, rng, logger)
    await scheduler.start(); …; await scheduler.stop()

Decisions are made one after the other; bindings, events and status are written aside. A pod whose
binding fails is taken off its node again and tried later.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from kvstack.agents.client.activity import Activity, Due, Moving
from kvstack.agents.client.api import Api
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.series_recorder import SeriesRecorder
from kvstack.agents.scheduler.configuration import DEFAULT, Configuration
from kvstack.agents.scheduler.diagnosis import NO_NODES
from kvstack.agents.scheduler.events.changes import POD_DELETE
from kvstack.agents.scheduler.extenders import ExtenderError
from kvstack.agents.scheduler.live.binder import Binder, BindingError
from kvstack.agents.scheduler.live.extender_calls import ExtenderCalls
from kvstack.agents.scheduler.live.extension_points import (
    Reserved,
    pre_binds_of,
    run_post_filters,
    run_pre_binds,
    unreserve,
)
from kvstack.agents.scheduler.live.feed import Feed
from kvstack.agents.scheduler.live.metrics import ERROR, SCHEDULED, UNSCHEDULABLE, Metrics, Sizes
from kvstack.agents.scheduler.live.plugin_handle import PluginHandle
from kvstack.agents.scheduler.live.pod_status import PodStatus
from kvstack.agents.scheduler.live.refusals import Refusals
from kvstack.agents.scheduler.plugin import Unplaced
from kvstack.agents.scheduler.profile import Profile
from kvstack.agents.scheduler.scheduling import (
    Decision,
    ExtenderResults,
    Turn,
    find_feasible,
    schedule,
)
from kvstack.agents.scheduler.scheduling_queue import SchedulingQueue, Waiting
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_BINDINGS_MAX: Final = 100
"""Bindings under way at once; further decisions wait."""
_PLACED_A_TURN: Final = 16
"""Pods placed before others of the loop, above all the bindings, have their turn."""
_UNSCHEDULABLE: Final = "Unschedulable"
_ERROR: Final = "SchedulerError"


class Scheduler:
    """Places pods."""

    def __init__(
        self,
        api: Api,
        informers: Informers,
        clock: Clock,
        rng: Callable[[], float],
        logger: Logger,
        config: Configuration = DEFAULT,
        *,
        host: str = "localhost",
    ) -> None:
        """Place nothing yet; host: named in events."""
        self._clock = clock
        self._rng = rng
        self._logger = logger
        self._config = config
        self.cluster: Final = Cluster()
        self.metrics: Final = Metrics()
        self.queue: Final = SchedulingQueue(
            config.initial_back_off_s,
            config.max_back_off_s,
            self._gate_of,
            config.max_unschedulable_s,
        )
        self._feed = Feed(informers, self.cluster, self.queue, config.profiles, clock, self._wake)
        self.refusals: Final = Refusals(
            lambda key, uid: self._feed.waiting_pod(key, uid) is not None
        )
        self._binder = Binder(api)
        self._extenders = ExtenderCalls(config.extenders, logger)
        self._status = PodStatus(api, clock, logger)
        self._recorders = {
            name: SeriesRecorder(api, name, f"{name}-{host}", clock, logger)
            for name in config.profiles
        }
        self._handles = {
            name: PluginHandle(
                api,
                self.cluster,
                clock,
                rng,
                self._status,
                recorder,
                self._extenders,
                self._aside,
                self._activate,
                self.metrics.preempted,
            )
            for name, recorder in self._recorders.items()
        }
        self._turns = {name: Turn() for name in config.profiles}
        self._is_awake = asyncio.Event()
        self._has_room = asyncio.Semaphore(_BINDINGS_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Sync, then schedule pods until stopped."""
        await self._feed.start()
        self._loop_task = asyncio.get_running_loop().create_task(self._run(), name="scheduler")

    async def stop(self) -> None:
        """End; bindings under way are broken off."""
        tasks = set(self._tasks)
        if self._loop_task is not None:
            tasks.add(self._loop_task)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for recorder in self._recorders.values():
            await recorder.close()
        await self._extenders.close()

    async def flushed(self) -> None:
        """Wait until bindings, status and events are written."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        for recorder in self._recorders.values():
            await recorder.flushed()

    @property
    def is_synced(self) -> bool:
        """Whether the caches are synced, and pods are scheduled."""
        return self._loop_task is not None and not self._loop_task.done()

    def add_activity(self, activity: Activity) -> None:
        """Add the pods that are being scheduled, pending writes, and what is due later."""
        for key in self.queue.tried_now():
            activity.moving.append(Moving("scheduler", key, "is to be placed"))
        for task in self._tasks:
            activity.moving.append(Moving("scheduler", task.get_name(), "is being written"))
        if not all(each.is_idle for each in self._recorders.values()):
            activity.moving.append(Moving("scheduler", "", "writes events"))
        now_s = self._clock.now_s()
        for key, due_s in self.queue.backing_off():
            activity.due.append(Due("scheduler", key, max(0.0, due_s - now_s)))

    def sizes(self) -> Sizes:
        """Return how much there is now."""
        cluster = self.cluster
        assumed = len(self._feed.assumed)
        sizes, incoming = self.queue.sizes(), self.queue.incoming
        return Sizes(sizes, cluster.node_count, len(cluster.pods), assumed, incoming)

    # The loop.

    def _wake(self) -> None:
        self._is_awake.set()

    async def _run(self) -> None:
        placed = 0
        while True:
            waiting = self.queue.pop(self._clock.now_s())
            if waiting is None:
                placed = 0
                await self._wait()
                continue
            async with self._has_room:  # do not run far ahead of the bindings
                result = await self._attempt(waiting)
            placed += 1
            # Bindings of one turn of the loop leave together, and so do their answers.
            if result != SCHEDULED or placed >= _PLACED_A_TURN:
                placed = 0
                await asyncio.sleep(0)

    async def _wait(self) -> None:
        due_s = self.queue.next_due_s()
        delay_s = None if due_s is None else max(0.01, due_s - self._clock.now_s())
        try:
            async with asyncio.timeout(delay_s):
                await self._is_awake.wait()
        except TimeoutError:
            return
        self._is_awake.clear()

    async def _attempt(self, waiting: Waiting) -> str:
        """Try to place a pod; return the result for the metrics."""
        pod = waiting.info
        profile = self._config.profiles[pod.spec["schedulerName"]]
        if pod.is_terminating:
            text = f"skip schedule deleting pod: {pod.key}"
            self._record(pod, "Warning", "FailedScheduling", "Scheduling", text)
            self.queue.done(pod.uid)
            return ERROR
        if pod.uid in self.cluster.pods:
            self.queue.done(pod.uid)
            return ERROR
        began_s = self._clock.monotonic_s()
        result = ERROR
        try:
            result = await self._decide(waiting, profile)
        except Exception as error:  # noqa: BLE001 - other pods must still be scheduled
            self._logger.error("failed to schedule a pod", pod=pod.key, error=repr(error))
            self._failed(waiting, _ERROR, str(error), set(), clears_nomination=True)
        finally:
            self.metrics.attempted(profile.name, result, self._clock.monotonic_s() - began_s)
        return result

    async def _decide(self, waiting: Waiting, profile: Profile) -> str:
        """Decide about a pod, and have that carried out; return the result for the metrics."""
        pod = waiting.info
        nominated = self.cluster.nominated_node(pod.uid)
        now_s = self._clock.now_s()
        extender_results = await self._call_extenders(pod, profile, nominated, now_s)
        decision = schedule(
            pod,
            self.cluster,
            profile,
            self._turns[profile.name],
            nominated,
            extender_results,
            self._clock.monotonic_s,
            now_s,
        )
        self._turns[profile.name] = decision.turn
        self.metrics.decided(profile.name, decision.moments_s, is_placed=decision.node is not None)
        if decision.node is None:
            await self._refused(waiting, profile, decision)
            return UNSCHEDULABLE
        self._assume(waiting, decision, decision.node)
        return SCHEDULED

    async def _call_extenders(
        self, pod: PodInfo, profile: Profile, nominated: str, now_s: float
    ) -> ExtenderResults | None:
        """Call extenders about the feasible nodes; None: no interested extender, or no node."""
        if not self._extenders.decide_about(pod):
            return None
        turn = self._turns[profile.name]
        if nominated:
            names, _ = find_feasible(pod, self.cluster, profile, turn, nominated, now_s)
            if names == [nominated]:
                said = await self._extenders.about(pod, self.cluster, names)
                if said.names:
                    return said
        names, self._turns[profile.name] = find_feasible(
            pod, self.cluster, profile, turn, now_s=now_s
        )
        return await self._extenders.about(pod, self.cluster, names) if names else None

    def _assume(self, waiting: Waiting, decision: Decision, node: str) -> None:
        """Assume a pod on its node, and bind it in the background."""
        pod = waiting.info
        profile = self._config.profiles[pod.spec["schedulerName"]]
        reserved = {
            each.name: each.reserve(decision.cycle, decision.slot) for each in profile.reserves
        }
        self.refusals.forget(pod.uid)
        self.cluster.unnominate(pod.uid)
        self.cluster.add_pod(pod, node)
        self._feed.assumed.add(pod.uid)
        self.queue.done(pod.uid)
        self._aside(self._bind(waiting, node, profile, reserved), f"bind {pod.key}")

    async def _bind(
        self,
        waiting: Waiting,
        node: str,
        profile: Profile,
        reserved: Reserved,
    ) -> None:
        pod = waiting.info
        handle = self._handles[profile.name]
        try:
            if names := pre_binds_of(profile, pod, node, reserved):
                await self._status.nominate(pod, node)
                await run_pre_binds(profile, handle, pod, node, reserved, names)
            async with self._has_room:
                began_s = self._clock.monotonic_s()
                if self._extenders.binds(pod):
                    await self._extenders.bind(pod, node)
                else:
                    await self._binder.bind_pod(pod, node)
                took_s = self._clock.monotonic_s() - began_s
                self.metrics.took("Bind", pod.spec["schedulerName"], took_s)
        except (BindingError, ExtenderError) as error:
            await unreserve(profile, handle, pod, reserved, self._logger)
            self._binding_failed(waiting, node, str(error))
            return
        self.metrics.bound(waiting.attempts, self._clock.now_s() - waiting.first_s)
        text = f"Successfully assigned {pod.key} to {node}"
        self._record(pod, "Normal", "Scheduled", "Binding", text)

    def _binding_failed(self, waiting: Waiting, node: str, text: str) -> None:
        pod = waiting.info
        if pod.uid not in self._feed.assumed:
            return  # it was bound all the same, or is gone
        self._feed.assumed.discard(pod.uid)
        self.cluster.remove_pod(pod.uid)
        self._feed.happened(POD_DELETE, {**pod.obj, "spec": {**pod.spec, "nodeName": node}}, None)
        newest = self._feed.waiting_pod(pod.key, pod.uid)
        if newest is not None:
            self.queue.back_failed(newest, waiting, self._clock.now_s())
            self._report(newest, _ERROR, text, nominated="")
        self._wake()

    # Pods that no node will take.

    async def _refused(self, waiting: Waiting, profile: Profile, decision: Decision) -> None:
        diagnosis = decision.diagnosis
        if not self.cluster.node_count:
            self._failed(waiting, _UNSCHEDULABLE, NO_NODES, set(), clears_nomination=False)
            return
        began_s = self._clock.monotonic_s()
        unplaced = Unplaced(decision.cycle, diagnosis, profile.filters)
        handle = self._handles[profile.name]
        result = await run_post_filters(profile, handle, unplaced, self._logger)
        if profile.post_filters:
            took_s = self._clock.monotonic_s() - began_s
            self.metrics.took("PostFilter", profile.name, took_s, is_success=result.code is None)
        if result.nominated:
            self.cluster.nominate(waiting.info, result.nominated)
        message = diagnosis.message(result.text)
        now_s = self._clock.now_s()
        self.refusals.note(waiting.info, diagnosis, self.cluster.names, message, now_s)
        self._failed(
            waiting,
            _UNSCHEDULABLE,
            message,
            diagnosis.rejectors,
            nominated=result.nominated or "",
            clears_nomination=result.nominated == "",
        )

    def _failed(
        self,
        waiting: Waiting,
        reason: str,
        message: str,
        rejectors: set[str],
        *,
        clears_nomination: bool,
        nominated: str = "",
    ) -> None:
        """Put a pod back into the queue, and report why."""
        pod = waiting.info
        if clears_nomination:
            self.cluster.unnominate(pod.uid)
        self.queue.back_unschedulable(waiting, rejectors, self._clock.now_s())
        self._report(pod, reason, message, nominated or (None if not clears_nomination else ""))

    def _report(self, pod: PodInfo, reason: str, message: str, nominated: str | None) -> None:
        """nominated: empty: no node; None: unchanged."""
        self._record(pod, "Warning", "FailedScheduling", "Scheduling", message)
        self._aside(self._status.refuse(pod, reason, message, nominated), f"status of {pod.key}")

    # Inside.

    def _gate_of(self, pod: PodInfo) -> str:
        return self._config.profiles[pod.spec["schedulerName"]].gate_of(pod, self.cluster)

    def _activate(self, pod: PodInfo) -> None:
        self.queue.release(pod.uid, self._clock.now_s())
        self._wake()

    def _record(self, pod: PodInfo, type_: str, reason: str, action: str, note: str) -> None:
        recorder = self._recorders[pod.spec["schedulerName"]]
        recorder.record(pod.obj, type_, reason, action, note)

    def _aside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._logger.error("work failed", what=task.get_name(), error=repr(error))
