"""Routing: the endpoint and verb, or the page, of a request.

    route("GET", "/api/v1/namespaces/a/pods/web")   → Route(info, endpoint, "get")
    route("GET", "/api/v1/namespaces/a/bogus")      → Route(info, error=404 Status)
    route("GET", "/bogus/path")                     → Route(info, page="/bogus/path")

The attributes (`info`) of any path are known: authorization comes before the check whether the path
exists. Routes of short targets are cached until they have not been requested between two calls of
`age`, so that names of deleted objects do not stay.

    /at/<resourceVersion or time>/api/v1/pods       the same as of then; see `Route.at`
"""

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kvstack.apimachinery.objects import durations, status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.request_info import (
    Query,
    RequestInfo,
    RequestInfoError,
    parse_query,
    request_info,
)
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.verbs.endpoint import Endpoint, Endpoints

if TYPE_CHECKING:
    from kvstack.apimachinery.attributes import Attributes
    from kvstack.apimachinery.objects.status import ApiError
    from kvstack.apiserver.http.limits.route_flows import RouteFlows
    from kvstack.apiserver.http.request_series import Series
    from kvstack.apiserver.policy.audit.policy import Recording

_COLLECTION_VERBS: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_ITEM_VERBS: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PART_VERBS: Final = {
    "GET": "get",
    "PUT": "update",
    "PATCH": "patch",
    "POST": "create",
    "DELETE": "delete",
}
_NAMED: Final = frozenset(_ITEM_VERBS.values())
CONNECTING: Final = frozenset(("attach", "exec", "log", "portforward", "proxy"))
"""Subresources that forward a stream."""
PROXIED: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
"""Methods that `proxy` forwards."""
REQUEST_TIMEOUT_NS: Final = 60_000_000_000
WRITE_TIMEOUT_NS: Final = 34_000_000_000
"""Timeout of a write of one object: admission, validation and the store."""
WRITES: Final = frozenset(("create", "update", "patch", "delete"))
_NAMESPACES: Final = GroupResource("", "namespaces")
_AT: Final = "/at/"
_CACHED_TARGET_MAX: Final = 512
_CACHED_MAX: Final = 512
"""Limit of routes since `age` was last called, and of those from before."""


class Route:
    """The route of a request."""

    __slots__ = (
        "asked",
        "at",
        "bad_timeout",
        "endpoint",
        "error",
        "flows",
        "info",
        "is_long",
        "query",
        "recordings",
        "series",
        "timeout_ns",
        "unreadable",
        "verb",
    )

    def __init__(self, info: RequestInfo, query: Query) -> None:
        """Take the attributes that any path has."""
        self.info: Final = info
        self.query: Final = query
        self.endpoint: Endpoint | None = None
        """None: a page, or an unknown path."""
        self.verb = ""
        """The endpoint's verb; `connect` for streams."""
        self.error: ApiError | None = None
        self.at = ""
        """The resourceVersion or time before the path."""
        self.is_long = False
        """Whether it is long-running: a watch or a stream."""
        self.timeout_ns = REQUEST_TIMEOUT_NS
        """Timeout of the whole request, unless it is long-running."""
        self.bad_timeout: ApiError | None = None
        self.asked: Attributes | None = None
        """The attributes that were last authorized, with their user."""
        self.recordings: dict[tuple[str, tuple[str, ...]], Recording] | None = None
        """The audit recordings of requests, by name and groups of the user."""
        self.flows: RouteFlows | None = None
        """Flows of priority and fairness."""
        self.series: Series | None = None
        """The series that counts requests."""
        self.unreadable = ""
        """Why the path cannot be parsed; empty: it can."""


