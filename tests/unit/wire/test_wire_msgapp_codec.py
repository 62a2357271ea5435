"""The two streams' framing: etcd's bytes, any cut of them, and bytes that are none."""

import contextlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.raft.model import Entry, Message, MessageType, Snapshot, SnapshotMetadata
from kvstore.wire.msgapp_codec import (
    FRAME_BYTES_MAX,
    MESSAGE_HEARTBEAT,
    MSGAPP_HEARTBEAT,
    EntriesMemo,
    MessageDecoder,
    MessageEncoder,
    MsgAppDecoder,
    MsgAppEncoder,
)
from kvstore.wire.raft_codec import encode_entry
from kvstore.wire.varint import WireError

A, B = 0xE6C898A49DE4AAED, 0x80DA000000000001


def app(
    index: int, entries: list[Entry], commit: int, *, term: int = 2, log_term: int = 2
) -> Message:
    return Message(MessageType.APP, A, B, term, log_term, index, entries, commit)


# Recorded from an etcd leader: an entry after one of an older term, one that follows, a commit.
FULL = bytes.fromhex(
    "020000000000000025"
    "0803" "10e6c898a49de4aaed8001" "18ffb0d2d58fcddcaa5f"
    "2002" "2801" "3003" "3a0410021804" "4003"
)  # fmt: skip
TO, FROM = 9285738168870085734, 6869399361312856191


def test_recorded_full_append() -> None:
    decoder = MsgAppDecoder(TO, FROM)
    (message,) = decoder.feed(FULL)
    assert message == Message(
        MessageType.APP, message.to, message.from_, 2, 1, 3, [Entry(0, 2, 4, b"")], 3
    )
    encoder = MsgAppEncoder(EntriesMemo())
    assert encoder.encode(message) == FULL


def test_recorded_short_appends_follow_a_full_one() -> None:
    entry = Entry(0, 2, 5, b"\x01" * 57)
    to = MsgAppDecoder(TO, FROM).feed(FULL)[0].to
    encoder, decoder = MsgAppEncoder(EntriesMemo()), MsgAppDecoder(TO, FROM)
    (first,) = decoder.feed(FULL)
    encoder.encode(first)
    follows = Message(MessageType.APP, to, first.from_, 2, 2, 4, [entry], 4)
    frame = encoder.encode(follows)
    assert frame == bytes.fromhex("010000000000000001000000000000003f10021805" + "2239") + (
        b"\x01" * 57
    ) + bytes.fromhex("0000000000000004")
    commit = Message(MessageType.APP, to, first.from_, 2, 2, 5, [], 8)
    nothing_new = encoder.encode(commit)
    assert nothing_new == bytes.fromhex("01" + "00" * 8 + "0000000000000008")
    (got,) = decoder.feed(frame)
    assert (got.term, got.log_term, got.index, got.entries, got.commit) == (2, 2, 4, [entry], 4)
    assert (got.to, got.from_) == (TO, FROM)  # not on the wire: of the connection
    (got,) = decoder.feed(nothing_new)
    assert (got.index, got.entries, got.commit) == (5, [], 8)


def test_link_heartbeats() -> None:
    assert bytes.fromhex("00000000000000020808") == MESSAGE_HEARTBEAT
    assert MSGAPP_HEARTBEAT == b"\x00"
    assert MessageDecoder().feed(MESSAGE_HEARTBEAT * 3) == []
    assert MessageDecoder().feed(bytes.fromhex("0000000000000006080810001800")) == []
    assert MsgAppDecoder(A, B).feed(MSGAPP_HEARTBEAT * 3) == []


def test_a_heartbeat_leaves_the_state_of_a_msgapp_stream() -> None:
    encoder, decoder = MsgAppEncoder(EntriesMemo()), MsgAppDecoder(A, B)
    decoder.feed(encoder.encode(app(3, [Entry(0, 2, 4, b"a")], 3)) + MSGAPP_HEARTBEAT)
    frame = encoder.encode(app(4, [Entry(0, 2, 5, b"b")], 4))
    assert frame[0] == 1
    assert decoder.feed(frame)[0].index == 4


