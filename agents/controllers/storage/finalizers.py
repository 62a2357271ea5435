"""Protection finalizers: added to an object, and removed once it is unused."""

from collections.abc import Generator

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import Outcome, Step, Update, do
from kvstack.apimachinery.objects.json_object import Object


def finalizers_of(obj: Object) -> list[str]:
    """Return the finalizers of an object."""
    return obj["metadata"].get("finalizers") or []


def hold(
    resource: ResourceType, obj: Object, finalizer: str
) -> Generator[Step, list[Outcome], None]:
    """Put a finalizer on an object; raises a refusal."""
    meta = {**obj["metadata"], "finalizers": [*finalizers_of(obj), finalizer]}
    yield from do(Update(resource, {**obj, "metadata": meta}))


def let_go(
    resource: ResourceType, obj: Object, finalizer: str
) -> Generator[Step, list[Outcome], None]:
    """Remove a finalizer of an object; raises a refusal."""
    rest = [each for each in finalizers_of(obj) if each != finalizer]
    meta = {**obj["metadata"], "finalizers": rest}
    yield from do(Update(resource, {**obj, "metadata": meta}))
