"""Encoding of stored objects of one resource.

    to_body    object ──► compact JSON from the metadata on, without resourceVersion
    value      that with the stored kind and version in front
    read       JSON that this module wrote      bytes are taken as they are
               JSON of others, protobuf         decoded, defaulted, written anew

Our JSON ends in its last brace; JSON that Kubernetes writes ends in a newline. This tells the two
apart: values of others may lack defaults, have other spellings, or be of another version. A
kube-apiserver can read ours, because it accepts JSON and protobuf for any key.

Objects are handled in one served version, the hub. The storage version differs only where both have
the same fields, or where a webhook converts between them.
"""

from collections.abc import Mapping
from functools import lru_cache
from sys import intern
from typing import Any, Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.json_syntax import JsonError
from kvstack.apimachinery.schema.decode import DecodeError, decode
from kvstack.apimachinery.schema.protobuf.codec import from_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import MAGIC, unwrap
from kvstack.apimachinery.schema.protobuf.wire import ProtobufError
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.stored_form import as_stored
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.kinds.strategy import Conversion, Strategy
from kvstack.apiserver.registry.record import NO_LABELS, Record, spliced, version_offset

_ENCRYPTED: Final = b"k8s:enc:"
_HEAD_MEMBERS: Final = frozenset(("kind", "apiVersion", "metadata"))
_NEWLINE: Final = b"\n"
_SHORT: Final = 20
_SHARED_MAX: Final = 256  # dicts of labels
SHARED_LABELS_MAX: Final = 32
"""Labels up to which records share them: what is shared stays when its objects are gone."""


class StoredError(ValueError):
    """A stored value cannot be read; the text says why."""


class StoredVersion(NamedTuple):
    """A version that stored values of a kind may have."""

    type: Type
    conversion: Conversion | None = None
    """Conversion to the hub version; None: both have the same fields."""
    keeper: Strategy | None = None
    """Set if values stay in this version: its hooks."""


