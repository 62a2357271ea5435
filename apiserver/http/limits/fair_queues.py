"""Requests in priority and fairness.

    waiting = queues.enter(context)                       None: go on; TooManyError: refused
    await waiting                                         until there are seats; TooManyError
    queues.note_writing(reply)                            its answer is being written
    queues.settled(reply)                                 a watch has sent what it begins with
    queues.leave(reply, now_ns)                           its answer is written

Streams to kubelets are exempt. A watch holds seats until its client has the initial events. A write
with many watchers keeps its seats for a while.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Final
from weakref import WeakKeyDictionary

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.limits.route_flows import RouteFlows
from kvstack.apiserver.http.limits.too_many import TooManyError
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.routing import REQUEST_TIMEOUT_NS, Route
from kvstack.apiserver.policy.flow_control.control import FlowControl
from kvstack.apiserver.policy.flow_control.levels import CANCELLED, Flow, Ticket
from kvstack.apiserver.policy.flow_control.retry import RetryAfter
from kvstack.apiserver.policy.flow_control.work import (
    ONE_SEAT,
    Objects,
    Work,
    list_seats,
    write_work,
)
from kvstack.apiserver.registry.collection import Collection
from kvstack.component.clock import Clock

WAIT_NS_MAX: Final = 60_000_000_000
WAIT_SHARE: Final = 4
"""A request waits for at most a quarter of its timeout."""
USERS_MAX: Final = 256
"""Number of users per route whose flows are cached."""
LINGER_NS_MIN: Final = 1_000_000
"""Shorter lingering is skipped."""
_SAMPLE: Final = 8
_MUTATING: Final = frozenset(("create", "update", "patch", "delete"))

WatchCount = Callable[[Collection], int]


class FairQueues:
    """Admits requests as seats become free."""

    def __init__(self, control: FlowControl, clock: Clock, watch_count: WatchCount) -> None:
        """watch_count: returns the number of watches of a collection."""
        self.control: Final = control
        self._clock: Final = clock
        self._watch_count: Final = watch_count
        # Collections of custom resources go with their definitions.
        self._sizes: Final = WeakKeyDictionary[Collection, Objects]()
        self._retries: dict[str, RetryAfter] = {}

    def enter(self, context: RequestContext) -> Awaitable[None] | None:
        """Enter a request; None: it is admitted, else it has to wait. Raises TooManyError."""
        reply, route, now_ns = context.reply, context.route, context.began_ns
        verb = route.verb
        if verb == "connect":
            return None
        flow = self._flow(route, context.user)
        reply.extra += flow.headers
        level = flow.level
        if verb == "get" or level.is_exempt:
            work = ONE_SEAT
        else:
            work = self._work(route, level.limits.request_max)
        ticket = level.enter(flow, work.seats, now_ns)
        if ticket is None:
            raise self._refusal(level.name)
        ticket.linger_ns = work.extra_ns
        reply.ticket = ticket
        return None if ticket.is_started else self._wait(ticket, route)

    def note_writing(self, reply: Reply) -> None:
        """Note that a request is done except for writing its answer."""
        ticket = reply.ticket
        if ticket is not None:
            ticket.flow.level.note_writing(ticket, self._clock.monotonic_ns())

    def settled(self, reply: Reply) -> None:
        """Note that a watch has begun."""
        self.leave(reply, self._clock.monotonic_ns())

    def leave(self, reply: Reply, now_ns: int) -> None:
        """Release the seats of a request, if it had any; further calls do nothing."""
        ticket = reply.ticket
        if ticket is None:
            return
        reply.ticket = None
        if not ticket.is_started:
            ticket.flow.level.give_up(ticket, now_ns, CANCELLED)
        elif ticket.linger_ns < LINGER_NS_MIN:
            ticket.flow.level.leave(ticket, now_ns)
        else:
            asyncio.get_running_loop().call_later(ticket.linger_ns * 1e-9, self._leave_late, ticket)

    def _leave_late(self, ticket: Ticket) -> None:
        ticket.flow.level.leave(ticket, self._clock.monotonic_ns())

    def _flow(self, route: Route, user: User) -> Flow:
        flows, generation = route.flows, self.control.generation
        if flows is None or flows.generation != generation:
            flows = RouteFlows(generation)
            route.flows = flows
        if flows.last is not None and flows.last_user is user:
            return flows.last
        key = user.name, user.groups
        flow = flows.by_user.get(key)
        if flow is None:
            flow = self.control.flow_of(user, route.info)
            if self.control.generation != generation:
                return flow
            if len(flows.by_user) >= USERS_MAX:
                flows.by_user.clear()
            flows.by_user[key] = flow
        flows.last_user, flows.last = user, flow
        return flow

    async def _wait(self, ticket: Ticket, route: Route) -> None:
        loop = asyncio.get_running_loop()
        started: asyncio.Future[None] = loop.create_future()

        def settle() -> None:
            if not started.done():
                started.set_result(None)

        def give_up() -> None:
            ticket.flow.level.give_up(ticket, self._clock.monotonic_ns())
            settle()

        ticket.on_start = settle
        whole_ns = REQUEST_TIMEOUT_NS if route.verb in _MUTATING else route.timeout_ns
        limit_ns = min(whole_ns, route.timeout_ns * WAIT_SHARE) // WAIT_SHARE
        timer = loop.call_later(min(limit_ns, WAIT_NS_MAX) * 1e-9, give_up)
        try:
            await started
        finally:
            timer.cancel()
        if not ticket.is_started:
            raise self._refusal(ticket.flow.level.name)

    def _refusal(self, level: str) -> TooManyError:
        retry = self._retries.setdefault(level, RetryAfter())
        return TooManyError(retry.refused(self._clock.unix_ms() // 1000))

    # Estimation of work.

    def _work(self, route: Route, seats_max: int) -> Work:
        endpoint, verb = route.endpoint, route.verb
        if endpoint is None or endpoint.collection is None:
            return ONE_SEAT
        if verb in _MUTATING:
            if route.info.subresource == "token":
                return ONE_SEAT
            return write_work(self._watch_count(endpoint.collection), seats_max)
        if verb != "list" and not (verb == "watch" and _begins_with_state(route)):
            return ONE_SEAT
        seats = list_seats(
            self._objects(endpoint.collection),
            _limit(route.query.get("limit")),
            seats_max,
            is_one=bool(route.info.name),
            is_streamed=verb == "watch" or not _is_of_the_past(route),
            selects=bool(route.info.field_selector or route.info.label_selector),
        )
        return Work(seats, 0)

    def _objects(self, collection: Collection) -> Objects:
        """Return the objects of a collection; their size is estimated when the number changes."""
        count = collection.count()
        known = self._sizes.get(collection)
        if known is None or not known.number * 0.9 <= count <= known.number * 1.1:
            sizes = [len(each.body) for each in islice(collection.between(), _SAMPLE)]
            average = sum(sizes) // len(sizes) if sizes else 0
            known = self._sizes[collection] = Objects(count, average)
        return known


def _limit(values: list[str] | None) -> int:
    text = values[0] if values else ""
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _is_of_the_past(route: Route) -> bool:
    query = route.query
    return bool(route.at or "continue" in query or query.get("resourceVersionMatch") == ["Exact"])


def _begins_with_state(route: Route) -> bool:
    query = route.query
    if (query.get("sendInitialEvents") or [""])[0] in ("true", "1"):
        return True
    return (query.get("resourceVersion") or [""])[0] in ("", "0")
