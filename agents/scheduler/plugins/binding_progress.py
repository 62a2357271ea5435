"""Whether the claims of a pod with a chosen node are bound, or can no longer be.

    progress = Progress(cluster, pod, node, written)
    progress.is_done()      PluginError: somebody took back what was decided; the pod is tried again

A provisioner that cannot make a volume on a node takes `selected-node` away. Objects that the
cluster's view shows as they were before they were written say nothing yet.
"""

from collections.abc import Sequence

from kvstack.agents.scheduler.handle import PluginError
from kvstack.agents.scheduler.snapshot import node_selectors, storage
from kvstack.agents.scheduler.snapshot.cluster import Cluster
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import (
    BIND_COMPLETED_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
)


class Progress:
    """The progress of binding a pod's claims."""

    def __init__(
        self, cluster: Cluster, pod: PodInfo, node: str, written: Sequence[Object]
    ) -> None:
        """written: volumes and claims, as the API has them since."""
        self._cluster = cluster
        self._pod = pod
        self._node = node
        self._volumes = [each for each in written if "namespace" not in each["metadata"]]
        self._claims = [each for each in written if "namespace" in each["metadata"]]

    def is_done(self) -> bool:
        """Whether all claims of the pod are bound; PluginError."""
        if self._pod.uid not in self._cluster.pods:
            name = self._pod.obj["metadata"]["name"]
            raise PluginError(f'pod does not exist any more: pod "{name}" not found')
        are_shown = [self._is_volume_shown(each) for each in self._volumes]
        are_shown += [self._is_claim_shown(each) for each in self._claims]
        return all(are_shown) and self._are_bound()

    def _is_volume_shown(self, written: Object) -> bool:
        """Whether a volume is seen as it was written, and is still the claim's; PluginError."""
        name = written["metadata"]["name"]
        now = self._cluster.storage.volumes.get(name)
        if now is None:
            raise PluginError(f'failed to check binding: could not find pv "{name}"')
        if _is_older(now, written):
            return False
        self._check_affinity(now)
        if not (now["spec"].get("claimRef") or {}).get("uid"):
            raise PluginError(f'ClaimRef got reset for pv "{name}"')
        return True

    def _is_claim_shown(self, written: Object) -> bool:
        """Whether a claim is seen as it was written, to be provisioned here; PluginError."""
        meta = written["metadata"]
        now = self._cluster.storage.claims.get(f"{meta['namespace']}/{meta['name']}")
        if now is None:
            text = f'could not find pvc "{meta["namespace"]}/{meta["name"]}"'
            raise PluginError(f"failed to check provisioning pvc: {text}")
        if _is_older(now, written):
            return False
        annotations = now["metadata"].get("annotations") or {}
        if annotations.get(SELECTED_NODE_ANNOTATION) != self._node:
            raise PluginError(f'provisioning failed for PVC "{meta["name"]}"')
        volume = self._cluster.storage.volumes.get(now["spec"].get("volumeName") or "")
        if volume is not None:
            self._check_affinity(volume)
        return True

    def _check_affinity(self, volume: Object) -> None:
        """Insist that the node reaches a volume; PluginError."""
        affinity = (volume["spec"].get("nodeAffinity") or {}).get("required")
        slot = self._cluster.slots.get(self._node)
        if slot is None or not self._cluster.is_valid[slot]:
            raise PluginError(f'failed to get node "{self._node}": node "{self._node}" not found')
        if affinity is not None and not node_selectors.selected(self._cluster, affinity)[slot]:
            raise PluginError(
                f'pv "{volume["metadata"]["name"]}" node affinity doesn\'t match node '
                f'"{self._node}": no matching NodeSelectorTerms'
            )

    def _are_bound(self) -> bool:
        """Whether all claims of the pod are bound."""
        for name, _ in storage.claim_names(self._pod.obj):
            claim = self._cluster.storage.claims.get(f"{self._pod.namespace}/{name}")
            if claim is None or not claim["spec"].get("volumeName"):
                return False
            if BIND_COMPLETED_ANNOTATION not in (claim["metadata"].get("annotations") or {}):
                return False
        return True


def _is_older(now: Object, written: Object) -> bool:
    """Whether an object is still shown as it was before the write."""
    return _version(now) < _version(written)


def _version(obj: Object) -> int:
    """Return the resourceVersion of an object; 0: what it has cannot be compared."""
    text = str(obj["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0
