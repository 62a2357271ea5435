"""The pending pods: to be tried now, after a back-off, or after an event.

    queue.add(info, now_s)
    waiting = queue.pop(now_s)                        None: nobody is due
    queue.back_unschedulable(waiting, rejectors, now_s)   tried, and no node will do
    queue.happened("NodeAdd", change, now_s)          moves those whom it may help
    queue.done(uid)                                   its attempt is over for good

- Order: the higher priority first, then who was put in first.
- A pod that no node would take waits for an event that may help one of the plugins that refused it.
  What happens while a pod is tried is kept and looked at when it comes back, so nothing is lost.
- Back-off: 1, 2, 4, 8, 10, 10 … seconds after failures in a row. When nobody else is due, those who
  were refused (not those whose attempt failed otherwise) are tried before it is over.
- Gated pods are not tried at all. What gates one is asked again after events it waits for.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from kvstack.agents.scheduler.events.changes import OWN_GATES, Change, own_events
from kvstack.agents.scheduler.hints import awaited_events, may_help
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo

Stage: TypeAlias = Literal["active", "back-off", "error", "unschedulable", "in flight"]

UNSCHEDULED_ADD: Final = "UnscheduledPodAdd"
ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
FORCED: Final = "ForceActivate"
_SWEEP_S: Final = 30.0
"""The interval of checks for such pods."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A pod that waits."""

    info: PodInfo
    since_s: float
    """When it was last added."""
    first_s: float
    """When it was first added."""
    attempts: int = 0
    refusals: int = 0
    """Attempts in a row that ended since no node would do."""
    errors: int = 0
    """Attempts in a row that failed otherwise."""
    rejectors: set[str] = field(default_factory=set)
    gate: str = ""
    stage: Stage = "active"
    popped_at: int = 0


