"""Protobuf messages and rows of the state as readable JSON values.

    bytes     text if they are printable UTF-8, else {"base64": "…"}
    numbers   as numbers, also above 2**53; enums by name; zeros and unset fields are left out
    secrets   passwords and their hashes are hidden

Invalid bytes raise WireError; the caller knows their location.
"""

import base64
import json
from typing import Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kvstore.backend import Row, Table
from kvstore.errors import CorruptionError
from kvstore.mvcc.compaction import FINISHED, SCHEDULED
from kvstore.mvcc.revision import parse_revision_key
from kvstore.util.states import CONSISTENT_INDEX, TABLES, TERM
from kvstore.wire.gen import auth_pb2, kv_pb2, lease_pb2, raft_internal_pb2, rpc_pb2
from kvstore.wire.internal import decode_v2_request
from kvstore.wire.members import decode_member
from kvstore.wire.varint import WireError

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

HIDDEN: Final = "(hidden)"
_SECRETS: Final = frozenset({"password", "hashedPassword"})
_NUMBERS: Final = frozenset({CONSISTENT_INDEX, TERM})
_COMPACTIONS: Final = frozenset({FINISHED, SCHEDULED})


def readable(data: bytes) -> Json:
    """Return bytes as text if they are printable text, else as base64 marked as such."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    if text.isprintable():
        return text
    return {"base64": base64.b64encode(data).decode()}


def to_json(message: Message) -> dict[str, Json]:
    """Return the set fields of a message."""
    fields: dict[str, Json] = {}
    for field, value in message.ListFields():
        if field.name in _SECRETS:
            fields[field.name] = HIDDEN
        elif field.is_repeated:
            fields[field.name] = [_value(field, item) for item in value]
        else:
            fields[field.name] = _value(field, value)
    return fields


def request_json(data: bytes) -> dict[str, Json]:
    """Return the request in the data of a normal entry: {"put": {…}, "header": {…}}."""
    request = raft_internal_pb2.InternalRaftRequest()
    try:
        request.MergeFromString(data)
        found = to_json(request)
    except DecodeError:
        found = {}
    if found.keys() - {"header", "ID"}:
        return found
    old = decode_v2_request(data)
    return {"v2": {"id": old.id, "method": old.method, "path": old.path, "val": old.val}}


def row_json(bucket: bytes, row: Row) -> dict[str, Json]:
    """Return a decoded row of a bucket; WireError if it is not valid in this bucket."""
    table = TABLES.get(bucket)
    key, value = row
    if table is None:
        return {"key": readable(key), "value": readable(value)}
    try:
        return _ROWS[table](key, value)
    except (DecodeError, CorruptionError, ValueError) as error:
        raise WireError(str(error)) from error


def _record(key: bytes, value: bytes) -> dict[str, Json]:
    main, sub, tombstone = parse_revision_key(key)
    record: dict[str, Json] = {"revision": main, "sub": sub}
    if tombstone:
        record["tombstone"] = True
    message = kv_pb2.KeyValue.FromString(value)
    if value and not message.key:
        raise WireError("a record without a key")
    if message.key and not tombstone:
        if message.mod_revision != main:
            raise WireError(f"mod_revision {message.mod_revision}, expected {main}")
        if not 0 < message.create_revision <= main or message.version < 1:
            raise WireError(
                f"create_revision {message.create_revision}, version {message.version}: expected "
                f"1 to {main}, and 1 or above"
            )
    record["kv"] = to_json(message)
    return record


def _lease(key: bytes, value: bytes) -> dict[str, Json]:
    lease = lease_pb2.Lease.FromString(value)
    if key != (lease.ID % 2**64).to_bytes(8, "big"):
        raise WireError(f"contains lease {lease.ID:x}")
    return {"lease": f"{int.from_bytes(key):x}", **to_json(lease)}


def _alarm(key: bytes, value: bytes) -> dict[str, Json]:
    alarm = rpc_pb2.AlarmMember.FromString(key)
    if value:
        raise WireError(f"expected no value, found {len(value)} bytes")
    return {"memberID": f"{alarm.memberID:x}", "alarm": _enum(alarm.alarm)}


def _enum(alarm: int) -> Json:
    return rpc_pb2.AlarmType.Name(alarm) if alarm in rpc_pb2.AlarmType.values() else alarm


def _user(key: bytes, value: bytes) -> dict[str, Json]:
    user = auth_pb2.User.FromString(value)
    if user.name != key:
        raise WireError(f"contains user {user.name!r}")
    return to_json(user)


def _role(key: bytes, value: bytes) -> dict[str, Json]:
    role = auth_pb2.Role.FromString(value)
    if role.name != key:
        raise WireError(f"contains role {role.name!r}")
    return to_json(role)


def _auth(key: bytes, value: bytes) -> dict[str, Json]:
    if key == b"authRevision":
        return {"key": readable(key), "value": _number(value)}
    if key == b"authEnabled":
        if value not in {b"\0", b"\1"}:
            raise WireError(f"expected 00 or 01, found {value.hex()}")
        return {"key": readable(key), "value": value == b"\1"}
    return {"key": readable(key), "value": readable(value)}


def _cluster(key: bytes, value: bytes) -> dict[str, Json]:
    if key == b"downgrade":
        return {"key": readable(key), "value": json.loads(value)}
    return {"key": readable(key), "value": value.decode()}


def _member(key: bytes, value: bytes) -> dict[str, Json]:
    member = decode_member(value)
    if key != f"{member.id:x}".encode():
        raise WireError(f"contains member {member.id:x}")
    return {"id": key.decode(), "member": json.loads(value)}


def _removed(key: bytes, value: bytes) -> dict[str, Json]:
    return {"id": f"{int(key, 16):x}", "value": readable(value)}


def _meta(key: bytes, value: bytes) -> dict[str, Json]:
    shown: Json
    if key in _NUMBERS:
        shown = _number(value)
    elif key in _COMPACTIONS:
        shown = parse_revision_key(value)[0]
    elif key == b"confState":
        shown = json.loads(value)
    else:
        shown = readable(value)
    return {"key": readable(key), "value": shown}


def _number(value: bytes) -> int:
    if len(value) != 8:
        raise WireError(f"expected 8 bytes, found {len(value)}")
    return int.from_bytes(value, "big")


def _value(field: FieldDescriptor, value: object) -> Json:
    if isinstance(value, Message):
        return to_json(value)
    if isinstance(value, bytes):
        return readable(value)
    if field.enum_type is not None and isinstance(value, int):
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    assert isinstance(value, (str, int, float, bool))
    return value


_ROWS: Final = {
    Table.ALARM: _alarm,
    Table.AUTH: _auth,
    Table.AUTH_ROLES: _role,
    Table.AUTH_USERS: _user,
    Table.CLUSTER: _cluster,
    Table.KEY: _record,
    Table.LEASE: _lease,
    Table.MEMBERS: _member,
    Table.MEMBERS_REMOVED: _removed,
    Table.META: _meta,
}
