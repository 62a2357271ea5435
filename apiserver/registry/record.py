"""One stored object at one revision: bytes first, parsed on demand.

    head      {"kind":"Pod","apiVersion":"v1",                         the same for all of a kind
    body      "metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{}}, …}

Head and body together are the object as in JSON answers, so that GET, LIST and watches join bytes.
The stored body has no resourceVersion; `version_at` is its offset. Labels and selectable fields are
kept beside the bytes; the rest is parsed on demand.

A record is immutable. An unreadable one has an `error` and an empty body.

Expiring objects are many and rarely read: events outlive their pods by an hour. Older ones are
held together, compressed, as `PackedRecords`; each is read like any other record.
"""

from array import array
from collections.abc import Sequence
from typing import Final, Self

import orjson
from typing_extensions import override

from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.packing import Packed

NOT_TRANSFORMABLE: Final = "data from the storage is not transformable revision=0: "
"""Beginning of the error of a record that cannot be decrypted."""
NO_LABELS: Final[dict[str, str]] = {}
RECORD_BYTES: Final = 820
"""Memory of a pod's record without its body (CPython 3.11)."""
PACKED_BYTES: Final = 300
"""Memory of a packed event without its body."""
_NUMBERS: Final = 5
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
    def held_bytes(self) -> int:
        """Its approximate memory."""
        return RECORD_BYTES + len(self.body)

    @property
    def json(self) -> bytes:
        """The object as compact JSON."""
        return self.head + self.body

    def parse(self) -> Object:
        """Return a new copy of the object."""
        obj: Object = orjson.loads(self.head + self.body)
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
    """A view of one record of a `PackedRecords`; its parts are extracted on access."""

    __slots__ = ("_at", "_records")

    def __init__(self, records: "PackedRecords", at: int) -> None:
        """Read the record at this position."""
        self.key = records.keys[at]
        self.encodings = None
        self._records = records
        self._at = at

    @property
    def packed(self) -> Packed:
        """The body, compressed."""
        return self._records.packed(self._at)

    @property
    @override
    def held_bytes(self) -> int:
        """Its approximate memory."""
        return PACKED_BYTES + len(self.packed.data)

    @property
    @override
    def body(self) -> bytes:  # type: ignore[override]  # records are never changed
        """The body, decompressed."""
        return self._records.packed(self._at).content()

    @property
    @override
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fields, split."""
        return self._records.fields(self._at)

    @property
    @override
    def labels(self) -> dict[str, str]:  # type: ignore[override]
        """The labels."""
        return self._records.labels.get(self.key, NO_LABELS)

    @property
    @override
    def revision(self) -> int:  # type: ignore[override]
        """The revision that wrote it."""
        return self._records.numbers[self._at * _NUMBERS]

    @property
    @override
    def lease(self) -> int:  # type: ignore[override]
        """The lease with which it expires."""
        return self._records.numbers[self._at * _NUMBERS + 1]

    @property
    @override
    def version_at(self) -> int:  # type: ignore[override]
        """The offset of the resourceVersion; -1: unknown."""
        return self._records.numbers[self._at * _NUMBERS + 2]

    @property
    @override
    def head(self) -> bytes:  # type: ignore[override]
        """The part that all objects of the kind share."""
        return self._records.head

    @property
    @override
    def error(self) -> str:  # type: ignore[override]
        """Empty: unreadable records are not packed."""
        return ""


class PackedRecords:
    """Records with compressed bodies in one piece of memory.

    Small objects that live for an hour among those of requests would pin the memory around them:
    Python returns a pool, or reuses it for another size, only once all of it is free.
    """

    __slots__ = (
        "_data",
        "_examples",
        "_fields",
        "_gone",
        "_odd_fields",
        "head",
        "keys",
        "labels",
        "numbers",
    )

    def __init__(self, records: Sequence[Record], bodies: Sequence[Packed]) -> None:
        """Pack records of one resource without errors; bodies: theirs, compressed."""
        self.head: Final = records[0].head
        self.keys: Final = [each.key for each in records]
        self.labels: Final = {each.key: each.labels for each in records if each.labels}
        """Labels by key, of records that have any."""
        self.numbers: Final = array("q")
        """For each record: revision, lease, version_at, end of its fields, end of its body."""
        examples = [each.examples for each in bodies]
        self._examples: Final = examples if len(set(examples)) > 1 else examples[:1]
        """One for all records, or one for each."""
        self._odd_fields: Final[dict[int, tuple[str, ...]]] = {}
        """Fields that contain the separator, by position."""
        self._gone = 0
        texts: list[str] = []
        text_size = data_size = 0
        for at, (record, body) in enumerate(zip(records, bodies, strict=True)):
            fields = record.fields
            joined = _SEPARATOR.join(fields)
            if joined.count(_SEPARATOR) != len(fields) - 1:
                self._odd_fields[at] = fields
                joined = ""
            texts.append(joined)
            text_size += len(joined)
            data_size += len(body.data)
            numbers = record.revision, record.lease, record.version_at, text_size, data_size
            self.numbers.extend(numbers)
        self._fields: Final = "".join(texts)
        self._data: Final = b"".join([each.data for each in bodies])

    @classmethod
    def of(cls, records: Sequence[PackedRecord]) -> Self:
        """Pack records of other pieces."""
        return cls(records, [each.packed for each in records])

    @property
    def held_bytes(self) -> int:
        """The approximate memory of the records."""
        return sum(self.record(key).held_bytes for key in self.keys)

    def record(self, key: str) -> PackedRecord:
        """Return the record of a key; ValueError: there is none."""
        return PackedRecord(self, self.keys.index(key))

    def alone(self, key: str) -> PackedRecord:
        """Return the record of a key in a piece of its own, which keeps no others alive."""
        return PackedRecords.of([self.record(key)]).record(key)

    def leave(self) -> bool:
        """Note that a record was changed or deleted; return whether half of them were."""
        self._gone += 1
        return 2 * self._gone >= len(self.keys)

    def fields(self, at: int) -> tuple[str, ...]:
        """Return the fields of a record."""
        if self._odd_fields and at in self._odd_fields:
            return self._odd_fields[at]
        end = at * _NUMBERS + 3
        start = self.numbers[end - _NUMBERS] if at else 0
        return tuple(self._fields[start : self.numbers[end]].split(_SEPARATOR))

    def packed(self, at: int) -> Packed:
        """Return the body of a record, compressed."""
        end = at * _NUMBERS + 4
        start = self.numbers[end - _NUMBERS] if at else 0
        examples = self._examples
        example = examples[at] if len(examples) > 1 else examples[0]
        return Packed(self._data[start : self.numbers[end]], example)


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
