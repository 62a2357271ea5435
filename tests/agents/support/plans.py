"""Carries plans out without a server: a view made of objects, and answers given by hand."""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeVar

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import Action, Outcome, SlowStart, Step
from kvstack.agents.reconcile.store_view import StoreView
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError

Answer = Object | Exception | None
T = TypeVar("T")


def view_of(
    objects: Mapping[ResourceType, Iterable[Object]],
    indexes: Iterable[Any] = (),
) -> StoreView:
    """Return a view of these objects; indexes: those of a controller."""
    stores: dict[ResourceType, ObjectStore] = {}
    for resource, found in objects.items():
        store = stores[resource] = ObjectStore()
        for obj in found:
            store.set(obj)
    for index in indexes:
        stores[index.resource].add_index(index.name, index.values_of)
    return StoreView(stores)


def refusal(code: int, text: str = "refused") -> ApiError:
    """Return the refusal of a server."""
    return ApiError({"kind": "Status", "code": code, "message": text, "reason": ""})


def drive(
    plan: Generator[Step, list[Outcome], T], answer: Callable[[Action], Answer] = lambda action: {}
) -> tuple[list[Action], T]:
    """Return what a plan asked for, in order, and what it returned; raises what it raises."""
    asked: list[Action] = []
    outcomes: list[Outcome] | None = None
    while True:
        try:
            step = next(plan) if outcomes is None else plan.send(outcomes)
        except StopIteration as end:
            return asked, end.value
        actions = step.actions if isinstance(step, SlowStart) else step
        outcomes = []
        for action in actions:
            asked.append(action)
            found = answer(action)
            if isinstance(found, Exception):
                outcomes.append(Outcome(action, error=found))
            else:
                outcomes.append(Outcome(action, found))
