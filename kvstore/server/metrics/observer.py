"""The driver's observer: it counts calls and messages, and logs slow operations.

    on_inbox   a turn begins         leadership, late heartbeats
    on_sent    its answers are sent  calls, slow syncs and commits, waiting reads

Calls are counted after their answers are sent, so that no answer waits for it. Everything here runs
in the driver's thread and costs a few hundred nanoseconds a turn and some tens a call
(bench/micro/test_metrics.py).
"""

from collections.abc import Callable
from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS
from kvstore.batch import Inbox, Outbox
from kvstore.node.metering.rate_limiter import RateLimiter
from kvstore.node.parts import Parts
from kvstore.server.metrics.calls import CallCounters, Columns, SlowCalls, Stages, columns_of
from kvstore.server.metrics.gatherer import Gatherer
from kvstore.server.metrics.slow_requests import SlowRequests
from kvstore.server.metrics.sources import Disk, MetricSources, ObserverCounters
from kvstore.wire.loggable import duration_text

_SLOW_SYNC_NS: Final = SECOND_NS  # etcd's
_LATE_HEARTBEATS: Final = 2  # a heartbeat is late after this many intervals

# Takes the answers to the process's own client in this turn, which include the gateway's calls.
TakeAnswered = Callable[[], Outbox | None]


class MetricsObserver:
    """Observes one node; a `kvstore.runtime.source.TurnObserver`."""

    def __init__(
        self,
        parts: Parts,
        disk: Disk,
        clock: Clock,
        gatherer: Gatherer,
        *,
        slow_request_ns: int,
        extensive: bool = False,
    ) -> None:
        """Observe a node; extensive: keep a histogram of the durations of each method."""
        self._parts = parts
        self._disk = disk
        self._gatherer = gatherer
        self._clock_ns = clock.monotonic_ns
        self._slow_commit_ns = slow_request_ns
        self._rate_limiter = RateLimiter()
        self._turn_ns = 0  # when the last turn began
        self._columns: Columns | None = None  # of a turn whose answers are not sent yet
        self._stages_before: Stages = ()
        self._lead = 0
        self._sync_ns = disk.wal.sync_ns
        self._commit_ns = disk.backend.commit_ns
        self._counters = ObserverCounters()
        self._calls = CallCounters(slow_request_ns, self._on_slow, extensive=extensive)
        self.take_answered: TakeAnswered = lambda: None  # the side loop's client's
        self.slow_requests = SlowRequests(parts.logger, clock)
        self.sources = MetricSources(parts, disk, self._calls, clock, self._counters)

    def on_inbox(self, inbox: Inbox) -> None:
        """Keep the columns of the inbox of a turn that begins."""
        now_ns = self._clock_ns()
        raft = self._parts.raft
        lead = raft.lead
        if lead != self._lead:
            self._lead = lead
            if lead != 0:
                self._counters.leader_changes += 1
        elif raft.is_leader and not raft.is_only_voter:
            self._check_heartbeat(now_ns)
        self._turn_ns = now_ns
        self._columns = columns_of(inbox)
        self._stages_before = self._stages()

    def on_sent(self, out: Outbox) -> None:
        """Count what the turn has sent."""
        now_ns = self._clock_ns()
        if self._columns is not None:
            self._calls.count_arrivals(self._columns, self._turn_ns, self._stages_before)
            self._columns = None
        answered = self.take_answered()
        self._calls.count_answers(out if answered is None else _joined(out, answered), now_ns)
        disk = self._disk
        sync_ns, commit_ns = disk.wal.sync_ns, disk.backend.commit_ns
        if sync_ns != self._sync_ns:
            if sync_ns - self._sync_ns > _SLOW_SYNC_NS:
                self._warn("slow fdatasync", sync_ns - self._sync_ns, _SLOW_SYNC_NS, now_ns)
            self._sync_ns = sync_ns
        if commit_ns != self._commit_ns:
            took_ns = commit_ns - self._commit_ns
            if took_ns > self._slow_commit_ns:
                self._warn("slow database commit", took_ns, self._slow_commit_ns, now_ns)
            self._commit_ns = commit_ns
        if self._gatherer.is_waiting:
            self._gatherer.run_all()

    def _stages(self) -> Stages:
        """Return the time spent so far in each of STAGE_NAMES, in ns."""
        counters, disk = self._parts.counters, self._disk
        return disk.wal.sync_ns, disk.backend.commit_ns, counters.apply_ns, counters.read_ns

    def _on_slow(self, slow: SlowCalls) -> None:
        self._counters.slow_requests += slow.count
        self.slow_requests.add(slow, self._stages(), is_alone=self._parts.raft.is_only_voter)

    def _check_heartbeat(self, now_ns: int) -> None:
        """Log a leader's turn that began so late that its heartbeats were late."""
        heartbeat_ns = self._parts.limits.heartbeat_ns
        exceeded_ns = now_ns - self._turn_ns - _LATE_HEARTBEATS * heartbeat_ns
        if exceeded_ns <= 0 or self._turn_ns == 0:
            return
        for member_id in self._parts.state.membership.members:
            if member_id == self._parts.member_id:
                continue
            self._counters.late_heartbeats += 1
            if self._rate_limiter.admit("heartbeat", now_ns) is None:
                continue
            fields: dict[str, object] = {
                "to": f"{member_id:x}",
                "heartbeat-interval": duration_text(heartbeat_ns),
                "expected-duration": duration_text(_LATE_HEARTBEATS * heartbeat_ns),
                "exceeded-duration": duration_text(exceeded_ns),
            }
            self._parts.logger.warning(
                "leader failed to send out heartbeat on time; "
                "took too long, leader is overloaded likely from slow disk",
                **fields,
            )

    def _warn(self, msg: str, took_ns: int, expected_ns: int, now_ns: int) -> None:
        omitted = self._rate_limiter.admit(msg, now_ns)
        if omitted is None:
            return
        fields: dict[str, object] = {
            "took": duration_text(took_ns),
            "expected-duration": duration_text(expected_ns),
        }
        if omitted:
            fields["omitted-lines"] = omitted
        self._parts.logger.warning(msg, **fields)


def _joined(out: Outbox, answered: Outbox) -> Outbox:
    """Return all answers, to clients and to the process itself."""
    return Outbox(
        replies=out.replies + answered.replies,
        deliveries=out.deliveries + answered.deliveries,
        ends=out.ends + answered.ends,
        responses=out.responses,
    )
