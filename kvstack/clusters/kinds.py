"""The kind of an object by its key, and the object of a row.

    kinds = Kinds.of(contents)
    kinds.find(b"/registry/services/specs/shop/web")   → KeyOf(services, "shop", "web")
    kinds.read(row)                                    → the object, in the version that is handled

Known are the built-in kinds and those of the definitions among the contents.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Self

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apiextensions.customresources.form import check_form
from kvstack.apiserver.apiextensions.customresources.rows import rows_of
from kvstack.apiserver.registry.codec import Codec
from kvstack.apiserver.registry.keys import ROOT, KeyPrefixes
from kvstack.apiserver.registry.registry import by_prefix, codec_of
from kvstore.client.values import KeyValue

DEFINITIONS: Final = b"/registry/apiextensions.k8s.io/customresourcedefinitions/"


class UnreadableError(ValueError):
    """A row cannot be read; the text names its key."""


class KeyOf(NamedTuple):
    """The parts of an object's key."""

    rows: Sequence[Resource]
    """The versions of its resource."""
    namespace: str
    name: str
    prefix: str

    @property
    def resource(self) -> GroupResource:
        """The resource."""
        return GroupResource(self.rows[0].group, self.rows[0].name)

    @property
    def kind(self) -> str:
        """The kind."""
        return self.rows[0].kind.kind

    @property
    def path(self) -> str:
        """The object's name below its resource: `namespace/name`, or the name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Kinds:
    """The kinds of stored objects."""

    def __init__(self) -> None:
        """Start with the built-in kinds."""
        self._table: Final = load()
        self._rows: Final[dict[str, list[Resource]]] = by_prefix(self._table)
        self._prefixes: Final = KeyPrefixes(ROOT, self._rows)
        self._prefix_of: Final[dict[tuple[str, str], str]] = {
            (each.group, each.name): prefix for prefix, rows in self._rows.items() for each in rows
        }
        self._prefix_of_kind: Final[dict[tuple[str, str], str]] = {
            (each.kind.group, each.kind.kind): prefix
            for prefix, rows in self._rows.items()
            for each in rows
        }
        self._codecs: Final[dict[str, Codec]] = {}
        self.unusable: Final[dict[str, str]] = {}
        """Why definitions add no kind, by their names."""

    @classmethod
    def of(cls, rows: Iterable[KeyValue]) -> Self:
        """Return the kinds of some contents: the built-in ones, and those of their definitions."""
        kinds = cls()
        for kv in rows:
            if kv.key.startswith(DEFINITIONS):
                kinds.define(kv)
        return kinds

    def define(self, definition: KeyValue) -> None:
        """Add the kind of a CustomResourceDefinition, if it is valid."""
        try:
            obj = self.read(definition)
            check_form(obj)
            rows: list[Resource] = [*rows_of(obj)]
        except (ValueError, LookupError, TypeError, AttributeError, StopIteration) as error:
            # Definitions may be malformed; an invalid one must not affect others.
            self.unusable[definition.key.removeprefix(DEFINITIONS).decode("utf-8", "replace")] = (
                str(error) if isinstance(error, ValueError) else repr(error)
            )
            return
        for prefix, sharing in by_prefix(rows).items():
            if prefix not in self._rows or self._rows[prefix][0].is_custom:
                self._rows[prefix] = sharing
                first = sharing[0]
                self._prefix_of[first.group, first.name] = prefix
                self._prefix_of_kind[first.kind.group, first.kind.kind] = prefix
                self._prefixes.add(prefix)
                self._codecs.pop(prefix, None)

    @property
    def resources(self) -> Mapping[str, Sequence[Resource]]:
        """The versions of each stored resource, by the prefix of its keys."""
        return self._rows

    def find(self, key: bytes) -> KeyOf | None:
        """Return the parts of a key; None: its kind is unknown."""
        found = self._prefixes.split(key)
        if found is None:
            return None
        prefix, path = found
        rows = self._rows[prefix]
        namespace, slash, name = path.partition("/")
        if not rows[0].is_namespaced:
            return KeyOf(rows, "", path, prefix)
        return KeyOf(rows, namespace, name, prefix) if slash else None

    def prefix_of(self, resource: GroupResource) -> str | None:
        """Return the prefix of the keys of a resource; None: it is not known."""
        return self._prefix_of.get(resource)

    def prefix_of_kind(self, group: str, kind: str) -> str | None:
        """Return the prefix of the keys of a kind; None: it is not known."""
        return self._prefix_of_kind.get((group, kind))

    def is_unstored(self, resource: GroupResource) -> bool:
        """Return whether the objects of a built-in resource are never stored."""
        return any((each.group, each.name) == resource for each in self._table if not each.storage)

    def is_hub(self, prefix: str, version: str) -> bool:
        """Return whether objects of a built-in resource are handled in a version."""
        rows = self._rows.get(prefix)
        if rows is None or rows[0].is_custom:
            return False
        return self._codec(prefix).kind.version == version

    def type_of(self, key_of: KeyOf) -> Type:
        """Return the type of the objects that `read` returns."""
        return self._codec(key_of.prefix).type

    def read(self, kv: KeyValue) -> Object:
        """Return the object of a row, with its resourceVersion; raises UnreadableError."""
        key_of = self.find(kv.key)
        if key_of is None:
            raise UnreadableError(f"{key_text(kv.key)}: unknown kind")
        record = self._codec(key_of.prefix).read(key_of.path, kv.value, kv.mod_revision)
        if record.error:
            raise UnreadableError(f"{key_text(kv.key)}: {record.error}")
        return record.parse()

    def value_of(self, prefix: str, obj: Object) -> bytes:
        """Return an object as this program stores it; obj: as `read` returns it."""
        codec = self._codec(prefix)
        return codec.value(codec.to_body(obj))

    def objects(self, rows: Iterable[KeyValue]) -> Iterator[tuple[KeyOf, Object]]:
        """Yield the objects of rows whose kind is known and that can be decoded."""
        for kv in rows:
            key_of = self.find(kv.key)
            if key_of is not None:
                try:
                    yield key_of, self.read(kv)
                except UnreadableError:
                    continue

    def _codec(self, prefix: str) -> Codec:
        found = self._codecs.get(prefix)
        if found is None:
            found = self._codecs[prefix] = codec_of(self._table, self._rows[prefix])
        return found


def key_text(key: bytes) -> str:
    """Return a key as errors name it."""
    return key.decode("utf-8", "backslashreplace")
