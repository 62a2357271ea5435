"""Frames, records and the rolling checksum; the example is the log of a real etcd 3.7.1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.component import crate
from kvstore.raft.model import ConfState, Entry, EntryType, HardState
from kvstore.storage.wal import record as wal_record
from kvstore.storage.wal.record import (
    ENTRY,
    METADATA,
    SNAPSHOT,
    STATE,
    SegmentReader,
    WalSnapshot,
    decode_snapshot_body,
    encode_crc,
    encode_entries,
    encode_records,
    encode_snapshot_body,
    frame_word,
)
from kvstore.wire.raft_codec import decode_entry, encode_entry, encode_hard_state
from kvstore.wire.varint import WireError

ID = bytes.fromhex("a1d1cbb4ada9b6c762")  # of the member
CLUSTER = bytes.fromhex("9bb3eaddcf9efde6dd01")
MEMBER_ID = 0x628ED94AD692E8A1
CONTEXT = b'{"id":7101852577860610209,"peerURLs":["http://127.0.0.1:23800"],"name":"n1"}'


def request(number: int, rest: bytes) -> bytes:
    """An InternalRaftRequest: its kind, then its header."""
    header = b"\xa2\x06\x0b\x08" + bytes((number,)) + bytes.fromhex("a6e9d9cabfe8d0e801")
    return header + rest


CONF_CHANGE = b"\x10\x00\x18" + ID + b"\x22\x4c" + CONTEXT
PUBLISH = request(
    0x81, b"\xaa\x51\x28\x08" + ID + b"\x12\x1c\x0a\x02n1\x12\x16http://127.0.0.1:23790"
)
VERSION = request(0x82, b"\xa2\x51\x07\x0a\x053.7.0")
PUT = b"\x22\x0a\x0a\x03foo\x12\x03bar" + request(0x83, b"")

# What a fresh member writes until its first put, record by record, and where each begins.
EXAMPLE: list[tuple[int, int, bytes, str]] = [
    (16, METADATA, b"\x08" + ID + b"\x10" + CLUSTER, "8b99bda103"),
    (56, SNAPSHOT, b"\x08\x00\x10\x00", "97ae87ca04"),
    (80, ENTRY, b"\x08\x01\x10\x01\x18\x01\x22\x5a" + CONF_CHANGE, "c8d4d68c07"),
    (200, STATE, b"\x08\x01\x10\x00\x18\x01", "f896beb60f"),
    (224, STATE, b"\x08\x02\x10" + ID + b"\x18\x01", "b4fa85dc0a"),
    (256, ENTRY, b"\x10\x02\x18\x02", "8999acf006"),
    (280, ENTRY, encode_entry(Entry(0, 2, 3, PUBLISH)), ""),
    (368, STATE, b"\x08\x02\x10" + ID + b"\x18\x02", ""),
    (400, ENTRY, encode_entry(Entry(0, 2, 4, VERSION)), ""),
    (448, STATE, b"\x08\x02\x10" + ID + b"\x18\x03", ""),
    (480, STATE, b"\x08\x02\x10" + ID + b"\x18\x04", ""),
    (512, ENTRY, b"\x10\x02\x18\x05\x22\x1a" + PUT, "b2dbfcf603"),
    (568, STATE, b"\x08\x02\x10" + ID + b"\x18\x05", "fa94e7ad02"),
]
EXAMPLE_END = 600


def example() -> bytes:
    """The segment, built record by record."""
    data, crc = encode_crc(0), 0
    for _, kind, body, _ in EXAMPLE:
        frame, crc = encode_records(kind, (body,), crc)
        data += frame
    return data


def test_the_log_of_a_fresh_etcd_member_byte_for_byte() -> None:
    data = example()
    assert len(data) == EXAMPLE_END
    assert data[:56] == bytes.fromhex(
        "0400000000000084 08041000 00000000"
        "1f00000000000081 0801108b99bda103 1a1508a1d1cbb4ada9b6c762109bb3eaddcf9efde6dd01 00"
    )
    assert data[56:80] == bytes.fromhex("0e00000000000082 08051097ae87ca04 1a0408001000 0000")
    assert data[80:104] == bytes.fromhex("6c00000000000084 080210c8d4d68c07 1a62080110011801")
    assert data[256:280] == bytes.fromhex("0e00000000000082 0802108999acf006 1a0410021802 0000")
    assert data[512:524] == bytes.fromhex("2a00000000000086 080210b2")
    assert data[568:576] == bytes.fromhex("1800000000000000")
    for offset, kind, _, crc in EXAMPLE:
        assert data[offset + 8 : offset + 11] == bytes((8, kind, 16))
        assert data[offset + 11 :].startswith(bytes.fromhex(crc))


def test_the_reader_gives_back_what_was_written() -> None:
    data = example()
    reader = SegmentReader(data, 64_000_000, 0)
    records = list(reader)
    assert records[0] == (0, wal_record.CRC, b"")
    assert records[1:] == [(offset, kind, body) for offset, kind, body, _ in EXAMPLE]
    assert (reader.offset, reader.fault) == (EXAMPLE_END, None)
    assert decode_entry(records[12][2]) == Entry(0, 2, 5, PUT)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 4095, 4096, 4097, 70_000])
def test_a_frame_word_tells_size_and_padding(size: int) -> None:
    word = int.from_bytes(frame_word(size), "little")
    padding = -size % 8
    assert word == (size | (0x80 | padding) << 56 if padding else size)


@pytest.mark.parametrize("size", [0, 1, 117, 118, 127, 128, 16_383, 16_384, 2_100_000])
def test_bodies_of_every_size_class_survive(size: int) -> None:
    body = bytes(range(1, 256)) * (size // 255 + 1)
    body = body[:size]
    for crc in (1, 0x0FFFFFFF, 0x10000000, 0xFFFFFFFF):
        frames, _ = encode_records(ENTRY, (body, b"x", body), crc)
        data = encode_crc(crc) + frames
        reader = SegmentReader(data, len(data), 0)
        assert [record[2] for record in reader] == [b"", body, b"x", body]
        assert reader.fault is None


def test_batches_and_single_records_make_the_same_bytes() -> None:
    bodies = [encode_entry(Entry(0, 3, index, b"v" * index)) for index in range(1, 300)]
    data, crc = encode_records(ENTRY, bodies, 77)
    one_by_one, running = b"", 77
    for body in bodies:
        frame, running = encode_records(ENTRY, (body,), running)
        one_by_one += frame
    assert (data, crc) == (one_by_one, running)


def test_zeros_at_the_end_of_the_data_may_be_left_out() -> None:
    frames, _ = encode_records(ENTRY, (b"a" + bytes(5000),), 9)
    data = encode_crc(9) + frames
    reader = SegmentReader(data.rstrip(b"\0"), len(data), 0)
    assert [record[2] for record in reader] == [b"", b"a" + bytes(5000)]
    assert (reader.offset, reader.fault) == (len(data), None)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda d: d[:575] + b"\x80" + d[576:], "contradicts its own padding"),
        (lambda d: d[:568] + b"\xff\xff\x00" + d[571:], "ends at"),
        (lambda d: d[:577] + b"\x07" + d[578:], "record type 7 is not known"),
        (lambda d: d[:590] + b"\x55" + d[591:], "crc mismatch: expected 25b9ca7a, computed "),
        (lambda d: d[:568] + bytes(8) + d[576:], "no record begins here"),
        (lambda d: d[:577] + b"\x04" + d[578:], "a frame of 24 bytes contains a record of 8"),
    ],
)
def test_a_fault_names_its_offset(damage: object, text: str) -> None:
    assert callable(damage)
    data: bytes = damage(example())
    reader = SegmentReader(data, len(data), 0)
    assert len(list(reader)) == 13
    assert reader.fault is not None
    assert reader.fault.offset == 568
    assert text in reader.fault.text


def test_a_segment_continues_the_chain_of_the_one_before() -> None:
    assert SegmentReader(encode_crc(5), 16, 5).crc == 5
    reader = SegmentReader(encode_crc(5), 16, 6)
    assert list(reader) == []
    assert reader.fault is not None
    assert reader.fault.text == (
        "the chain continues from 00000005, the segment before ended with 00000006"
    )


def test_a_crc_record_stands_only_in_front() -> None:
    data = encode_crc(0) + encode_crc(0)
    reader = SegmentReader(data, len(data), 0)
    assert len(list(reader)) == 1
    assert reader.fault is not None
    assert reader.fault.text == "a CRC record within a segment"


@pytest.mark.parametrize(
    ("snapshot", "encoded"),
    [
        (WalSnapshot(0, 0), "08001000"),
        (WalSnapshot(6, 2, ConfState((1,))), "08061002 1a04 08012800"),
        (WalSnapshot(300, 2, ConfState((1, 2), (3,))), "08ac021002 1a08 080108021003 2800"),
    ],
)
def test_snapshot_records(snapshot: WalSnapshot, encoded: str) -> None:
    assert encode_snapshot_body(snapshot) == bytes.fromhex(encoded)
    assert decode_snapshot_body(bytes.fromhex(encoded)) == snapshot


def test_snapshot_records_of_older_writers_and_bad_ones() -> None:
    assert decode_snapshot_body(b"") == WalSnapshot(0, 0)
    assert decode_snapshot_body(bytes.fromhex("08061002 1a02 0801")) == WalSnapshot(
        6, 2, ConfState((1,))
    )
    with pytest.raises(WireError):
        decode_snapshot_body(b"\x08")
    with pytest.raises(ValueError, match="snapshot at index 6 has no configuration"):
        encode_snapshot_body(WalSnapshot(6, 2))


def test_entries_of_older_writers_with_all_zeros_are_read() -> None:
    assert decode_entry(bytes.fromhex("0800100218072200")) == Entry(0, 2, 7, b"")
    assert encode_hard_state(HardState(2, 0, 0)) == bytes.fromhex("080210001800")


@pytest.mark.skipif(crate.encode_entries is None, reason="the native crate was not built")
@given(
    st.lists(
        st.builds(
            Entry,
            st.sampled_from(EntryType).map(int),
            st.integers(0, 2**64 - 1),
            st.integers(0, 2**64 - 1),
            st.one_of(st.binary(max_size=300), st.integers(0, 20_000).map(bytes)),
        ),
        max_size=20,
    ),
    st.binary(max_size=30),
    st.integers(0, 2**32 - 1),
)
def test_the_native_twin_writes_the_same_bytes(
    entries: list[Entry], state: bytes, crc: int
) -> None:
    assert crate.encode_entries is not None
    assert crate.encode_entries(entries, state, crc) == encode_entries(entries, state, crc)
