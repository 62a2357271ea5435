"""OpenAPI v3: one document for each group and version, and an index of them with their hashes.

    documents = Documents(table, rows, version="1.37")
    documents.index()                 what /openapi/v3 answers
    documents.document("apis/apps/v1")
    documents.hash("apis/apps/v1")    of its JSON, as in the index and the Etag

Documents are made at their first use and kept. The index needs the hashes of all.
"""

import hashlib
from collections.abc import Iterable
from operator import is_
from typing import Any, Final

import orjson

from kvstack.apimachinery.schema.discovery import groups_of
from kvstack.apimachinery.schema.openapi.descriptions import Descriptions, load_descriptions
from kvstack.apimachinery.schema.openapi.operations import (
    META,
    PathItem,
    group_words,
    json_yaml_protobuf,
    path_items,
    plain_get,
    reference,
    tag_of,
)
from kvstack.apimachinery.schema.openapi.schemas import REFERENCE, Schema, components
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.schema.table import Table

Document = dict[str, Any]

_VERSION_INFO: Final = "io.k8s.apimachinery.pkg.version.Info"
_SECURITY: Final = {
    "BearerToken": {
        "description": "Bearer Token authentication",
        "in": "header",
        "name": "authorization",
        "type": "apiKey",
    }
}
_OF_ALL_GROUPS: Final = (f"{META}.DeleteOptions", f"{META}.WatchEvent")


class Documents:
    """The documents of these rows; make a new object when rows are added or removed."""

    def __init__(
        self,
        table: Table,
        rows: Iterable[Resource],
        version: str,
        descriptions: Descriptions | None = None,
    ) -> None:
        """Take the rows; `version` is the server's, as `1.37`. Documents are made later."""
        self._table = table
        self._version = version
        self._given_descriptions = descriptions
        self._paths: dict[str, list[Resource]] = {}
        self._groups: dict[str, str] = {}
        for group in groups_of(rows):
            if group.name:
                self._groups[f"apis/{group.name}"] = group.name
            for each in group.versions:
                head = f"apis/{group.name}" if group.name else "api"
                self._paths[f"{head}/{each.name}"] = list(each.rows)
        self.custom_names: set[str] = set()
        """The components of custom resources, of the documents that were made."""
        self._documents: dict[str, Document] = {}
        self._bytes: dict[str, bytes] = {}
        self._hashes: dict[str, str] = {}

    def changed(self, rows: Iterable[Resource]) -> "Documents":
        """Return the documents of other rows, with what was made of those that stay the same."""
        changed = Documents(self._table, rows, self._version, self._given_descriptions)
        for name in self._documents.keys() & set(changed.names):
            if changed.is_same(name, self._paths.get(name)):
                document, digest = self._documents[name], self._hashes.get(name)
                changed.take(name, document, self._bytes.get(name), digest)
        changed.custom_names.update(self.custom_names)
        return changed

    def is_same(self, name: str, rows: list[Resource] | None) -> bool:
        """Return whether a document is about these rows; None: about no version."""
        own = self._paths.get(name)
        if own is None or rows is None:
            return own is rows
        return len(own) == len(rows) and all(map(is_, own, rows))

    def take(self, name: str, document: Document, text: bytes | None, digest: str | None) -> None:
        """Take a document that was made before, its JSON and its hash."""
        self._documents[name] = document
        if text is not None:
            self._bytes[name] = text
        if digest is not None:
            self._hashes[name] = digest

    @property
    def names(self) -> list[str]:
        """The paths of all documents: `api/v1`, `apis`, `apis/apps`, `apis/apps/v1` …."""
        return sorted([*_FIXED, *self._groups, *self._paths])

    def index(self) -> Document:
        """Return the paths of all documents, with their hashes."""
        return {
            "paths": {
                name: {"serverRelativeURL": f"/openapi/v3/{name}?hash={self.hash(name)}"}
                for name in self.names
            }
        }

    def document(self, name: str) -> Document:
        """Return one document; KeyError if it does not exist."""
        found = self._documents.get(name)
        if found is None:
            found = self._documents[name] = self._make(name)
        return found

    def json(self, name: str) -> bytes:
        """Return one document as JSON; KeyError if it does not exist."""
        found = self._bytes.get(name)
        if found is None:
            found = self._bytes[name] = orjson.dumps(self.document(name))
        return found

    def hash(self, name: str) -> str:
        """Return the hash of one document, in capital hexadecimal digits.

        Custom resources know themselves whether they are different, so that the documents of
        thousands need not be made for the index.
        """
        found = self._hashes.get(name)
        if found is None:
            rows = self._paths.get(name) or ()
            told = "".join(each.fingerprint for each in rows)
            # Clients keep documents by their hash: with and without descriptions it differs.
            text = f"{told}{self._descriptions().source}".encode() if told else self.json(name)
            found = self._hashes[name] = hashlib.sha512(text).hexdigest().upper()
        return found

    def _make(self, name: str) -> Document:
        if name in _FIXED:
            path, item, root = _FIXED[name]
            return self._document({path: item}, [root] if root else [])
        if name in self._groups:
            return self._of_group(self._groups[name])
        return self._of_version(name, self._paths[name])

    def _of_group(self, group: str) -> Document:
        root = f"{META}.APIGroup"
        words = group_words(group)
        content = json_yaml_protobuf(reference(root))
        text = "get information of a group"
        item = plain_get(f"get{words}APIGroup", tag_of(group), text, content)
        return self._document({f"/apis/{group}/": item}, [root])

    def _of_version(self, name: str, rows: list[Resource]) -> Document:
        group, version = rows[0].group, rows[0].version
        words = f"{group_words(group)}{version[0].upper()}{version[1:]}"
        root = f"{META}.APIResourceList"
        content = json_yaml_protobuf(reference(root))
        tag = tag_of(group, version)
        item = plain_get(f"get{words}APIResources", tag, "get available resources", content)
        paths = {f"/{name}/": item, **path_items(rows, self._table)}
        custom: dict[str, Schema] = {}
        for row in rows:
            custom.update(row.components(self._descriptions()))
        self.custom_names.update(custom)
        document = self._document(paths, sorted(_references(paths)), custom)
        for each in _OF_ALL_GROUPS:
            schema = document["components"]["schemas"].get(each)
            if schema is not None:
                schema["x-kubernetes-group-version-kind"] = _kinds(each, group, version)
        return document

    def _document(
        self,
        paths: dict[str, PathItem],
        roots: list[str],
        custom: dict[str, Schema] | None = None,
    ) -> Document:
        parts: dict[str, Any] = {}
        if roots:
            parts["schemas"] = self._components(roots, custom or {})
        parts["securitySchemes"] = _SECURITY
        return {
            "components": parts,
            "info": {"title": "Kubernetes", "version": self._version},
            "openapi": "3.0.0",
            "paths": dict(sorted(paths.items())),
        }

    def _descriptions(self) -> Descriptions:
        return self._given_descriptions or load_descriptions(self._version)

    def _components(self, roots: list[str], custom: dict[str, Schema]) -> dict[str, Schema]:
        names = {*roots, *_references(custom)} - custom.keys()
        found = components(names, self._table.types, self._descriptions())
        return dict(sorted({**found, **custom}.items()))


