"""The user's further permissions, where an object gives a policy access to others.

Kinds know which permissions are required; an `Access` in the request's context knows the user's
permissions and the served resources. A context without one allows nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from kvstack.apimachinery.objects.text.go_text import go_plain

SUPERUSERS: Final = "system:masters"
"""The group that is allowed everything."""
ALL: Final = "*"


class AccessRequest(NamedTuple):
    """An access to be authorized."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Access(Protocol):
    """Access of one request's user."""

    def is_allowed(self, request: AccessRequest) -> bool:
        """Return whether the user may do this."""
        ...

    def resource_of(self, group: str, version: str, kind: str) -> str | None:
        """Return the served resource of a kind; None: there is none."""
        ...

    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a stored object; None: it does not exist."""
        ...


class NoAccess:
    """Allows nothing and finds nothing."""

    def is_allowed(self, request: AccessRequest) -> bool:
        """Return False."""
        return False

    def resource_of(self, group: str, version: str, kind: str) -> str | None:
        """Return None."""
        return None

    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return None."""
        return None


class FullAccess(NoAccess):
    """Allows everything and finds nothing: for objects of the server's operator."""

    @override
    def is_allowed(self, request: AccessRequest) -> bool:
        """Return True."""
        return True


NO_ACCESS: Final = NoAccess()
FULL_ACCESS: Final = FullAccess()


def user_text(
    name: str, uid: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]]
) -> str:
    """Return a user as Go prints a pointer to one: `&{alice  [devs] map[]}`."""
    others = go_plain({key: list(values) for key, values in extra.items()})
    return f"&{{{name} {uid} {go_plain(list(groups))} {others}}}"
