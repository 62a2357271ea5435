"""One stored object at one revision, as everybody reads it: bytes first, parsed when needed.

    head      {"kind":"Pod","apiVersion":"v1",                         the same for all of a kind
    body      "metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{}}, …}

Head and body together are the object as JSON answers have it, so that GET, LIST and watches join
bytes. In the store the body has no resourceVersion; `version_at` is its place. Labels and the
fields that selectors may name stand beside the bytes; nothing else is parsed before somebody must
look inside.

A record is never changed. What cannot be read has an `error` and an empty body.

Objects that expire are many, and few are read: events outlive their pods by an hour. Those that
have been left alone for a while are held together, as `PackedRecords`; each is read as others are.
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final, Self

import orjson
from typing_extensions import override

from kvstack.component.packing import Packed

Obj = dict[str, Any]

NOT_TRANSFORMABLE: Final = "data from the storage is not transformable revision=0: "
"""What the error of a record begins with that cannot be decrypted."""
NO_LABELS: Final[dict[str, str]] = {}
RECORD_BYTES: Final = 820
"""What a pod's record without its body takes in memory (CPython 3.11)."""
PACKED_BYTES: Final = 300
"""What a packed event without its body takes."""
_NUMBERS: Final = 5
_VERSION_MEMBER: Final = b',"resourceVersion":"%d"'
_SEPARATOR: Final = "\0"
"""Of fields that are one text."""


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
        """Hold the parts; see the head of the module."""
        self.key = key
        """`namespace/name`, or the name alone where there are no namespaces."""
        self.revision = revision
        self.head = head
        self.body = body
        self.version_at = version_at
        """Where the resourceVersion begins; -1: not known."""
        self.labels = labels
        self.fields = fields
        """The values of the collection's `field_names`."""
        self.lease = lease
        self.error = error
        """Why it cannot be read; empty if it can."""
        self.encodings: dict[str, bytes] | None = None
        """Other forms of it, kept by those who made them."""

    @property
    def namespace(self) -> str:
        """The namespace; empty if there is none."""
        namespace, slash, _ = self.key.partition("/")
        return namespace if slash else ""

    @property
    def name(self) -> str:
        """The name."""
        return self.key.rpartition("/")[2]

    @property
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return RECORD_BYTES + len(self.body)

    @property
    def json(self) -> bytes:
        """The object as compact JSON."""
        return self.head + self.body

    def parse(self) -> Obj:
        """Return the object; the caller may change it."""
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
    """A record of a `PackedRecords`, made for who reads it; parts are taken out when asked for."""

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
        """What it takes in memory, about."""
        return PACKED_BYTES + len(self.packed.data)

    @property
    @override
    def body(self) -> bytes:  # type: ignore[override]  # records are never changed
        """The body, decompressed."""
        return self._records.packed(self._at).content()

    @property
    @override
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]
        """The fields, taken apart."""
        return self._records.fields(self._at)

    @property
    @override
    def labels(self) -> dict[str, str]:  # type: ignore[override]
        """The labels."""
        return self._records.labels.get(self.key, NO_LABELS)

    @property
    @override
    def revision(self) -> int:  # type: ignore[override]
        """When it was written."""
        return self._records.numbers[self._at * _NUMBERS]

    @property
    @override
    def lease(self) -> int:  # type: ignore[override]
        """With which lease it expires."""
        return self._records.numbers[self._at * _NUMBERS + 1]

    @property
    @override
    def version_at(self) -> int:  # type: ignore[override]
        """Where the resourceVersion begins; -1: not known."""
        return self._records.numbers[self._at * _NUMBERS + 2]

    @property
    @override
    def head(self) -> bytes:  # type: ignore[override]
        """What is the same for all of a kind."""
        return self._records.head

    @property
    @override
    def error(self) -> str:  # type: ignore[override]
        """Why it cannot be read: what cannot is not packed."""
        return ""


class PackedRecords:
    """Some records whose bodies are compressed, in one piece of memory.

    Small objects that live for an hour among those of requests would pin the memory around them:
    Python gives none back, and reuses none for objects of another size, before all of it is free.
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
        """Take records of one resource without errors, and their bodies."""
        self.head: Final = records[0].head
        self.keys: Final = [each.key for each in records]
        self.labels: Final = {each.key: each.labels for each in records if each.labels}
        """Of those that have some, by key."""
        self.numbers: Final = array("q")
        """Of each record: revision, lease, version_at, where its fields and its body end."""
        examples = [each.examples for each in bodies]
        self._examples: Final = examples if len(set(examples)) > 1 else examples[:1]
        """One for all of them, or for each its own."""
        self._odd_fields: Final[dict[int, tuple[str, ...]]] = {}
        """Of records with fields that one text cannot have."""
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
        """Hold records that were held by another."""
        return cls(records, [each.packed for each in records])

    @property
    def held_bytes(self) -> int:
        """What the records take in memory, about."""
        return sum(self.record(key).held_bytes for key in self.keys)

    def record(self, key: str) -> PackedRecord:
        """Return one of them; ValueError: it is none of them."""
        return PackedRecord(self, self.keys.index(key))

    def alone(self, key: str) -> PackedRecord:
        """Return one of them that does not hold the others."""
        return PackedRecords.of([self.record(key)]).record(key)

    def leave(self) -> bool:
        """Note that one of them has changed or gone; return whether half of them have."""
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
    """Return a body without resourceVersion with one put in."""
    return b"%b%b%b" % (body[:at], _VERSION_MEMBER % revision, body[at:])


def version_offset(body: bytes) -> int:
    """Return where in a body without resourceVersion it belongs: behind the uid; -1: nowhere.

    Members before the uid have texts for values, in which a quote is escaped: what looks like the
    member is the member.
    """
    at = body.find(b'"uid":"')
    return -1 if at < 0 else body.find(b'"', at + 7) + 1
