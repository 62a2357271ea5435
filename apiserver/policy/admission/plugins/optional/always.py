"""AlwaysAdmit and AlwaysDeny."""

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.request import AdmissionRequest


class AlwaysAdmit:
    """Refuses nothing."""

    name = "AlwaysAdmit"

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return False."""
        del operation, resource, subresource
        return False


class AlwaysDeny:
    """Refuses everything."""

    name = "AlwaysDeny"

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return True."""
        del operation, resource, subresource
        return True

    def mutate(self, request: AdmissionRequest) -> None:
        """Refuse."""
        raise request.forbidden("admission control is denying all modifications")

    def validate(self, request: AdmissionRequest) -> None:
        """Refuse."""
        self.mutate(request)
