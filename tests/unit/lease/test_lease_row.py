"""Lease rows, to the byte."""

import pytest

from kvstore.errors import CorruptionError
from kvstore.lease.row import decode_row, encode_row, row_key


@pytest.mark.parametrize(
    ("lease_id", "ttl_s", "remaining_s", "key_hex", "value_hex"),
    [
        (10, 60, 0, "000000000000000a", "080a103c"),
        (10, 60, 300, "000000000000000a", "080a103c18ac02"),
        (-2, 1, 0, "fffffffffffffffe", "08feffffffffffffffff011001"),
        (0x68A1A1FCAD21920A, 2, 0, "68a1a1fcad21920a", "088aa486e9cabfe8d0681002"),
    ],
)
def test_bytes(lease_id: int, ttl_s: int, remaining_s: int, key_hex: str, value_hex: str) -> None:
    assert row_key(lease_id).hex() == key_hex
    assert encode_row(lease_id, ttl_s, remaining_s).hex() == value_hex
    back = decode_row(bytes.fromhex(key_hex), bytes.fromhex(value_hex))
    assert back == (lease_id, ttl_s, remaining_s)


def test_torn_row_names_the_key() -> None:
    with pytest.raises(CorruptionError, match="000000000000000a"):
        decode_row(row_key(10), b"\x08\x0a\x10")


def test_row_under_a_foreign_key_is_refused() -> None:
    with pytest.raises(CorruptionError, match="contains lease 11"):
        decode_row(row_key(10), encode_row(11, 60, 0))
