"""The Deployment controller: its triggers, and its sync."""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import DEPLOYMENTS, PODS, REPLICA_SETS
from kvstack.agents.client.object_store import key_of, split_key
from kvstack.agents.controllers.ownership import (
    CONTROLLER_INDEX,
    Claim,
    OwnerKeys,
    claim,
    controller_values,
    orphans_value,
    own_key,
    owner_keys,
)
from kvstack.agents.controllers.workloads.deployments.rollout import Rollout
from kvstack.agents.reconcile.plan import (
    BackOff,
    BaseController,
    Identity,
    Index,
    Plan,
    Record,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object

_SELECTING_ALL: Final = "This deployment is selecting all pods. A non-empty selector is required."
_RETRIES_MAX: Final = 15


class DeploymentController(BaseController):
    """Keeps ReplicaSets as Deployments say."""

    identity = Identity("deployment-controller", "deployment-controller", "deployment-controller")
    watches: Sequence[Watch] = (
        Watch(DEPLOYMENTS, own_key),
        Watch(REPLICA_SETS, OwnerKeys(DEPLOYMENTS)),
        Watch(PODS, lambda old, new, view: _keys_of_pod(old, new, view)),
    )
    indexes: Sequence[Index] = (
        Index(REPLICA_SETS, CONTROLLER_INDEX, controller_values),
        Index(PODS, CONTROLLER_INDEX, controller_values),
    )
    back_off = BackOff(retries_max=_RETRIES_MAX)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one Deployment."""
        deployment = view.get(DEPLOYMENTS, key)
        if deployment is None:
            return None
        if deployment["spec"].get("selector") == {}:
            yield [Record(deployment, "Warning", "SelectingAll", _SELECTING_ALL)]
            status = deployment.get("status") or {}
            generation = deployment["metadata"].get("generation", 0)
            if status.get("observedGeneration", 0) < generation:
                status = {**status, "observedGeneration": generation}
                yield from do(Update(DEPLOYMENTS, {**deployment, "status": status}, "status"))
            return None
        namespace, _ = split_key(key)
        owned = view.by_index(REPLICA_SETS, CONTROLLER_INDEX, deployment["metadata"]["uid"])
        orphans = view.by_index(REPLICA_SETS, CONTROLLER_INDEX, orphans_value(namespace))
        selector = labels.from_object(deployment["spec"]["selector"])
        what = Claim(REPLICA_SETS, DEPLOYMENTS, deployment, selector)
        sets = yield from claim(what, (*owned, *orphans))
        return (yield from Rollout(deployment, sets, view, now_s).run())


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Wake a Deployment that waits for the end of all of its pods."""
    if new is not None or old is None:
        return
    for key in owner_keys(old, REPLICA_SETS.group, REPLICA_SETS.kind):
        replica_set = view.get(REPLICA_SETS, key)
        if replica_set is None:
            continue
        for owner in owner_keys(replica_set, DEPLOYMENTS.group, DEPLOYMENTS.kind):
            deployment = view.get(DEPLOYMENTS, owner)
            if deployment is not None and deployment["spec"]["strategy"].get("type") == "Recreate":
                yield key_of(deployment)
