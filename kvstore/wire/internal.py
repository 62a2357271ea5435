"""The data of normal log entries: one client request inside etcd's InternalRaftRequest.

    22 0a | 0a 03 "foo" 12 03 "bar" | a2 06 0b | 08 83 a6 e9 d9 ca bf e8 d0 e8 01
    ─┬───   ───────────┬───────────   ────┬───   ──────────────┬────────────────
    put=4    the client's own bytes   header=100            request id

The request is not parsed on its way into the log or out of it: `wrap` puts the body between a tag
and a header, `unwrap` cuts it out again. Fields ascend, so requests numbered above 100 come after
their header. A log of etcd 3.5 and older may also contain requests of the v2 API: `unwrap` raises
WireError for them, and `decode_v2_request` reads them.

The body itself is parsed and checked by the applier.
"""

from enum import IntEnum
from functools import lru_cache
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from kvstore.wire.gen.raft_internal_pb2 import RequestHeader
from kvstore.wire.varint import BYTES, SMALL, SMALL_MAX, VARINT, WireError, read_field, varint

LEGACY_ID: Final = 1
V2: Final = 2
HEADER: Final = 100


class Field(IntEnum):
    """The kind of a request: its field number inside InternalRaftRequest."""

    RANGE = 3
    PUT = 4
    DELETE_RANGE = 5
    TXN = 6
    COMPACTION = 7
    LEASE_GRANT = 8
    LEASE_REVOKE = 9
    ALARM = 10
    LEASE_CHECKPOINT = 11
    AUTH_ENABLE = 1000
    AUTH_DISABLE = 1011
    AUTHENTICATE = 1012
    AUTH_STATUS = 1013
    AUTH_USER_ADD = 1100
    AUTH_USER_DELETE = 1101
    AUTH_USER_GET = 1102
    AUTH_USER_CHANGE_PASSWORD = 1103
    AUTH_USER_GRANT_ROLE = 1104
    AUTH_USER_REVOKE_ROLE = 1105
    AUTH_USER_LIST = 1106
    AUTH_ROLE_LIST = 1107
    AUTH_ROLE_ADD = 1200
    AUTH_ROLE_DELETE = 1201
    AUTH_ROLE_GET = 1202
    AUTH_ROLE_GRANT_PERMISSION = 1203
    AUTH_ROLE_REVOKE_PERMISSION = 1204
    CLUSTER_VERSION_SET = 1300
    CLUSTER_MEMBER_ATTR_SET = 1301
    DOWNGRADE_INFO_SET = 1302
    DOWNGRADE_VERSION_TEST = 9900


_TAG: Final = {int(field): varint(field << 3 | BYTES) for field in Field}
_FIELD_OF_TAG: Final = {field << 3 | BYTES: int(field) for field in Field if field < 16}
_HEADER_TAG: Final = varint(HEADER << 3 | BYTES)
_CONTINUED: Final = tuple(bytes((n | 128,)) for n in range(128))
_parse_header: Final = RequestHeader.FromString


def wrap(
    field: int, body: bytes, request_id: int, username: str = "", auth_revision: int = 0
) -> bytes:
    """Return the entry data for a request of kind field (see Field) with the encoded body."""
    size = len(body)
    if field < HEADER and request_id > 127 and not username and not auth_revision:
        upper = _varint_of_upper(request_id >> 7)  # the hot path of every write
        return b"%b%b%b\xa2\x06%c\x08%b%b" % (
            _TAG[field],
            SMALL[size] if size < SMALL_MAX else varint(size),
            body,
            len(upper) + 2,
            _CONTINUED[request_id & 127],
            upper,
        )
    header = b"\x08" + _varint_of_id(request_id) if request_id else b""
    if username:
        name = username.encode()
        header += b"\x12" + varint(len(name)) + name
    if auth_revision:
        header += b"\x18" + varint(auth_revision)
    if field < HEADER:
        return b"%b%b%b\xa2\x06%b%b" % (
            _TAG[field],
            varint(len(body)),
            body,
            varint(len(header)),
            header,
        )
    return b"\xa2\x06%b%b%b%b%b" % (
        varint(len(header)),
        header,
        _TAG[field],
        varint(len(body)),
        body,
    )


def unwrap(data: bytes) -> tuple[int, bytes, int]:
    """Return (field, body, request id) of an entry's data.

    Raises WireError for bytes that are no InternalRaftRequest with exactly one known request.
    """
    try:
        field, at, end = _find_body(data)
        if end:
            return field, data[at:end], _parse_header(data[end + 3 :]).ID
    except (IndexError, DecodeError):
        pass  # the general parser raises the exact error
    return _unwrap_any(data)


def unwrap_request(data: bytes) -> tuple[int, bytes]:
    """Return (field, body); faster than unwrap, as a header of the usual form is not read."""
    try:
        field, at, end = _find_body(data)
        if end:
            return field, data[at:end]
    except IndexError:
        pass  # as above
    return _unwrap_any(data)[:2]


