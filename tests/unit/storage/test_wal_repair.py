"""What is torn, what is corrupt, by example."""

from collections.abc import Callable

import pytest

from kvstore.raft.model import Entry, HardState
from kvstore.storage.wal.record import (
    ENTRY,
    METADATA,
    STATE,
    SegmentReader,
    encode_crc,
    encode_records,
)
from kvstore.storage.wal.repair import is_torn_tail, kinds_after
from kvstore.wire.raft_codec import encode_entry, encode_hard_state

SIZE_BYTES = 1 << 16


def segment(shape: str, size: int = 1200) -> tuple[bytes, list[int]]:
    """A segment of entries (e) and states (s) and where each begins; no zero bytes in values."""
    data, crc = encode_crc(0), 0
    frame, crc = encode_records(METADATA, (b"\x08\x01\x10\x02",), crc)
    data += frame
    offsets: list[int] = []
    for number, letter in enumerate(shape, 1):
        body = encode_hard_state(HardState(1, 1, number))
        if letter == "e":
            body = encode_entry(Entry(0, 1, number, b"v" * size))
        frame, crc = encode_records(ENTRY if letter == "e" else STATE, (body,), crc)
        offsets.append(len(data))
        data += frame
    return data, offsets


def lose_sector_within(data: bytes, offset: int) -> bytes:
    start = offset + 8 + 512 - (offset + 8) % 512
    return data[:start] + bytes(min(512, len(data) - start)) + data[start + 512 :]


def verdict(data: bytes, size_bytes: int = SIZE_BYTES) -> bool:
    reader = SegmentReader(data, size_bytes, 0)
    assert len(list(reader)) >= 2
    assert reader.fault is not None
    return is_torn_tail(data, size_bytes, reader.fault.offset)


@pytest.mark.parametrize(
    ("shape", "bad", "torn"),
    [
        ("e", 0, True),
        ("es", 0, True),  # one save: entry and state
        ("ssee", 2, True),
        ("eees", 1, True),
        ("ese", 0, False),  # a later save proves the first was synced
        ("ess", 0, False),
        ("eses", 0, False),
        ("eses", 2, True),
    ],
)
def test_a_lost_sector_is_torn_unless_a_later_save_follows(
    shape: str, bad: int, torn: object
) -> None:
    data, offsets = segment(shape)
    assert verdict(lose_sector_within(data, offsets[bad])) is torn


@pytest.mark.parametrize(
    "damage",
    [
        lambda d, at: d[: at + 100] + b"\xff" + d[at + 101 :],  # in the value
        lambda d, at: d[: at + 11] + bytes((d[at + 11] ^ 1,)) + d[at + 12 :],  # in the crc
        lambda d, at: d[: at + 1] + b"\x7f" + d[at + 2 :],  # in the length: past the end
        lambda d, at: d[: at + 2] + b"\x01" + d[at + 3 :],  # much longer, into the zeros
        lambda d, at: d[: at + 7] + b"\x00" + d[at + 8 :],  # in the padding
        lambda d, at: d[:at] + bytes(8) + d[at + 8 :],  # the word alone is gone
    ],
)
def test_changed_bytes_are_no_tear_even_in_the_last_record(
    damage: Callable[[bytes, int], bytes],
) -> None:
    data, offsets = segment("ese")
    assert verdict(damage(data, offsets[-1])) is False


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 20, 200, 600, 1200])
def test_a_file_that_ends_within_its_last_record_is_torn(cut: int) -> None:
    data, offsets = segment("ese")
    short = data[: offsets[-1] + cut]
    assert verdict(short, len(short)) is True


def test_a_lost_first_sector_is_torn_and_the_head_of_a_segment_never_is() -> None:
    data, offsets = segment("es", size=2000)
    start = offsets[0] - offsets[0] % 512 + 512
    lost = data[: offsets[0]] + bytes(start - offsets[0]) + data[start:]
    assert verdict(lost) is True
    assert is_torn_tail(bytes(512) + data[512:], SIZE_BYTES, 0) is False


def test_the_kinds_behind_a_fault_are_found_again_after_rubbish() -> None:
    data, offsets = segment("esse")
    assert kinds_after(data, offsets[0]) == b"2332"
    assert kinds_after(data[: offsets[0]] + b"\xff" * 8 + data[offsets[0] + 8 :], 0) == b"41332"
