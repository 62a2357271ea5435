"""TaintNodesByCondition: a new node gets the not-ready taint."""

from typing import Final

from kvstack.apimachinery.objects.core.group_resources import NODES
from kvstack.apimachinery.objects.core.tolerations import NO_SCHEDULE
from kvstack.apimachinery.well_known import NOT_READY_TAINT
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, AdmissionRequest

_TAINT: Final = {"key": NOT_READY_TAINT, "effect": NO_SCHEDULE}


class TaintNodesByCondition(Listed):
    """Taints new nodes."""

    name = "TaintNodesByCondition"
    calls = calls((CREATE,), NODES)

    def mutate(self, request: AdmissionRequest) -> None:
        """Add the taint."""
        taints = (request.new.get("spec") or {}).get("taints") or ()
        if any(each.items() >= _TAINT.items() for each in taints):
            return
        request.own("spec")["taints"] = [*taints, dict(_TAINT)]
