"""Authentication and authorization of a kubelet's clients, by certificates and API reviews."""

from typing import Final, NamedTuple

from cryptography import x509
from cryptography.x509.oid import NameOID

from kvstack.agents.client.api import Api
from kvstack.agents.client.resource_type import ResourceType
from kvstack.component.clock import Clock
from kvstack.component.http.serving.request import Request

SUBJECT_ACCESS_REVIEWS: Final = ResourceType(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    is_namespaced=False,
)
TOKEN_REVIEWS: Final = ResourceType(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", is_namespaced=False
)
_VERBS: Final = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_SUBRESOURCES: Final = (
    ("/pods", ("pods", "proxy")),
    ("/allocatedPods", ("pods", "proxy")),
    ("/runningpods", ("pods", "proxy")),
    ("/healthz", ("healthz", "proxy")),
    ("/configz", ("configz", "proxy")),
    ("/stats", ("stats",)),
    ("/metrics", ("metrics",)),
    ("/logs", ("log",)),
    ("/checkpoint", ("checkpoint",)),
    ("/statusz", ("statusz",)),
    ("/flagz", ("configz",)),
)
"""Subresources by the prefix of a path; any other is `proxy`."""
_ALLOWED_S: Final = 300.0
_DENIED_S: Final = 30.0
_TOKEN_S: Final = 120.0
_KEPT_MAX: Final = 1000


class Caller(NamedTuple):
    """The user of a request."""

    name: str
    groups: tuple[str, ...]


_ANONYMOUS: Final = Caller("system:anonymous", ("system:unauthenticated",))


class Denied(NamedTuple):
    """Why a request is refused."""

    code: int
    text: str


class Access:
    """Decides on requests; answers are remembered for a while."""

    def __init__(
        self,
        api: Api,
        node: str,
        clock: Clock,
        *,
        anonymous: bool = False,
        reviews_tokens: bool = True,
        allows_all: bool = False,
    ) -> None:
        """Authorizes requests for the node of this kubelet.

        anonymous: whether anybody may ask; reviews_tokens: whether the API is asked who has a
        token; allows_all: whether it is not asked what they may.
        """
        self._reviews_tokens = reviews_tokens
        self._allows_all = allows_all
        self._api = api
        self._node = node
        self._clock = clock
        self._anonymous = anonymous
        self._holders: dict[str, tuple[Caller | None, float]] = {}
        self._known: dict[tuple[Caller, str, str], tuple[bool, float]] = {}

    async def denied(self, request: Request, path: str) -> Denied | None:
        """Return why a request is refused; None: it may be answered. ApiError, UnreachableError."""
        caller = _caller(request) or await self._holder(request)
        if caller is None and self._anonymous:
            caller = _ANONYMOUS
        if caller is None:
            return Denied(401, "Unauthorized")
        if self._allows_all:
            return None
        verb = _VERBS.get(request.method, "")
        wanted = _subresources(path)
        for subresource in wanted:
            if await self._may(caller, verb, subresource):
                return None
        shown = " ".join(wanted)
        text = (
            f"Forbidden (user={caller.name}, verb={verb}, resource=nodes, subresource(s)=[{shown}])"
        )
        return Denied(403, f"{text}\n")

    async def _holder(self, request: Request) -> Caller | None:
        """Return the user of a request's token, by a TokenReview; None: none."""
        kind, _, token = request.header("authorization").partition(" ")
        if kind.lower() != "bearer" or not token or not self._reviews_tokens:
            return None
        now = self._clock.monotonic_s()
        known = self._holders.get(token)
        if known is not None and known[1] > now:
            return known[0]
        asked = {
            "apiVersion": TOKEN_REVIEWS.api_version,
            "kind": TOKEN_REVIEWS.kind,
            "spec": {"token": token},
        }
        status = (await self._api.create(TOKEN_REVIEWS, "", asked))["status"]
        found = None
        if status.get("authenticated"):
            user = status.get("user") or {}
            found = Caller(user.get("username", ""), tuple(user.get("groups") or ()))
        if len(self._holders) >= _KEPT_MAX:
            self._holders.clear()
        self._holders[token] = (found, now + _TOKEN_S)
        return found

    async def _may(self, caller: Caller, verb: str, subresource: str) -> bool:
        key = (caller, verb, subresource)
        now = self._clock.monotonic_s()
        known = self._known.get(key)
        if known is not None and known[1] > now:
            return known[0]
        attributes = {
            "verb": verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": subresource,
            "name": self._node,
        }
        asked = {
            "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
            "kind": SUBJECT_ACCESS_REVIEWS.kind,
            "spec": {
                "user": caller.name,
                "groups": list(caller.groups),
                "resourceAttributes": attributes,
            },
        }
        answer = await self._api.create(SUBJECT_ACCESS_REVIEWS, "", asked)
        is_allowed = bool(answer["status"].get("allowed"))
        if len(self._known) >= _KEPT_MAX:
            self._known.clear()
        self._known[key] = (is_allowed, now + (_ALLOWED_S if is_allowed else _DENIED_S))
        return is_allowed


def _caller(request: Request) -> Caller | None:
    connection = request.connection
    if not connection.certificates or not connection.verified_by:
        return None
    subject = x509.load_der_x509_certificate(connection.certificates[0]).subject
    names = [str(each.value) for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    if not names:
        return None
    return Caller(names[0], (*(str(each.value) for each in groups), "system:authenticated"))


def _subresources(path: str) -> tuple[str, ...]:
    for prefix, found in _SUBRESOURCES:
        if path == prefix or path.startswith(f"{prefix}/"):
            return found
    return ("proxy",)
