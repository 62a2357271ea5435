"""Taints of nodes: which tolerations fit, and how they are changed.

A change is a patch of the whole list, under the condition of the node's version; one that meets
another is made anew from the node as it is then.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import NODES
from kvstack.agents.reconcile.plan import Get, Outcome, Patch, Step, do
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

Taint: TypeAlias = tuple[str, str]
"""Key and effect, which identify a taint."""

_TRIES: Final = 5


def taints_of(node: Object) -> list[Object]:
    """Return the taints of a node."""
    return node["spec"].get("taints") or []


def name_of(taint: Object) -> Taint:
    """Return the key and effect, which identify a taint."""
    return taint["key"], taint["effect"]


def has_taint(node: Object, taint: Taint) -> bool:
    """Whether a node has a taint."""
    return any(name_of(each) == taint for each in taints_of(node))


def change_taints(
    node: Object, added: Sequence[Taint], removed: Iterable[Taint], now_s: float
) -> Generator[Step, list[Outcome], Object]:
    """Give a node taints, and take others away; return it as it is then."""
    gone = frozenset(removed)
    current = node
    for attempt in range(_TRIES):
        known = taints_of(current)
        remaining = [each for each in known if name_of(each) not in gone]
        names = {name_of(each) for each in remaining}
        new = [
            {"key": key, "effect": effect, "timeAdded": format_time(now_s)}
            for key, effect in added
            if (key, effect) not in names
        ]
        if not new and len(remaining) == len(known):
            return current
        meta = current["metadata"]
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "spec": {"taints": [*remaining, *new] or None},
        }
        try:
            return (yield from do(Patch(NODES, "", meta["name"], body, STRATEGIC_MERGE_PATCH)))
        except ApiError as error:
            if not error.is_conflict or attempt == _TRIES - 1:
                raise
        current = yield from do(Get(NODES, "", meta["name"]))
    return current
