"""One request on its way through the verbs."""

from dataclasses import dataclass, field

from kvstack.apiserver.kinds.expressions_in_cel import CEL
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.objects.request_info import Query, RequestInfo
from kvstack.apiserver.objects.text import json_text
from kvstack.apiserver.policy.attributes import User
from kvstack.apiserver.policy.audit.trail import Trail
from kvstack.apiserver.registry.record import Obj
from kvstack.apiserver.verbs.access import CallAccess
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.environment import Environment


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
    trail: Trail | None = None
    """For the audit; None: the request is not recorded."""
    annotations: dict[str, str] = field(default_factory=dict)
    """For the audit, by plugins of admission."""
    has_empty: bool = False
    """Whether the object has empty lists or maps that were given but are not written: defaults and
    validation see them, owners and the store do not."""

    def note(self, obj: Obj) -> None:
        """Tell the audit of the object of the request."""
        if self.trail is not None:
            self.trail.asked(json_text.copied(obj) if self.trail.wants_request else obj)

    @property
    def namespace(self) -> str:
        """The namespace of the objects; empty for kinds that have none."""
        return self.info.namespace if self.endpoint.row.is_namespaced else ""

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
            new_uid=self.env.new_uid,
            access=CallAccess(self),
            expressions=CEL,
        )
