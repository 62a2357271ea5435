"""Which placed pods matter to a pod that affinity or topology spread refused.

    may_attract(pod, change)    a pod came, or has other labels: it may be whom the pod looks for
    may_clear(pod, change)      a pod is gone, or has other labels: it may be whom the pod avoids

Labels of namespaces are not known here: a term that asks for them may mean any namespace.
"""

from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from kvstack.agents.scheduler.plugins.pod_topology_spread import own_selector
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, PodMatch

Object: TypeAlias = dict[str, Any]

_HARD: Final = "DoNotSchedule"


class Change(Protocol):
    """A pod before and after."""

    @property
    def old(self) -> Object | None:
        """None: it is new."""
        ...

    @property
    def new(self) -> Object | None:
        """None: it is gone."""
        ...


class _Read(NamedTuple):
    obj: Object
    info: PodInfo


_last: list[_Read] = []
"""The pods read last: one change is asked about for every pod that waits."""
_KEPT: Final = 4


def may_attract(pod: PodInfo, change: Change) -> bool:
    """Whether a pod that changed is now meant by all terms of a waiting pod's affinity."""
    terms = pod.affinity.required
    if not terms or change.new is None:
        return False
    now = _info(change.new)
    if not all(_may_mean(term.match, now) for term in terms):
        return False
    if change.old is None:
        return True
    before = _info(change.old)
    return not all(_may_mean(term.match, before) for term in terms)


def may_clear(pod: PodInfo, change: Change) -> bool:
    """Whether a pod that changed was avoided by a waiting pod, or avoided it, and is no more."""
    if change.old is None:
        return False
    before = _info(change.old)
    own = pod.anti_affinity.required
    if change.new is None:
        return any(_may_mean(term.match, before) for term in own) or any(
            _may_mean(term.match, pod) for term in before.anti_affinity.required
        )
    now = _info(change.new)
    return any(_may_mean(term.match, before) and not _may_mean(term.match, now) for term in own)


def labels_matter(pod: PodInfo, change: Change) -> bool:
    """Whether other labels of a placed pod may help a pod that affinity refused."""
    return may_attract(pod, change) or may_clear(pod, change)


def changes_spread(pod: PodInfo, change: Change) -> bool:
    """Whether a placed pod counts, or has counted, for a constraint that must hold."""
    states = [_info(obj) for obj in (change.old, change.new) if obj is not None]
    own = pod.spec.get("topologySpreadConstraints") or ()
    if not own:  # those of the configuration refused it, which are not known here
        return any(state.namespace == pod.namespace for state in states)
    for each in own:
        if each["whenUnsatisfiable"] != _HARD:
            continue
        selector = own_selector(each, pod)
        counted = [
            state.namespace == pod.namespace and selector.matches(state.labels) for state in states
        ]
        if any(counted) and (len(counted) == 1 or counted[0] != counted[1]):
            return True
    return False


def _may_mean(match: PodMatch, pod: PodInfo) -> bool:
    if match.is_of_names and pod.namespace not in match.namespaces:
        return False
    return match.selector.matches(pod.labels)


def _info(obj: Object) -> PodInfo:
    for each in _last:
        if each.obj is obj:
            return each.info
    found = _Read(obj, PodInfo(obj, placed=True))
    _last.append(found)
    del _last[:-_KEPT]
    return found.info