def _kinds(name: str, group: str, version: str) -> list[Schema]:
    kind = name.rpartition(".")[2]
    own = {"group": group, "kind": kind, "version": version}
    core = {"group": "", "kind": kind, "version": "v1"}
    return [core] if own == core else [core, own]


def _references(value: object) -> set[str]:
    """Return the names of the components that a part of a document refers to."""
    if isinstance(value, dict):
        name = value.get("$ref")
        if isinstance(name, str):
            return {name.removeprefix(REFERENCE)}
        return set().union(*(_references(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(_references(each) for each in value))
    return set()


def _text(media_type: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string"}}}


_FIXED: Final[dict[str, tuple[str, PathItem, str]]] = {
    ".well-known/openid-configuration": (
        "/.well-known/openid-configuration/",
        plain_get(
            "getServiceAccountIssuerOpenIDConfiguration",
            "WellKnown",
            "get the OpenID configuration of the issuer of service account tokens",
            _text("application/json"),
        ),
        "",
    ),
    "api": (
        "/api/",
        plain_get(
            "getCoreAPIVersions",
            "core",
            "get available API versions",
            json_yaml_protobuf(reference(f"{META}.APIVersions")),
        ),
        f"{META}.APIVersions",
    ),
    "apis": (
        "/apis/",
        plain_get(
            "getAPIVersions",
            "apis",
            "get available API versions",
            json_yaml_protobuf(reference(f"{META}.APIGroupList")),
        ),
        f"{META}.APIGroupList",
    ),
    "openid/v1/jwks": (
        "/openid/v1/jwks/",
        plain_get(
            "getServiceAccountIssuerOpenIDKeyset",
            "openid",
            "get the keys that service account tokens are signed with",
            _text("application/jwk-set+json"),
        ),
        "",
    ),
    "version": (
        "/version/",
        plain_get(
            "getCodeVersion",
            "version",
            "get the version of the server",
            {"application/json": {"schema": reference(_VERSION_INFO)}},
        ),
        _VERSION_INFO,
    ),
}
