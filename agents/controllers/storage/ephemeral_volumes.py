"""Generic ephemeral volumes: claims from templates in pods, owned by their pods."""

from collections.abc import Generator, Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS, PODS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import controller_reference, is_deleting
from kvstack.agents.controllers.storage.pod_claims import ephemeral_name, is_made_for
from kvstack.agents.reconcile.plan import (
    BaseController,
    Create,
    Identity,
    Outcome,
    Plan,
    Record,
    Step,
    View,
    Watch,
)
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object

_OWNER: Final = "pod"


class NotOwnedError(Exception):
    """A claim of the name is there, and is not the pod's."""


class EphemeralVolumes(BaseController):
    """Makes claims for pods."""

    def __init__(self) -> None:
        """Watch pods and claims."""
        self.identity: Identity = Identity(
            "ephemeral-volume-controller",
            "ephemeral-volume-controller",
            "ephemeral_volume",
        )
        self.watches: Sequence[Watch] = (
            Watch(PODS, _keys_of_pod),
            Watch(PERSISTENT_VOLUME_CLAIMS, _keys_of_claim),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one pod."""
        pod = view.get(PODS, key)
        if pod is None or is_deleting(pod) or is_ended(pod):
            return None
        for volume in _templates(pod):
            yield from self._keep(pod, volume, view)
        return None

    def _keep(
        self, pod: Object, volume: Object, view: View
    ) -> Generator[Step, list[Outcome], None]:
        namespace = pod["metadata"]["namespace"]
        name = ephemeral_name(pod, volume)
        claim = view.get(PERSISTENT_VOLUME_CLAIMS, f"{namespace}/{name}")
        if claim is not None:
            if not is_made_for(claim, pod):
                text = (
                    f"ephemeral volume {volume['name']}: PVC {namespace}/{name} was not created"
                    f" for pod {key_of(pod)} (pod is not owner)"
                )
                yield [Record(pod, "Warning", "FailedBinding", text)]
                raise NotOwnedError(text)
            return
        template = volume["ephemeral"]["volumeClaimTemplate"]
        meta = template.get("metadata") or {}
        metadata: Object = {
            "name": name,
            "ownerReferences": [controller_reference({**pod, "apiVersion": "v1", "kind": "Pod"})],
        }
        for each in ("labels", "annotations"):
            if meta.get(each):
                metadata[each] = dict(meta[each])
        obj = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": template["spec"],
        }
        [outcome] = yield [Create(PERSISTENT_VOLUME_CLAIMS, namespace, obj)]
        if outcome.error is not None and not outcome.is_namespace_terminating:
            text = f"ephemeral volume {volume['name']}: create PVC {name}: {outcome.error}"
            yield [Record(pod, "Warning", "FailedBinding", text)]
            raise outcome.error


def _templates(pod: Object) -> list[Object]:
    return [each for each in pod["spec"].get("volumes") or () if each.get("ephemeral")]


def _keys_of_pod(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None and _templates(new):
        yield key_of(new)


def _keys_of_claim(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if new is not None or old is None:
        return
    meta = old["metadata"]
    for owner in meta.get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"].lower() == _OWNER:
            yield f"{meta['namespace']}/{owner['name']}"
