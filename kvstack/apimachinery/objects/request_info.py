"""The subject of a request, for authorizers, audit, metrics and error texts.

    request_info("GET", "/api/v1/namespaces/a/pods/web/log")
    → verb get, group "", version v1, namespace a, resource pods, name web, subresource log

    request_info("GET", "/apis/apps/v1/deployments", "watch=1&fieldSelector=metadata.name%3Dweb")
    → verb watch, name web

A path with fewer than three parts, or below another root than /api and /apis, is not a resource:
its verb is the method in lower case. Whether a resource is served is not asked here.

`path` is taken with its escapes undone, and the query as it was sent. What depends on the path
alone is remembered.
"""

from functools import lru_cache
from typing import Final
from urllib.parse import parse_qsl

from kvstack.apimachinery.objects import fields, labels
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int

Query = dict[str, list[str]]
"""The values of each parameter, in order."""

QUERY_FIELDS_MAX: Final = 10_000

_VERBS: Final = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_PATH_VERBS: Final = frozenset(("proxy", "watch"))
_NAMESPACE_SUBRESOURCES: Final = frozenset(("status", "finalize"))
_FALSE: Final = frozenset(("false", "0"))
_CACHED_PATH_MAX: Final = 512
_CACHED_PATHS: Final = 64
"""Cached paths, which are requested with many queries; the router caches more."""


class RequestInfoError(ValueError):
    """A path that names a special verb and nothing else; the text is upstream's."""


class RequestInfo:
    """The subject of a request; immutable."""

    __slots__ = (
        "api_prefix",
        "field_selector",
        "group",
        "is_resource",
        "label_selector",
        "name",
        "namespace",
        "parts",
        "path",
        "resource",
        "subresource",
        "verb",
        "verb_is_in_path",
        "version",
    )

    def __init__(self, path: str, verb: str) -> None:
        """Create the info of a non-resource path."""
        self.path: str = path
        self.verb: str = verb
        """get, list, watch, create, update, patch, delete, deletecollection, proxy; empty for a
        method that means nothing to a resource."""
        self.is_resource: bool = False
        self.api_prefix: str = ""
        """`api` or `apis`."""
        self.group: str = ""
        self.version: str = ""
        self.namespace: str = ""
        self.resource: str = ""
        self.name: str = ""
        """The name in the path, or the one that a field selector requires of `metadata.name`."""
        self.subresource: str = ""
        self.parts: tuple[str, ...] = ()
        """The parts of the path, from the resource on."""
        self.verb_is_in_path: bool = False
        """Whether the path is /api/v1/watch/… or /api/v1/proxy/…"""
        self.field_selector: str = ""
        """As it was sent; of list, watch and deletecollection only."""
        self.label_selector: str = ""


def parse_query(text: str) -> Query:
    """Return the parameters of a query; what cannot be read as a pair is left out."""
    query: Query = {}
    if text:
        if ";" in text:
            text = "&".join(each for each in text.split("&") if ";" not in each)
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError:
            return query
        for name, value in pairs:
            query.setdefault(name, []).append(value)
    return query


def request_info(method: str, path: str, query: Query | None = None) -> RequestInfo:
    """Return what a request is about; raises RequestInfoError."""
    info = _cached(method, path) if len(path) <= _CACHED_PATH_MAX else _of_path(method, path)
    if info.verb_is_in_path or not info.is_resource:
        return info
    if info.name:
        return info
    if info.verb == "get":
        return _of_collection(info, query or {}, "list")
    if info.verb == "delete":
        return _of_collection(info, query or {}, "deletecollection")
    return info


def is_true(value: str) -> bool:
    """Return what a boolean parameter means: anything but `false` and `0`, also nothing."""
    return value.lower() not in _FALSE


@lru_cache(maxsize=_CACHED_PATHS)
def _cached(method: str, path: str) -> RequestInfo:
    return _of_path(method, path)


def _of_path(method: str, path: str) -> RequestInfo:
    info = RequestInfo(path, method.lower())
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in ("api", "apis"):
        return info
    prefix = parts.pop(0)
    if prefix == "apis" and len(parts) < 3:
        info.api_prefix = prefix
        return info
    info.api_prefix = prefix
    if prefix == "apis":
        info.group = parts.pop(0)
    info.is_resource = True
    info.version = parts.pop(0)
    if parts[0] in _PATH_VERBS:
        if len(parts) < 2:
            raise RequestInfoError(f"unable to determine kind and namespace from url, {path}")
        info.verb = parts.pop(0)
        info.verb_is_in_path = True
    else:
        info.verb = _VERBS.get(method, "")
    _take_parts(info, parts)
    return info


def _take_parts(info: RequestInfo, parts: list[str]) -> None:
    """Read what follows the version and a verb in the path."""
    if parts[0] == "namespaces" and len(parts) > 1:
        info.namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    info.parts = tuple(parts)
    info.resource = parts[0]
    if len(parts) > 1:
        info.name = parts[1]
    if len(parts) > 2 and info.verb != "proxy":
        info.subresource = parts[2]


def _of_collection(info: RequestInfo, query: Query, verb: str) -> RequestInfo:
    """Return what is known of a request without a name once its query is read."""
    listed = RequestInfo(info.path, verb)
    for each in ("is_resource", "api_prefix", "group", "version", "namespace", "resource", "parts"):
        setattr(listed, each, getattr(info, each))
    if not query:
        return listed
    if verb == "list":
        if _is_watch(query):
            listed.verb = "watch"
        listed.name = _selected_name(query)
    listed.field_selector = _first(query, "fieldSelector")
    listed.label_selector = _first(query, "labelSelector")
    return listed


def _is_watch(query: Query) -> bool:
    values = query.get("watch")
    return values is not None and is_true(values[0])


def _selected_name(query: Query) -> str:
    """Return the name that a field selector asks for, if all options can be read."""
    text = _first(query, "fieldSelector")
    if "metadata.name" not in text or not _is_readable(query):
        return ""
    try:
        name = fields.parse(text).exact_value("metadata.name")
    except fields.FieldSelectorError:
        return ""
    return name if name and not check_path_segment(name) else ""


def _is_readable(query: Query) -> bool:
    try:
        for name in ("limit", "timeoutSeconds"):
            if name in query:
                parse_int(query[name][0], 64)
        labels.parse(_first(query, "labelSelector"))
    except (NumberError, labels.SelectorError):
        return False
    return True


def _first(query: Query, name: str) -> str:
    values = query.get(name)
    return values[0] if values else ""
