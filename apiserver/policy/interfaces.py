"""The borders of policy: what the walk of a request asks of it, and what it asks of others.

    http ──Credentials──► Authenticator ──User──► Authorizer ──Decision──► verbs
    verbs ──AdmissionRequest──► Admission.mutate … validation … Admission.validate
    policy ──► ObjectView (the watch cache) · LiveObjects (the store) · Clock

Whatever needs no IO answers with a plain value and costs no task; only what has to wait returns an
awaitable. A caller writes

    found = authorizer.authorize(attributes)
    decision = found if isinstance(found, Decision) else await found
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from kvstack.apimachinery.attributes import Attributes, User
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.policy.admission.request import AdmissionRequest
from kvstack.apiserver.policy.credentials import Credentials
from kvstack.apiserver.registry.view import Change as Change

Obj: TypeAlias = dict[str, Any]


class Clock(Protocol):
    """Where the time comes from."""

    def monotonic_ns(self) -> int:
        """Return nanoseconds since some fixed moment; never goes back."""
        ...

    def unix_ms(self) -> int:
        """Return milliseconds since 1970 UTC; may jump either way."""
        ...


# Asked of the registry.


class ObjectView(Protocol):
    """The watch cache. Objects are in their stored version; never change them."""

    def get(self, resource: GroupResource, namespace: str, name: str) -> Obj | None:
        """Return an object; namespace "": of a resource without namespaces."""
        ...

    def list(self, resource: GroupResource, namespace: str | None = None) -> Iterable[Obj]:
        """Return the objects of a namespace, or all, in the order of their keys."""
        ...

    def version(self, resource: GroupResource) -> int:
        """Return a number that is another one after anything of the resource changed."""
        ...

    def subscribe(
        self,
        resource: GroupResource,
        callback: Callable[[Sequence[Change]], None],
        *,
        field: str = "",
    ) -> None:
        """Have a function called after each batch of changes is in the watch cache.

        field: one that selectors may name; an object whose field is empty counts as absent.
        It is called at once with all objects that are there, and again with all that changed when
        the watch cache was read anew. It may not fail or wait.
        """
        ...


class LiveObjects(Protocol):
    """What goes to the store."""

    async def catch_up(self) -> None:
        """Return once the watch cache holds whatever the store held when this was called."""
        ...

    async def create(self, resource: GroupResource, obj: Obj) -> Obj:
        """Write a new object without admission or validation; raises ApiError: 409 if it exists."""
        ...

    async def replace(self, resource: GroupResource, obj: Obj, subresource: str = "") -> Obj:
        """Write an object whose stored resourceVersion is still that of `obj`; return it as stored.

        No admission or validation takes place. The change is recorded in managedFields as made by
        the API server, of the subresource if it is one's. Raises ApiError: 409 if the object
        changed, 404 if it is gone.
        """
        ...


# Offered to http and verbs.


class Authenticator(Protocol):
    """Tells whose a request is."""

    def authenticate(self, credentials: Credentials) -> User | Awaitable[User]:
        """Return the user, also the anonymous one; raises ApiError 401.

        Warnings for the client are appended to `credentials.warnings`.
        """
        ...


class Decision(NamedTuple):
    """What one or all authorizers say."""

    allowed: bool
    reason: str = ""
    """Of a refusal: what to append to the text of the 403."""
    denied: bool = False
    """Whether it is refused for good, so that no other authorizer is asked."""
    error: str = ""
    """What went wrong on the way."""


NO_OPINION = Decision(allowed=False)


class Authorizer(Protocol):
    """Tells whether a request is allowed."""

    def authorize(self, attributes: Attributes) -> Decision | Awaitable[Decision]:
        """Return the decision; the same for equal attributes until what it rests on changes."""
        ...


class Admission(Protocol):
    """The plugins that look at a write before it is stored."""

    def handles(self, operation: str, resource: GroupResource, subresource: str) -> bool:
        """Tell whether any plugin wants to be called; if not, neither method need be."""
        ...

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Let plugins change `request.object` in place; raises ApiError."""
        ...

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Let plugins refuse the object as it is to be stored; raises ApiError."""
        ...


class Reviewer(Protocol):
    """Answers reviews; see `remote.webhook.Webhook`."""

    async def review(self, review: Obj) -> Obj:
        """Return the status of the answered review; raises RemoteError."""
        ...
