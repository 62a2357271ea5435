"""In-place resize of a pod: its allocation, and the progress of a change.

    spec (asked for) ─► allocated (the node has room) ─► applied (the containers have it)
         └ PodResizePending: Deferred, Infeasible  └ PodResizeInProgress

The node counts with what is allocated, and containers start with it. A container that runs is given
other limits while it runs, or starts again, as its resizePolicy says for what changed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.core.pod_resources import COMPUTE, LIMITS, REQUESTS
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse

Resources: TypeAlias = dict[str, Object]
"""By name of the container."""

PENDING: Final = "PodResizePending"
IN_PROGRESS: Final = "PodResizeInProgress"
CONDITIONS: Final = (PENDING, IN_PROGRESS)
DEFERRED: Final = "Deferred"
INFEASIBLE: Final = "Infeasible"
ERROR: Final = "Error"
_LISTS: Final = ("initContainers", "containers")
_RESTART: Final = "RestartContainer"


class Note(NamedTuple):
    """The reason and message of a condition."""

    reason: str = ""
    message: str = ""


@dataclass(slots=True)
class Resize:
    """The state of a pod's resize."""

    allocated: Resources | None = None
    """None: none yet."""
    applied: Resources = field(default_factory=dict)
    """The resources of containers that run with others than allocated."""
    pending: Note | None = None
    progress: Note | None = None
    restarting: set[str] = field(default_factory=set)
    """Ids of containers that end because of it, and start again."""
    deferred_s: float = 0.0
    """Since when it waits."""


def resources_of(pod: Object) -> Resources:
    """Return what the containers of a pod ask for and are limited to."""
    spec = pod["spec"]
    return {
        each["name"]: each.get("resources") or {}
        for name in _LISTS
        for each in spec.get(name) or ()
    }


def with_resources(pod: Object, resources: Mapping[str, Object] | None) -> Object:
    """Return a pod whose containers ask for something else; the pod itself if it is the same."""
    if not resources or all(
        each == resources.get(name, each) for name, each in resources_of(pod).items()
    ):
        return pod
    spec = dict(pod["spec"])
    for name in _LISTS:
        if spec.get(name):
            spec[name] = [_with(each, resources) for each in spec[name]]
    return {**pod, "spec": spec}


def _with(container: Object, resources: Mapping[str, Object]) -> Object:
    own = container.get("resources") or {}
    found = resources.get(container["name"], own)
    return container if found == own else {**container, "resources": found}


def changed(one: Object, other: Object) -> list[str]:
    """Return which of cpu and memory two resources have different amounts of."""
    return [
        name
        for name in COMPUTE
        if any(_amount(one, member, name) != _amount(other, member, name) for member in _MEMBERS)
    ]


_MEMBERS: Final = (REQUESTS, LIMITS)


def _amount(resources: Object, member: str, name: str) -> object:
    text = (resources.get(member) or {}).get(name)
    return None if text is None else parse(str(text))


def is_same(one: Mapping[str, Object], other: Mapping[str, Object]) -> bool:
    """Whether containers have the same resources; those that only one side has do not count."""
    return not any(changed(each, other[name]) for name, each in one.items() if name in other)


def restarts(container: Object, before: Object) -> bool:
    """Whether a container has to be restarted for its new resources."""
    policies = {
        each["resourceName"]: each["restartPolicy"] for each in container.get("resizePolicy") or ()
    }
    own = container.get("resources") or {}
    return any(policies.get(name) == _RESTART for name in changed(own, before))


def conditions_of(resize: Resize) -> Sequence[tuple[str, Note]]:
    """Return the conditions that hold."""
    both = ((PENDING, resize.pending), (IN_PROGRESS, resize.progress))
    return [(type_, told) for type_, told in both if told is not None]
