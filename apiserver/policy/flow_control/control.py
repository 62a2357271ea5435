"""The levels and schemas of priority and fairness, from their objects.

    control = FlowControl(600, clock)
    control.follow(view)                       FlowSchemas and PriorityLevelConfigurations
    flow = control.flow_of(user, info)
    ticket = flow.level.enter(flow, seats, now_ns)

The levels `exempt` and `catch-all` and their schemas always exist. Every few seconds levels lend
seats that they do not need to levels that do (`rebalance`). A level whose object is gone serves its
remaining requests.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.request_info import RequestInfo
from kvstack.apiserver.kinds.flowcontrol.mandatory import (
    CATCH_ALL,
    EXEMPT,
    FLOW_SCHEMAS,
    PRIORITY_LEVELS,
)
from kvstack.apiserver.policy.flow_control.allocation import Claim, Shares, limits, share_out
from kvstack.apiserver.policy.flow_control.levels import Flow, FlowCounts, Level, Queuing
from kvstack.apiserver.policy.flow_control.matching import Schema
from kvstack.apiserver.policy.interfaces import Change, ObjectView
from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS

REBALANCE_S: Final = 10.0
SCHEMA_HEADER: Final = "X-Kubernetes-Pf-Flowschema-Uid"
LEVEL_HEADER: Final = "X-Kubernetes-Pf-Prioritylevel-Uid"
_GROUP: Final = "flowcontrol.apiserver.k8s.io"
SCHEMAS: Final = GroupResource(_GROUP, "flowschemas")
LEVELS: Final = GroupResource(_GROUP, "prioritylevelconfigurations")
_FLOWS_MAX: Final = 8192
_REBALANCE_NS: Final = round(REBALANCE_S * SECOND_NS)


class FlowControl:
    """The levels and schemas of a server."""

    def __init__(self, seats: int, clock: Clock) -> None:
        """seats: of the server. Only the mandatory levels exist at first."""
        self.seats: Final = seats
        self.clock: Final = clock
        self.levels: dict[str, Level] = {}
        """Levels by name."""
        self.counts: Final[dict[tuple[str, str], FlowCounts]] = {}
        """Counts by level and schema, since the start."""
        self.fair_fraction = 0.0
        """The proportion of their demand that levels currently get."""
        self.on_demand: Callable[[], None] | None = None
        """Called when a level has its first request of a period."""
        self.generation = 0
        """Changes whenever requests may be classified differently."""
        self._schemas: list[Schema] = []
        self._flows: dict[tuple[str, str], Flow] = {}
        self._view: ObjectView | None = None
        self._is_stale = False
        self._has_rested = False
        """Whether there may have been no calls for periods at rest."""
        self._configure((), ())

    def follow(self, view: ObjectView) -> None:
        """Follow the objects of a view."""
        self._view = view
        self._is_stale = True
        for resource in (SCHEMAS, LEVELS):
            view.subscribe(resource, self._changed)

    def flow_of(self, user: User, info: RequestInfo) -> Flow:
        """Return the flow of a request."""
        self.refresh()
        for schema in self._schemas:
            if schema.matches(user, info):
                return self._flow(schema, schema.distinguisher(user, info))
        return self._flow(self._schemas[-1], user.name)

    def refresh(self) -> None:
        """Apply changes of the objects."""
        if self._is_stale and self._view is not None:
            self._is_stale = False
            self._configure(self._view.list(LEVELS), self._view.list(SCHEMAS))

    def rebalance(self) -> bool:
        """Have levels lend and borrow seats by their demand in the last period.

        Returns whether the next call may do something: otherwise it need not come before
        `on_demand`, at one of the moments at which it would have come.
        """
        self.refresh()
        now_ns = self.clock.monotonic_ns()
        levels = self.levels.values()
        if all(each.demand.is_at_rest and not each.period.high for each in levels):
            for level in levels:
                level.demand.skip_period(now_ns)
            self._has_rested = True
            return False  # seats are lent as they would be now
        for level in levels:
            if self._has_rested:
                level.demand.skip_until(now_ns - _REBALANCE_NS)
            level.period = level.demand.end_period(now_ns)
        self._has_rested = False
        self._lend(now_ns)
        return True

    def _note_demand(self) -> None:
        if self.on_demand is not None:
            self.on_demand()

    # Configuration.

    def _changed(self, changes: Sequence[Change]) -> None:
        # Conditions of schemas have no effect here.
        if any(_spec(each.object) != _spec(each.previous) for each in changes):
            self._is_stale = True
            self.generation += 1

    def _configure(self, levels: Iterable[Object], schemas: Iterable[Object]) -> None:
        self.generation += 1
        self._flows.clear()
        now_ns = self.clock.monotonic_ns()
        specs = {name: ("", spec) for name, spec in PRIORITY_LEVELS.items()}
        specs |= {e["metadata"]["name"]: (e["metadata"].get("uid", ""), e["spec"]) for e in levels}
        shares = {name: _shares(spec) for name, (_, spec) in specs.items()}
        found = limits(self.seats, shares)
        old, self.levels = self.levels, {}
        for name, (uid, spec) in specs.items():
            level = self.levels[name] = old.get(name) or Level(name, uid, now_ns)
            queuing = _queuing(spec)
            level.demand.on_rise = self._note_demand
            level.configure(uid, found[name], queuing, is_exempt=spec["type"] == "Exempt")
        self._schemas = self._ordered(schemas)
        self._lend(now_ns)

    def _ordered(self, schemas: Iterable[Object]) -> list[Schema]:
        compiled = [Schema(each) for each in schemas]
        usable = sorted((e for e in compiled if e.level in self.levels), key=lambda e: e.order)
        names = {each.name for each in usable}
        mandatory = {
            name: Schema({"metadata": {"name": name}, "spec": FLOW_SCHEMAS[name]})
            for name in (EXEMPT, CATCH_ALL)
        }
        if EXEMPT not in names:
            usable.insert(0, mandatory[EXEMPT])
        if CATCH_ALL not in names:
            usable.append(mandatory[CATCH_ALL])
        return usable

    def _flow(self, schema: Schema, distinguisher: str) -> Flow:
        key = schema.name, distinguisher
        flow = self._flows.get(key)
        if flow is None:
            level = self.levels[schema.level]
            counts = self.counts.setdefault((level.name, schema.name), FlowCounts())
            headers = [(SCHEMA_HEADER, schema.uid), (LEVEL_HEADER, level.uid)]
            if len(self._flows) >= _FLOWS_MAX:
                self._flows.clear()
            flow = self._flows[key] = Flow(schema.name, distinguisher, level, counts, headers)
        return flow

    # Borrowing.

    def _lend(self, now_ns: int) -> None:
        """Set the current number of seats of each level."""
        left = sum(each.limits.nominal for each in self.levels.values())
        limited: list[Level] = []
        for level in self.levels.values():
            if level.is_exempt:
                least = max(level.limits.low, level.period.high)
                level.target = level.limit = least
                left -= least
            else:
                limited.append(level)
        least_sum = sum(each.limits.low for each in limited)
        wanted = [min(each.limits.nominal, each.period.high) for each in limited]
        lows = [max(e.limits.low, w) for e, w in zip(limited, wanted, strict=True)]
        self.fair_fraction = 0.0
        if left <= least_sum:
            now = [float(each.limits.low) for each in limited]
        elif left <= sum(lows):
            part = (left - least_sum) / (sum(lows) - least_sum)
            pairs = zip(limited, lows, strict=True)
            now = [e.limits.low + (low - e.limits.low) * part for e, low in pairs]
        else:
            pairs = zip(limited, lows, strict=True)
            claims = [
                Claim(max(float(low), e.demand.smoothed), low, e.limits.high) for e, low in pairs
            ]
            now, self.fair_fraction = share_out(left, claims)
        for level, low, seats in zip(limited, lows, now, strict=True):
            level.target = max(float(low), level.demand.smoothed)
            level.resize(round(seats), now_ns)


def _spec(obj: Object | None) -> object:
    return None if obj is None else (obj["metadata"].get("uid"), obj.get("spec"))


def _shares(spec: Object) -> Shares:
    part = spec.get("exempt") or spec.get("limited") or {}
    default = 0 if spec["type"] == "Exempt" else 30
    queuing = _queuing(spec)
    return Shares(
        part.get("nominalConcurrencyShares", default),
        part.get("lendablePercent") or 0,
        part.get("borrowingLimitPercent"),
        0 if queuing is None else queuing.hand_size,
    )


def _queuing(spec: Object) -> Queuing | None:
    response = (spec.get("limited") or {}).get("limitResponse") or {}
    found = response.get("queuing")
    if response.get("type") != "Queue" or found is None:
        return None
    return Queuing(found["queues"], found["handSize"], found["queueLengthLimit"])
