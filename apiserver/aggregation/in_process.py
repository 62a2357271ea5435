"""Groups and versions that agents of this process serve.

    here = ServedHere(remotes)
    here.add(ServedVersion("metrics.k8s.io", "v1", …))
    here.at("/apis/metrics.k8s.io/v1/nodes")     the ServedVersion, or None

One is served while there is an APIService of its name without a Service, and as long as no version
of its group has one with a Service: an installed server takes the whole group over.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.discovery import CURRENT, RemoteVersion
from kvstack.apimachinery.schema.openapi.protobuf import encode_v3
from kvstack.apiserver.aggregation.openapi_v2 import Document
from kvstack.apiserver.aggregation.remotes import Remotes
from kvstack.apiserver.http.answers import Reply
from kvstack.apiserver.http.pages.page_set import Page
from kvstack.apiserver.verbs.forms.bodies import JSON
from kvstack.component.http.serving.request import Request

_PROTOBUF: Final = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
_PROTOBUF_MARK: Final = "proto-openapi.spec.v3"


class ServedVersion(NamedTuple):
    """A group and version of an agent."""

    group: str
    version: str
    group_priority: int
    version_priority: int
    resources: Sequence[Object]
    """Resources in the form of aggregated discovery."""
    openapi_v3: Document
    openapi_v2: Document
    """A document with the members paths, definitions and parameters."""
    serve: Page
    """Handles an authorized request."""

    @property
    def document(self) -> str:
        """The name of its OpenAPI document."""
        return f"apis/{self.group}/{self.version}"


class ServedHere:
    """All groups and versions of this process."""

    def __init__(self, remotes: Remotes) -> None:
        self._remotes: Final = remotes
        self._added: dict[tuple[str, str], ServedVersion] = {}
        self._served: dict[tuple[str, str], ServedVersion] = {}
        self.on_change: Final[list[Callable[[], None]]] = []
        """Called when the served versions have changed."""
        remotes.on_change.append(self._see)

    def add(self, served: ServedVersion) -> None:
        """Serve a version from now on."""
        self._added[served.group, served.version] = served
        self._see()

    def remove(self, served: ServedVersion) -> None:
        """Stop serving a version."""
        self._added.pop((served.group, served.version), None)
        self._see()

    def at(self, path: str) -> ServedVersion | None:
        """Return the version that serves a path; None: none of this process."""
        if not self._served:
            return None
        parts = path.split("/", 4)
        if len(parts) < 4 or parts[1] != "apis":
            return None
        return self._served.get((parts[2], parts[3]))

    @property
    def versions(self) -> list[RemoteVersion]:
        """The served versions, for discovery."""
        return [
            RemoteVersion(
                each.group,
                each.version,
                each.group_priority,
                each.version_priority,
                each.resources,
                CURRENT,
            )
            for each in self._served.values()
        ]

    @property
    def openapi(self) -> Mapping[str, str]:
        """The OpenAPI documents: names, and their hashes."""
        return {each.document: _hash(each) for each in self._served.values()}

    @property
    def openapi_v2(self) -> Iterable[Document]:
        """Parts of the OpenAPI document of version 2."""
        return [each.openapi_v2 for each in self._served.values()]

    def serve_openapi(self, served: ServedVersion, request: Request, reply: Reply) -> None:
        """Answer with the document of a version."""
        tag = ("Etag", f'"{_hash(served)}"')
        if _PROTOBUF_MARK in request.header("accept"):
            reply.send(200, _PROTOBUF, encode_v3(served.openapi_v3), tag)
        else:
            reply.send(200, JSON, orjson.dumps(served.openapi_v3), tag)

    def _see(self) -> None:
        """Update the served versions."""
        foreign = {each.group for each in self._remotes.all}
        served = {
            key: each
            for key, each in self._added.items()
            if key in self._remotes.local and each.group not in foreign
        }
        if served.keys() != self._served.keys():
            self._served = served
            for changed in self.on_change:
                changed()
        self._served = served


def _hash(served: ServedVersion) -> str:
    return hashlib.sha512(orjson.dumps(served.openapi_v3)).hexdigest().upper()
