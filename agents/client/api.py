"""The verbs of the API, on plain objects.

    pod = await api.get(PODS, "default", "web")
    await api.patch(PODS, "default", "web", {"metadata": {…}}, STRATEGIC_MERGE_PATCH)
    async for events in api.watch(PODS, resource_version="17"): …

Refusals raise `ApiError` with the server's Status. No answer at all raises `UnreachableError`; only
reads are asked again then, since a write may have been done. What a server asks to be repeated
(Retry-After) is repeated, as by client-go: up to ten times. A rate limiter may hold requests back.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

import orjson

from kvstack.agents.client.rate_limiter import NO_LIMIT, RateLimiter
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.transport import Response, Transport, UnreachableError
from kvstack.apimachinery.objects import status as statuses
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError

Query: TypeAlias = Mapping[str, str | int | bool]

JSON: Final = "application/json"
METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST: Final = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

_REPEATS_MAX: Final = 10
_REPEATED: Final = frozenset((429, 500, 502, 503, 504))
"""Codes of answers that are repeated if they bear Retry-After."""
_READ_REPEATS_MAX: Final = 3
_NOT_MODIFIED: Final = 304
_READ_BACK_OFF_S: Final = 0.1
_LINE_BYTES_MAX: Final = 64 << 20
_PARSED_AT_ONCE: Final = 32
"""Events: as it is parsed an object takes ten times as much as its text."""


class Event(NamedTuple):
    """One event of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    object: Object


@dataclass(slots=True)
class ObjectList:
    """One page of a list."""

    items: list[Object]
    resource_version: str
    continue_token: str = ""


@dataclass(slots=True, frozen=True)
class Options:
    """Options of all requests of an Api."""

    user_agent: str = "kvstack"
    timeout_s: float = 34.0
    """The timeout of one request, longer than that of servers."""
    limiter: RateLimiter = field(default=NO_LIMIT)


