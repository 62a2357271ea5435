"""Framing of raft messages on the two streams between members.

    message stream   length u64BE | raftpb.Message
    msgapp stream    00                                                  heartbeat
                     01 | n u64BE | n * (length u64BE | Entry) | commit u64BE
                     02 | length u64BE | raftpb.Message

A msgapp stream carries appends only, and both ends keep (term, index) of the last entry sent: an
append that continues there in the same term is sent as 01, without the message's other fields. So
an encoder and a decoder belong to one connection, and what was encoded must be sent, completely and
in order.

Decoders take bytes as they arrive and return the messages that are complete; heartbeats are
dropped. Invalid bytes raise WireError, after which the connection must be closed. Memory is used
for bytes that have arrived, never for the length that a frame announces.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from kvstore.raft.model import Entry, Message, MessageType
from kvstore.wire.raft_codec import (
    LINK_HEARTBEAT,
    decode_entry,
    decode_message,
    encode_entry,
    encode_message,
)
from kvstore.wire.varint import WireError, read_varint, varint

FRAME_BYTES_MAX: Final = 512 << 20
MSGAPP_HEARTBEAT: Final = b"\x00"
MESSAGE_HEARTBEAT: Final = len(LINK_HEARTBEAT).to_bytes(8, "big") + LINK_HEARTBEAT

_U64: Final = Struct(">Q")
_SHORT_HEAD: Final = Struct(">BQ")
_pack: Final = _U64.pack
_APP: Final = int(MessageType.APP)
_HEARTBEAT: Final = int(MessageType.HEARTBEAT)


class EntriesMemo:
    """The last encoded entries: links that send the same entries encode them once."""

    __slots__ = ("_count", "_first", "_frame", "_last")

    def __init__(self) -> None:
        self._count = 0
        self._first: Entry | None = None
        self._last: Entry | None = None
        self._frame = b""

    def frame(self, entries: Sequence[Entry]) -> bytes:
        """Return 01 | n | entries with their lengths; entries is not empty."""
        first, last = entries[0], entries[-1]
        if first is self._first and last is self._last and len(entries) == self._count:
            return self._frame
        parts = [_SHORT_HEAD.pack(1, len(entries))]
        for entry in entries:
            body = encode_entry(entry)
            parts.append(_pack(len(body)))
            parts.append(body)
        self._first, self._last, self._count = first, last, len(entries)
        self._frame = b"".join(parts)
        return self._frame


class MsgAppEncoder:
    """Encodes one msgapp stream."""

    __slots__ = ("_index", "_memo", "_term")

    def __init__(self, memo: EntriesMemo) -> None:
        """Begin a connection; memo may be shared by links that send the same entries."""
        self._memo = memo
        self._term = 0
        self._index = 0

    def encode(self, message: Message) -> bytes:
        """Return the frame of an append."""
        entries = message.entries
        if (
            self._index == message.index
            and self._term == message.log_term
            and message.log_term == message.term
        ):
            self._index += len(entries)
            head = self._memo.frame(entries) if entries else _SHORT_HEAD.pack(1, 0)
            return head + _pack(message.commit)
        body = encode_message(message)
        self._term = message.term
        self._index = entries[-1].index if entries else message.index
        return _SHORT_HEAD.pack(2, len(body)) + body


class MessageEncoder:
    """Encodes one message stream."""

    __slots__ = ()

    def encode(self, message: Message) -> bytes:
        """Return the frame of a message."""
        body = encode_message(message)
        return _pack(len(body)) + body


class _PartialFrame:
    """The bytes of an incomplete frame; `need` is the size at which to try again."""

    __slots__ = ("_pieces", "_size", "need")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.need = 0

    def join(self, data: bytes) -> bytes:
        """Return the bytes so far with data after them, or b"" if that is not enough yet."""
        if not self._pieces:
            return data
        self._pieces.append(data)
        self._size += len(data)
        if self._size < self.need:
            return b""
        data = b"".join(self._pieces)
        self._pieces = []
        return data

    def keep(self, rest: bytes, need: int) -> None:
        self._pieces = [rest] if rest else []
        self._size = len(rest)
        self.need = need


class MessageDecoder:
    """Decodes one message stream."""

    __slots__ = ("_partial",)

    def __init__(self) -> None:
        self._partial = _PartialFrame()

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that data completes."""
        messages: list[Message] = []
        data = self._partial.join(data)
        at, end = 0, len(data)
        while at < end:
            need = 8
            if end - at >= 8:
                size = _U64.unpack_from(data, at)[0]
                _check_size(size)
                need = 8 + size
            if end - at < need:
                self._partial.keep(data[at:] if at else data, need)
                break
            body = data[at + 8 : at + need]
            at += need
            if body != LINK_HEARTBEAT:
                message = decode_message(body)
                if message.type != _HEARTBEAT or message.from_ or message.to:
                    messages.append(message)
        return messages


