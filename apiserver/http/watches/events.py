"""Encoding of watch events, in the representation of a stream.

    {"type":"MODIFIED","object":{…}}\\n              JSON, of an object, its metadata or a Table
    length, WatchEvent{type, envelope of the object}  protobuf

The encoding of a change is kept with the change, so that watches of one form share it, until it was
sent to all watchers. For a watch that begins in the past it is encoded again.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.decode import decode
from kvstack.apimachinery.schema.protobuf.codec import encode
from kvstack.apimachinery.schema.protobuf.envelope import watch_frame
from kvstack.apimachinery.well_known import INITIAL_EVENTS_END_ANNOTATION
from kvstack.apiserver.http import tables
from kvstack.apiserver.http.answers import compressed_part
from kvstack.apiserver.http.encoding import Encoder, load_type, meta_type
from kvstack.apiserver.http.negotiation import PARTIAL, TABLE, Representation
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.registry.window import Change
from kvstack.apiserver.verbs.endpoint import Endpoint
from kvstack.apiserver.verbs.forms.bodies import PROTOBUF
from kvstack.component.clock import Clock
from kvstack.component.http.websocket import BINARY, TEXT, frame

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
BOOKMARK, ERROR = "BOOKMARK", "ERROR"
_OPENINGS: Final = {
    each: f'{{"type":"{each}","object":'.encode()
    for each in (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR)
}


class EventWriter:
    """Encodes the events of streams of one form."""

    __slots__ = (
        "_clock",
        "_encoder",
        "_is_joined",
        "_is_socket",
        "content_type",
        "endpoint",
        "form",
        "group_form",
        "is_packed",
        "is_table",
    )

    def __init__(
        self,
        endpoint: Endpoint,
        representation: Representation,
        include: str,
        clock: Clock,
        *,
        is_socket: bool = False,
        is_packed: bool = False,
    ) -> None:
        """is_socket: as messages of a WebSocket.

        is_packed: events are sent compressed; see `packed`.
        """
        self.endpoint = endpoint
        self._clock = clock
        self._encoder = Encoder(endpoint, representation._replace(pretty=False), include=include)
        self._is_joined = self._encoder.is_joined
        self._is_socket = is_socket
        self.is_table = representation.as_ == TABLE
        media_type = representation.media_type
        self.content_type = f"{media_type};stream=watch" if media_type == PROTOBUF else media_type
        self.form = (
            endpoint.api_version,
            media_type,
            representation.as_,
            representation.version,
            include if self.is_table else "",
            is_socket,
        )
        """Equal for writers with equal encodings."""
        self.is_packed = is_packed
        self.group_form = (*self.form, is_packed)
        """Equal for writers whose events are sent as the same bytes."""

    def packed(self, events: bytes) -> bytes:
        """Return events as they are sent together: as a gzip member of their own, if compressed."""
        return compressed_part(events) if self.is_packed else events

    def change(self, kind: str, change: Change) -> bytes:
        """Return the event of a change, shared by all streams of this form."""
        encodings = change.encodings
        if encodings is None:
            encodings = change.encodings = {}
        key = (kind, self.form)
        found = encodings.get(key)
        if found is None:
            found = encodings[key] = self.past_change(kind, change)
        return found

    def past_change(self, kind: str, change: Change, *, with_columns: bool = False) -> bytes:
        """Return the event of a change without caching it."""
        record = change.gone() if kind == DELETED else change.record
        assert record is not None, "only a deleted object has no record"
        return self.record(kind, record, with_columns=with_columns)

    def record(self, kind: str, record: Record, *, with_columns: bool = False) -> bytes:
        """Return an event about an object; with_columns: the first of a stream of Tables."""
        converted = self.endpoint.converted_version
        if converted is not None:
            ready = converted.ready(record)
            assert ready is not None, "sent objects were converted before"
            record = ready
        if self._is_joined:
            return self._framed(b"%b%b%b}\n" % (_OPENINGS[kind], record.head, record.body))
        encoder = self._encoder
        if not encoder.representation.as_ and encoder.representation.media_type == PROTOBUF:
            return self._framed(watch_frame(kind, encoder.protobuf(record)))
        obj = self.endpoint.from_hub(record.parse())
        return self._written(kind, self._shaped(obj, with_columns=with_columns))

    def bookmark(
        self, revision: int, *, is_initial_end: bool = False, with_columns: bool = False
    ) -> bytes:
        """Return a bookmark at a revision."""
        metadata: Object = {"resourceVersion": str(revision)}
        if is_initial_end:
            metadata["annotations"] = {INITIAL_EVENTS_END_ANNOTATION: "true"}
        kind = self.endpoint.row.kind
        blank = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        obj = decode(blank, self.endpoint.row.type).obj
        return self._written(
            BOOKMARK, self._shaped(obj, with_columns=with_columns, is_bookmark=True)
        )

    def error(self, status: Object) -> bytes:
        """Return the error event that ends a stream."""
        if self._encoder.representation.media_type == PROTOBUF:
            return self._framed(watch_frame(ERROR, encode(status, load_type("Status"))))
        return self._framed(b"%b%b}\n" % (_OPENINGS[ERROR], json_text.write(status)))

    def _shaped(self, obj: Object, *, with_columns: bool, is_bookmark: bool = False) -> Object:
        """Return an object, its metadata, or the Table with it."""
        as_, version = self._encoder.representation.as_, self._encoder.representation.version
        if as_ == PARTIAL:
            return tables.partial(self._encoder.endpoint, obj, version)
        if as_ != TABLE:
            return obj
        include = tables.METADATA if is_bookmark else self._encoder.include
        cells_of = None
        if is_bookmark:
            cells_of = tables.blank_cells(self.endpoint, self._clock.unix_ms() / 1000)
        return tables.table(
            self.endpoint,
            [obj],
            {"resourceVersion": obj["metadata"]["resourceVersion"]},
            version=version,
            include=include,
            now=self._clock.unix_ms() / 1000,
            with_columns=with_columns,
            cells=cells_of,
        )

    def _written(self, kind: str, obj: dict[str, Any]) -> bytes:
        if self._encoder.representation.media_type == PROTOBUF:
            as_ = self._encoder.representation.as_
            type_ = meta_type(as_) if as_ else self.endpoint.row.type
            return self._framed(watch_frame(kind, encode(obj, type_)))
        return self._framed(b"%b%b}\n" % (_OPENINGS[kind], json_text.write(obj)))

    def _framed(self, event: bytes) -> bytes:
        """Return an event with its framing; a WebSocket message has no length prefix or newline."""
        if not self._is_socket:
            return event
        if self._encoder.representation.media_type == PROTOBUF:
            return frame(event[4:], BINARY)
        return frame(event[:-1], TEXT)
