"""Executes plans: sends their actions to the API, and returns the outcomes to them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kvstack.agents.client.api import JSON, METADATA, METADATA_LIST, Api
from kvstack.agents.client.discovery import Discoverer, Discovery
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.reconcile.own_writes import OwnWrites
from kvstack.agents.reconcile.plan import (
    Action,
    Again,
    Create,
    Delete,
    DeleteCollection,
    Discover,
    Enqueue,
    Follow,
    Get,
    InThread,
    ListLive,
    Outcome,
    Patch,
    Plan,
    Record,
    Retry,
    SlowStart,
    Step,
    Update,
)
from kvstack.agents.reconcile.throttle import Throttle
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock

_AT_ONCE_MAX: Final = 64


class Environment(Protocol):
    """What plans change of their own runner."""

    async def follow(self, action: Follow) -> None:
        """Watch these resources besides."""
        ...

    def enqueue(self, action: Enqueue) -> None:
        """Enqueue keys."""
        ...


class Executor:
    """Does what plans ask for, as one user."""

    def __init__(
        self,
        api: Api,
        recorder: EventRecorder,
        own_writes: OwnWrites,
        environment: Environment,
        clock: Clock,
        served: Callable[[], int] | None = None,
    ) -> None:
        """Send actions through an Api; writes are remembered by key.

        served: returns what changes whenever discovery would find something else; None: it is asked
        each time.
        """
        self._clock = clock
        self.throttle: Final = Throttle(clock)
        """The delays of keys, by the time that their plans took to make."""
        self._environment = environment
        self._api = api
        self._recorder = recorder
        self._own_writes = own_writes
        self._discoverer = Discoverer(api)
        self._served = served
        self._discovered: tuple[int, Discovery] | None = None

    async def carry_out(self, key: str, plan: Plan) -> Again | Retry | None:
        """Carry a plan out to its end; raises what it raises."""
        outcomes: list[Outcome] | None = None
        spent_s = 0.0
        now_s = self._clock.monotonic_s
        since_s = now_s()
        try:
            while True:
                step = next(plan) if outcomes is None else plan.send(outcomes)
                spent_s += now_s() - since_s
                outcomes = await self._do(key, step)
                since_s = now_s()
        except StopIteration as end:
            spent_s += now_s() - since_s
            again: Again | Retry | None = end.value
            return again
        finally:
            plan.close()
            self.throttle.took(key, spent_s)

    async def _do(self, key: str, step: Step) -> list[Outcome]:
        if isinstance(step, SlowStart):
            return await self._slowly(key, step.actions)
        if len(step) == 1:
            return [await self._execute(key, step[0])]
        return await self._side_by_side(key, step)

    async def _slowly(self, key: str, actions: Sequence[Action]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        size = 1
        while len(outcomes) < len(actions):
            batch = actions[len(outcomes) : len(outcomes) + size]
            done = await self._side_by_side(key, batch)
            outcomes += done
            if any(outcome.error is not None for outcome in done):
                rest = actions[len(outcomes) :]
                outcomes += [Outcome(action, is_skipped=True) for action in rest]
            size *= 2
        return outcomes

    async def _side_by_side(self, key: str, actions: Sequence[Action]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for first in range(0, len(actions), _AT_ONCE_MAX):
            batch = actions[first : first + _AT_ONCE_MAX]
            outcomes += await asyncio.gather(*(self._execute(key, action) for action in batch))
        return outcomes

    async def _execute(self, key: str, action: Action) -> Outcome:
        if isinstance(action, Record):
            self._recorder.record(action.about, action.type, action.reason, action.message)
            return Outcome(action)
        if isinstance(action, Enqueue):
            self._environment.enqueue(action)
            return Outcome(action)
        try:
            obj = await self._ask(action)
        except (ApiError, UnreachableError, OSError) as error:
            return Outcome(action, error=error)
        self._own_writes.note(key, action, obj)
        return Outcome(action, obj)

    async def _ask(self, action: Action) -> Object:
        api = self._api
        match action:
            case Create(resource, namespace, obj, name, subresource):
                return await api.create(
                    resource, namespace, obj, name=name, subresource=subresource
                )
            case Update(resource, obj, subresource):
                return await api.update(resource, obj, subresource=subresource)
            case Patch():
                return await api.patch(
                    action.resource,
                    action.namespace,
                    action.name,
                    action.body,
                    action.media_type,
                    subresource=action.subresource,
                    field_manager=action.field_manager,
                    force=action.force,
                )
            case Delete():
                return await api.delete(
                    action.resource,
                    action.namespace,
                    action.name,
                    uid=action.uid,
                    resource_version=action.resource_version,
                    propagation=action.propagation,
                    grace_s=action.grace_s,
                )
            case Get(resource, namespace, name, subresource, metadata_only, query):
                accept = METADATA if metadata_only else JSON
                return await api.get(
                    resource,
                    namespace,
                    name,
                    subresource=subresource,
                    accept=accept,
                    query=dict(query),
                )
            case ListLive(resource, namespace, labels, metadata_only):
                accept = METADATA_LIST if metadata_only else JSON
                items = await api.list_all(resource, namespace, labels=labels, accept=accept)
                return {"items": items}
            case DeleteCollection(resource, namespace, labels, propagation):
                return await api.delete_collection(
                    resource, namespace, labels=labels, propagation=propagation
                )
            case Discover():
                return {"found": await self._discover()}
            case Follow():
                await self._environment.follow(action)
                return {}
            case InThread(work):
                await asyncio.to_thread(work)
                return {}
            case Record() | Enqueue():
                raise AssertionError("these are done elsewhere")

    async def _discover(self) -> Discovery:
        """Return what is served; raises ApiError or UnreachableError."""
        if self._served is None:
            return await self._discoverer.discover()
        served, known = self._served(), self._discovered
        if known is None or known[0] != served:
            known = self._discovered = served, await self._discoverer.discover()
        return known[1]
