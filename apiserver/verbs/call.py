"""One request on its way through the verbs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.request_info import Query, RequestInfo
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.kinds.expressions_in_cel import CEL
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.policy.audit.audit_context import AuditContext
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Obj, Record
from kvstack.apiserver.verbs.access import UserAccess
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.environment import Environment
from kvstack.apiserver.verbs.large_objects import LARGE_BYTES
from kvstack.apiserver.verbs.stages import Spent

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class Call:
    """What a verb knows of its request."""

    env: Environment
    endpoint: Endpoint
    info: RequestInfo
    user: User
    query: Query
    now: str
    """The time of the request, RFC 3339 in seconds, UTC."""
    body: bytes = b""
    media_type: str = ""
    """Of the body, without parameters; empty: not given."""
    user_agent: str = ""
    at_revision: int = 0
    """Of the past that is asked for; 0: the present."""
    warnings: list[str] = field(default_factory=list)
    """What the client is to be told."""
    audit: AuditContext | None = None
    """For the audit; None: the request is not recorded."""
    annotations: dict[str, str] = field(default_factory=dict)
    """For the audit, by plugins of admission."""
    given_kind: Kind | None = None
    """What the custom resource of the request says it is, where that is not what is served here;
    validation refuses it."""
    has_empty: bool = False
    """Whether the object has empty lists or maps that were given but are not written: defaults and
    validation see them, owners and the store do not."""
    spent: Spent = field(default_factory=dict)
    """How long it has waited in each stage."""
    is_large: bool = False
    """Whether the object takes so long at each step that others must not wait for it."""

    def __post_init__(self) -> None:
        """Judge by the body; what is stored may be larger."""
        self.is_large = len(self.body) > LARGE_BYTES

    def note_stored(self, record: Record) -> None:
        """Take into account that what is stored may be larger than the body."""
        self.is_large = self.is_large or len(record.body) > LARGE_BYTES

    async def apart(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a pure function returns; for a large object it runs beside the loop."""
        if not self.is_large:
            return function(*args, **kwargs)
        return await self.env.large_objects.run(function, *args, **kwargs)

    def note(self, obj: Obj) -> None:
        """Tell the audit of the object of the request."""
        if self.audit is not None:
            self.audit.asked(json_text.copied(obj) if self.audit.wants_request else obj)

    @property
    def namespace(self) -> str:
        """The namespace of the objects; empty for kinds that have none."""
        return self.info.namespace if self.endpoint.row.is_namespaced else ""

    @property
    def object_type(self) -> Type:
        """The type of the objects of the endpoint; raises ApiError if it has none."""
        type_ = self.endpoint.type
        if type_ is None:
            raise status.generic(405)
        return type_

    @property
    def collection(self) -> Collection:
        """Where the objects of the endpoint are; raises ApiError if they are not stored."""
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