class Api:
    """The API as one user."""

    def __init__(self, transport: Transport, options: Options | None = None) -> None:
        """Send requests over a transport."""
        self._transport = transport
        self._options = options or Options()

    async def close(self) -> None:
        """Give up all connections."""
        await self._transport.close()

    # Reads.

    async def get(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        *,
        subresource: str = "",
        accept: str = JSON,
        resource_version: str | None = None,
        query: Query | None = None,
    ) -> Object:
        """Return an object; query: more parameters."""
        query = dict(query or {})
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        return await self.call(
            "GET", resource.path(namespace, name, subresource), query, accept=accept
        )

    async def list_page(
        self,
        resource: ResourceType,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        continue_token: str = "",
        resource_version: str | None = None,
        accept: str = JSON,
    ) -> ObjectList:
        """Return one page of objects, each with its `apiVersion` and `kind`."""
        query: dict[str, str | int | bool] = {}
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        if limit:
            query["limit"] = limit
        if continue_token:
            query["continue"] = continue_token
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        page = await self.call("GET", resource.path(namespace), query, accept=accept)
        items = page.get("items") or []
        is_partial = page.get("kind") == "PartialObjectMetadataList"
        for item in items:
            if not is_partial:
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
        meta = page.get("metadata") or {}
        return ObjectList(items, meta.get("resourceVersion", ""), meta.get("continue", ""))

    async def list_all(
        self, resource: ResourceType, namespace: str = "", *, labels: str = "", accept: str = JSON
    ) -> list[Object]:
        """Return the objects of all pages."""
        items: list[Object] = []
        token = ""
        while True:
            page = await self.list_page(
                resource, namespace, labels=labels, limit=500, continue_token=token, accept=accept
            )
            items += page.items
            token = page.continue_token
            if not token:
                return items

    async def watch(
        self,
        resource: ResourceType,
        namespace: str = "",
        *,
        resource_version: str = "",
        labels: str = "",
        fields: str = "",
        timeout_s: int = 0,
        bookmarks: bool = True,
        initial_events: bool = False,
        accept: str = JSON,
    ) -> AsyncGenerator[list[Event], None]:
        """Give events as they come, some of those that arrived together in one list, to the end.

        initial_events: first the existing objects, then a bookmark that marks their end. An ERROR
        event raises its ApiError; a stream that breaks off raises UnreachableError.
        """
        query: dict[str, str | int | bool] = {"watch": True}
        if resource_version or not initial_events:
            query["resourceVersion"] = resource_version
        if bookmarks:
            query["allowWatchBookmarks"] = True
        if initial_events:
            query["sendInitialEvents"] = True
            query["resourceVersionMatch"] = "NotOlderThan"
        if labels:
            query["labelSelector"] = labels
        if fields:
            query["fieldSelector"] = fields
        if timeout_s:
            query["timeoutSeconds"] = timeout_s
        response = await self.open("GET", resource.path(namespace), query, accept=accept)
        try:
            rest = b""
            async for piece in response.pieces():
                lines = (rest + piece if rest else piece).split(b"\n")
                rest = lines.pop()
                if len(rest) > _LINE_BYTES_MAX:
                    raise UnreachableError(f"an event is longer than {_LINE_BYTES_MAX} bytes")
                for at in range(0, len(lines), _PARSED_AT_ONCE):
                    if events := [
                        _event(each) for each in lines[at : at + _PARSED_AT_ONCE] if each
                    ]:
                        yield events
        finally:
            response.close()

    # Writes.

    async def create(
        self,
        resource: ResourceType,
        namespace: str,
        obj: Object,
        *,
        name: str = "",
        subresource: str = "",
        field_manager: str = "",
    ) -> Object:
        """Create an object, or (name and subresource) what a subresource creates; return it."""
        path = resource.path(namespace, name, subresource)
        return await self.call("POST", path, _manager(field_manager), orjson.dumps(obj))

    async def update(
        self, resource: ResourceType, obj: Object, *, subresource: str = "", field_manager: str = ""
    ) -> Object:
        """Replace an object, under the condition that its resourceVersion sets; return it."""
        meta = obj["metadata"]
        path = resource.path(meta.get("namespace", ""), meta["name"], subresource)
        return await self.call("PUT", path, _manager(field_manager), orjson.dumps(obj))

    async def patch(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        body: Object | Sequence[Object],
        media_type: str,
        *,
        subresource: str = "",
        field_manager: str = "",
        force: bool = False,
    ) -> Object:
        """Patch an object; force: of a conflict of server-side apply; return it."""
        query: dict[str, str | int | bool] = dict(_manager(field_manager))
        if force:
            query["force"] = True
        path = resource.path(namespace, name, subresource)
        return await self.call("PATCH", path, query, orjson.dumps(body), media_type=media_type)

    async def delete(
        self,
        resource: ResourceType,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: str = "",
        grace_s: int | None = None,
    ) -> Object:
        """Delete an object; return it, or a Status, as the server has it."""
        body: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        conditions = {"uid": uid, "resourceVersion": resource_version}
        if preconditions := {key: value for key, value in conditions.items() if value}:
            body["preconditions"] = preconditions
        if propagation:
            body["propagationPolicy"] = propagation
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        return await self.call("DELETE", resource.path(namespace, name), {}, orjson.dumps(body))

    async def delete_collection(
        self,
        resource: ResourceType,
        namespace: str,
        *,
        labels: str = "",
        fields: str = "",
        propagation: str = "",
    ) -> Object:
        """Delete what the selectors select."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        given = {key: value for key, value in query.items() if value}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        return await self.call(
            "DELETE", resource.path(namespace), given, orjson.dumps(body) if propagation else b""
        )

    # Any request.

    async def call(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        *,
        accept: str = JSON,
        media_type: str = JSON,
    ) -> Object:
        """Return the object that is answered; raises ApiError or UnreachableError."""
        response, data = await self._answered(
            method, path, query, body, accept=accept, media_type=media_type
        )
        return _object(response.status, data)

    async def get_changed(
        self, path: str, etag: str, *, accept: str = JSON
    ) -> tuple[Object | None, str]:
        """Return a document with its ETag; None: it is still that of this ETag. Raises as `call`.

        etag: empty, if unknown; the ETag that is returned is empty if the server has none.
        """
        response, data = await self._answered("GET", path, accept=accept, etag=etag)
        if response.status == _NOT_MODIFIED:
            return None, etag
        return _object(response.status, data), response.header("ETag")

    async def _answered(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        *,
        accept: str,
        media_type: str = JSON,
        etag: str = "",
    ) -> tuple[Response, bytes]:
        repeats = 0
        while True:
            try:
                response = await self.open(
                    method, path, query, body, accept=accept, media_type=media_type, etag=etag
                )
                async with asyncio.timeout(self._options.timeout_s):
                    data = await response.read()
            except (UnreachableError, TimeoutError) as error:
                repeats += 1
                if method != "GET" or repeats > _READ_REPEATS_MAX:
                    if isinstance(error, TimeoutError):
                        raise UnreachableError("the answer did not end in time") from error
                    raise
                await asyncio.sleep(_READ_BACK_OFF_S * 2**repeats)
                continue
            return response, data

    async def open(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: bytes = b"",
        *,
        accept: str = JSON,
        media_type: str = JSON,
        etag: str = "",
    ) -> Response:
        """Return an answer of a code below 400, its body still to be read; raises like `call`.

        etag: of the known document; the answer has the code 304 if it is unchanged.
        """
        target = f"{path}?{_encoded(query)}" if query else path
        headers = [("Accept", accept), ("User-Agent", self._options.user_agent)]
        if etag:
            headers.append(("If-None-Match", etag))
        if body:
            headers.append(("Content-Type", media_type))
        repeats = 0
        while True:
            await self._options.limiter.acquire()
            response = await self._transport.request(
                method, target, headers, body, self._options.timeout_s
            )
            if response.status < 400:
                return response
            data = await response.read()
            wait = response.header("Retry-After")
            if response.status in _REPEATED and wait.isdecimal() and repeats < _REPEATS_MAX:
                repeats += 1
                await asyncio.sleep(int(wait))
                continue
            raise _refusal(response.status, data)


def _manager(name: str) -> dict[str, str]:
    return {"fieldManager": name} if name else {}


def _encoded(query: Query) -> str:
    texts = {
        key: ("true" if value else "false") if isinstance(value, bool) else str(value)
        for key, value in query.items()
    }
    return urlencode(texts, quote_via=quote)


def _event(line: bytes) -> Event:
    try:
        found = orjson.loads(line)
        event = Event(found["type"], found["object"])
    except (ValueError, KeyError, TypeError) as error:
        raise UnreachableError(f"invalid watch event: {line[:200]!r}") from error
    if event.type == "ERROR":
        raise _of_status(event.object, 500)
    return event


def _object(code: int, data: bytes) -> Object:
    try:
        found = orjson.loads(data)
    except ValueError as error:
        raise UnreachableError(f"the answer ({code}) is not JSON: {data[:200]!r}") from error
    if not isinstance(found, dict):
        raise UnreachableError(f"the answer ({code}) is not an object: {data[:200]!r}")
    return found


def _refusal(code: int, data: bytes) -> ApiError:
    try:
        found = orjson.loads(data)
    except ValueError:
        found = None
    if isinstance(found, dict) and found.get("kind") == "Status":
        return _of_status(found, code)
    return statuses.unknown(data.decode("utf-8", "replace").strip() or f"HTTP {code}", code)


def _of_status(found: Object, code: int) -> ApiError:
    found.setdefault("code", code)
    return ApiError(found)
