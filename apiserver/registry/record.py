"""One stored object at one revision: bytes first, parsed on demand.

    head      {"kind":"Pod","apiVersion":"v1",                         the same for all of a kind
    body      "metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{}}, …}

Head and body together are the object as in JSON answers, so that GET, LIST and watches join bytes.
The stored body has no resourceVersion; `version_at` is its offset. Labels and selectable fields are
kept beside the bytes; the rest is parsed on demand.

A record is immutable. An unreadable one has an `error` and an empty body.

Expiring objects are many and rarely read: events outlive their pods by an hour. Older ones are
compressed to `PackedRecord`s, which are read like others.
"""

from typing import Any, Final

import orjson
from typing_extensions import override

from kvstack.component.packing import Packed

Obj = dict[str, Any]

NOT_TRANSFORMABLE: Final = "data from the storage is not transformable revision=0: "
"""Beginning of the error of a record that cannot be decrypted."""
NO_LABELS: Final[dict[str, str]] = {}
_VERSION_MEMBER: Final = b',"resourceVersion":"%d"'
_SEPARATOR: Final = "\0"
"""Separator of fields in one text."""


class Record:
    """One object at one revision."""

    __slots__ = (
        "body",
        "encodings",
        "error",
        "fields",
        "head",
        "key",
        "labels",
        "lease",
        "revision",
        "version_at",
    )

    def __init__(
        self,
        key: str,
        revision: int,
        head: bytes,
        body: bytes,
        version_at: int,
        labels: dict[str, str] = NO_LABELS,
        fields: tuple[str, ...] = (),
        *,
        lease: int = 0,
        error: str = "",
    ) -> None:
        """See the module's docstring."""
        self.key = key
        """`namespace/name`, or the name alone for cluster-scoped kinds."""
        self.revision = revision
        self.head = head
        self.body = body
        self.version_at = version_at
        """Offset of the resourceVersion; -1: unknown."""
        self.labels = labels
        self.fields = fields
        """The values of the collection's `field_names`."""
        self.lease = lease
        self.error = error
        """Why it cannot be read; empty if it can."""
        self.encodings: dict[str, bytes] | None = None
        """Other encodings, cached by their makers."""

    @property
    def namespace(self) -> str:
        """The namespace; empty if cluster-scoped."""
        namespace, slash, _ = self.key.partition("/")
        return namespace if slash else ""

    @property
    def name(self) -> str:
        """The name."""
        return self.key.rpartition("/")[2]

    @property
    def json(self) -> bytes:
        """The object as compact JSON."""
        return self.head + self.body

    def parse(self) -> Obj:
        """Return a new copy of the object."""
        obj: Obj = orjson.loads(self.head + self.body)
        return obj

    def at_revision(self, revision: int) -> "Record":
        """Return the same object with another resourceVersion: that of its deletion."""
        if self.version_at < 0 or self.error:
            return self._parsed_at_revision(revision)
        body = spliced(self._unversioned(), self.version_at, revision)
        return self._with_body(revision, body)

    def _unversioned(self) -> bytes:
        at = self.version_at
        return self.body[:at] + self.body[at + len(_VERSION_MEMBER % self.revision) :]

    def _parsed_at_revision(self, revision: int) -> "Record":
        if self.error:
            return self._with_body(revision, self.body)
        obj = self.parse()
        obj["metadata"]["resourceVersion"] = str(revision)
        return self._with_body(revision, orjson.dumps(obj)[len(self.head) :])

    def _with_body(self, revision: int, body: bytes) -> "Record":
        return Record(
            self.key,
            revision,
            self.head,
            body,
            self.version_at,
            self.labels,
            self.fields,
            lease=self.lease,
            error=self.error,
        )


class PackedRecord(Record):
    """A record whose body is compressed, and whose fields are one text."""

    __slots__ = ("_data", "_examples", "_fields")

    def __init__(self, record: Record, packed: Packed) -> None:
        """packed: the compressed body."""
        self._data, self._examples = packed
        joined = _SEPARATOR.join(record.fields)
        comes_back = joined.count(_SEPARATOR) == len(record.fields) - 1
        self._fields: str | tuple[str, ...] = joined if comes_back else record.fields
        self.key = record.key
        self.revision = record.revision
        self.head = record.head
        self.version_at = record.version_at
        self.labels = record.labels
        self.lease = record.lease
        self.error = record.error
        self.encodings = None

    @property
    @override
    def body(self) -> bytes:  # type: ignore[override]  # records are never changed
        """The body, decompressed."""
        return Packed(self._data, self._examples).content()

    @property
    @override
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]  # records are never changed
        """The fields, split."""
        fields = self._fields
        return tuple(fields.split(_SEPARATOR)) if isinstance(fields, str) else fields


def spliced(body: bytes, at: int, revision: int) -> bytes:
    """Return a body with its resourceVersion inserted."""
    return b"%b%b%b" % (body[:at], _VERSION_MEMBER % revision, body[at:])


def version_offset(body: bytes) -> int:
    """Return the offset of the resourceVersion in a body without one: after the uid; -1: nowhere.

    Members before the uid have string values, in which a quote is escaped: text that looks like the
    member is the member.
    """
    at = body.find(b'"uid":"')
    return -1 if at < 0 else body.find(b'"', at + 7) + 1
