"""One request on its way through the verbs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.request_info import Query, RequestInfo
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.kinds.expressions_in_cel import CEL
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.policy.audit.audit_context import AuditContext
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.verbs.access import UserAccess
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.environment import Environment
from kvstack.apiserver.verbs.large_objects import LARGE_BYTES
from kvstack.apiserver.verbs.stages import Spent

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """A request as verbs see it."""

    env: Environment
    endpoint: Endpoint
    info: RequestInfo
    user: User
    query: Query
    now: str
    """The time of the request, RFC 3339 in seconds, UTC."""
    body: bytes = b""
    media_type: str = ""
    """Media type of the body, without parameters; empty: not given."""
    user_agent: str = ""
    at_revision: int = 0
    """Revision of a read of the past; 0: the present."""
    warnings: list[str] = field(default_factory=list)
    """Warnings for the client."""
    audit: AuditContext | None = None
    """None: the request is not audited."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Audit annotations that admission plugins add."""
    given_kind: Kind | None = None
    """The kind that the custom resource of the body claims, if it is not the endpoint's; validation
    refuses it."""
    has_empty: bool = False
    """Whether the object has empty lists or maps that were given but are not stored: defaults and
    validation see them, field ownership and the store do not."""
    spent: Spent = field(default_factory=dict)
    """Time spent waiting, by stage."""
    is_large: bool = False
    """Whether the object is so large that its processing must not block the event loop."""

    def __post_init__(self) -> None:
        """Judge by the body's size; the stored object may be larger."""
        self.is_large = len(self.body) > LARGE_BYTES

    def note_stored(self, record: Record) -> None:
        """Take the stored object's size into account, which may exceed the body's."""
        self.is_large = self.is_large or len(record.body) > LARGE_BYTES

    async def apart(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a pure function; for a large object it runs in a thread."""
        if not self.is_large:
            return function(*args, **kwargs)
        return await self.env.large_objects.run(function, *args, **kwargs)

    def note(self, obj: Object) -> None:
        """Record the request's object in the audit."""
        if self.audit is not None:
            self.audit.record_request(json_text.copied(obj) if self.audit.wants_request else obj)

    @property
    def namespace(self) -> str:
        """The namespace of the objects; empty for cluster-scoped kinds."""
        return self.info.namespace if self.endpoint.row.is_namespaced else ""

    @property
    def object_type(self) -> Type:
        """The type of the endpoint's objects; raises ApiError if it has none."""
        type_ = self.endpoint.type
        if type_ is None:
            raise status.generic(405)
        return type_

    @property
    def collection(self) -> Collection:
        """The collection of the endpoint's objects; raises ApiError if they are not stored."""
        collection = self.endpoint.collection
        if collection is None:
            raise status.generic(405)
        return collection

    def context(self, *, is_dry_run: bool) -> Context:
        """Return what the hooks of a kind may know of the request."""
        return Context(
            now=self.now,
            namespace=self.info.namespace,
            api_version=self.endpoint.api_version,
            user=self.user.name,
            user_uid=self.user.uid,
            groups=self.user.groups,
            extra=self.user.extra,
            verb=self.info.verb,
            is_dry_run=is_dry_run,
            allow_privileged=self.env.settings.allow_privileged,
            new_uid=self.env.identifiers.new_uid,
            access=UserAccess(self.env, self.user),
            expressions=CEL,
        )
