"""Protection of claims that pods use, and of bound volumes, from deletion.

    claim:  finalizer kubernetes.io/pvc-protection, until no scheduled pod uses it
    volume: finalizer kubernetes.io/pv-protection, until it is not bound

Before a claim is released the server is asked whether a pod uses it. The condition
`Unused` of bound claims shows whether a pod that has not ended refers to them.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.storage.finalizers import finalizers_of, hold, let_go
from kvstack.agents.controllers.storage.pod_claims import (
    CLAIMS_INDEX,
    claim_names,
    claims_of_pod,
    is_made_for,
)
from kvstack.agents.reconcile.plan import (
    BaseController,
    Identity,
    Index,
    ListLive,
    Outcome,
    Plan,
    Step,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.well_known import CLAIM_FINALIZER, VOLUME_FINALIZER

_Uses: TypeAlias = Callable[[Object, Object], bool]

_UNUSED: Final = "Unused"
_USED: Final = ("False", "PodUsingPVC", "A pod is currently referencing this PVC")
_NOT_USED: Final = ("True", "NoPodsUsingPVC", "No pods are currently referencing this PVC")


class ClaimProtection(BaseController):
    """Protects claims in use."""

    workers = 1
    indexes: Sequence[Index] = (Index(PODS, CLAIMS_INDEX, claims_of_pod),)

    def __init__(self) -> None:
        """Watch claims and pods."""
        name = "persistentvolumeclaim-protection-controller"
        self.identity: Identity = Identity(name, "pvc-protection-controller", name)
        self.watches: Sequence[Watch] = (
            Watch(PERSISTENT_VOLUME_CLAIMS, _keys),
            Watch(PODS, _keys_of_pod),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one claim."""
        claim = view.get(PERSISTENT_VOLUME_CLAIMS, key)
        if claim is None:
            return None
        pods = view.by_index(PODS, CLAIMS_INDEX, key)
        if is_deleting(claim):
            if CLAIM_FINALIZER in finalizers_of(claim):
                is_used = yield from _is_used(claim, pods, _holds)
                if not is_used:
                    yield from let_go(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER)
            return None
        if (claim.get("status") or {}).get("phase") == "Bound":
            is_used = yield from _is_used(claim, pods, _refers)
            claim = yield from self._set_condition(claim, now_s, is_used=is_used)
        if CLAIM_FINALIZER not in finalizers_of(claim):
            yield from hold(PERSISTENT_VOLUME_CLAIMS, claim, CLAIM_FINALIZER)
        return None

    def _set_condition(
        self, claim: Object, now_s: float, *, is_used: bool
    ) -> Generator[Step, list[Outcome], Object]:
        """Keep the condition; return the claim as it is then."""
        status, reason, message = _USED if is_used else _NOT_USED
        known = claim["status"].get("conditions")
        condition = conditions.find(known, _UNUSED)
        if condition is not None and (condition["status"] == "True") == (status == "True"):
            return claim
        new = {
            "type": _UNUSED,
            "status": status,
            "lastTransitionTime": format_time(now_s),
            "reason": reason,
            "message": message,
        }
        updated = conditions.replaced(known, new)
        wanted = {**claim, "status": {**claim["status"], "conditions": updated}}
        return (yield from do(Update(PERSISTENT_VOLUME_CLAIMS, wanted, "status")))


class VolumeProtection(BaseController):
    """Protects bound volumes."""

    workers = 1

    def __init__(self) -> None:
        """Watch volumes."""
        name = "persistentvolume-protection-controller"
        self.identity: Identity = Identity(name, "pv-protection-controller", name)
        self.watches: Sequence[Watch] = (Watch(PERSISTENT_VOLUMES, _keys),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one volume."""
        volume = view.get(PERSISTENT_VOLUMES, key)
        if volume is None:
            return None
        is_held = VOLUME_FINALIZER in finalizers_of(volume)
        if is_deleting(volume):
            if is_held and (volume.get("status") or {}).get("phase") != "Bound":
                yield from let_go(PERSISTENT_VOLUMES, volume, VOLUME_FINALIZER)
        elif not is_held:
            yield from hold(PERSISTENT_VOLUMES, volume, VOLUME_FINALIZER)
        return None


def _is_used(
    claim: Object, known: Iterable[Object], uses: _Uses
) -> Generator[Step, list[Outcome], bool]:
    """Return whether a pod uses a claim; if none does, the server is asked to make sure."""
    if any(uses(pod, claim) for pod in known):
        return True
    listed = yield from do(ListLive(PODS, claim["metadata"]["namespace"]))
    return any(uses(pod, claim) for pod in listed["items"])


def _holds(pod: Object, claim: Object) -> bool:
    """Whether a scheduled pod uses a claim; one made for it counts until the pod has ended."""
    if not pod["spec"].get("nodeName"):
        return False
    meta = pod["metadata"]
    is_shut_down = is_deleting(pod) and meta.get("deletionGracePeriodSeconds") == 0
    return any(
        name == claim["metadata"]["name"]
        and (not is_own or (not is_shut_down and is_made_for(claim, pod)))
        for name, is_own in claim_names(pod)
    )


def _refers(pod: Object, claim: Object) -> bool:
    """Whether a pod that has not ended refers to a claim."""
    if is_ended(pod):
        return False
    return any(
        name == claim["metadata"]["name"] and (not is_own or is_made_for(claim, pod))
        for name, is_own in claim_names(pod)
    )


def _keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None:
        yield key_of(new)


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    for pod in (old, new):
        if pod is not None:
            yield from claims_of_pod(pod)
