"""Runs one controller: changes become keys, keys become plans, plans are executed.

    informers ─► keys ─► queue ─► worker ─► reconcile ─► executor
                           ▲                               │
                           └────── again, or after a failure

A key is not worked on while the view lacks what was written for it before (`own_writes`), nor
again at once if its plan took long to make (`throttle`).
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kvstack.agents.client.activity import Activity, Due, Moving
from kvstack.agents.client.api import Api
from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.rate_limiter import TokenBucket
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.client.work_queue import QueueClosedError, WorkQueue
from kvstack.agents.reconcile.executor import Executor
from kvstack.agents.reconcile.own_writes import OwnWrites
from kvstack.agents.reconcile.plan import (
    Again,
    BackOff,
    Controller,
    Enqueue,
    Follow,
    ForeseenError,
    Later,
    Retry,
    View,
)
from kvstack.agents.reconcile.skipped_looks import SkippedLooks
from kvstack.agents.reconcile.store_view import StoreView
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.client.informer import Handler, Informer
    from kvstack.agents.client.object_store import ObjectStore
    from kvstack.agents.client.resource_type import ResourceType


_UNSEEN_S: Final = 0.5
"""A key whose writes are not seen is checked again after this, unless a change triggers it."""
_BUCKET_PER_S: Final = 10.0
_BUCKET_BURST: Final = 100
_FOLLOWED_S: Final = 30.0
"""The timeout of waits for newly followed resources."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What all runners of a process share."""

    informers: Informers
    clock: Clock
    random: Callable[[], float]
    logger: Logger
    workers: Mapping[str, int] = field(default_factory=dict)
    """The number of workers by the controller's name; others define it themselves."""
    skips_looks: bool = False
    """Whether periodic reconciles that would do nothing are left out: in virtual time each has a
    cost. The results are the same, at the same times."""
    served: Callable[[], int] | None = None
    """Returns what changes whenever discovery would find something else; see `Executor`."""


class Work(NamedTuple):
    """The work of a controller, in keys."""

    waiting: int
    added: int
    retried: int