class MsgAppDecoder:
    """Decodes one msgapp stream."""

    __slots__ = ("_entries", "_index", "_left", "_local", "_partial", "_remote", "_size", "_term")

    def __init__(self, local: int, remote: int) -> None:
        """Begin a connection from member remote to member local."""
        self._local = local
        self._remote = remote
        self._term = 0
        self._index = 0
        self._partial = _PartialFrame()
        self._entries: list[Entry] = []
        self._left = -1  # entries of a short append still to come; -1: between frames
        self._size = 0  # of the entries of that append so far, in bytes

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that data completes."""
        messages: list[Message] = []
        data = self._partial.join(data)
        at, end = 0, len(data)
        while at < end:
            if self._left >= 0:
                at, need = self._feed_entries(data, at, messages)
            elif data[at] == 0:
                at += 1
                continue
            elif data[at] > 2:
                raise WireError(f"frame of type {data[at]} on a msgapp stream, known are 0 to 2")
            elif end - at < 9:
                need = 9
            elif data[at] == 1:
                self._left = _U64.unpack_from(data, at + 1)[0]
                at += 9
                continue
            else:
                at, need = self._feed_message(data, at, messages)
            if need:
                self._partial.keep(data[at:] if at else data, need)
                break
        return messages

    def _feed_message(self, data: bytes, at: int, messages: list[Message]) -> tuple[int, int]:
        """Decode a full message; return (offset after it, 0), or (at, bytes needed)."""
        size = _U64.unpack_from(data, at + 1)[0]
        _check_size(size)
        end = at + 9 + size
        if end > len(data):
            return at, 9 + size
        message = decode_message(data[at + 9 : end])
        self._term = message.term
        self._index = message.entries[-1].index if message.entries else message.index
        messages.append(message)
        return end, 0

    def _feed_entries(self, data: bytes, at: int, messages: list[Message]) -> tuple[int, int]:
        """Decode entries of a short append and, after the last, its commit; returns as above."""
        end, left, entries, size_bytes = len(data), self._left, self._entries, self._size
        unpack, append, make = _U64.unpack_from, entries.append, tuple.__new__
        term, index = self._term, self._index + len(entries)
        term_head = b"\x10" + varint(term) + b"\x18"  # the start of a normal entry of this term
        need = 0
        while left:
            need = 8
            if end - at < 8:
                break
            size = unpack(data, at)[0]
            if size_bytes + size > FRAME_BYTES_MAX:
                _check_size(size_bytes + size)
            need = 8 + size
            if end - at < need:
                break
            index += 1
            head = term_head + varint(index) + b"\x22"
            body = at + 8 + len(head)
            at += need
            if need > 12 + len(head) and data.startswith(head, at - size):
                length = data[body]
                body += 1
                if length > 127:
                    length, body = read_varint(data, body - 1)
                if body + length == at:
                    append(make(Entry, (0, term, index, data[body:at])))
                else:
                    append(decode_entry(data[at - size : at]))
            else:
                append(decode_entry(data[at - size : at]))
            size_bytes += size + 8
            left -= 1
        self._left, self._size = left, size_bytes
        if left:
            return at, need
        if end - at < 8:
            return at, 8
        commit = unpack(data, at)[0]
        index = self._index
        messages.append(
            Message(_APP, self._local, self._remote, term, term, index, entries, commit)
        )
        self._index += len(entries)
        self._entries, self._left, self._size = [], -1, 0
        return at + 8, 0


def _check_size(size: int) -> None:
    if size > FRAME_BYTES_MAX:
        raise WireError(f"frame of {size} bytes, allowed are {FRAME_BYTES_MAX}")
