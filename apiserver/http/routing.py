"""Which verb of which endpoint a request is for, or which page, or why there is none.

    route("GET", "/api/v1/namespaces/a/pods/web")   → Route(info, endpoint, "get")
    route("GET", "/api/v1/namespaces/a/bogus")      → Route(info, error=404 Status)
    route("GET", "/bogus/path")                     → Route(info, page="/bogus/path")

What a request is about is known of any path (`info`): who may ask is decided before whether there
is an answer. Routes of short targets are remembered until nobody has asked for them between two
calls of `age`: names of objects that are gone are not asked for again.

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
"""Subresources that pass a stream on."""
PROXIED: Final = frozenset(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
"""Methods that `proxy` passes on."""
REQUEST_TIMEOUT_NS: Final = 60_000_000_000
WRITE_TIMEOUT_NS: Final = 34_000_000_000
"""For a write of one object: admission, validation and the store."""
WRITES: Final = frozenset(("create", "update", "patch", "delete"))
_NAMESPACES: Final = GroupResource("", "namespaces")
_AT: Final = "/at/"
_CACHED_TARGET_MAX: Final = 512
_CACHED_MAX: Final = 512
"""Since `age` was last called, and as many from before."""


class Route:
    """What a request is for."""

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
        """Begin with what is known of any path."""
        self.info: Final = info
        self.query: Final = query
        self.endpoint: Endpoint | None = None
        """None: a page, or nothing."""
        self.verb = ""
        """Of the endpoint: what is done; `connect` for streams."""
        self.error: ApiError | None = None
        self.at = ""
        """The resourceVersion or time in front of the path."""
        self.is_long = False
        """Whether it lasts as long as either side wants."""
        self.timeout_ns = REQUEST_TIMEOUT_NS
        """For the whole request, unless it is long."""
        self.bad_timeout: ApiError | None = None
        self.asked: Attributes | None = None
        """It as authorizers saw it last, of whoever asked."""
        self.recordings: dict[tuple[str, tuple[str, ...]], Recording] | None = None
        """How the audit records requests, by name and groups of the user."""
        self.flows: RouteFlows | None = None
        """Of priority and fairness."""
        self.series: Series | None = None
        """What counts requests."""
        self.unreadable = ""
        """Why the path cannot be read at all; empty: it can."""


class Router:
    """Finds routes among the endpoints that are served."""

    def __init__(self, endpoints: Endpoints, timeout_ns: int = REQUEST_TIMEOUT_NS) -> None:
        """Route to endpoints; timeout_ns: for requests that ask for no shorter time."""
        self._endpoints = endpoints
        self._timeout_ns = timeout_ns
        self._long_paths: set[str] = set()
        self._cache: dict[tuple[str, str], Route] = {}
        self._older: dict[tuple[str, str], Route] = {}
        """Asked for before `age` was last called, and not since."""

    def route(self, method: str, target: str) -> Route:
        """Return the route of a request; the same object for equal requests."""
        key = (method, target)
        found = self._cache.get(key)
        if found is None:
            found = self._older.pop(key, None) or self._route(method, target)
            if len(target) <= _CACHED_TARGET_MAX:
                if len(self._cache) >= _CACHED_MAX:
                    self.age()
                self._cache[key] = found
        return found

    def add_long(self, path: str) -> None:
        """Give requests for a page as long as they take."""
        self._long_paths.add(path)
        self.forget()

    def age(self) -> None:
        """Forget the routes that nobody has asked for since this was called last."""
        self._older, self._cache = self._cache, {}

    def forget(self) -> None:
        """Forget routes: endpoints have come or gone."""
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
            # With two slashes it is authorized like the resource, but no endpoint has such a path.
            self._find(route, method)
        return route

    def _is_there(self, info: RequestInfo) -> bool:
        """Tell whether the resource is, of which a subresource is not."""
        return self._endpoints.find(info.group, info.version, info.resource, "") is not None

    def _find(self, route: Route, method: str) -> None:
        info = route.info
        if not self._endpoints.serves(info.group, info.version):
            route.is_long = info.verb in ("watch", "proxy")  # if another server serves it
            return  # the same as any other path that nobody knows
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
        asked = durations.parse(text)
    except durations.DurationError as error:
        route.bad_timeout = status.bad_request(
            f"invalid timeout specified in the request URL - {error}"
        )
        return
    if 0 < asked < route.timeout_ns:
        route.timeout_ns = asked


def _has_shape(endpoint: Endpoint, info: RequestInfo) -> bool:
    """Tell whether a path has namespace, name and nothing else where the resource has them."""
    row = endpoint.row
    parts = info.parts[:3] if info.subresource == "proxy" else info.parts
    if info.verb == "proxy" or "" in parts:
        return False
    if info.verb_is_in_path and info.subresource:
        return False  # objects can be watched; a right to watch a part is none to watch the object
    has_name = len(info.parts) > 1
    if has_name and not info.subresource and _NAMED.isdisjoint(row.verbs):
        return False
    if row.is_namespaced:
        if has_name and not info.namespace:
            return False
        if not has_name and not info.namespace and "list" not in row.verbs:
            return False  # there is no path without a namespace but to list all
    elif info.namespace and not _is_namespace_itself(endpoint, info):
        return False
    return len(info.parts) <= 3 or info.subresource in CONNECTING


def _is_namespace_itself(endpoint: Endpoint, info: RequestInfo) -> bool:
    """Tell whether a path is that of the namespace that it names, and not of one below it.

    A right to namespaces in a namespace is one to this very namespace.
    """
    if endpoint.resource != _NAMESPACES:
        return False
    return len(info.parts) > 1 and info.parts[1] == info.namespace


def _verb(endpoint: Endpoint, info: RequestInfo, method: str) -> str | None:
    """Return what a method does there; None: nothing."""
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
