"""Discovery: the groups, versions and resources that are served.

    /api, /apis                          legacy lists, or aggregated discovery, if requested
    /apis/{group}                        one group
    /api/v1, /apis/{group}/{version}     the resources of one version

Documents are built on the first request, and again after resources have changed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.schema import discovery
from kvstack.apimachinery.schema.discovery import Document, Group, RemoteVersion
from kvstack.apimachinery.schema.load import built_in_type
from kvstack.apimachinery.schema.protobuf.codec import to_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import wrap
from kvstack.apimachinery.schema.resource import Kind, Resource
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.http.answers import Headers, Reply
from kvstack.apiserver.http.encoding import load_type, write_plain
from kvstack.apiserver.http.negotiation import (
    AGGREGATED,
    DISCOVERY,
    DISCOVERY_ROOT,
    PLAIN,
    NotAcceptableError,
    Offer,
    Representation,
    negotiate,
)
from kvstack.apiserver.http.pages.page_set import check_get, check_reading, not_found
from kvstack.apiserver.http.pretty import is_pretty
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.verbs.forms.bodies import PROTOBUF
from kvstack.component.http.serving.request import Request

_AGGREGATED_KIND: Final = Kind(DISCOVERY, "v2", AGGREGATED)
_PLAIN_UNROUTED: Final = Offer(is_routed=False, transforms=False)


class _EncodedDocument(NamedTuple):
    """A document in one media type."""

    content_type: str
    body: bytes
    etag: str = ""


class DiscoveryPages:
    """The documents of the served resources."""

    def __init__(
        self,
        rows: Callable[[], Iterable[Resource]],
        address: Callable[[], str],
        priority: Callable[[str, str], tuple[int, int]],
    ) -> None:
        """rows: returns the rows in order; address: the server's own host:port.

        priority: returns the priority of a group and version; see `discovery.with_remotes`.
        """
        self._rows = rows
        self._priority = priority
        self.remotes: Callable[[], Sequence[RemoteVersion]] = tuple
        """Returns what aggregated servers serve."""
        self._address = address
        self.generation = 0
        """Changes whenever the documents may have changed."""
        self._groups: dict[str, Group] | None = None
        self._written: dict[tuple[str, str, str, bool], _EncodedDocument] = {}

    def forget(self) -> None:
        """Rebuild all documents: resources have changed."""
        self.generation += 1
        self._groups = None
        self._written.clear()

    @property
    def paths(self) -> list[str]:
        """The paths of all documents."""
        all_paths = ["/api", "/apis"]
        for name, group in self._all().items():
            if name:
                all_paths.append(f"/apis/{name}")
            head = f"/apis/{name}" if name else "/api"
            all_paths += [f"{head}/{each.name}" for each in group.versions]
        return all_paths

    async def __call__(self, context: RequestContext) -> None:
        """Answer with a document."""
        request, reply = context.request, context.reply
        path = context.route.info.path.rstrip("/")
        if path in ("/api", "/apis"):
            check_reading(request) if path == "/apis" else check_get(request)
            self._send_root(request, reply, path)
            return
        document = self._document(path)
        if document is None:
            group = path.split("/")[2]
            if path.startswith("/api/") or (group and self._is_built_in(group)):
                raise status.generic(404)
            not_found(reply)
            return
        check_get(request)
        representation = negotiate(request.header("accept"), PLAIN)
        pretty = is_pretty(request, representation)
        written = self._write(path, representation, lambda: document, is_pretty=pretty)
        reply.send(200, written.content_type, written.body)

    def _send_root(self, request: Request, reply: Reply, path: str) -> None:
        accept = request.header("accept")
        try:
            representation = negotiate(accept, DISCOVERY_ROOT) if accept else None
        except NotAcceptableError:
            representation = None
        if representation is None:
            plain = negotiate(accept, _PLAIN_UNROUTED)
            pretty = is_pretty(request, plain)
            written = self._write(path, plain, lambda: self._root(path), is_pretty=pretty)
            reply.send(200, written.content_type, written.body)
            return
        pretty = is_pretty(request, representation)
        written = self._aggregated(path, representation, is_pretty=pretty)
        own: Headers = [("ETag", written.etag), ("Vary", "Accept")]
        reply.cache_control = "public"
        if request.header("if-none-match") == written.etag:
            reply.send_nothing(304, *own)
        else:
            reply.send(200, written.content_type, written.body, *own)

    def _all(self) -> dict[str, Group]:
        if self._groups is None:
            own = discovery.groups_of(self._rows())
            groups = discovery.with_remotes(own, self.remotes(), self._priority)
            self._groups = {each.name: each for each in groups}
        return self._groups

    def _is_built_in(self, name: str) -> bool:
        group = self._all().get(name)
        return group is not None and any(
            not row.is_custom for version in group.versions for row in version.rows
        )

    def _root(self, path: str) -> Document:
        if path == "/api":
            return discovery.api_versions(self._address())
        return discovery.group_list(self._all().values())

    def _document(self, path: str) -> Document | None:
        """Return the document of a group or version; None: there is none."""
        parts = path.strip("/").split("/")
        if len(parts) > (2 if parts[0] == "api" else 3):
            return None
        if parts[0] == "api":
            group, version = self._all().get("") if parts[1] else None, parts[1]
        else:
            group = self._all().get(parts[1]) if parts[1] else None
            version = parts[2] if len(parts) > 2 else ""
            if len(parts) > 2 and not version:
                return None
        if group is None:
            return None
        if not version:
            return discovery.group_document(group)
        found = next((each for each in group.versions if each.name == version), None)
        return None if found is None else discovery.resource_list(group.name, found)

    def _write(
        self,
        path: str,
        representation: Representation,
        document: Callable[[], Document],
        *,
        is_pretty: bool,
    ) -> _EncodedDocument:
        key = (path, representation.media_type, "", is_pretty)
        written = self._written.get(key)
        if written is None:
            made = document()
            kind: str = made["kind"]
            version, media_type = made.get("apiVersion", ""), representation.media_type
            body = _encoded(made, kind, version, media_type, is_pretty=is_pretty)
            written = self._written[key] = _EncodedDocument(representation.media_type, body)
        return written

    def _aggregated(
        self, path: str, representation: Representation, *, is_pretty: bool
    ) -> _EncodedDocument:
        media_type = representation.media_type
        key = (path, media_type, AGGREGATED, is_pretty)
        written = self._written.get(key)
        if written is None:
            groups = [each for each in self._all().values() if bool(each.name) == (path == "/apis")]
            document = discovery.aggregated(groups)
            version = document["apiVersion"]
            body = _encoded(document, AGGREGATED, version, media_type, is_pretty=is_pretty)
            content_type = f"{media_type};g={DISCOVERY};v=v2;as={AGGREGATED}"
            written = _EncodedDocument(content_type, body, discovery.etag(document))
            self._written[key] = written
        return written


def _encoded(
    document: Document, kind: str, api_version: str, media_type: str, *, is_pretty: bool
) -> bytes:
    if media_type == PROTOBUF:
        return wrap(api_version, kind, to_protobuf(document, _type(kind)))
    return write_plain(document, media_type, is_pretty=is_pretty)


def _type(kind: str) -> Type:
    if kind == AGGREGATED:
        return built_in_type(_AGGREGATED_KIND)
    return load_type(kind)