class Codec:
    """Encodes and decodes the values of one resource."""

    def __init__(
        self,
        kind: Kind,
        type_: Type,
        strategy: Strategy,
        *,
        stored_api_version: str = "",
        versions: Mapping[str, StoredVersion] | None = None,
        is_json: bool = False,
        sorts_members: bool = False,
    ) -> None:
        """Take the description of the resource.

        kind, type_: of the hub version. stored_api_version: if it differs. versions: the other
        versions of stored values, by `apiVersion`. is_json: whether Kubernetes itself stores the
        kind as JSON, with empty lists preserved. sorts_members: whether objects are written with
        sorted members, and have kind and version in lists, as custom resources.
        """
        self.kind: Final = kind
        self.type: Final = type_
        self.api_version: Final = kind.api_version
        self.is_json: Final = is_json
        self._strategy = strategy
        self._versions = {self.api_version: StoredVersion(type_), **(versions or {})}
        self._sorts = sorts_members
        self.head: Final = b"{" if sorts_members else _head(kind.kind, self.api_version)
        """What precedes a body in answers."""
        self._stored_head = self.head
        if stored_api_version and not sorts_members:
            self._stored_head = _head(kind.kind, stored_api_version)
        self._members = tuple(name for name in type_.fields if name not in _HEAD_MEMBERS)
        self._meta_members = tuple(type_.fields["metadata"].type.fields)
        self.field_names: Final = self._field_names()
        """Names of the selectable fields, besides those of metadata."""

    def to_body(self, obj: Object) -> bytes:
        """Return the body of an object without its resourceVersion."""
        if self._sorts:
            metadata = {n: v for n, v in obj["metadata"].items() if n != "resourceVersion"}
            return json_text.write_sorted({**obj, "metadata": metadata})[1:]
        metadata = obj["metadata"]
        stored: Object = {
            "metadata": {
                name: metadata[name]
                for name in self._meta_members
                if name in metadata and name != "resourceVersion"
            }
        }
        for name in self._members:
            if name in obj:
                stored[name] = obj[name]
        return json_text.write(stored)[1:]

    def value(self, body: bytes) -> bytes:
        """Return the stored value of a body."""
        return self._stored_head + body + _NEWLINE if self.is_json else self._stored_head + body

    def record(self, key: str, body: bytes, revision: int, obj: Object, lease: int = 0) -> Record:
        """Return the record of an object, given its body without resourceVersion as well."""
        labels = obj["metadata"].get("labels") or NO_LABELS
        if 0 < len(labels) <= SHARED_LABELS_MAX:
            labels = _shared(tuple(labels.items()))
        at = -1 if self._sorts else version_offset(body)
        if at < 0:
            body = self._versioned(body, revision)
        else:
            body = spliced(body, at, revision)
        return Record(key, revision, self.head, body, at, labels, self._fields(obj), lease=lease)

    def read(self, key: str, value: bytes, revision: int, lease: int = 0) -> Record:
        """Return the record of a stored value; an unreadable one has an error."""
        try:
            if value[-1:] == b"}" and value.startswith(self._stored_head):
                body = value[len(self._stored_head) :]
                return self.record(key, body, revision, orjson.loads(value), lease)
            obj = self.decode(value)
            return self.record(key, self.to_body(obj), revision, obj, lease)
        except StoredError as error:
            text = str(error)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            # Values of others can be anything.
            text = f"the stored object is malformed: {error!r}"
        return Record(key, revision, self.head, b"", -1, lease=lease, error=text)

    def decode(self, value: bytes) -> Object:
        """Return the object of another writer's value, in the hub version; raises StoredError."""
        if value.startswith(_ENCRYPTED):
            raise StoredError("the stored object is encrypted with an unknown key")
        try:
            obj, version = self._typed(value)
        except (JsonError, ProtobufError, DecodeError) as error:
            raise StoredError(str(error)) from error
        if version.keeper is not None:
            # A webhook converts it on demand; until then it stays as it was written.
            version.keeper.default(obj)
            return obj
        if version.conversion is not None:
            version.conversion.default(obj)
            obj = version.conversion.to_stored(obj)
            if self.is_json:
                obj = decode(obj, self.type).obj  # members in order
        elif version.type is not self.type:
            obj = decode(obj, self.type).obj  # drops what only the other version has
        obj["apiVersion"], obj["kind"] = self.api_version, self.kind.kind
        self._strategy.default(obj)
        return obj if self.is_json else as_stored(obj, self.type)

    def _typed(self, value: bytes) -> tuple[Object, StoredVersion]:
        """Return the object in the version it was written in, decoded by its type."""
        if value.startswith(MAGIC):
            envelope = unwrap(value)
            version = self._version(envelope.api_version, envelope.kind)
            return from_protobuf(envelope.content, version.type), version
        plain = json_text.parse(value)
        if not isinstance(plain, dict):
            raise StoredError("the stored value is not an object")
        version = self._version(str(plain.get("apiVersion", "")), str(plain.get("kind", "")))
        return decode(plain, version.type).obj, version

    def _version(self, api_version: str, kind: str) -> StoredVersion:
        found = self._versions.get(api_version) if kind == self.kind.kind else None
        if found is None:
            raise StoredError(f'no kind "{kind}" is registered for version "{api_version}"')
        return found

    def _fields(self, obj: Object) -> tuple[str, ...]:
        selectable = self._strategy.selectable
        if selectable is None:
            return ()
        values = selectable(obj).values()
        if self._strategy.expires:  # names and uids, each of which occurs once or twice
            return tuple(intern(each) if len(each) < _SHORT else each for each in values)
        return tuple(map(intern, values))  # there are many objects with few values

    def _field_names(self) -> tuple[str, ...]:
        selectable = self._strategy.selectable
        if selectable is None:
            return ()
        blank = decode({"metadata": {"name": "x"}}, self.type).obj
        self._strategy.default(blank)
        return tuple(selectable(blank))

    def _versioned(self, body: bytes, revision: int) -> bytes:
        """Return a body with its resourceVersion inserted."""
        obj: dict[str, Any] = orjson.loads(b"{" + body)
        obj["metadata"]["resourceVersion"] = str(revision)
        if self._sorts:
            return json_text.write_sorted(obj)[1:]
        metadata = obj["metadata"]
        obj["metadata"] = {n: metadata[n] for n in self._meta_members if n in metadata}
        return json_text.write(obj)[1:]


@lru_cache(maxsize=_SHARED_MAX)
def _shared(items: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Return labels that records have in common, as those of the objects of one workload."""
    return dict(items)


def _head(kind: str, api_version: str) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode()
