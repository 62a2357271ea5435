"""Expansion: records an event for bound claims whose volumes an external resizer expands."""

from collections.abc import Iterable, Sequence

from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.storage.volume_rules import requested
from kvstack.agents.reconcile.plan import BaseController, Identity, Plan, Record, View, Watch
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse


class Expander(BaseController):
    """Records events about claims that are to grow."""

    workers = 10
    reads: Sequence[ResourceType] = (PERSISTENT_VOLUMES,)

    def __init__(self) -> None:
        """Watch claims."""
        self.identity: Identity = Identity(
            "persistentvolume-expander-controller",
            "expand-controller",
            "volume_expand",
        )
        self.watches: Sequence[Watch] = (Watch(PERSISTENT_VOLUME_CLAIMS, _keys),)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one claim."""
        claim = view.get(PERSISTENT_VOLUME_CLAIMS, key)
        status = (claim or {}).get("status") or {}
        if claim is None or status.get("phase") != "Bound":
            return None
        volume = view.get(PERSISTENT_VOLUMES, claim["spec"].get("volumeName", ""))
        reference = ((volume or {}).get("spec") or {}).get("claimRef") or {}
        if reference.get("uid") != claim["metadata"]["uid"]:
            return None
        if requested(claim) > parse((status.get("capacity") or {}).get("storage", "0")):
            text = "waiting for an external controller to expand this PVC"
            yield [Record(claim, "Normal", "ExternalExpanding", text)]
        return None


def _keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None and (old is None or requested(new) > requested(old)):
        yield key_of(new)
