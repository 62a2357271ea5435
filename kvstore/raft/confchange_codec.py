"""Configuration changes as the data of log entries: raftpb.ConfChange and ConfChangeV2.

This is the only data raft looks into (a leader checks a change before it enters the log), so it is
the only data raft encodes. Field numbers:

    ConfChange         id=1 type=2 node_id=3 context=4
    ConfChangeV2       transition=1 changes=2 context=3      ConfChangeSingle   type=1 node_id=2

Written as etcd writes it: type and node_id always, a V1 id only if it is not 0 (the entries of a
fresh cluster have none), context only if it is not empty. When read, an absent field is 0 and
unknown fields are skipped. An unknown change type or transition is an error: it must not be taken
for an addition.

The package raft imports nothing of the project, so it has a few lines of varint code of its own.
`kvstore.wire.raft_codec` offers the same functions with its own error type.
"""

from collections.abc import Iterator
from typing import Final

from kvstore.raft.confchange import TRANSITION_JOINT_EXPLICIT, Change
from kvstore.raft.model import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    EntryType,
)

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10
_CHANGE_TYPE_MAX: Final = max(ConfChangeType)
_TRANSITION_MAX: Final = TRANSITION_JOINT_EXPLICIT


class ConfChangeDecodeError(Exception):
    """The data is not a configuration change that this version knows."""


def entry_type(change: Change) -> EntryType:
    """Return the type of the entry that carries change."""
    v2 = isinstance(change, ConfChangeV2)
    return EntryType.CONF_CHANGE_V2 if v2 else EntryType.CONF_CHANGE


def encode(change: Change) -> bytes:
    """Return change as the data of a log entry; the change that leaves a joint one is empty."""
    if isinstance(change, ConfChange):
        out = _number(1, change.id) if change.id else b""
        out += _number(2, change.type) + _number(3, change.node_id)
        return out + (_chunk(4, change.context) if change.context else b"")
    out = _number(1, change.transition) if change.transition else b""
    for single in change.changes:
        out += _chunk(2, _number(1, single.type) + _number(2, single.node_id))
    return out + (_chunk(3, change.context) if change.context else b"")


def decode(kind: int, data: bytes) -> Change:
    """Return the change in the data of an entry of this type; raise ConfChangeDecodeError."""
    if kind == EntryType.CONF_CHANGE:
        return decode_v1(data)
    if kind == EntryType.CONF_CHANGE_V2:
        return decode_v2(data)
    raise ConfChangeDecodeError(f"entry type {kind} carries no configuration change")


def decode_v1(data: bytes) -> ConfChange:
    """Return the change in the data of a CONF_CHANGE entry; raise ConfChangeDecodeError."""
    numbers = [0, 0, 0, 0]
    context = b""
    for number, value in _fields(data):
        if isinstance(value, bytes):
            context = value if number == 4 else context
        elif number <= 3:
            numbers[number] = value
    return ConfChange(numbers[1], _known_type(numbers[2]), numbers[3], context)


def decode_v2(data: bytes) -> ConfChangeV2:
    """Return the change in the data of a CONF_CHANGE_V2 entry; raise ConfChangeDecodeError."""
    transition, context = 0, b""
    changes: list[ConfChangeSingle] = []
    for number, value in _fields(data):
        if isinstance(value, int):
            transition = value if number == 1 else transition
        elif number == 2:
            changes.append(_decode_single(value))
        elif number == 3:
            context = value
    if transition > _TRANSITION_MAX:
        raise ConfChangeDecodeError(
            f"configuration change with transition {transition}, known are 0 to {_TRANSITION_MAX}"
        )
    return ConfChangeV2(transition, tuple(changes), context)


def _decode_single(data: bytes) -> ConfChangeSingle:
    fields = dict(_fields(data))
    kind, node_id = fields.get(1, 0), fields.get(2, 0)
    if isinstance(kind, bytes) or isinstance(node_id, bytes):
        raise ConfChangeDecodeError("a step of the change is malformed")
    return ConfChangeSingle(_known_type(kind), node_id)


def _known_type(kind: int) -> int:
    if kind > _CHANGE_TYPE_MAX:
        raise ConfChangeDecodeError(
            f"configuration change of type {kind}, known are 0 to {_CHANGE_TYPE_MAX}"
        )
    return kind


def _number(field: int, value: int) -> bytes:
    return bytes((field << 3 | _VARINT,)) + _varint(value)


def _chunk(field: int, value: bytes) -> bytes:
    return bytes((field << 3 | _BYTES,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of the varint and length-delimited fields."""
    position = 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _read_varint(data, position)
            yield number, value
            continue
        if wire_type == _BYTES:
            size, position = _read_varint(data, position)
        elif wire_type in (_FIXED64, _FIXED32):
            size = 8 if wire_type == _FIXED64 else 4
        else:
            raise ConfChangeDecodeError(f"wire type {wire_type} at byte {position} is not known")
        end = position + size
        if end > len(data):
            raise ConfChangeDecodeError(f"field {number} ends at byte {end} of {len(data)}")
        if wire_type == _BYTES:
            yield number, data[position:end]
        position = end


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count, byte in enumerate(data[position : position + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value >> 64:
                raise ConfChangeDecodeError(f"the number at byte {position} is above 2**64 - 1")
            return value, position + count + 1
    raise ConfChangeDecodeError(f"the number at byte {position} does not end")
