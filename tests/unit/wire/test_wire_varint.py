import pytest

from kvstore.wire.varint import (
    BYTES,
    FIXED32,
    FIXED64,
    UINT64_MAX,
    WireError,
    int64,
    read_field,
    read_varint,
    varint,
)

EDGES = [
    0,
    1,
    127,
    128,
    300,
    2**14 - 1,
    2**14,
    2**21 - 1,
    2**21,
    2**28 - 1,
    2**28,
    2**63,
    UINT64_MAX,
]


@pytest.mark.parametrize("number", EDGES)
def test_round_trip_at_the_edges(number: int) -> None:
    data = varint(number)
    assert len(data) == max(1, -(-number.bit_length() // 7))
    assert read_varint(b"\xff" + data + b"\x01", 1) == (number, 1 + len(data))


def test_known_bytes() -> None:
    assert varint(300) == bytes.fromhex("ac02")
    assert int64(-1) == bytes.fromhex("ffffffffffffffffff01")
    assert int64(-(2**63)) == bytes.fromhex("80808080808080808001")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "cut off"),
        ("80", "cut off"),
        ("ffffffffffffffffff02", "above"),
        ("8080808080808080808000", "more than ten"),
    ],
)
def test_bad_varints(data: str, text: str) -> None:
    with pytest.raises(WireError, match=text):
        read_varint(bytes.fromhex(data), 0)


def test_fields_of_every_known_wire_type() -> None:
    assert read_field(bytes.fromhex("0a0161"), 0) == (1, BYTES, b"a", 3)
    assert read_field(bytes.fromhex("0d01000000"), 0) == (1, FIXED32, 1, 5)
    assert read_field(bytes.fromhex("090100000000000000"), 0) == (1, FIXED64, 1, 9)


@pytest.mark.parametrize("data", ["00", "0b", "0c", "0f", "0a0261", "0d010000", "8080808010 00"])
def test_bad_fields(data: str) -> None:
    with pytest.raises(WireError):
        read_field(bytes.fromhex(data), 0)
