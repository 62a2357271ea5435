"""What else a user may do, asked where an object gives a policy access to others.

Kinds know what must be allowed; who is allowed what, and which resources there are, somebody else
knows: an `Access` in the context of the request. Where a context has none, nothing is allowed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from typing_extensions import override

from kvstack.apimachinery.objects.text.go_text import go_plain

SUPERUSERS: Final = "system:masters"
"""The group that may do everything."""
ALL: Final = "*"


class AccessRequest(NamedTuple):
    """One thing the user may be allowed to do."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Access(Protocol):
    """Answers for the user of one request."""

    def is_allowed(self, request: AccessRequest) -> bool:
        """Return whether the user may do this."""
        ...

    def resource_of(self, group: str, version: str, kind: str) -> str | None:
        """Return the resource of a kind that is served; None: none is."""
        ...

    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a stored object; None: it is not there."""
        ...


class NoAccess:
    """Allows nothing and knows nothing."""

    def is_allowed(self, request: AccessRequest) -> bool:
        """Return false."""
        return False

    def resource_of(self, group: str, version: str, kind: str) -> str | None:
        """Return nothing."""
        return None

    def find(self, group: str, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return nothing."""
        return None


class FullAccess(NoAccess):
    """Allows everything and knows nothing: for objects of whoever runs the server."""

    @override
    def is_allowed(self, request: AccessRequest) -> bool:
        """Return true."""
        return True


NO_ACCESS: Final = NoAccess()
FULL_ACCESS: Final = FullAccess()


def user_text(
    name: str, uid: str, groups: Sequence[str], extra: Mapping[str, Sequence[str]]
) -> str:
    """Return a user as Go prints a pointer to one: `&{alice  [devs] map[]}`."""
    others = go_plain({key: list(values) for key, values in extra.items()})
    return f"&{{{name} {uid} {go_plain(list(groups))} {others}}}"
