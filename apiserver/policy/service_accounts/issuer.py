"""The subresource `token` of service accounts.

    body ──► stored account and bound object ──► checks ──► claims ──► signed

`kinds.core.token_requests` validates TokenRequests. Nothing is stored.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time
from kvstack.apiserver.kinds.core import token_requests
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView
from kvstack.apiserver.policy.service_accounts.claims import Claims, Reference
from kvstack.component.certs.service_account_keys import SigningKey
from kvstack.component.clock import Clock

Validate = Callable[[Object], Awaitable[None] | None]
"""Validating admission of the prepared request."""

_ACCOUNTS: Final = GroupResource("", "serviceaccounts")
_NODES: Final = GroupResource("", "nodes")
_ISSUED: Final = "authentication.kubernetes.io/issued-credential-id"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """Settings of issued tokens."""

    issuer: str
    api_audiences: tuple[str, ...]
    """The default audiences of tokens."""
    longest_seconds: int = 0
    """0: no limit."""
    extended_seconds: int = token_requests.YEAR_SECONDS
    extends: bool = True
    """Whether tokens of default pod volumes live longer than their status says."""


@dataclass(slots=True)
class Issued:
    """The result of a token request."""

    request: Object
    """The TokenRequest with its status."""
    warnings: list[str] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)
    """Audit annotations."""


class TokenIssuer:
    """Issues tokens."""

    def __init__(
        self,
        key: SigningKey,
        settings: TokenSettings,
        view: ObjectView,
        live: LiveObjects,
        clock: Clock,
        new_uid: Callable[[], str],
    ) -> None:
        """key: signs tokens; new_uid: returns a random UID."""
        self._key: Final = key
        self._settings: Final = settings
        self._view: Final = view
        self._live: Final = live
        self._clock: Final = clock
        self._new_uid: Final = new_uid

    async def create(
        self, namespace: str, name: str, request: Object, validate: Validate
    ) -> Issued:
        """Return a token for the service account of the URL; raises ApiError.

        request: the decoded body, changed in place.
        """
        settings = self._settings
        token_requests.check_name(request, name)
        token_requests.default(request)
        await self._live.catch_up()
        account = self._get(_ACCOUNTS, namespace, name)
        now = self._clock.unix_ms() // 1000
        token_requests.prepare(request, account, settings.api_audiences, format_time(now))
        token_requests.check(request)
        waiting = validate(request)
        if waiting is not None:
            await waiting
        target = token_requests.bound(request)
        bound = None if target is None else self._bound(target, namespace, name)
        is_pod_bound = target is not None and target.kind == "Pod"
        term = token_requests.term(
            request,
            is_pod_bound=is_pod_bound,
            api_audiences=settings.api_audiences,
            longest_seconds=settings.longest_seconds,
            extended_seconds=settings.extended_seconds,
            extends=settings.extends,
        )
        claims = Claims(
            issuer=settings.issuer,
            audiences=tuple(request["spec"]["audiences"]),
            namespace=namespace,
            account=_reference(account),
            id=self._new_uid(),
            issued=now,
            not_before=now,
            expires=now + term.seconds,
            warn_after=now + term.warn_after_seconds if term.warn_after_seconds else None,
        )
        if target is not None and bound is not None:
            claims = self._bind(claims, target.kind, bound)
        request["status"] = {
            "token": self._key.sign(claims.to_payload()),
            "expirationTimestamp": format_time(now + term.status_seconds),
        }
        warnings = [term.warning] if term.warning else []
        return Issued(request, warnings, {_ISSUED: f"JTI={claims.id}"})

    def _bound(self, target: token_requests.Bound, namespace: str, account: str) -> Object:
        resource = GroupResource("", target.resource)
        obj = self._get(resource, "" if resource == _NODES else namespace, target.name)
        token_requests.check_bound(target, obj, account)
        return obj

    def _bind(self, claims: Claims, kind: str, bound: Object) -> Claims:
        reference = _reference(bound)
        if kind == "Secret":
            return claims._replace(secret=reference)
        if kind == "Node":
            return claims._replace(node=reference)
        name = bound["spec"].get("nodeName")
        if not name:
            return claims._replace(pod=reference)
        node = self._view.get(_NODES, "", name)
        # With the name alone the pod's node is still known.
        found = Reference(name) if node is None else _reference(node)
        return claims._replace(pod=reference, node=found)

    def _get(self, resource: GroupResource, namespace: str, name: str) -> Object:
        obj = self._view.get(resource, namespace, name)
        if obj is None:
            raise status.not_found(resource, name)
        return obj


def _reference(obj: Object) -> Reference:
    metadata = obj["metadata"]
    return Reference(metadata["name"], metadata.get("uid", ""))
