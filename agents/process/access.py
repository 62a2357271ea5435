"""Authentication and authorization of the readers of a process's pages, by the API server.

    access = Access(tokens, reviews, clock, settings)
    refusal = await access.refusal(request, "/metrics")      None: it may be answered

An API server that forwards a request names the user (`front_proxy`); else it is the subject of a
client certificate that the authorities verify, or of a bearer token by a TokenReview; without
credentials it is system:anonymous. A SubjectAccessReview authorizes the path, or the resource that
it leads to. Members of system:masters may do everything, and some pages are for everybody. Answers
are cached for a while.
"""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from kvstack.agents.client.kubeconfig import Cluster, connect, load
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.process.front_proxy import AUTHORITY, FrontProxy
from kvstack.agents.process.settings import PageSettings
from kvstack.apimachinery.attributes import (
    ANONYMOUS,
    AUTHENTICATED,
    PRIVILEGED,
    UNAUTHENTICATED,
)
from kvstack.apimachinery.objects import status as statuses
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.request_info import Query, RequestInfo, request_info
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock
from kvstack.component.http.serving.request import Request

if TYPE_CHECKING:
    from kvstack.apimachinery.objects.json_object import Object

CLIENTS: Final = "clients"
"""The name of the authorities of client certificates at a listener."""

_BEARER: Final = "Bearer "
_KEPT_MAX: Final = 1000
_VERBS: Final = {"POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}


class _User(NamedTuple):
    name: str
    groups: tuple[str, ...]
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


_NOBODY: Final = _User(ANONYMOUS, (UNAUTHENTICATED,))


class Access:
    """Decides on requests."""

    def __init__(self, tokens: Api, reviews: Api, clock: Clock, settings: PageSettings) -> None:
        """tokens: for TokenReviews; reviews: for SubjectAccessReviews."""
        self._tokens = tokens
        self._reviews = reviews
        self._clock = clock
        self._settings = settings
        self.front_proxy: FrontProxy | None = None
        """Who may pass users in headers; None: nobody."""
        self._users: dict[str, tuple[_User | None, float]] = {}
        self._allowed: dict[tuple[_User, tuple[str, ...]], tuple[bool, float]] = {}

    async def refusal(
        self, request: Request, path: str, query: Query | None = None
    ) -> ApiError | None:
        """Return why a request is refused; None: it is not. path: decoded."""
        if self._is_for_everybody(path):
            return None
        try:
            user = await self._user(request)
            if user is None:
                return statuses.unauthorized()
            if PRIVILEGED in user.groups:
                return None
            info = request_info(request.method, path, query)
            verb = info.verb if info.is_resource else _VERBS.get(request.method, "get")
            if await self._may(user, verb, info):
                return None
        except (ApiError, UnreachableError) as error:
            return statuses.service_unavailable(f"the API server was asked in vain: {error}")
        if not info.is_resource:
            return statuses.path_denied(user.name, verb, path)
        return statuses.access_denied(
            user.name,
            verb,
            GroupResource(info.group, info.resource),
            name=info.name,
            subresource=info.subresource,
            namespace=info.namespace,
        )

    def _is_for_everybody(self, path: str) -> bool:
        for each in self._settings.for_everybody:
            if path == each or (each.endswith("*") and path.startswith(each[:-1])):
                return True
        return False

    async def _user(self, request: Request) -> _User | None:
        connection = request.connection
        if connection.certificates and AUTHORITY in connection.verified_by and self.front_proxy:
            proxy = _of_certificate(connection.certificates[0])
            told = None if proxy is None else self.front_proxy.user(request, proxy.name)
            if told is not None:
                return _User(*told)
        if connection.certificates and CLIENTS in connection.verified_by:
            user = _of_certificate(connection.certificates[0])
            if user is not None:
                return user
        given = request.header("authorization")
        if not given.startswith(_BEARER):
            return _NOBODY
        token = given.removeprefix(_BEARER).strip()
        if not token:
            return _NOBODY
        now = self._clock.monotonic_s()
        known = self._users.get(token)
        if known is not None and known[1] > now:
            return known[0]
        user = await self._user_of(token)
        _keep(self._users, token, (user, now + self._settings.token_ttl_s))
        return user

    async def _user_of(self, token: str) -> _User | None:
        review = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        status = (await self._tokens.create(TOKEN_REVIEWS, "", review)).get("status") or {}
        if not status.get("authenticated"):
            return None
        found = status.get("user") or {}
        groups = tuple(found.get("groups") or ())
        if AUTHENTICATED not in groups:
            groups = (*groups, AUTHENTICATED)
        return _User(found.get("username", ""), groups, found.get("uid", ""))

    async def _may(self, user: _User, verb: str, info: RequestInfo) -> bool:
        asked = _attributes(verb, info)
        key = (user, tuple(asked.values()))
        now = self._clock.monotonic_s()
        known = self._allowed.get(key)
        if known is not None and known[1] > now:
            return known[0]
        attributes = "resourceAttributes" if info.is_resource else "nonResourceAttributes"
        spec: Object = {"user": user.name, "groups": list(user.groups), attributes: asked}
        if user.extra:
            spec["extra"] = {key: list(values) for key, values in user.extra}
        if user.uid:
            spec["uid"] = user.uid
        review = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "spec": spec,
        }
        found = await self._reviews.create(SUBJECT_ACCESS_REVIEWS, "", review)
        is_allowed = bool((found.get("status") or {}).get("allowed"))
        ttl_s = self._settings.allowed_ttl_s if is_allowed else self._settings.denied_ttl_s
        _keep(self._allowed, key, (is_allowed, now + ttl_s))
        return is_allowed


def _attributes(verb: str, info: RequestInfo) -> dict[str, str]:
    """Return what a review is asked about; always with the same members."""
    if not info.is_resource:
        return {"path": info.path, "verb": verb}
    return {
        "verb": verb,
        "group": info.group,
        "version": info.version,
        "resource": info.resource,
        "subresource": info.subresource,
        "namespace": info.namespace,
        "name": info.name,
    }


def _keep(memory: dict[Any, Any], key: object, value: object) -> None:
    if len(memory) >= _KEPT_MAX:
        memory.clear()
    memory[key] = value


def _of_certificate(der: bytes) -> _User | None:
    subject = x509.load_der_x509_certificate(der).subject
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    if not names:
        return None
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return _User(names[0], (*(str(each.value) for each in groups), AUTHENTICATED))


def review_access(
    stack: AsyncExitStack, cluster: Cluster, settings: PageSettings, clock: Clock, agent: str
) -> Access:
    """Return the access that the flags ask for, its connections closed with the stack.

    cluster: the credentials of requests, unless flags name others. Raises KubeconfigError.
    """

    def api(path: str, role: str) -> Api:
        found = Api(connect(load(path) if path else cluster), Options(user_agent=f"{agent}/{role}"))
        stack.push_async_callback(found.close)
        return found

    return Access(
        api(settings.authentication_kubeconfig, "authentication"),
        api(settings.authorization_kubeconfig, "authorization"),
        clock,
        settings,
    )
