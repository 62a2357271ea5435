"""Encodes raft's data types as etcd's raftpb messages, with the zeros that etcd 3.7 omits omitted.

    entry        10 term 18 index 22 len data        type 0, empty data and zeros are omitted
    hard state   08 term 10 vote 18 commit           always all three
    conf state   08 voter … 10 learner …  28 auto    auto_leave always
    message      which zeros are written depends on the type: see _ALWAYS

Raftpb distinguishes "zero" from "not set"; readers must not. Releases before 3.7 wrote most zeros,
so every decoder accepts both. Unknown fields are skipped, as are known ones of the wrong wire type,
as Go does; bytes that cannot be parsed, and unknown entry or change types, are a WireError: an
unknown entry must not be mistaken for a normal one.

Entries are encoded and decoded by hand, since every write passes here. Framing on connections and
in the log is not done here. Configuration changes are raft's own codec, with WireError.
"""

from functools import lru_cache
from typing import Final, TypeVar

from google.protobuf import message as protobuf
from google.protobuf.message import DecodeError

from kvstore.raft import confchange_codec
from kvstore.raft.confchange_codec import ConfChangeDecodeError
from kvstore.raft.model import (
    ConfChange,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Snapshot,
    SnapshotMetadata,
)
from kvstore.wire.gen import raft_pb2
from kvstore.wire.varint import BYTES, VARINT, WireError, read_field, read_varint, varint

_M = TypeVar("_M", bound=protobuf.Message)

LINK_HEARTBEAT: Final = b"\x08\x08"  # sent on an idle stream

_ENTRY_TYPE_MAX: Final = max(EntryType)
_TERM: Final = 4
_LOG_TERM: Final = 5
_INDEX: Final = 6
_COMMIT: Final = 8
_VOTE_FIELDS: Final = frozenset({_TERM, _LOG_TERM, _INDEX})
_ALWAYS: Final[dict[int, frozenset[int]]] = {
    MessageType.APP: frozenset({_TERM, _LOG_TERM, _INDEX, _COMMIT}),
    MessageType.APP_RESP: frozenset({_TERM}),
    MessageType.VOTE: _VOTE_FIELDS,
    MessageType.PRE_VOTE: _VOTE_FIELDS,
    MessageType.VOTE_RESP: frozenset({_TERM}),
    MessageType.PRE_VOTE_RESP: frozenset({_TERM}),
    MessageType.HEARTBEAT: frozenset({_TERM, _COMMIT}),
    MessageType.HEARTBEAT_RESP: frozenset({_TERM}),
    MessageType.SNAP: frozenset({_TERM}),
    MessageType.TIMEOUT_NOW: frozenset({_TERM}),
    MessageType.READ_INDEX_RESP: frozenset({_TERM, _INDEX}),
    MessageType.TRANSFER_LEADER: frozenset({_TERM}),
}  # fields that a type writes even if they are zero, besides type, to and from
_SMALL_BYTES: Final = 256
_SMALL_TYPES: Final = frozenset(
    {
        MessageType.APP,
        MessageType.APP_RESP,
        MessageType.VOTE,
        MessageType.VOTE_RESP,
        MessageType.HEARTBEAT,
        MessageType.HEARTBEAT_RESP,
        MessageType.PRE_VOTE,
        MessageType.PRE_VOTE_RESP,
    }
)


def encode_entry(entry: Entry) -> bytes:
    """Return the raftpb.Entry."""
    kind, term, index, data = entry
    if kind == 0 and term and index and data:
        return b"\x10%b\x18%b\x22%b%b" % (varint(term), varint(index), varint(len(data)), data)
    return b"".join(
        (
            b"\x08" + varint(kind) if kind else b"",
            b"\x10" + varint(term) if term else b"",
            b"\x18" + varint(index) if index else b"",
            b"\x22" + varint(len(data)) + data if data else b"",
        )
    )


def decode_entry(data: bytes) -> Entry:
    """Return the entry; raise WireError if data is none."""
    try:
        if data[0] == 0x10:
            term = data[1]
            at = 2
            if term > 127:
                term, at = read_varint(data, 1)
            if data[at] == 0x18:
                index = data[at + 1]
                at += 2
                if index > 127:
                    index, at = read_varint(data, at - 1)
                if data[at] == 0x22:
                    size = data[at + 1]
                    at += 2
                    if size > 127:
                        size, at = read_varint(data, at - 1)
                    if at + size == len(data):
                        return Entry(0, term, index, data[at:])
    except IndexError:
        pass  # the general decoder raises the exact error
    return _decode_any_entry(data)


def encode_hard_state(state: HardState) -> bytes:
    """Return the raftpb.HardState."""
    return b"\x08%b\x10%b\x18%b" % (varint(state.term), _id(state.vote), varint(state.commit))


def decode_hard_state(data: bytes) -> HardState:
    """Return the hard state; raise WireError if data is none."""
    m = _parsed(raft_pb2.HardState(), data)
    return HardState(m.term, m.vote, m.commit)


def encode_conf_state(state: ConfState) -> bytes:
    """Return the raftpb.ConfState."""
    return _conf_state_pb(state).SerializeToString()


def decode_conf_state(data: bytes) -> ConfState:
    """Return the configuration; raise WireError if data is none."""
    return _conf_state(_parsed(raft_pb2.ConfState(), data))


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """Return the raftpb.Snapshot."""
    meta = snapshot.metadata
    message = raft_pb2.Snapshot(
        metadata=raft_pb2.SnapshotMetadata(
            conf_state=_conf_state_pb(meta.conf_state), index=meta.index, term=meta.term
        )
    )
    if snapshot.data:
        message.data = snapshot.data
    return message.SerializeToString()


