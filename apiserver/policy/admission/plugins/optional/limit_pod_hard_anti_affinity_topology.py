"""LimitPodHardAntiAffinityTopology: required anti-affinity only between pods of one node."""

from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.well_known import HOSTNAME_LABEL
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest

_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class LimitPodHardAntiAffinityTopology(Listed):
    """Refuses required anti-affinity with topology keys other than the hostname."""

    name = "LimitPodHardAntiAffinityTopology"
    calls = calls((CREATE, UPDATE), PODS)

    def validate(self, request: AdmissionRequest) -> None:
        """Check the terms of a pod."""
        affinity = (request.new.get("spec") or {}).get("affinity") or {}
        for term in (affinity.get("podAntiAffinity") or {}).get(_TERMS) or ():
            key = term.get("topologyKey", "")
            if key != HOSTNAME_LABEL:
                raise status.forbidden(
                    PODS,
                    request.new["metadata"].get("name", ""),
                    f"affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but"
                    f" only key {HOSTNAME_LABEL} is allowed",
                )
