"""PodTopologyLabels: pods get the zone and region labels of their node.

They are copied into the Binding, whose labels are set on the pod, or into a pod that is created
bound.
"""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import NODES, PODS
from kvstack.apimachinery.well_known import REGION_LABEL, ZONE_LABEL
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import ObjectView

_LABELS: Final = (ZONE_LABEL, REGION_LABEL)


class PodTopologyLabels(Listed):
    """Copies labels of nodes to pods."""

    name = "PodTopologyLabels"
    calls = calls((CREATE,), PODS, "", "binding")

    def __init__(self, view: ObjectView) -> None:
        self._view: Final = view

    def mutate(self, request: AdmissionRequest) -> None:
        """Set the labels, overwriting existing ones."""
        node = self._view.get(NODES, "", _node_name(request))
        of_node = ((node or {}).get("metadata") or {}).get("labels") or {}
        copied = {name: of_node[name] for name in _LABELS if name in of_node}
        if copied:
            metadata = request.own("metadata")
            metadata["labels"] = {**(metadata.get("labels") or {}), **copied}


def _node_name(request: AdmissionRequest) -> str:
    if request.subresource == "binding":
        target = request.new.get("target") or {}
        return target.get("name") or "" if target.get("kind") == "Node" else ""
    return (request.new.get("spec") or {}).get("nodeName") or ""