def test_an_append_that_does_not_follow_goes_with_its_head() -> None:
    encoder = MsgAppEncoder(EntriesMemo())
    encoder.encode(app(3, [Entry(0, 2, 4, b"a")], 3))
    assert encoder.encode(app(3, [Entry(0, 2, 4, b"a")], 3))[0] == 2  # again
    assert encoder.encode(app(4, [], 4))[0] == 1
    assert encoder.encode(app(4, [], 4, term=3))[0] == 2  # a new term
    assert encoder.encode(app(4, [], 5, term=3, log_term=3))[0] == 1


def test_links_with_the_same_entries_share_their_bytes() -> None:
    memo = EntriesMemo()
    entries = [Entry(0, 2, 5, b"a"), Entry(0, 2, 6, b"b")]
    assert memo.frame(entries) is memo.frame(list(entries))
    assert memo.frame(entries[:1]) != memo.frame(entries)
    other = [Entry(0, 2, 5, b"x"), Entry(0, 2, 6, b"y")]
    assert memo.frame(other) != memo.frame(entries)


def histories(seed: int) -> Iterator[Message]:
    """Yield appends as a leader sends them, now and then from elsewhere."""
    rng = random.Random(seed)
    term, index = 1, 0
    for _ in range(60):
        if rng.random() < 0.1:
            term += 1
        if rng.random() < 0.1:
            index = rng.randrange(index + 1)
        count = rng.choice((0, 1, 1, 5))
        datas = [rng.randbytes(rng.choice((0, 3, 200, 20_000))) for _ in range(count)]
        entries = [
            Entry(rng.choice((0, 0, 0, 1)), term, index + 1 + n, data)
            for n, data in enumerate(datas)
        ]
        log_term = rng.choice((term, term, term, max(term - 1, 0)))
        yield app(index, entries, rng.randrange(index + 1), term=term, log_term=log_term)
        index += len(entries)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_sent_arrives_however_it_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    sent = list(histories(seed))
    for encoder, decoder in (
        (MsgAppEncoder(EntriesMemo()), MsgAppDecoder(A, B)),
        (MessageEncoder(), MessageDecoder()),
    ):
        stream = b"".join(encoder.encode(message) for message in sent)
        got: list[Message] = []
        at = 0
        while at < len(stream):
            size = rng.choice((1, 2, 7, 100, 5_000, 70_000))
            got += decoder.feed(stream[at : at + size])
            at += size
        assert got == sent


@given(data=st.binary(max_size=200))
def test_bytes_that_are_no_frames_are_refused_or_waited_on(data: bytes) -> None:
    for decoder in (MsgAppDecoder(A, B), MessageDecoder()):
        with contextlib.suppress(WireError):
            decoder.feed(data)


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (MsgAppDecoder, b"\x03"),
        (MsgAppDecoder, b"\x02" + (FRAME_BYTES_MAX + 1).to_bytes(8, "big")),
        (MsgAppDecoder, b"\x01" + bytes(7) + b"\x01" + (FRAME_BYTES_MAX + 1).to_bytes(8, "big")),
        (MsgAppDecoder, b"\x02" + bytes(7) + b"\x02\xff\xff"),
        (MessageDecoder, (FRAME_BYTES_MAX + 1).to_bytes(8, "big")),
        (MessageDecoder, bytes(7) + b"\x02\xff\xff"),
    ],
)
def test_an_invalid_frame_is_refused(
    kind: type[MsgAppDecoder] | type[MessageDecoder], data: bytes
) -> None:
    decoder = MsgAppDecoder(A, B) if kind is MsgAppDecoder else MessageDecoder()
    with pytest.raises(WireError):
        decoder.feed(data)


def test_an_announced_number_of_entries_uses_no_memory() -> None:
    decoder = MsgAppDecoder(A, B)
    assert (
        decoder.feed(b"\x01" + b"\xff" * 8 + bytes(7) + b"\x06" + encode_entry(Entry(0, 1, 1, b"")))
        == []
    )


def test_a_snapshot_message_passes_the_message_stream() -> None:
    message = Message(
        MessageType.SNAP, A, B, 7, snapshot=Snapshot(SnapshotMetadata(index=9, term=7), b"{}")
    )
    assert MessageDecoder().feed(MessageEncoder().encode(message)) == [message]
