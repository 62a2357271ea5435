"""OpenAPI documents, for kubectl explain and client generators.

    /openapi/v3                    the documents there are, with their hashes
    /openapi/v3/apis/apps/v1       one of them; with ?hash=… it never changes and may be kept
    /openapi/v2                    all in one, for old clients

Documents are large and seldom requested: each is built in a thread of its own on its first request.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping
from email.utils import formatdate
from typing import Final, NamedTuple, TypeAlias

import orjson

from kvstack.apimachinery.schema.openapi import v2
from kvstack.apimachinery.schema.openapi.protobuf import encode_v2, encode_v3
from kvstack.apimachinery.schema.openapi.v3 import Documents
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.schema.table import Table
from kvstack.apiserver.http.answers import PLAIN_TEXT, Header, Headers, Reply
from kvstack.apiserver.http.negotiation import parse_accept
from kvstack.apiserver.http.pages.page_set import Page, check_reading
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.verbs.forms.bodies import JSON
from kvstack.component.clock import Clock
from kvstack.component.http.serving.request import Request

_V3_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
_V3_PROTOBUF_OLD: Final = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
_V2_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_V2_PROTOBUF_OLD: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_V3_TYPES: Final = {JSON: JSON, _V3_PROTOBUF: _V3_PROTOBUF, _V3_PROTOBUF_OLD: _V3_PROTOBUF}
_V2_TYPES: Final = {JSON: JSON, _V2_PROTOBUF: _V2_PROTOBUF, _V2_PROTOBUF_OLD: _V2_PROTOBUF}
_VARY: Final = ("Vary", "Accept")
_YEAR_S: Final = 365 * 24 * 3600
_V3: Final = "/openapi/v3"
_V2: Final = "v2"

Merge: TypeAlias = Callable[[v2.Document], v2.Document]
"""Returns a merged document of version 2; the argument is not changed."""


class _Document(NamedTuple):
    body: bytes
    hash: str


class OpenApiPages:
    """The documents of the served resources."""

    def __init__(
        self,
        table: Table,
        rows: Callable[[], Iterable[Resource]],
        version: str,
        clock: Clock,
    ) -> None:
        """version: such as `1.37`."""
        self._table = table
        self._rows = rows
        self._version = version
        self._clock = clock
        self._documents: Documents | None = None
        self._before: Documents | None = None
        self._made: dict[tuple[str, str], _Document] = {}
        self._making = asyncio.Lock()
        self.remotes: Callable[[], Mapping[str, str]] = dict
        """Returns the documents of aggregated servers: names, and their hashes."""
        self.serve_remote: Page | None = None
        """Serves such a document."""
        self.merge_remotes: Callable[[], Merge] | None = None
        """Returns a function that merges documents of aggregated servers into that of version 2."""

    def forget(self) -> None:
        """Rebuild all documents: resources have changed."""
        if self._documents is not None:
            self._before, self._documents = self._documents, None
        self._made.clear()

    def forget_remotes(self) -> None:
        """Rebuild the documents that include aggregated servers."""
        for key in [each for each in self._made if each[0] == _V2]:
            del self._made[key]

    async def __call__(self, context: RequestContext) -> None:
        """Answer with a document."""
        request, reply = context.request, context.reply
        path = context.route.info.path
        if path == _V3:
            # This page answers any method and sends no content type.
            made = await self._get("index", "")
            remotes = self.remotes()
            body = _with_remotes(made.body, remotes) if remotes else made.body
            reply.send(200, PLAIN_TEXT[1], body)
            return
        name = path[len(_V3) + 1 :]
        if self.serve_remote is not None and name in self.remotes():
            await self.serve_remote(context)
            return
        check_reading(request)
        if path == "/openapi/v2":
            await self._serve_v2(request, reply)
        else:
            await self._serve_v3(context, name)

    async def _serve_v2(self, request: Request, reply: Reply) -> None:
        content_type = _accepted(request, _V2_TYPES)
        if not content_type:
            reply.send_nothing(406, _VARY)
            return
        made = await self._get(_V2, content_type)
        self._send(request, reply, content_type, made)

    async def _serve_v3(self, context: RequestContext, name: str) -> None:
        request, reply = context.request, context.reply
        documents = self._current()
        if name not in documents.names:
            reply.send_nothing(404)
            return
        content_type = _accepted(request, _V3_TYPES)
        if not content_type:
            reply.send_nothing(406, _VARY)
            return
        document = await self._get(name, content_type)
        requested_hash = context.route.query.get("hash", [""])[0]
        extra_headers: Headers = []
        if requested_hash == document.hash:
            reply.cache_control = "public, immutable"
            now_s = self._clock.unix_ms() / 1000
            extra_headers.append(("Expires", formatdate(now_s + _YEAR_S, usegmt=True)))
        elif requested_hash:
            where = f"{_V3}/{name}?hash={document.hash}"
            tag = ("Etag", f'"{document.hash}"')
            reply.send(301, content_type, b"", ("Location", where), tag, _VARY)
            return
        self._send(request, reply, content_type, document, *extra_headers)

    @staticmethod
    def _send(
        request: Request, reply: Reply, content_type: str, document: _Document, *own: Header
    ) -> None:
        tag = f'"{document.hash}"'
        if tag in request.header("if-none-match"):
            reply.send_nothing(304, ("Etag", tag), _VARY, *own)
        else:
            reply.send(200, content_type, document.body, ("Etag", tag), _VARY, *own)

    def _current(self) -> Documents:
        if self._documents is None:
            rows, before = list(self._rows()), self._before
            self._before = None
            self._documents = (
                Documents(self._table, rows, self._version)
                if before is None
                else before.changed(rows)
            )
        return self._documents

    async def _get(self, name: str, content_type: str) -> _Document:
        key = (name, content_type)
        found = self._made.get(key)
        if found is not None:
            return found
        async with self._making:
            documents = self._current()
            merge = self.merge_remotes() if self.merge_remotes and name == _V2 else _as_it_is
            made = await asyncio.to_thread(
                _make, documents, self._version, name, content_type, merge
            )
            if documents is self._documents:
                self._made[key] = made
        return made


def _as_it_is(document: v2.Document) -> v2.Document:
    return document


def _make(
    documents: Documents, version: str, name: str, content_type: str, merge: Merge
) -> _Document:
    """Return a document; runs in a thread of its own."""
    if name == "index":
        body = orjson.dumps(documents.index())
        return _Document(body, _hash(body))
    if name == _V2:
        document = merge(v2.document(documents, version))
        body = orjson.dumps(document)
        digest = _hash(body)
        return _Document(body if content_type == JSON else encode_v2(document), digest)
    digest = documents.hash(name)
    if content_type == JSON:
        return _Document(documents.json(name), digest)
    return _Document(encode_v3(documents.document(name)), digest)


def _with_remotes(index: bytes, remotes: Mapping[str, str]) -> bytes:
    found = orjson.loads(index)
    for name, digest in remotes.items():
        url = f"{_V3}/{name}?hash={digest}" if digest else f"{_V3}/{name}"
        found["paths"][name] = {"serverRelativeURL": url}
    found["paths"] = dict(sorted(found["paths"].items()))
    return orjson.dumps(found)


def _hash(body: bytes) -> str:
    return hashlib.sha512(body).hexdigest().upper()


def _accepted(request: Request, types: dict[str, str]) -> str:
    """Return the content type of the best accepted media type; empty: none."""
    accept = request.header("accept")
    if not accept:
        return JSON
    for clause in parse_accept(accept):
        for media_type, content_type in types.items():
            type_, _, subtype = media_type.partition("/")
            if clause.type in (type_, "*") and clause.subtype in (subtype, "*"):
                return content_type
    return ""
