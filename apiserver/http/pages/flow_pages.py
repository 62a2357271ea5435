"""The state of priority and fairness: pages for people, and metrics.

    /debug/api_priority_and_fairness/dump_priority_levels
    /debug/api_priority_and_fairness/dump_queues
    /debug/api_priority_and_fairness/dump_requests         those that wait

Columns and names are upstream's.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from kvstack.apimachinery.objects.durations import text as duration_text
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.http.answers import NO_SNIFF
from kvstack.apiserver.http.pages.page_set import PageSet, check_get
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.policy.flow_control.control import FlowControl
from kvstack.apiserver.policy.flow_control.levels import FlowCounts, Level
from kvstack.component.clock import Clock
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstack.component.metrics.histograms import Histogram

ROOT: Final = "/debug/api_priority_and_fairness/"
_CELL_MIN: Final = 8
_LEVEL_COLUMNS: Final = (
    "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests",
    "ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests",
    "CancelledRequests",
)  # fmt: skip
_QUEUE_COLUMNS: Final = (
    "PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse",
    "NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum",
)  # fmt: skip
_REQUEST_COLUMNS: Final = (
    "PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher",
    "ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime",
)  # fmt: skip

Row = Sequence[object]


def add_flow_pages(pages: PageSet, control: FlowControl, clock: Clock) -> None:
    """Serve the pages, which `/` does not list."""

    def add(name: str, columns: Sequence[str], rows: Callable[[], Iterable[Row]]) -> None:
        async def page(context: RequestContext) -> None:
            check_get(context.request)
            context.reply.send_text(200, table([columns, *rows()]), NO_SNIFF)

        pages.add(f"{ROOT}{name}", page, is_listed=False)

    def sorted_levels() -> list[Level]:
        return sorted(control.levels.values(), key=lambda each: each.name)

    add("dump_priority_levels", _LEVEL_COLUMNS, lambda: _levels(control, sorted_levels()))
    add("dump_queues", _QUEUE_COLUMNS, lambda: _queues(sorted_levels()))
    add("dump_requests", _REQUEST_COLUMNS, lambda: _requests(sorted_levels(), clock))


def table(rows: Sequence[Row]) -> str:
    """Return rows of cells as text in columns."""
    cells = [[_cell_text(cell) for cell in row] for row in rows]
    widths = [max(_CELL_MIN, *(len(row[i]) + 2 for row in cells)) for i in range(len(cells[0]) - 1)]
    lines = (
        "".join(f"{cell},".ljust(width) for cell, width in zip(row, widths, strict=False)) + row[-1]
        for row in cells
    )
    return "".join(f"{line}\n" for line in lines)


def _cell_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _counts_of(control: FlowControl, level: str) -> list[FlowCounts]:
    return [counts for (name, _), counts in control.counts.items() if name == level]


def _levels(control: FlowControl, levels: Iterable[Level]) -> Iterator[Row]:
    for level in levels:
        counts = _counts_of(control, level.name)
        rejected: dict[str, int] = {}
        for each in counts:
            for reason, count in each.rejected.items():
                rejected[reason] = rejected.get(reason, 0) + count
        yield (
            level.name,
            sum(bool(each.tickets) for each in level.queues),
            level.is_idle,
            False,
            level.waiting,
            level.executing,
            sum(each.dispatched for each in counts),
            sum(rejected.values()),
            rejected.get("time-out", 0),
            rejected.get("cancelled", 0),
        )


def _queues(levels: Iterable[Level]) -> Iterator[Row]:
    for level in levels:
        for queue in level.queues:
            seats = sum(each.seats for each in queue.tickets)
            yield (
                level.name,
                queue.index,
                len(queue.tickets),
                queue.executing,
                queue.seats_in_use,
                f"{queue.next_start / 1e9:.8f}ss",
                seats,
                seats,
                f"{queue.work / 1e9:.8f}ss",
            )


def _requests(levels: Iterable[Level], clock: Clock) -> Iterator[Row]:
    now_ns, now_ms = clock.monotonic_ns(), clock.unix_ms()
    for level in levels:
        for queue in level.queues:
            for position, ticket in enumerate(queue.tickets):
                arrived_ms = now_ms - (now_ns - ticket.arrived_ns) // 1_000_000
                yield (
                    level.name,
                    ticket.flow.schema,
                    queue.index,
                    position,
                    ticket.flow.distinguisher,
                    format_time(arrived_ms / 1000),
                    ticket.seats,
                    ticket.seats if ticket.linger_ns else 0,
                    duration_text(ticket.linger_ns),
                    "0001-01-01T00:00:00Z",
                )


# Metrics.

_GAUGES: Final[Sequence[tuple[str, str, Callable[[Level], float]]]] = (
    (
        "nominal_limit_seats",
        "Nominal number of execution seats configured for each priority level",
        lambda level: level.limits.nominal,
    ),
    (
        "lower_limit_seats",
        "Configured lower bound on number of execution seats available to each priority level",
        lambda level: level.limits.low,
    ),
    (
        "upper_limit_seats",
        "Configured upper bound on number of execution seats available to each priority level",
        lambda level: level.limits.high,
    ),
    (
        "current_limit_seats",
        "current derived number of execution seats available to each priority level",
        lambda level: level.limit,
    ),
    ("target_seats", "Seat allocation targets", lambda level: level.target),
    (
        "demand_seats_high_watermark",
        "High watermark, over last adjustment period, of demand_seats",
        lambda level: level.period.high,
    ),
    (
        "demand_seats_average",
        "Time-weighted average, over last adjustment period, of demand_seats",
        lambda level: level.period.average,
    ),
    (
        "demand_seats_stdev",
        "Time-weighted standard deviation, over last adjustment period, of demand_seats",
        lambda level: level.period.deviation,
    ),
    ("demand_seats_smoothed", "Smoothed seat demands", lambda level: level.demand.smoothed),
)
_CURRENT: Final[Sequence[tuple[str, str, Callable[[FlowCounts], int]]]] = (
    (
        "current_inqueue_requests",
        "Number of requests currently pending in queues of the API Priority and Fairness subsystem",
        lambda counts: counts.waiting,
    ),
    (
        "current_inqueue_seats",
        "Number of seats currently pending in queues of the API Priority and Fairness subsystem",
        lambda counts: counts.waiting_seats,
    ),
    (
        "current_executing_requests",
        "Number of requests in initial (for a WATCH) or any (for a non-WATCH) execution stage in"
        " the API Priority and Fairness subsystem",
        lambda counts: counts.executing,
    ),
    (
        "current_executing_seats",
        "Concurrency (number of seats) occupied by the currently executing (initial stage for a"
        " WATCH, any stage otherwise) requests in the API Priority and Fairness subsystem",
        lambda counts: counts.seats,
    ),
)
_PREFIX: Final = "apiserver_flowcontrol_"


def readings(control: FlowControl) -> Iterator[FamilySamples]:
    """Yield the families of metrics."""
    for name, help_, of_level in _GAUGES:
        values = {
            labels(priority_level=level.name): of_level(level) for level in control.levels.values()
        }
        yield f"{_PREFIX}{name}", FamilyKind.GAUGE, help_, values
    yield (
        f"{_PREFIX}seat_fair_frac",
        FamilyKind.GAUGE,
        "Fair fraction of server's concurrency to allocate to each priority level that can use it",
        {"": control.fair_fraction},
    )
    counts_by_flow = {
        labels(flow_schema=schema, priority_level=level): counts
        for (level, schema), counts in control.counts.items()
    }
    for name, help_, of_flow in _CURRENT:
        samples = {key: of_flow(counts) for key, counts in counts_by_flow.items()}
        yield f"{_PREFIX}{name}", FamilyKind.GAUGE, help_, samples
    yield (
        f"{_PREFIX}dispatched_requests_total",
        FamilyKind.COUNTER,
        "Number of requests executed by API Priority and Fairness subsystem",
        {key: counts.dispatched for key, counts in counts_by_flow.items()},
    )
    yield (
        f"{_PREFIX}rejected_requests_total",
        FamilyKind.COUNTER,
        "Number of requests rejected by API Priority and Fairness subsystem",
        {
            labels(flow_schema=schema, priority_level=level, reason=reason): count
            for (level, schema), counts in control.counts.items()
            for reason, count in counts.rejected.items()
        },
    )
    yield (
        f"{_PREFIX}request_wait_duration_seconds",
        FamilyKind.HISTOGRAM,
        "Length of time a request spent waiting in its queue",
        dict(_waits(control)),
    )
    yield (
        f"{_PREFIX}request_execution_seconds",
        FamilyKind.HISTOGRAM,
        "Duration of initial stage (for a WATCH) or any (for a non-WATCH) stage of request"
        " execution in the API Priority and Fairness subsystem",
        {key: counts.executions.copy() for key, counts in counts_by_flow.items()},
    )


def _waits(control: FlowControl) -> Iterator[tuple[str, Histogram]]:
    for (level, schema), counts in control.counts.items():
        started = counts.waited.copy()
        started.add(0.0, counts.unwaited)
        for execute, histogram in (("true", started), ("false", counts.waits_refused.copy())):
            yield labels(execute=execute, flow_schema=schema, priority_level=level), histogram
