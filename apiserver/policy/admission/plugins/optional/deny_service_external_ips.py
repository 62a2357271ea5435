"""DenyServiceExternalIPs: Services get no new external IPs; existing ones may stay."""

from kvstack.apimachinery.objects.core.group_resources import SERVICES
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest


class DenyServiceExternalIPs(Listed):
    """Refuses new external IPs."""

    name = "DenyServiceExternalIPs"
    calls = calls((CREATE, UPDATE), SERVICES)

    def validate(self, request: AdmissionRequest) -> None:
        """Compare the addresses with the old ones."""
        if not _addresses(request.new) <= _addresses(request.old):
            raise request.forbidden("Use of external IPs is denied by admission control")


def _addresses(service: Object | None) -> frozenset[str]:
    return frozenset(((service or {}).get("spec") or {}).get("externalIPs") or ())
