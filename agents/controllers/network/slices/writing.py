"""Writes the changes of slices: creations, then updates, then deletions."""

from collections.abc import Generator

from kvstack.agents.client.built_in import ENDPOINT_SLICES
from kvstack.agents.controllers.network.slices.packing import Changes
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.reconcile.plan import Create, Delete, Outcome, Step, Update
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain


def name_prefix(name: str) -> str:
    """Return what names of an owner's slices begin with."""
    prefix = f"{name}-"
    return name if name_is_dns_subdomain(prefix, True) else prefix


def write(owner: Object, changes: Changes) -> Generator[Step, list[Outcome], list[Object]]:
    """Carry changes out; raises the first error of those that are done side by side.

    Returns the slices as they are then, but those deleted.
    """
    written: list[Object] = []
    namespace = owner["metadata"]["namespace"]
    if changes.create and not is_deleting(owner):
        outcomes = yield [Create(ENDPOINT_SLICES, namespace, each) for each in changes.create]
        for outcome in outcomes:
            if outcome.is_namespace_terminating:
                return written
            written.append(outcome.result())
    if changes.update:
        outcomes = yield [Update(ENDPOINT_SLICES, each) for each in changes.update]
        written += [outcome.result() for outcome in outcomes]
    if changes.delete:
        outcomes = yield [
            Delete(ENDPOINT_SLICES, namespace, each["metadata"]["name"]) for each in changes.delete
        ]
        for outcome in outcomes:
            if not outcome.is_not_found:
                outcome.result()
    return written