class Router:
    """Finds routes among the served endpoints."""

    def __init__(self, endpoints: Endpoints, timeout_ns: int = REQUEST_TIMEOUT_NS) -> None:
        """timeout_ns: for requests without a timeout of their own."""
        self._endpoints = endpoints
        self._timeout_ns = timeout_ns
        self._long_paths: set[str] = set()
        self._cache: dict[tuple[str, str], Route] = {}
        self._older: dict[tuple[str, str], Route] = {}
        """Routes that were not requested since `age` was last called."""

    def route(self, method: str, target: str) -> Route:
        """Return the route of a request; equal requests get the same object."""
        key = (method, target)
        cached = self._cache.get(key)
        if cached is None:
            cached = self._older.pop(key, None) or self._route(method, target)
            if len(target) <= _CACHED_TARGET_MAX:
                if len(self._cache) >= _CACHED_MAX:
                    self.age()
                self._cache[key] = cached
        return cached

    def add_long(self, path: str) -> None:
        """Make a page long-running."""
        self._long_paths.add(path)
        self.forget()

    def age(self) -> None:
        """Drop the routes that were not requested since the last call."""
        self._older, self._cache = self._cache, {}

    def forget(self) -> None:
        """Drop all routes: endpoints have changed."""
        self._cache.clear()
        self._older.clear()

    def _route(self, method: str, target: str) -> Route:
        raw_path, _, raw_query = target.partition("?")
        if "://" in raw_path and not raw_path.startswith("/"):
            raw_path = "/" + raw_path.split("://", 1)[1].partition("/")[2]
        path = unquote(raw_path)
        query = parse_query(raw_query)
        at = ""
        if path.startswith(_AT):
            at, _, rest = path[len(_AT) :].partition("/")
            path = f"/{rest}"
        try:
            info = request_info(method, path, query)
        except RequestInfoError as error:
            route = Route(RequestInfo(path, method.lower()), query)
            route.unreadable = (
                f"Internal Server Error: {quote(target)}: failed to create RequestInfo: {error}\n"
            )
            return route
        route = Route(info, query)
        route.at = at
        route.timeout_ns = self._timeout_ns
        route.is_long = path in self._long_paths
        if "timeout" in query:
            _set_timeout(route, query["timeout"][0])
        if info.is_resource and not path.startswith("//"):
            # With two slashes it is authorized like the resource, but matches no endpoint.
            self._find(route, method)
        return route

    def _is_there(self, info: RequestInfo) -> bool:
        """Return whether the resource of an unknown subresource exists."""
        return self._endpoints.find(info.group, info.version, info.resource, "") is not None

    def _find(self, route: Route, method: str) -> None:
        info = route.info
        if not self._endpoints.serves(info.group, info.version):
            route.is_long = info.verb in ("watch", "proxy")  # if an aggregated server serves it
            return  # handled like other unknown paths
        subresource = info.subresource
        endpoint = self._endpoints.find(info.group, info.version, info.resource, subresource)
        if endpoint is None or not _has_shape(endpoint, info):
            if not self._endpoints.is_custom(info.group, info.version):
                route.error = status.generic(404)
            elif subresource and self._is_there(info):
                route.error = status.not_found(_resource_of(info), info.name)
            return
        verb = _verb(endpoint, info, method)
        if verb is None:
            if not endpoint.row.is_custom:
                route.error = status.generic(405)
            elif info.name:
                done = _PART_VERBS.get(method, method.lower())
                route.error = status.method_not_supported(_resource_of(info), done)
            return
        route.endpoint, route.verb = endpoint, verb
        route.is_long = verb in ("watch", "connect")
        if verb in WRITES:
            route.timeout_ns = min(route.timeout_ns, WRITE_TIMEOUT_NS)


def _resource_of(info: RequestInfo) -> GroupResource:
    return GroupResource(info.group, info.resource)


def _set_timeout(route: Route, text: str) -> None:
    try:
        requested = durations.parse(text)
    except durations.DurationError as error:
        route.bad_timeout = status.bad_request(
            f"invalid timeout specified in the request URL - {error}"
        )
        return
    if 0 < requested < route.timeout_ns:
        route.timeout_ns = requested


def _has_shape(endpoint: Endpoint, info: RequestInfo) -> bool:
    """Return whether a path has namespace and name exactly where the resource has them."""
    row = endpoint.row
    parts = info.parts[:3] if info.subresource == "proxy" else info.parts
    if info.verb == "proxy" or "" in parts:
        return False
    if info.verb_is_in_path and info.subresource:
        return False  # subresources cannot be watched; a right to do so covers no objects
    has_name = len(info.parts) > 1
    if has_name and not info.subresource and _NAMED.isdisjoint(row.verbs):
        return False
    if row.is_namespaced:
        if has_name and not info.namespace:
            return False
        if not has_name and not info.namespace and "list" not in row.verbs:
            return False  # without a namespace only lists of all namespaces exist
    elif info.namespace and not _is_namespace_itself(endpoint, info):
        return False
    return len(info.parts) <= 3 or info.subresource in CONNECTING


def _is_namespace_itself(endpoint: Endpoint, info: RequestInfo) -> bool:
    """Return whether a path is that of the named namespace itself, and not of something in it.

    A right to namespaces in a namespace covers that namespace.
    """
    if endpoint.resource != _NAMESPACES:
        return False
    return len(info.parts) > 1 and info.parts[1] == info.namespace


def _verb(endpoint: Endpoint, info: RequestInfo, method: str) -> str | None:
    """Return the verb of a method; None: there is none."""
    has_name = len(info.parts) > 1
    row = endpoint.row
    if info.verb_is_in_path:
        return "watch" if method == "GET" and "list" in row.verbs else None
    if info.subresource == "proxy":
        return "connect" if method in PROXIED else None
    if info.subresource:
        verb = _PART_VERBS.get(method)
        if verb not in endpoint.verbs:
            return None
        return "connect" if info.subresource in CONNECTING else verb
    if has_name:
        verb = _ITEM_VERBS.get(method)
        return verb if verb in row.verbs else None
    verb = _COLLECTION_VERBS.get(method)
    if verb is None or verb not in row.verbs:
        return None
    if row.is_namespaced and not info.namespace and verb != "list":
        return None
    return "watch" if verb == "list" and info.verb == "watch" else verb
