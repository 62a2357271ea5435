"""Policy that knows three tokens and allows everything, for tests of what lies around it."""

from collections.abc import Awaitable

from kvstack.apimachinery.attributes import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    Attributes,
    User,
)
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.credentials import Credentials
from kvstack.apiserver.policy.interfaces import Decision

USERS = {
    "Bearer admin-token": User("admin", groups=("system:masters", AUTHENTICATED)),
    "Bearer alice-token": User("alice", groups=("devs", "testers", AUTHENTICATED)),
    "Bearer bob-token": User("bob", groups=(AUTHENTICATED,)),
}
NOBODY = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


class Tokens:
    """An authenticator of three tokens."""

    def authenticate(self, credentials: Credentials) -> User:
        """Return the user of a token, or the anonymous one."""
        if not credentials.authorization:
            return NOBODY
        user = USERS.get(credentials.authorization)
        if user is None:
            raise status.unauthorized()
        return user


class AdministratorsOnly:
    """An authorizer that allows administrators everything, others what anybody may see."""

    def authorize(self, attributes: Attributes) -> Decision:
        """Return the decision."""
        if "system:masters" in attributes.user.groups:
            return Decision(allowed=True)
        return Decision(allowed=not attributes.is_resource)


class NoAdmission:
    """No plugins."""

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """No."""
        return False

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Change nothing."""
        return None

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Refuse nothing."""
        return None