class SchedulingQueue:
    """The pods that wait."""

    def __init__(
        self,
        initial_back_off_s: float = 1.0,
        max_back_off_s: float = 10.0,
        gate_of: Callable[[PodInfo], str] = lambda _: "",
        max_unschedulable_s: float = 300.0,
    ) -> None:
        """gate_of: returns the name of the plugin that holds a pod back; empty: none does.

        max_unschedulable_s: a pod that waited so long for an event is tried without one.
        """
        self._max_unschedulable_s = max_unschedulable_s
        self._initial_s = initial_back_off_s
        self._max_s = max_back_off_s
        self._gate_of = gate_of
        self._awaited = awaited_events()
        self._pods: dict[str, Waiting] = {}
        self._active: list[tuple[int, float, int, Waiting]] = []
        self._backing_off: list[tuple[int, int, float, int, Waiting]] = []
        self._failed: list[tuple[int, int, float, int, Waiting]] = []
        self._unschedulable: dict[str, Waiting] = {}
        self._in_flight: dict[str, Waiting] = {}
        self._events: list[tuple[str, Change]] = []
        self._events_dropped = 0
        self._count = 0
        self._late_check_s = 0.0
        self.incoming: Final[Counter[tuple[str, str]]] = Counter()
        """Counts of pods by new stage (active, backoff, unschedulable, gated) and event."""

    def __len__(self) -> int:
        """Return how many pods there are, those in flight not counted."""
        return len(self._pods) - len(self._in_flight)

    def sizes(self) -> dict[str, int]:
        """Return how many pods are in each stage: active, backoff, unschedulable, gated."""
        sizes = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
        for each in self._pods.values():
            if each.stage == "active":
                sizes["active"] += 1
            elif each.stage == "unschedulable":
                sizes["gated" if each.gate else "unschedulable"] += 1
            elif each.stage != "in flight":
                sizes["backoff"] += 1
        return sizes

    def waiting(self, uid: str) -> Waiting | None:
        """Return a pod that waits, or is being tried."""
        return self._pods.get(uid)

    # Changes of pods.

    def add(self, info: PodInfo, now_s: float) -> None:
        """Put in a pod, or take its new state."""
        waiting = self._pods.get(info.uid)
        if waiting is None:
            waiting = self._pods[info.uid] = Waiting(info, now_s, now_s)
            self._enter(waiting, now_s, UNSCHEDULED_ADD)
            return
        old, waiting.info = waiting.info, info
        events = own_events(old, info)
        change = Change(old.obj, info.obj)
        if waiting.stage == "in flight":
            self._events += [(event, change) for event in events]
        elif waiting.stage == "unschedulable":
            if waiting.gate:
                if OWN_GATES in events or not self._gate_of(info):
                    self._leave_unschedulable(waiting, now_s, OWN_GATES)
                return
            helping = next((each for each in events if self._helps(waiting, each, change)), "")
            if helping:
                self._leave_unschedulable(waiting, now_s, helping)
        elif waiting.stage == "active" and old.priority != info.priority:
            self._activate(waiting)

    def remove(self, uid: str) -> None:
        """Forget a pod."""
        known = self._pods.pop(uid, None)
        if known is not None:
            known.stage = "in flight"  # its entries in heaps are now stale
            self._unschedulable.pop(uid, None)
            self._end_flight(uid)

    # Attempts.

    def pop(self, now_s: float) -> Waiting | None:
        """Return the pod to try next; `done` or a return must follow."""
        self._move_due(now_s)
        while self._active:
            _, _, _, waiting = heapq.heappop(self._active)
            if waiting.stage == "active" and self._pods.get(waiting.info.uid) is waiting:
                return self._fly(waiting)
        while self._backing_off:
            waiting = heapq.heappop(self._backing_off)[-1]
            if waiting.stage == "back-off" and self._pods.get(waiting.info.uid) is waiting:
                self.incoming["active", "PopFromBackoffQ"] += 1
                return self._fly(waiting)
        return None

    def done(self, uid: str) -> None:
        """The attempt of a pod succeeded: it is removed."""
        if uid in self._in_flight:
            self._pods.pop(uid, None)
            self._end_flight(uid)

    def back_unschedulable(self, waiting: Waiting, rejectors: set[str], now_s: float) -> None:
        """Put back a pod that no node will take; without rejectors its attempt failed."""
        uid = waiting.info.uid
        if self._pods.get(uid) is not waiting or waiting.stage != "in flight":
            return
        happened = self._events[waiting.popped_at - self._events_dropped :]
        self._end_flight(uid)
        waiting.since_s, waiting.rejectors = now_s, rejectors
        if rejectors:
            waiting.refusals, waiting.errors = waiting.refusals + 1, 0
            if not any(self._helps(waiting, *event) for event in happened):
                waiting.stage = "unschedulable"
                self._unschedulable[uid] = waiting
                self.incoming["unschedulable", ATTEMPT_FAILED] += 1
                return
        else:
            waiting.errors += 1
        self._enter(waiting, now_s, ATTEMPT_FAILED)

    def back_failed(self, info: PodInfo, first: Waiting, now_s: float) -> None:
        """Put in a pod again whose binding failed after its attempt was over."""
        if info.uid in self._pods:
            return
        known = Waiting(info, now_s, first.first_s, first.attempts, first.refusals)
        known.errors = first.errors + 1
        self._pods[info.uid] = known
        self._enter(known, now_s, ATTEMPT_FAILED)

    # Events.

    def happened(
        self, event: str, change: Change, now_s: float, priority_max: int | None = None
    ) -> bool:
        """Move the pods that an event may help; return whether there were some.

        priority_max: it helps no pod of a higher priority.
        """
        if event not in self._awaited:
            return False
        if self._in_flight:
            self._events.append((event, change))
        moved = [
            known
            for known in self._unschedulable.values()
            if (priority_max is None or known.info.priority <= priority_max)
            and self._helps(known, event, change)
        ]
        for known in moved:
            self._leave_unschedulable(known, now_s, event)
        return bool(moved)

    def activate(self, uid: str, now_s: float) -> None:
        """Activate a pod without an event."""
        waiting = self._pods.get(uid)
        if waiting is not None and waiting.stage not in ("active", "in flight"):
            self._unschedulable.pop(uid, None)
            waiting.gate = self._gate_of(waiting.info)
            if waiting.gate:
                waiting.stage = "unschedulable"
                self._unschedulable[uid] = waiting
            else:
                waiting.since_s = now_s
                self.incoming["active", FORCED] += 1
                self._activate(waiting)

    def release(self, uid: str, now_s: float) -> None:
        """Look again at what gates a pod."""
        known = self._pods.get(uid)
        if known is not None and known.gate:
            self._leave_unschedulable(known, now_s, FORCED)

    def next_due_s(self) -> float | None:
        """Return when the next back-off may be over, or pods that wait are to be looked through."""
        due = [heap[0][0] + 1.0 for heap in (self._backing_off, self._failed) if heap]
        if self._unschedulable:
            due.append(self._late_check_s)
        return min(due, default=None)

    def tried_now(self) -> Iterator[str]:
        """Yield the keys of pods that are being tried, or are to be."""
        for each in self._pods.values():
            if each.stage in ("active", "in flight"):
                yield each.info.key

    def backing_off(self) -> Iterator[tuple[str, float]]:
        """Yield the keys of pods that are retried without an event, and when at the earliest."""
        for heap in (self._backing_off, self._failed):
            for due, _, _, _, known in heap:
                is_here = known.stage in ("back-off", "error")
                if is_here and self._pods.get(known.info.uid) is known:
                    yield known.info.key, due + 1.0

    # Inside.

    def _helps(self, known: Waiting, event: str, change: Change) -> bool:
        if known.gate:
            return may_help(known.gate, event, known.info, change)
        return not known.rejectors or any(
            may_help(plugin, event, known.info, change) for plugin in known.rejectors
        )

    def _leave_unschedulable(self, known: Waiting, now_s: float, event: str) -> None:
        self._unschedulable.pop(known.info.uid, None)
        self._enter(known, now_s, event)

    def _enter(self, waiting: Waiting, now_s: float, event: str) -> None:
        """Activate a pod, or put it into back-off; unless it is gated."""
        waiting.gate = self._gate_of(waiting.info)
        if waiting.gate:
            self.incoming["gated", event] += 1
            waiting.stage = "unschedulable"
            self._unschedulable[waiting.info.uid] = waiting
            return
        due = self._back_off_end(waiting)
        if due < int(now_s):
            self.incoming["active", event] += 1
            self._activate(waiting)
            return
        self.incoming["backoff", event] += 1
        waiting.stage = "error" if waiting.errors else "back-off"
        heap = self._failed if waiting.errors else self._backing_off
        self._count += 1
        heapq.heappush(heap, (due, -waiting.info.priority, waiting.since_s, self._count, waiting))

    def _back_off_end(self, known: Waiting) -> int:
        """Return the second in which the back-off ends; -1: there is none."""
        failures = known.errors or known.refusals
        if not failures or not self._max_s:
            return -1
        seconds = min(self._initial_s * 2.0 ** min(failures - 1, 60), self._max_s)
        return int(known.since_s + seconds)

    def _activate(self, known: Waiting) -> None:
        known.stage = "active"
        self._count += 1
        entry = (-known.info.priority, known.since_s, self._count, known)
        heapq.heappush(self._active, entry)

    def _move_due(self, now_s: float) -> None:
        for heap in (self._backing_off, self._failed):
            while heap and heap[0][0] < int(now_s):
                known = heapq.heappop(heap)[-1]
                is_here = known.stage in ("back-off", "error")
                if is_here and self._pods.get(known.info.uid) is known:
                    self.incoming["active", "BackoffComplete"] += 1
                    self._activate(known)
        self._move_late(now_s)

    def _move_late(self, now_s: float) -> None:
        if now_s < self._late_check_s:
            return
        self._late_check_s = now_s + _SWEEP_S
        limit = now_s - self._max_unschedulable_s
        late = [
            each for each in self._unschedulable.values() if each.since_s < limit and not each.gate
        ]
        for known in late:
            self._leave_unschedulable(known, now_s, "UnschedulableTimeout")

    def _fly(self, known: Waiting) -> Waiting:
        known.stage = "in flight"
        known.attempts += 1
        known.popped_at = self._events_dropped + len(self._events)
        self._in_flight[known.info.uid] = known
        return known

    def _end_flight(self, uid: str) -> None:
        """Drop events that no pod in flight needs."""
        if self._in_flight.pop(uid, None) is None:
            return
        if not self._in_flight:
            self._events_dropped += len(self._events)
            self._events.clear()
            return
        oldest = next(iter(self._in_flight.values())).popped_at
        drop = oldest - self._events_dropped
        if drop > 0:
            del self._events[:drop]
            self._events_dropped = oldest