class Runner:
    """Runs one controller until it is stopped."""

    def __init__(self, controller: Controller, api: Api, environment: Environment) -> None:
        """api: that of the controller's own user."""
        self.controller: Final = controller
        self._environment = environment
        clock = environment.clock
        self._clock = clock
        self._logger = environment.logger
        self._stores: dict[ResourceType, ObjectStore] = {}
        self._view: View = StoreView(self._stores)
        self._recorder = EventRecorder(
            api,
            controller.identity.event_component,
            clock,
            environment.random,
            environment.logger,
        )
        self._own_writes = OwnWrites(self._stores.get, clock)
        self._executor = Executor(
            api, self._recorder, self._own_writes, self, clock, environment.served
        )
        self._followed: dict[ResourceType, tuple[Informer, Handler]] = {}
        self._queue: WorkQueue[str] = WorkQueue(clock, _back_off(controller.back_off, clock))
        self._static: frozenset[ResourceType] = frozenset()
        self._resting: set[str] = set()
        """Keys that wait until they have rested."""
        self._routine: set[str] = set()
        """Keys that come again for a look around."""
        self._looks: Final = SkippedLooks(self._queue, clock) if environment.skips_looks else None
        self._workers: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Follow the controller's resources, and work once all are synced."""
        controller, informers = self.controller, self._environment.informers
        followed = []
        for watch in controller.watches:
            informer = informers.of(watch.resource, metadata_only=watch.metadata_only)
            self._stores[watch.resource] = informer.store
            followed.append(informer)
        for resource in controller.reads:
            informer = informers.of(resource)
            self._stores[resource] = informer.store
            followed.append(informer)
        self._static = frozenset(self._stores)
        for index in controller.indexes:
            self._stores[index.resource].add_index(index.name, index.values_of)
        for informer in followed:
            await informer.synced()
        if self._looks is not None:
            for informer in dict.fromkeys(followed):
                informer.on_change(self._looks.changed)
        for watch in controller.watches:
            informer = informers.of(watch.resource, metadata_only=watch.metadata_only)
            informer.on_change(self._handler(watch.keys))
        self._add(controller.initial_keys())
        loop = asyncio.get_running_loop()
        name = controller.identity.name
        workers = self._environment.workers.get(name, controller.workers)
        self._workers = [
            loop.create_task(self._work(), name=f"{name} {number}") for number in range(workers)
        ]

    async def stop(self) -> None:
        """End; what is under way is broken off."""
        self._queue.close()
        for task in self._workers:
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await self._recorder.close()

    @property
    def is_working(self) -> bool:
        """Whether it has started, and none of its workers has ended."""
        return bool(self._workers) and not any(task.done() for task in self._workers)

    @property
    def is_idle(self) -> bool:
        """Whether no work is pending."""
        return self._queue.is_idle and not self._resting

    def add_activity(self, activity: Activity) -> None:
        """Add the keys that are worked on, and what is due later."""
        name = self.controller.identity.name
        for key, is_worked_on in self._queue.in_hand():
            why = "is worked on" if is_worked_on else "waits to be worked on"
            activity.moving.append(Moving(name, key, why))
        if not self._recorder.is_idle:
            activity.moving.append(Moving(name, "", "writes events"))
        for key, in_s in self._queue.due():
            if key not in self._routine:
                activity.due.append(Due(name, key, in_s))

    @property
    def work(self) -> Work:
        """The pending work, and counts since the start."""
        return Work(len(self._queue), self._queue.added, self._queue.retried)

    async def flushed(self) -> None:
        """Wait until recorded events are written."""
        await self._recorder.flushed()

    def _handler(
        self, keys: Callable[[Object | None, Object | None, View], Iterable[str | Later]]
    ) -> Callable[[Object | None, Object | None], None]:
        def handle(old: Object | None, new: Object | None) -> None:
            self._add(keys(old, new, self._view))

        return handle

    def _add(self, keys: Iterable[str | Later]) -> None:
        for key in keys:
            if isinstance(key, Later):
                self._routine.discard(key.key)
                self._queue.add_after(*key)
            else:
                self._queue.add(key)

    # What plans change.

    def enqueue(self, action: Enqueue) -> None:
        """Enqueue keys."""
        self._add(action.keys)

    async def follow(self, action: Follow) -> None:
        """Follow these resources by their metadata, and only these."""
        informers = self._environment.informers
        for resource in self._followed.keys() - action.resources:
            informer, handler = self._followed.pop(resource)
            informer.forget(handler)
            if self._looks is not None and resource not in self._static:
                informer.forget(self._looks.changed)
            if resource not in self._static:
                self._stores.pop(resource, None)
            await informers.leave(resource)
        new = [
            (resource, informers.follow(resource))
            for resource in sorted(action.resources - self._followed.keys())
        ]
        # Handlers are called only once everything is synced, so that no plan is made from a part.
        try:
            async with asyncio.timeout(_FOLLOWED_S):
                for _, informer in new:
                    await informer.synced()
        except TimeoutError:
            unknown = [str(resource) for resource, informer in new if not informer.is_synced]
            self._logger.warning(
                "resources are not known in time",
                controller=self.controller.identity.name,
                resources=unknown,
            )
        for resource, informer in new:
            self._stores.setdefault(resource, informer.store)
            handler = self._handler(partial(action.keys, resource))
            self._followed[resource] = (informer, handler)
            informer.on_change(handler)
            if self._looks is not None and resource not in self._static:
                informer.on_change(self._looks.changed)

    async def _work(self) -> None:
        while True:
            try:
                key = await self._queue.get()
            except QueueClosedError:
                return
            try:
                if rest_s := self._executor.throttle.rest_s(key):
                    self._resting.add(key)
                    self._queue.add_after(key, rest_s)
                    continue
                self._resting.discard(key)
                if self._own_writes.are_seen(key):
                    await self._reconcile(key)
                else:
                    self._queue.add_after(key, _UNSEEN_S)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: str) -> None:
        """Carry out the plan for a key; a failure has it tried again, whatever its cause."""
        plan = self.controller.reconcile(key, self._view, self._clock.now_s())
        try:
            again = await self._executor.carry_out(key, plan)
        except Exception as error:  # noqa: BLE001 - reported and tried again, whatever its cause
            self._routine.discard(key)
            self._failed(key, error)
            return
        self._routine.discard(key)
        if isinstance(again, Retry):
            self._queue.add_rate_limited(key)
            return
        self._queue.forget(key)
        if isinstance(again, Again):
            if again.is_routine:
                self._routine.add(key)
            if again.is_routine and self._looks is not None:
                self._looks.add(key, again)
            else:
                self._queue.add_after(key, again.after_s)

    def _failed(self, key: str, error: Exception) -> None:
        name = self.controller.identity.name
        is_expected = isinstance(error, ApiError | UnreachableError | ForeseenError)
        retries_max = self.controller.back_off.retries_max
        if retries_max is not None and self._queue.failures(key) >= retries_max:
            self._logger.error("given up", controller=name, key=key, error=str(error))
            self._queue.forget(key)
            return
        wait_s = self._queue.add_rate_limited(key)
        if self.controller.back_off.is_period:
            self._routine.add(key)
        if isinstance(error, ApiError) and error.is_conflict:
            say = self._logger.debug
        else:
            say = self._logger.warning if is_expected else self._logger.error
        text = str(error) if is_expected else repr(error)
        say("a sync failed", controller=name, key=key, error=text, again_in_s=round(wait_s, 3))


def _back_off(terms: BackOff, clock: Clock) -> FailureBackOff:
    bucket = TokenBucket(clock, _BUCKET_PER_S, _BUCKET_BURST) if terms.has_bucket else None
    return FailureBackOff(clock, terms.base_s, terms.max_s, bucket=bucket)