def _find_body(data: bytes) -> tuple[int, int, int]:
    """Return (field, start, end) of a body followed by a short header; end 0: another form."""
    field = _FIELD_OF_TAG.get(data[0])
    if field is not None:
        size = data[1]
        at = 2
        if size > 127:
            if data[2] > 127:
                return 0, 0, 0
            size = size & 127 | data[2] << 7
            at = 3
        end = at + size
        if data[end : end + 2] == _HEADER_TAG and data[end + 2] == len(data) - end - 3 < 128:
            return field, at, end
    return 0, 0, 0


def credentials(data: bytes) -> tuple[str, int]:
    """Return (username, auth revision) of an entry's data; ("", 0) if it has none."""
    header = RequestHeader()
    for field, _, value in _fields(data):
        if field == HEADER and isinstance(value, bytes):
            _merge_header(header, value)
    return header.username, header.auth_revision


class V2Request(NamedTuple):
    """The parts of a v2 request that still matter."""

    id: int
    method: str
    path: str
    val: str


def decode_v2_request(data: bytes) -> V2Request:
    """Return the v2 request an entry of etcd 3.5 or older holds, bare or as field 2 of a wrapper.

    Raises WireError for bytes that are neither.
    """
    fields = {field: value for field, _, value in _fields(data)}
    wrapped = fields.get(V2)
    if isinstance(wrapped, bytes) and fields.keys() <= {LEGACY_ID, V2, HEADER}:
        fields = {field: value for field, _, value in _fields(wrapped)}
    request_id = fields.get(1, 0)
    if not isinstance(request_id, int):
        raise WireError("field 1 of a v2 request holds no number")
    method, path, val = (_text(fields.get(number, b""), number) for number in (2, 3, 4))
    if not method or not path:
        raise WireError(f"v2 request without method or path in {len(data)} bytes of entry data")
    return V2Request(request_id, method, path, val)


class RequestIds:
    """Ids of requests, unique over members and restarts.

    member id (low 16 bits) << 48 | (milliseconds since 1970 (low 40 bits) << 8) + count

    The count carries over into the time, so more than 256 ids a millisecond are possible, as long
    as that is not the average of the whole run.
    """

    __slots__ = ("_prefix", "_suffix")

    def __init__(self, member_id: int, unix_ms: int) -> None:
        self._prefix = (member_id & 0xFFFF) << 48
        self._suffix = (unix_ms & (1 << 40) - 1) << 8

    @property
    def last(self) -> tuple[int, int]:
        """The two parts of the last id: prefix, and suffix before it is cut to 48 bits."""
        return self._prefix, self._suffix

    def skip(self, count: int) -> None:
        """Note that so many ids after the last one were given out."""
        self._suffix += count

    def next(self) -> int:
        """Return the next id, 0 <= id < 2**64."""
        self._suffix += 1
        return self._prefix | self._suffix & (1 << 48) - 1


def _varint_of_id(request_id: int) -> bytes:
    if request_id < 128:
        return varint(request_id)
    return _CONTINUED[request_id & 127] + _varint_of_upper(request_id >> 7)


@lru_cache(maxsize=16)
def _varint_of_upper(upper: int) -> bytes:
    return varint(upper)  # consecutive ids share it


def _unwrap_any(data: bytes) -> tuple[int, bytes, int]:
    legacy_id = 0
    kind = 0
    body = b""
    header = RequestHeader()
    for field, wire_type, value in _fields(data):
        if field == LEGACY_ID and wire_type == VARINT and isinstance(value, int):
            legacy_id = value
        elif field == HEADER and isinstance(value, bytes):
            _merge_header(header, value)
        elif field in _TAG and isinstance(value, bytes):
            if kind:
                raise WireError(f"two requests in one entry: fields {kind} and {field}")
            kind, body = field, value
        elif field in _TAG or field in {LEGACY_ID, V2, HEADER}:
            raise WireError(f"field {field} of wire type {wire_type} in an InternalRaftRequest")
    if not kind:
        raise WireError(f"no known request in {len(data)} bytes of entry data")
    return kind, body, legacy_id or header.ID


def _fields(data: bytes) -> list[tuple[int, int, int | bytes]]:
    found: list[tuple[int, int, int | bytes]] = []
    at = 0
    while at < len(data):
        field, wire_type, value, at = read_field(data, at)
        found.append((field, wire_type, value))
    return found


def _merge_header(header: RequestHeader, data: bytes) -> None:
    try:
        header.MergeFromString(data)
    except DecodeError as error:
        raise WireError(f"header of an InternalRaftRequest: {error}") from None


def _text(value: int | bytes, field: int) -> str:
    if not isinstance(value, bytes):
        raise WireError(f"field {field} of a v2 request holds no text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise WireError(f"field {field} of a v2 request is not UTF-8") from None
