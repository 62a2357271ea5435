"""Which changes of bound pods matter to a waiting pod.

    may_attract(pod, change)    a pod came, or has other labels: it may be whom the pod looks for
    may_clear(pod, change)      a pod is gone, or has other labels: it may be whom the pod avoids
    frees_volume(pod, change)   a pod is gone: it may have used a volume that the pod wants

Labels of namespaces are not known here: a term that asks for them may mean any namespace.
"""

from typing import Final, NamedTuple

from kvstack.agents.scheduler.events.changes import Change
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo, PodMatch
from kvstack.agents.scheduler.snapshot.storage import DISKS, claim_names
from kvstack.agents.scheduler.spread_selectors import own_selector
from kvstack.apimachinery.objects.json_object import Object

_HARD: Final = "DoNotSchedule"


class _Read(NamedTuple):
    obj: Object
    info: PodInfo


_last: list[_Read] = []
"""The pods read last: one change is asked about for every pod that waits."""
_KEPT: Final = 4


def may_attract(pod: PodInfo, change: Change) -> bool:
    """Whether a changed pod now matches all terms of a waiting pod's affinity."""
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
    """Whether an anti-affinity between a changed pod and a waiting pod no longer applies."""
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
    """Whether other labels of a bound pod may help a pod that affinity refused."""
    return may_attract(pod, change) or may_clear(pod, change)


def changes_spread(pod: PodInfo, change: Change) -> bool:
    """Whether a bound pod counts, or has counted, for a constraint that must be satisfied."""
    states = [_info(obj) for obj in (change.old, change.new) if obj is not None]
    own = hard_constraints(pod)
    if own is None:  # those of the configuration refused it, which are not known here
        return any(state.namespace == pod.namespace for state in states)
    for each in own:
        selector = own_selector(each, pod)
        counted = [
            state.namespace == pod.namespace and selector.matches(state.labels) for state in states
        ]
        if any(counted) and (len(counted) == 1 or counted[0] != counted[1]):
            return True
    return False


def hard_constraints(pod: PodInfo) -> list[Object] | None:
    """Return a pod's own constraints that must hold; None: those of the configuration count."""
    own = pod.spec.get("topologySpreadConstraints")
    return [each for each in own if each["whenUnsatisfiable"] == _HARD] if own else None


def frees_resources(pod: PodInfo, change: Change) -> bool:
    """Whether a bound pod requests less of a resource that a waiting pod requests."""
    if change.old is None or change.new is None:
        return True
    before, now = _info(change.old).requests, _info(change.new).requests
    return any(now.get(name, 0) < before.get(name, 0) for name in pod.requests)


def frees_port(pod: PodInfo, change: Change) -> bool:
    """Whether a deleted pod used a host port that a waiting pod requests."""
    if change.old is None:
        return False
    wanted = {port[:2] for port in pod.ports}
    return any(port[:2] in wanted for port in _info(change.old).ports)


def frees_volume(pod: PodInfo, change: Change) -> bool:
    """Whether a deleted pod used a claim, or a kind of disk, that a waiting pod uses."""
    if change.old is None or _info(change.old).namespace != pod.namespace:
        return False
    return not _volumes(pod).isdisjoint(_volumes(_info(change.old)))


def had_claims(_pod: PodInfo, change: Change) -> bool:
    """Whether a deleted pod had volumes that count for the limits of a node's drivers."""
    if change.old is None:
        return False
    return bool(claim_names(change.old)) or any(
        volume.get(kind) for volume in change.old["spec"].get("volumes") or () for kind in DISKS
    )


def _volumes(pod: PodInfo) -> set[str]:
    found = {name for name, _ in claim_names(pod.obj)}
    for volume in pod.spec.get("volumes") or ():
        found.update(f"{kind}/" for kind in DISKS if volume.get(kind))
    return found


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
