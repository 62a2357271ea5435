"""One stored object at one revision, as everybody reads it: bytes first, parsed when needed.

    head      {"kind":"Pod","apiVersion":"v1",                         the same for all of a kind
    body      "metadata":{"name":"a","uid":"u","resourceVersion":"7","labels":{}}, …}

Head and body together are the object as JSON answers have it, so that GET, LIST and watches join
bytes. In the store the body has no resourceVersion; `version_at` is its place. Labels and the
fields that selectors may name stand beside the bytes; nothing else is parsed before somebody must
look inside.

A record is never changed. What cannot be read has an `error` and an empty body.

Objects that expire are many, and few are read: events outlive their pods by an hour. Those that
have been left alone for a while are `PackedRecord`s, which are read as others are.
"""

from typing import Any, Final

import orjson
from typing_extensions import override

from kvstack.component.packing import Packed

Obj = dict[str, Any]

NOT_TRANSFORMABLE: Final = "data from the storage is not transformable revision=0: "
"""What the error of a record begins with that cannot be decrypted."""
NO_LABELS: Final[dict[str, str]] = {}
RECORD_BYTES: Final = 820
"""What a pod's record without its body takes in memory (CPython 3.11)."""
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
    """A record whose body is compressed, and whose fields are one text."""

    __slots__ = ("_data", "_examples", "_fields")

    def __init__(self, record: Record, packed: Packed) -> None:
        """Take the place of a record; packed: its body."""
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
    def held_bytes(self) -> int:
        """What it takes in memory, about."""
        return RECORD_BYTES + len(self._data)

    @property
    @override
    def body(self) -> bytes:  # type: ignore[override]  # records are never changed
        """The body, decompressed."""
        return Packed(self._data, self._examples).content()

    @property
    @override
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]  # records are never changed
        """The fields, taken apart."""
        fields = self._fields
        return tuple(fields.split(_SEPARATOR)) if isinstance(fields, str) else fields


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
