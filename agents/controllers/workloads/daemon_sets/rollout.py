"""Which pods of a DaemonSet a rollout replaces.

without surge   an old pod is deleted, then a new one is made on its node
with surge      a new pod is made beside the old one, which is deleted once that is available
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.pod_rules import is_available
from kvstack.apimachinery.objects.int_or_string import scaled
from kvstack.apimachinery.objects.json_object import Object


class Limits(NamedTuple):
    """The maximum number of nodes without an available pod, and with two pods."""

    surge: int
    unavailable: int


class Changes(NamedTuple):
    """The next changes."""

    deletions: list[Object]
    nodes: list[str]
    """The nodes that need a pod."""


class Nodes(NamedTuple):
    """The nodes as they are."""

    pods: Mapping[str, Sequence[Object]]
    """Pods by node, with empty entries for nodes that need one."""
    should_run: frozenset[str]
    new: frozenset[str]
    """The uids of pods of the current template."""
    min_ready_s: int
    now_s: float

    def is_available(self, pod: Object) -> bool:
        """Whether a pod has been ready for long enough."""
        return is_available(pod, self.min_ready_s, self.now_s)


def limits(daemon_set: Object, desired: int) -> Limits:
    """Return the limits; desired: on how many nodes pods should run."""
    strategy = daemon_set["spec"].get("updateStrategy") or {}
    rolling = strategy.get("rollingUpdate")
    if strategy.get("type") != "RollingUpdate" or rolling is None:
        surge = unavailable = 0
    else:
        surge = scaled(rolling.get("maxSurge", 0), desired, round_up=True)
        unavailable = scaled(rolling.get("maxUnavailable", 1), desired, round_up=True)
    if desired and not surge and not unavailable:
        unavailable = 1
    return Limits(surge, unavailable)


def allows_surge(daemon_set: Object) -> bool:
    """Whether a node may have an old and a new pod at once."""
    return limits(daemon_set, 1).surge > 0


def replaced(nodes: Nodes, allowed: Limits) -> Changes:
    """Return the next step of a rollout."""
    return _surged(nodes, allowed.surge) if allowed.surge else _deleted(nodes, allowed.unavailable)


def _on_node(nodes: Nodes, pods: Sequence[Object]) -> tuple[Object | None, Object | None] | None:
    """Return the new and the old pod of a node; None: it has several of a kind."""
    staying = [pod for pod in pods if not is_deleting(pod)]
    new = [pod for pod in staying if pod["metadata"]["uid"] in nodes.new]
    old = [pod for pod in staying if pod["metadata"]["uid"] not in nodes.new]
    if len(new) > 1 or len(old) > 1:
        return None
    return (new[0] if new else None), (old[0] if old else None)


def _deleted(nodes: Nodes, unavailable_max: int) -> Changes:
    """Delete old pods: all that are not available, and as many others as may be missing."""
    unavailable = 0
    free: list[Object] = []
    others: list[Object] = []
    for pods in nodes.pods.values():
        found = _on_node(nodes, pods)
        if found is None:
            unavailable += 1
            continue
        new, old = found
        if (new is None) == (old is None):
            unavailable += 1
        elif new is not None:
            unavailable += not nodes.is_available(new)
        elif old is not None and not nodes.is_available(old):
            free.append(old)
            unavailable += 1
        elif old is not None:
            others.append(old)
    return Changes([*free, *others[: max(unavailable_max - unavailable, 0)]], [])


def _surged(nodes: Nodes, surge_max: int) -> Changes:
    """Make new pods beside old ones, and delete old ones whose successor is available."""
    deletions: list[Object] = []
    misplaced: list[Object] = []
    free: list[str] = []
    others: list[str] = []
    surge = available = 0
    for node, pods in nodes.pods.items():
        found = _on_node(nodes, pods)
        if found is None:
            surge += 1
            continue
        new, old = found
        shown = new if old is None else old
        available += shown is not None and nodes.is_available(shown)
        if old is None:
            continue
        if new is None:
            is_up = nodes.is_available(old)
            if node in nodes.should_run:
                (others if is_up else free).append(node)
            else:
                (misplaced if is_up else deletions).append(old)
        elif nodes.is_available(new):
            deletions.append(old)
        else:
            surge += 1
    # A pod where none should run stays until another is available in its place.
    spare = max(available - len(nodes.should_run), 0)
    return Changes([*deletions, *misplaced[:spare]], [*free, *others[: max(surge_max - surge, 0)]])
