"""Ends the pods of a node in order before a shutdown: lowest priority first.

    periods = (ShutdownPeriod(0, 20.0), ShutdownPeriod(CRITICAL_PRIORITY, 10.0))
    await NodeShutdown(kubelet, recorder, clock, logger, periods).run()

Pods of a period's priority and above end together, until the next period's. Each has its own grace
period, if that is shorter; the next ones begin when all have ended, or when the period is over. The
node is not ready meanwhile, and takes no pods.
"""

import asyncio
import subprocess
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.node_pods import NodePods
from kvstack.agents.kubelet.pods.sandboxes import CRITICAL_PRIORITY
from kvstack.agents.kubelet.pods.worker import grace_s
from kvstack.apimachinery.objects.core.pod_status import ENDED_PHASES, is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

REASON: Final = "Terminated"
MESSAGE: Final = "Pod was terminated in response to imminent node shutdown."
NOT_READY: Final = "node is shutting down"
NEVER: Final = "never"
SHUTDOWN: Final = "shutdown"
ALWAYS: Final = "always"
WHEN: Final = (SHUTDOWN, ALWAYS, NEVER)
"""When the kubelet ends its pods on exit: if the machine shuts down, always, or never."""
_LOOK_S: Final = 0.05
_REPORT_S: Final = 5.0
"""So long at most the API is waited for once all have ended."""
_ASK_S: Final = 5.0


class ShutdownPeriod(NamedTuple):
    """The grace periods of pods."""

    priority: int
    """Theirs, or higher."""
    period_s: float


def periods_of(whole_s: float, critical_s: float) -> tuple[ShutdownPeriod, ...]:
    """Return the periods of all pods and of critical ones, which have the last part; 0: none."""
    if not whole_s:
        return ()
    periods = (
        ShutdownPeriod(0, whole_s - critical_s),
        ShutdownPeriod(CRITICAL_PRIORITY, critical_s),
    )
    return tuple(each for each in periods if each.period_s)


def in_order(
    pods: Sequence[Object], periods: Sequence[ShutdownPeriod]
) -> list[tuple[ShutdownPeriod, list[Object]]]:
    """Return the pods of each period, the least important first.

    Those below all periods go with the first, and those of a part without one with the part below.
    """
    found = [(each, list[Object]()) for each in sorted(periods)]
    for pod in pods if found else ():
        priority = pod["spec"].get("priority") or 0
        below = [group for period, group in found if period.priority <= priority]
        (below[-1] if below else found[0][1]).append(pod)
    return [each for each in found if each[1]]


def machine_stops() -> bool:
    """Whether systemd is shutting this machine down; False without systemd."""
    command = ("systemctl", "is-system-running")
    try:
        found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_ASK_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.stdout.strip() == "stopping"


class NodeShutdown:
    """The shutdown of a node."""

    def __init__(
        self,
        kubelet: NodePods,
        recorder: EventRecorder,
        clock: Clock,
        logger: Logger,
        periods: Sequence[tuple[int, float]],
    ) -> None:
        """End nothing yet."""
        self._kubelet = kubelet
        self._recorder = recorder
        self._clock = clock
        self._logger = logger
        self._periods = [ShutdownPeriod(*each) for each in periods]
        self.has_begun = False
        """Whether pods are being ended, and new ones refused."""

    async def run(self) -> None:
        """End all pods; returns when they have ended or their time is over."""
        if not self._periods or self.has_begun:
            return
        self.has_begun = True
        node = self._kubelet.node
        self._recorder.record(
            node.object, "Normal", "NodeShutdown", "Shutdown manager detected shutdown event"
        )
        node.say(NOT_READY)
        pods = [each for each in self._kubelet.admitted() if not is_ended(each)]
        for period, group in in_order(pods, self._periods):
            self._logger.info(
                "ending the node's pods",
                priority=period.priority,
                pods=len(group),
                period_s=period.period_s,
            )
            for pod in group:
                within_s = min(grace_s(pod), period.period_s)
                uid = pod["metadata"]["uid"]
                self._kubelet.end(uid, REASON, MESSAGE, within_s, disrupts=True)
            uids = [each["metadata"]["uid"] for each in group]
            left = await self._wait(uids, period.period_s, self._has_ended)
            if left:
                self._logger.warning("pods have exceeded their grace period", count=left)
        await self._wait([each["metadata"]["uid"] for each in pods], _REPORT_S, self._is_reported)

    async def _wait(
        self, uids: Sequence[str], within_s: float, is_done: Callable[[str], bool]
    ) -> int:
        """Wait for all; return how many are not done."""
        until_s = self._clock.monotonic_s() + within_s
        while left := sum(not is_done(each) for each in uids):
            if self._clock.monotonic_s() >= until_s:
                return left
            await asyncio.sleep(_LOOK_S)
        return 0

    def _has_ended(self, uid: str) -> bool:
        record = self._kubelet.record_of(uid)
        return record is None or record.is_over

    def _is_reported(self, uid: str) -> bool:
        record = self._kubelet.record_of(uid)
        return record is None or (record.written_status or {}).get("phase") in ENDED_PHASES
