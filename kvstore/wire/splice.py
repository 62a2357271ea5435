"""Responses and KeyValues assembled from encoded parts, by length prefix.

    RangeResponse   0a len header | 12 len kv | 12 len kv | … | 18 more | 20 count
                    ───┬────────         └──┬──┘
           HeaderMaker.field()      the stored bytes, unchanged

A nested protobuf message is its own bytes after a tag and a length, so what mvcc stored is sent to
the client without being parsed. A *header field* is field 1 of every response: tag, length and
ResponseHeader; a response without other fields is just that. Fields are in ascending order and
zeros are omitted, as Go's encoder does, since KeyValue bytes are hashed.

Nothing is checked here: callers have checked their requests. Hand-written because it runs for each
key and event (bench/micro/test_wire.py); tests/property/test_wire_codec.py compares it with the
protobuf library.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError

from kvstore.wire.fields import fields_of, frame
from kvstore.wire.gen.kv_pb2 import KeyValue
from kvstore.wire.varint import SMALL, SMALL_MAX, WireError, read_varint
from kvstore.wire.varint import int64 as int64  # for users of this module
from kvstore.wire.varint import varint as varint

PUT: Final = 0
DELETE: Final = 1

_parse: Final = KeyValue.FromString
_ID_REQUEST_BYTES: Final = tuple(1 + -(-bits // 7) for bits in range(64))  # by the id's bits


class HeaderMaker:
    """Makes the ResponseHeaders of one member; the last one is cached, as a turn needs few."""

    __slots__ = ("_field", "_identity", "_revision", "_tail", "_term")

    def __init__(self, cluster_id: int, member_id: int) -> None:
        self._identity = b"".join((*_number(b"\x08", cluster_id), *_number(b"\x10", member_id)))
        self._revision = -1
        self._term = -1
        self._tail = b""  # the term's field
        self._field = b""

    def field(self, revision: int, term: int) -> bytes:
        """Return the header as field 1 of a response; revision 0: without a revision."""
        if term != self._term:
            self._term = term
            self._tail = b"".join(_number(b"\x20", term))
            self._revision = -1
        if revision != self._revision:
            self._revision = revision
            number = varint(revision)
            head, tail = self._identity, self._tail
            if revision:  # each put of a batch has its own: this is the hot path
                size = len(head) + 1 + len(number) + len(tail)
                self._field = b"\n%c%b\x18%b%b" % (size, head, number, tail)
            else:
                self._field = b"\n%c%b%b" % (len(head) + len(tail), head, tail)
        return self._field

    def parts(self, term: int) -> tuple[bytes, bytes]:
        """Return what is before and after the revision in the headers of a term; see `columns`."""
        if term != self._term:
            self.field(0, term)
        return self._identity, self._tail

    def message(self, revision: int, term: int) -> bytes:
        """Return the bare ResponseHeader."""
        return b"".join((self._identity, *_number(b"\x18", revision), *_number(b"\x20", term)))


def revision_field(revision: int) -> bytes:
    """Return field 1 with a header of only a revision, as in responses inside a txn."""
    return _bytes_field(b"\n", b"".join(_number(b"\x18", revision)))


def encode_kv(key: bytes, create: int, mod: int, version: int, value: bytes, lease: int) -> bytes:
    """Return the KeyValue exactly as etcd stores it."""
    if key and value and create > 0 and mod > 0 and version > 0:
        key_size, value_size = len(key), len(value)
        modified = varint(mod)
        return b"\n%b%b\x10%b\x18%b\x20%b\x2a%b%b%b" % (
            SMALL[key_size] if key_size < SMALL_MAX else varint(key_size),
            key,
            modified if create == mod else varint(create),
            modified,
            SMALL[version] if version < SMALL_MAX else varint(version),
            SMALL[value_size] if value_size < SMALL_MAX else varint(value_size),
            value,
            b"\x30" + int64(lease) if lease else b"",
        )
    return b"".join(
        (
            _bytes_field(b"\n", key) if key else b"",
            *_number(b"\x10", create),
            *_number(b"\x18", mod),
            *_number(b"\x20", version),
            _bytes_field(b"\x2a", value) if value else b"",
            *_number(b"\x30", lease),
        )
    )


def encode_tombstone(key: bytes) -> bytes:
    """Return the KeyValue of a tombstone: the key alone."""
    return _bytes_field(b"\n", key)


def kv_key(kv: bytes) -> bytes:
    """Return the key of an encoded KeyValue; raise WireError if it is not one."""
    if kv[:1] == b"\n":
        try:
            size = kv[1]
            if size < 128:
                if len(kv) >= 2 + size:
                    return kv[2 : 2 + size]
            else:
                size, at = read_varint(kv, 1)
                if len(kv) >= at + size:
                    return kv[at : at + size]
        except IndexError:
            pass
    return parse_kv(kv)[0]


def parse_kv(kv: bytes) -> tuple[bytes, int, int, int, bytes, int]:
    """Return (key, create, mod, version, value, lease); raise WireError if it is no KeyValue."""
    try:
        m = _parse(kv)
    except DecodeError as error:
        raise WireError(f"KeyValue of {len(kv)} bytes: {error}") from None
    return m.key, m.create_revision, m.mod_revision, m.version, m.value, m.lease


def strip_value(kv: bytes) -> bytes:
    """Return the KeyValue without its value; raise WireError if it is not one."""
    try:
        message = _parse(kv)
    except DecodeError as error:
        raise WireError(f"KeyValue of {len(kv)} bytes: {error}") from None
    message.value = b""
    return message.SerializeToString()


def range_response(header_field: bytes, kvs: Iterable[bytes], more: bool, count: int) -> bytes:  # noqa: FBT001
    """Return a RangeResponse of encoded KeyValues; count is the number before the limit."""
    return fields_of(kvs, header_field, range_response_tail(more, count))


def range_response_tail(more: bool, count: int) -> bytes:  # noqa: FBT001
    """Return what follows the KeyValues in a RangeResponse."""
    return (b"\x18\x01" if more else b"") + (b"\x20" + varint(count) if count else b"")


def get_response(header_field: bytes, kv: bytes) -> bytes:
    """Return a RangeResponse with one KeyValue."""
    return b"%b%b%b\x20\x01" % (header_field, frame(len(kv)), kv)


def range_stream_response(range_response_: bytes) -> bytes:
    """Return a RangeStreamResponse around an encoded RangeResponse."""
    return _bytes_field(b"\n", range_response_)


def put_response(header_field: bytes, prev_kv: bytes | None) -> bytes:
    """Return a PutResponse."""
    return header_field if prev_kv is None else header_field + _bytes_field(b"\x12", prev_kv)


def delete_response(header_field: bytes, deleted: int, prev_kvs: Iterable[bytes]) -> bytes:
    """Return a DeleteRangeResponse."""
    parts = [header_field, *_number(b"\x10", deleted)]
    parts += [_bytes_field(b"\x1a", kv) for kv in prev_kvs]
    return b"".join(parts)


def response_op(field: int, response: bytes) -> bytes:
    """Return one framed response for txn_response; field: 1 range, 2 put, 3 delete, 4 txn."""
    return _bytes_field(b"\x1a", _bytes_field(SMALL[field << 3 | 2], response))


def txn_response(header_field: bytes, succeeded: bool, ops: Iterable[bytes]) -> bytes:  # noqa: FBT001
    """Return a TxnResponse; ops come from response_op."""
    return b"".join((header_field, b"\x10\x01" if succeeded else b"", *ops))


def put_in_txn_response(header_field: bytes, main: int) -> bytes:
    """Return the TxnResponse of a transaction that succeeded with one put at revision main."""
    revision = varint(main)
    size = len(revision) + 1  # of the put's own header; all lengths are far below 128
    return b"%b\x10\x01\x1a%c\x12%c\n%c\x18%b" % (
        header_field, size + 4, size + 2, size, revision,
    )  # fmt: skip


def encode_event(kind: int, kv: bytes, prev_kv: bytes | None) -> bytes:
    """Return one event (kind PUT or DELETE) as field 11 of a WatchResponse."""
    body = b"\x12" + varint(len(kv)) + kv
    if prev_kv is not None:
        body += b"\x1a" + varint(len(prev_kv)) + prev_kv
    if kind != PUT:
        return b"\x5a%b\x08\x01%b" % (varint(len(body) + 2), body)
    return b"\x5a" + varint(len(body)) + body


def watch_head(
    header_field: bytes,
    watch_id: int,
    *,
    created: bool = False,
    canceled: bool = False,
    compact_revision: int = 0,
    cancel_reason: str = "",
    fragment: bool = False,
) -> bytes:
    """Return a WatchResponse without its events, which are appended as the tail."""
    head = header_field + b"\x10" + int64(watch_id) if watch_id else header_field
    if created:
        head += b"\x18\x01"
    if canceled:
        head += b"\x20\x01"
    if compact_revision:
        head += b"\x28" + int64(compact_revision)
    if cancel_reason:
        head += _bytes_field(b"\x32", cancel_reason.encode())
    if fragment:
        head += b"\x38\x01"
    return head


def lease_response(header_field: bytes, lease_id: int, ttl_s: int) -> bytes:
    """Return a LeaseGrantResponse or LeaseKeepAliveResponse: they are the same on the wire."""
    if lease_id > 0 and ttl_s > 0:
        return b"%b\x10%b\x18%b" % (header_field, varint(lease_id), varint(ttl_s))
    return b"".join((header_field, *_number(b"\x10", lease_id), *_number(b"\x18", ttl_s)))


def keep_alive_response(header_field: bytes, request: bytes, lease_id: int, ttl_s: int) -> bytes:
    """Return the LeaseKeepAliveResponse to an encoded request for lease_id; ttl_s > 0.

    The encoded id is taken from the request if its size is that of an id and a tag: then it
    contains nothing else, in the usual encoding.
    """
    if lease_id > 0 and len(request) == _ID_REQUEST_BYTES[lease_id.bit_length()]:
        ttl = SMALL[ttl_s] if ttl_s < SMALL_MAX else varint(ttl_s)
        return b"%b\x10%b\x18%b" % (header_field, request[1:], ttl)
    return lease_response(header_field, lease_id, ttl_s)


def _number(tag: bytes, number: int) -> tuple[bytes, ...]:
    return (tag, int64(number)) if number else ()


def _bytes_field(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body