def decode_snapshot(data: bytes) -> Snapshot:
    """Return the snapshot; raise WireError if data is none."""
    m = _parsed(raft_pb2.Snapshot(), data)
    meta = SnapshotMetadata(_conf_state(m.metadata.conf_state), m.metadata.index, m.metadata.term)
    return Snapshot(meta, m.data)


def encode_conf_change(change: ConfChange) -> bytes:
    """Return the raftpb.ConfChange."""
    return confchange_codec.encode(change)


def decode_conf_change(data: bytes) -> ConfChange:
    """Return the change; raise WireError if data is none or its type is unknown."""
    try:
        return confchange_codec.decode_v1(data)
    except ConfChangeDecodeError as error:
        raise WireError(str(error)) from None


def decode_conf_change_v2(data: bytes) -> ConfChangeV2:
    """Return the change; raise WireError if data is none or a type in it is unknown."""
    try:
        return confchange_codec.decode_v2(data)
    except ConfChangeDecodeError as error:
        raise WireError(str(error)) from None


def encode_message(message: Message) -> bytes:
    """Return the raftpb.Message."""
    kind = message.type
    reject = message.reject
    always = _ALWAYS.get(kind, frozenset())
    if kind == MessageType.APP_RESP and reject:
        always = _VOTE_FIELDS
    log_term, index, commit = message.log_term, message.index, message.commit
    parts = [b"\x08%b\x10%b\x18%b" % (varint(kind), _id(message.to), _id(message.from_))]
    if message.term or _TERM in always:
        parts.append(b"\x20" + varint(message.term))
    if log_term or _LOG_TERM in always:
        parts.append(b"\x28" + varint(log_term))
    if index or _INDEX in always:
        parts.append(b"\x30" + varint(index))
    parts += [_bytes_field(b"\x3a", encode_entry(entry)) for entry in message.entries]
    if commit or _COMMIT in always:
        parts.append(b"\x40" + varint(commit))
    if message.snapshot is not None:
        parts.append(_bytes_field(b"\x4a", encode_snapshot(message.snapshot)))
    if reject:
        parts.append(b"\x50\x01")
    if message.reject_hint or (reject and kind == MessageType.APP_RESP):
        parts.append(b"\x58" + varint(message.reject_hint))
    if message.context:
        parts.append(_bytes_field(b"\x62", message.context))
    return b"".join(parts)


def decode_message(data: bytes) -> Message:
    """Return the message; raise WireError if data is none.

    An unknown type is kept as it is: RawNode.step ignores it.
    """
    if len(data) < _SMALL_BYTES:
        message = _decode_small(data)
        if message is not None:
            return message
    numbers = [0] * 12
    entries: list[Entry] = []
    snapshot: Snapshot | None = None
    context = b""
    for field, value in _fields(data):
        if isinstance(value, int):
            if field < 12:
                numbers[field] = value
        elif field == 7:
            entries.append(decode_entry(value))
        elif field == 9:
            snapshot = decode_snapshot(value)
        elif field == 12:
            context = value
    _, kind, to, from_, term, log_term, index, _, commit, _, reject, reject_hint = numbers
    return Message(
        kind,
        to,
        from_,
        term,
        log_term,
        index,
        entries,
        commit,
        snapshot,
        bool(reject),
        reject_hint,
        context,
    )


def _decode_small(data: bytes) -> Message | None:
    """Return a message without entries and snapshot, parsed by protobuf; None if it is another."""
    m = raft_pb2.Message()
    try:
        m.ParseFromString(data)
    except DecodeError:
        return None  # the general decoder raises the exact error
    kind: int = m.type
    if kind not in _SMALL_TYPES or m.entries or m.HasField("snapshot"):
        return None
    return Message(
        kind,
        m.to,
        getattr(m, "from"),
        m.term,
        m.logTerm,
        m.index,
        [],
        m.commit,
        None,
        m.reject,
        m.rejectHint,
        m.context,
    )


def _decode_any_entry(data: bytes) -> Entry:
    numbers = [0, 0, 0, 0]
    body = b""
    for field, value in _fields(data):
        if isinstance(value, int):
            if field <= 3:
                numbers[field] = value
        elif field == 4:
            body = value
    _, kind, term, index = numbers
    if kind > _ENTRY_TYPE_MAX:
        raise WireError(f"entry {index} of type {kind}, known are 0 to {_ENTRY_TYPE_MAX}")
    return Entry(kind, term, index, body)


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """Return (field number, value) of the varint and bytes fields."""
    fields: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        field, wire_type, value, at = read_field(data, at)
        if wire_type in {VARINT, BYTES}:
            fields.append((field, value))
    return fields


def _parsed(message: _M, data: bytes) -> _M:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise WireError(f"{message.DESCRIPTOR.full_name} of {len(data)} bytes: {error}") from None
    return message


def _conf_state_pb(state: ConfState) -> raft_pb2.ConfState:
    return raft_pb2.ConfState(
        voters=state.voters,
        learners=state.learners,
        voters_outgoing=state.voters_outgoing,
        learners_next=state.learners_next,
        auto_leave=state.auto_leave,
    )


def _conf_state(message: raft_pb2.ConfState) -> ConfState:
    return ConfState(
        tuple(message.voters),
        tuple(message.learners),
        tuple(message.voters_outgoing),
        tuple(message.learners_next),
        message.auto_leave,
    )


def _bytes_field(tag: bytes, body: bytes) -> bytes:
    return tag + varint(len(body)) + body


@lru_cache(maxsize=256)
def _id(member_id: int) -> bytes:
    return varint(member_id)  # nine or ten bytes, of a few members
