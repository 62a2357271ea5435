"""Encoding of results in the negotiated representation.

    Encoder(endpoint, representation, …).stored(record)   one object
    Encoder(…).listing(page)                              a list, in chunks
    Encoder(…).encode(obj, kind, type_)                     an object that is not stored like that

JSON of objects in the storage version is assembled from stored bytes. Everything else is encoded
from the parsed object; the protobuf of a record is cached with it.
"""

from collections.abc import Iterator
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.schema.protobuf.codec import encode, to_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import list_content, wrap
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.http import tables
from kvstack.apiserver.http.negotiation import (
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    NotAcceptableError,
    Representation,
)
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.forms.bodies import JSON, PROTOBUF, YAML
from kvstack.component.http.serving.answer import PIECE_BYTES

WHOLE_BYTES_MAX: Final = 1 << 20
"""Larger lists are encoded in pieces, as they are read."""
_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"
_KEPT_FORMS_MAX: Final = 4
_PROTOBUF_FORM: Final = "protobuf"


class Encoder:
    """Encodes the results of one request."""

    __slots__ = ("endpoint", "include", "is_pretty", "now", "representation")

    def __init__(
        self,
        endpoint: Endpoint,
        representation: Representation,
        *,
        is_pretty: bool = False,
        include: str = tables.METADATA,
        now: float = 0.0,
    ) -> None:
        """Take what all results share; include: what the rows of Tables contain."""
        self.endpoint = endpoint
        self.representation = representation
        self.is_pretty = is_pretty
        self.include = include
        self.now = now

    @property
    def is_joined(self) -> bool:
        """Whether stored bytes are sent as they are."""
        media_type, as_, *_ = self.representation
        return media_type == JSON and not as_ and not self.is_pretty and self.endpoint.is_hub

    def stored(self, record: Record) -> bytes:
        """Return a stored object; raises NotAcceptableError."""
        media_type, as_, *_ = self.representation
        if self.is_joined:
            return b"%b%b\n" % (record.head, record.body)
        if media_type == PROTOBUF and not as_:
            return self.protobuf(record)
        obj = self.endpoint.from_hub(record.parse())
        return self.encode(obj, self.endpoint.row.kind, self.endpoint.row.type)

    def encode(self, obj: Object, kind: Kind, type_: Type) -> bytes:
        """Return an object of any kind; raises NotAcceptableError."""
        as_, version = self.representation.as_, self.representation.version
        if as_ and kind.kind != "Status":
            if as_ == PARTIAL_LIST:
                raise NotAcceptableError(
                    "you requested PartialObjectMetadataList, but the requested object is not a"
                    f" list (*{_internal(kind)})"
                )
            if as_ == TABLE:
                metadata = {"resourceVersion": _version_of(obj)} if _version_of(obj) else {}
                obj = tables.table(
                    self.endpoint,
                    [obj],
                    metadata,
                    version=version,
                    include=self.include,
                    now=self.now,
                )
            else:
                obj = tables.partial(self.endpoint, obj, version)
            kind = Kind("meta.k8s.io", version, as_)
            type_ = meta_type(as_)
        return self._write(obj, type_)

    def protobuf(self, record: Record) -> bytes:
        """Return the protobuf of a record in its envelope."""
        api_version = self.endpoint.kind.api_version
        content = self.protobuf_content(record)
        return wrap(api_version, self.endpoint.row.kind.kind, content)

    def protobuf_content(self, record: Record) -> bytes:
        """Return the protobuf of a record without the envelope."""
        form = f"{_PROTOBUF_FORM} {self.endpoint.api_version}"
        encodings = record.encodings
        if encodings is not None and form in encodings:
            return encodings[form]
        obj = self.endpoint.from_hub(record.parse())
        content = to_protobuf(obj, self.endpoint.row.type)
        if encodings is None:
            record.encodings = {form: content}
        elif len(encodings) < _KEPT_FORMS_MAX:
            encodings[form] = content
        return content

    # Lists.

    def shared(self, page: Page) -> tuple[bytes, bytes, bytes] | None:
        """Return a list in parts, the largest of which is shared; None: it has none."""
        if page.cached is None or not self.is_joined:
            return None
        opening, closing = self._around(page)
        return opening, page.cached.items(), closing

    def listing(self, page: Page) -> Iterator[bytes]:
        """Return a list in chunks; raises NotAcceptableError before the first."""
        as_, media_type = self.representation.as_, self.representation.media_type
        if as_ == PARTIAL:
            kind = self.endpoint.row.kind
            raise NotAcceptableError(
                "you requested PartialObjectMetadata, but the requested object is a list"
                f" (*{_internal(Kind(kind.group, kind.version, kind.kind + 'List'))})"
            )
        if self.is_joined:
            return self._joined(page)
        if media_type == PROTOBUF and not as_:
            return iter((self._protobuf_list(page),))
        return iter((self._made_list(page),))

    def _joined(self, page: Page) -> Iterator[bytes]:
        """Yield a JSON list that is assembled from stored bytes."""
        everything = [each.body for each in page.records]
        opening, closing = self._around(page)
        count = len(everything)
        if not count:
            yield opening + closing
            return
        size = sum(map(len, everything))
        step = count if size <= WHOLE_BYTES_MAX else max(PIECE_BYTES * count // size, 1)
        for at in range(0, count, step):
            bodies = everything[at : at + step]
            # Avoids a second copy: the text around the objects is joined with the first and the
            # last.
            bodies[0] = b"%b{%b" % (opening, bodies[0])
            bodies[-1] += closing if at + step >= count else b","
            yield b",{".join(bodies)
            opening = b""

    def _around(self, page: Page) -> tuple[bytes, bytes]:
        """Return the text before and after the objects of a JSON list."""
        kind = self.endpoint.row.kind
        metadata = json_text.write(self._list_metadata(page))
        name, api_version = kind.kind.encode(), kind.api_version.encode()
        if self.endpoint.row.is_custom:  # keys are sorted
            opening = b'{"apiVersion":"%b","items":[' % api_version
            return opening, b'],"kind":"%bList","metadata":%b}\n' % (name, metadata)
        opening = b'{"kind":"%bList","apiVersion":"%b","metadata":%b,"items":['
        return opening % (name, api_version, metadata), b"]}\n"

    def _protobuf_list(self, page: Page) -> bytes:
        metadata = to_protobuf(list_metadata(page), load_type("ListMeta"))
        contents = [self.protobuf_content(each) for each in page.records]
        kind = self.endpoint.row.kind
        return wrap(kind.api_version, f"{kind.kind}List", list_content(metadata, contents))

    def _made_list(self, page: Page) -> bytes:
        as_, version = self.representation.as_, self.representation.version
        objects = [self.endpoint.from_hub(each.parse()) for each in page.records]
        metadata = list_metadata(page)
        if as_ == TABLE:
            rows_table = tables.table(
                self.endpoint,
                objects,
                metadata,
                version=version,
                include=self.include,
                now=self.now,
                is_list=True,
            )
            return self._write(rows_table, meta_type(TABLE))
        if as_ == PARTIAL_LIST:
            rows_table = {
                "kind": PARTIAL_LIST,
                "apiVersion": f"meta.k8s.io/{version}",
                "metadata": metadata,
                "items": [tables.partial(self.endpoint, each, version) for each in objects] or None,
            }
            return self._write(rows_table, meta_type(PARTIAL_LIST))
        kind = self.endpoint.row.kind
        if not self.endpoint.row.is_custom:
            objects = [_without_kind(each) for each in objects]
        rows_table = {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api_version,
            "metadata": self._list_metadata(page),
            "items": objects,
        }
        if self.endpoint.row.is_custom:
            rows_table = dict(sorted(rows_table.items()))
        return self._write(rows_table, self.endpoint.row.type)

    def _list_metadata(self, page: Page) -> Object:
        """Return the metadata of a whole list; lists of custom resources always have `continue`."""
        found = list_metadata(page)
        return {"continue": "", **found} if self.endpoint.row.is_custom else found

    def _write(self, obj: Object, type_: Type) -> bytes:
        media_type = self.representation.media_type
        if media_type == PROTOBUF:
            return encode(obj, type_)
        return write_plain(obj, media_type, is_pretty=self.is_pretty)


def write_plain(obj: Any, media_type: str, *, is_pretty: bool = False) -> bytes:  # noqa: ANN401
    """Return a value as JSON or YAML."""
    if media_type == YAML:
        return yaml_text.write(obj)
    if is_pretty:
        return json_text.write_indented(obj)
    return json_text.write(obj) + b"\n"


def list_metadata(page: Page) -> Object:
    """Return the metadata of a list; one of objects that are not stored has no resourceVersion."""
    found: Object = {"resourceVersion": str(page.revision)} if page.revision else {}
    if page.continue_token:
        found["continue"] = page.continue_token
    if page.remaining is not None:
        found["remainingItemCount"] = page.remaining
    return found


_types: dict[str, Type] = {}


def load_type(name: str) -> Type:
    """Return a type of the API machinery by its short name."""
    found = _types.get(name)
    if found is None:
        found = _types[name] = built_in_types()[f"{_META}.{name}"]
    return found


def meta_type(kind: str) -> Type:
    """Return the type of a kind of meta.k8s.io."""
    return load_type(kind)


def _version_of(obj: Object) -> str:
    version: str = (obj.get("metadata") or {}).get("resourceVersion", "")
    return version


def _without_kind(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def _internal(kind: Kind) -> str:
    """Return the name of a kind's internal type."""
    group = kind.group.partition(".")[0] or "core"
    return f"{'core' if group == 'events' else group}.{kind.kind}"
