"""Runs probes: a task for each probe of each running container.

    prober.begin(pod, container, found, results, on_change)

`results` is written, and on_change called, when a result changes. A task ends with its container,
or with a failure for which the container is to end.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

from kvstack.agents.kubelet.lifecycle import actions
from kvstack.agents.kubelet.lifecycle.actions import Outcome
from kvstack.agents.kubelet.pods.environment import expand, literal_variables
from kvstack.agents.kubelet.pods.probes import (
    LIVENESS,
    READINESS,
    STARTUP,
    Results,
    Tally,
    is_started,
    probes_of,
)
from kvstack.agents.kubelet.runtime.runtime import Container, Runtime
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.metrics.histograms import PROMETHEUS_BOUNDS, Histogram

OnEvent: TypeAlias = Callable[[Object, str, str, str], None]
"""Called with pod, name of the container, reason and text of a warning."""

_WAIT_S: Final = 0.1
"""The interval of checks whether a container has started."""
_TRIES: Final = 3


class Prober:
    """Probes the containers of one node."""

    def __init__(
        self, runtime: Runtime, clock: Clock, random: Callable[[], float], on_event: OnEvent
    ) -> None:
        """Probe nothing yet."""
        self._runtime = runtime
        self._clock = clock
        self._random = random
        self._on_event = on_event
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts: Counter[tuple[str, str, str, str, str, str]] = Counter()
        """Kind, result, container, pod, namespace, uid."""
        self.durations: dict[tuple[str, str, str, str, str], Histogram] = {}
        """Seconds, by kind, container, pod, namespace, uid."""

    def begin(
        self,
        pod: Object,
        container: Object,
        running: Container,
        results: Results,
        host: str,
        on_change: Callable[[], None],
        *,
        is_found: bool = False,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        """Probe a container until it ends; host: its pod's address.

        is_found: it was started by an earlier kubelet. is_ending: whether its pod is to end; then
        only its readiness matters.
        """
        loop = asyncio.get_running_loop()
        for kind, probe in probes_of(container):
            work = self._probe(
                pod, container, running, kind, probe, results, host, on_change, is_found, is_ending
            )
            task = loop.create_task(work, name=f"{kind} probe of {running.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def forget(self, uid: str) -> None:
        """Stop the probes of a pod."""
        for count in [each for each in self.counts if each[5] == uid]:
            del self.counts[count]
        for key in [each for each in self.durations if each[4] == uid]:
            del self.durations[key]

    async def stop(self) -> None:
        """Stop all probes."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
                raise done

    async def _probe(
        self,
        pod: Object,
        container: Object,
        running: Container,
        kind: str,
        probe: Object,
        results: Results,
        host: str,
        on_change: Callable[[], None],
        is_found: bool,  # noqa: FBT001
        is_ending: Callable[[], bool],
    ) -> None:
        period_s = probe.get("periodSeconds", 10)
        if is_found:  # so that a node's containers are not all asked at once
            await asyncio.sleep(self._random() * period_s)
        since_s = self._clock.now_s() - running.started_s
        await asyncio.sleep(max(0.0, probe.get("initialDelaySeconds", 0) - since_s))
        tally = Tally(probe)
        key = (running.id, kind)
        while _runs(running):
            if kind != STARTUP and not is_started(container, running, results):
                await asyncio.sleep(_WAIT_S)
                continue
            if kind != READINESS and is_ending():
                return
            began = self._clock.monotonic_s()
            outcome = await self._try(container, running, probe, host)
            took_s = self._clock.monotonic_s() - began
            if not _runs(running) or (kind != READINESS and is_ending()):
                return
            self._record(pod, container, kind, outcome)
            self._note_duration(pod, container, kind, took_s)
            result = None if outcome.is_good is None else tally.add(is_good=outcome.is_good)
            if result is not None and results.get(key, kind == LIVENESS) is not result:
                results[key] = result
                on_change()
            elif result is False and kind == STARTUP:
                results[key] = False
                on_change()
            if result is not None and (kind == STARTUP or (kind == LIVENESS and not result)):
                return
            await asyncio.sleep(period_s)
        if kind == READINESS:
            results.pop(key, None)

    def _record(self, pod: Object, container: Object, kind: str, outcome: Outcome) -> None:
        name, meta = container["name"], pod["metadata"]
        shown = {True: "successful", False: "failed", None: "unknown"}[outcome.is_good]
        count = (kind.capitalize(), shown, name, meta["name"], meta["namespace"], meta["uid"])
        self.counts[count] += 1
        title = kind.capitalize()
        if outcome.is_good is None:
            text = f"{title} probe errored and resulted in unknown state: {outcome.text}"
            self._on_event(pod, name, "Unhealthy", text)
        elif not outcome.is_good:
            self._on_event(pod, name, "Unhealthy", f"{title} probe failed: {outcome.text}")
        elif outcome.warning:
            self._on_event(pod, name, "ProbeWarning", f"{title} probe warning: {outcome.warning}")

    def _note_duration(self, pod: Object, container: Object, kind: str, took_s: float) -> None:
        meta = pod["metadata"]
        place = (meta["name"], meta["namespace"], meta["uid"])
        key = (kind.capitalize(), container["name"], *place)
        self.durations.setdefault(key, Histogram(PROMETHEUS_BOUNDS)).add(took_s)

    async def _try(self, container: Object, found: Container, probe: Object, host: str) -> Outcome:
        """Probe once; what cannot be found out is tried again at once."""
        outcome = Outcome(None)
        for _ in range(_TRIES):
            outcome = await self._once(container, found, probe, host)
            if outcome.is_good is not None or not _runs(found):
                break
        return outcome

    async def _once(self, container: Object, found: Container, probe: Object, host: str) -> Outcome:
        timeout_s = probe.get("timeoutSeconds", 1)
        if "exec" in probe:
            known = literal_variables(container)
            command = [expand(each, known) for each in probe["exec"].get("command") or ()]
            return await actions.run_command(self._runtime, found, command, timeout_s)
        if "httpGet" in probe:
            get, agent = probe["httpGet"], actions.PROBE_AGENT
            return await actions.request(container, get, host, timeout_s, agent)
        if "grpc" in probe:
            return await actions.check_health(probe["grpc"], host, timeout_s)
        return await actions.connect(container, probe["tcpSocket"], host, timeout_s)


def _runs(found: Container) -> bool:
    return found.is_running
