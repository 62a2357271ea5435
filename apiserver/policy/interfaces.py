"""The interfaces of policy to the request pipeline, and those it uses itself.

    http ──Credentials──► Authenticator ──User──► Authorizer ──Decision──► verbs
    verbs ──AdmissionRequest──► Admission.mutate … validation … Admission.validate
    policy ──► ObjectView (the watch cache) · LiveObjects (the store) · Clock

What needs no IO returns a plain value and creates no task; only what has to wait returns an
awaitable. A caller writes

    found = authorizer.authorize(attributes)
    decision = found if isinstance(found, Decision) else await found
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.credentials import Credentials
from kvstack.apiserver.registry.view import Change as Change

# Provided by the registry.


class ObjectView(Protocol):
    """The watch cache. Objects are in their storage version and must not be changed."""

    def get(self, resource: GroupResource, namespace: str, name: str) -> Object | None:
        """Return an object; namespace "": cluster-scoped."""
        ...

    def list(self, resource: GroupResource, namespace: str | None = None) -> Iterable[Object]:
        """Return the objects of a namespace, or all, in key order."""
        ...

    def version(self, resource: GroupResource) -> int:
        """Return a number that differs after anything of the resource changed."""
        ...

    def subscribe(
        self,
        resource: GroupResource,
        callback: Callable[[Sequence[Change]], None],
        *,
        field: str = "",
    ) -> None:
        """Have a function called after each batch of changes is in the watch cache.

        field: a selectable field; an object whose field is empty counts as absent. The function is
        called immediately with all existing objects, and again with all changes after the watch
        cache was reloaded. It must not fail or block.
        """
        ...


class LiveObjects(Protocol):
    """Direct access to the store."""

    async def catch_up(self) -> None:
        """Wait until the watch cache has the store's state at the time of the call."""
        ...

    async def create(self, resource: GroupResource, obj: Object) -> Object:
        """Write a new object without admission or validation; raises ApiError: 409 if it exists."""
        ...

    async def replace(self, resource: GroupResource, obj: Object, subresource: str = "") -> Object:
        """Write an object if the stored resourceVersion is that of `obj`; return it as stored.

        There is no admission or validation. The change is recorded in managedFields as made by the
        API server, with the subresource if there is one. Raises ApiError: 409 if the object
        changed, 404 if it is gone.
        """
        ...


# Provided to http and verbs.


class Authenticator(Protocol):
    """Authenticates requests."""

    def authenticate(self, credentials: Credentials) -> User | Awaitable[User]:
        """Return the user, possibly the anonymous one; raises ApiError 401.

        Warnings for the client are appended to `credentials.warnings`.
        """
        ...


class Decision(NamedTuple):
    """The decision of one or all authorizers."""

    allowed: bool
    reason: str = ""
    """The reason of a refusal, to be appended to the text of the 403."""
    denied: bool = False
    """Whether it is final, so that no other authorizer is called."""
    error: str = ""
    """Errors on the way."""


NO_OPINION = Decision(allowed=False)


class Authorizer(Protocol):
    """Authorizes requests."""

    def authorize(self, attributes: Attributes) -> Decision | Awaitable[Decision]:
        """Return the decision; equal attributes give the same one until its inputs change."""
        ...


class Admission(Protocol):
    """The admission plugins."""

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Return whether any plugin handles such requests; if not, skip the other methods."""
        ...

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Let plugins change `request.object` in place; raises ApiError."""
        ...

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Let plugins refuse an object in its final form; raises ApiError."""
        ...


class Reviewer(Protocol):
    """Answers reviews; see `remote.webhook.Webhook`."""

    async def review(self, review: Object) -> Object:
        """Return the status of the answered review; raises RemoteError."""
        ...
