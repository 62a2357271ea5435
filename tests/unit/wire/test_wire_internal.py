import pytest

from kvstore.wire.gen import raft_internal_pb2, rpc_pb2
from kvstore.wire.internal import (
    Field,
    RequestIds,
    V2Request,
    credentials,
    decode_v2_request,
    unwrap,
    wrap,
)
from kvstore.wire.varint import WireError, varint

INTERNAL = raft_internal_pb2.InternalRaftRequest
PUT_FOO = bytes.fromhex("220a 0a03666f6f 1203626172 a2060b0883a6e9d9cabfe8d0e801")
PUT_ID = 0xE8A1A1FCAB3A5303
FOO_BAR = bytes.fromhex("0a03666f6f 1203626172")


def test_put_as_etcd_logs_it() -> None:
    assert unwrap(PUT_FOO) == (Field.PUT, FOO_BAR, PUT_ID)
    assert wrap(Field.PUT, FOO_BAR, PUT_ID) == PUT_FOO


def test_a_request_numbered_above_the_header_stands_behind_it() -> None:
    version = bytes.fromhex("a2060b0882a6e9d9cabfe8d0e801 a25107 0a05332e372e30")
    body = bytes.fromhex("0a05332e372e30")
    assert unwrap(version) == (Field.CLUSTER_VERSION_SET, body, PUT_ID - 1)
    assert wrap(Field.CLUSTER_VERSION_SET, body, PUT_ID - 1) == version


def test_fields_are_numbered_as_the_proto_text_says() -> None:
    numbers = {field.name: field.number for field in INTERNAL.DESCRIPTOR.fields}
    assert {field.name.lower(): int(field) for field in Field} == {
        name: number for name, number in numbers.items() if name not in {"header", "ID"}
    }


@pytest.mark.parametrize("size", [0, 1, 127, 128, 129, 16383, 16384, 16385, 70_000])
@pytest.mark.parametrize("field", [Field.PUT, Field.TXN, Field.AUTH_ENABLE])
@pytest.mark.parametrize("request_id", [1, 127, 128, PUT_ID, 2**64 - 1])
def test_bodies_are_neither_parsed_nor_changed(size: int, field: Field, request_id: int) -> None:
    body = b"\xff" * size
    assert unwrap(wrap(field, body, request_id)) == (field, body, request_id)


@pytest.mark.parametrize("size", [16384, 32768, 40_000])
def test_a_body_is_never_taken_for_a_header(size: int) -> None:
    forged = b"\xa2\x06\x04\x08\x07"
    for end in range(1, 8):
        body = b"\xa2" * (size - len(forged)) + forged + b"\x06" * end
        assert unwrap(wrap(Field.PUT, body, 9)) == (Field.PUT, body, 9)


def test_credentials_are_in_the_header() -> None:
    data = wrap(Field.PUT, FOO_BAR, PUT_ID, "alice", 12)
    message = INTERNAL.FromString(data)
    assert message.put == rpc_pb2.PutRequest(key=b"foo", value=b"bar")
    assert message.header.username == "alice"
    assert message.header.auth_revision == 12
    assert message.SerializeToString() == data
    assert unwrap(data) == (Field.PUT, FOO_BAR, PUT_ID)
    assert credentials(data) == ("alice", 12)
    assert credentials(PUT_FOO) == ("", 0)


def test_a_legacy_id_wins_over_the_header() -> None:
    assert unwrap(b"\x08\x07" + PUT_FOO) == (Field.PUT, FOO_BAR, 7)
    assert unwrap(PUT_FOO + b"\x08\x07") == (Field.PUT, FOO_BAR, 7)
    assert unwrap(b"\x08\x00" + PUT_FOO) == (Field.PUT, FOO_BAR, PUT_ID)
    assert unwrap(b"\x08\x07\x22\x00") == (Field.PUT, b"", 7)


def test_unknown_fields_are_skipped() -> None:
    assert unwrap(PUT_FOO + b"\xfa\x3f\x01x") == (Field.PUT, FOO_BAR, PUT_ID)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "no known request"),
        (bytes.fromhex("a2060208 05"), "no known request"),
        (PUT_FOO[:-1], "ends after"),
        (PUT_FOO[:5], "ends after"),
        (b"\x22\x00" + PUT_FOO, "two requests"),
        (b"\x20\x07" + PUT_FOO, "field 4 of wire type 0"),
        (b"\x12\x03PUT" + PUT_FOO, "field 2 of wire type 2"),
        (b"\x22\x00\xa2\x06\x02\x12\x05", "header"),
        (b"\xff\xff", "cut off"),
    ],
)
def test_bytes_that_are_no_request(data: bytes, text: str) -> None:
    with pytest.raises(WireError, match=text):
        unwrap(data)


def v2_bytes(path: str, val: str) -> bytes:
    """Return a v2 request as etcd 3.5 writes it: every number and flag, zero or not."""
    texts = b"".join(
        bytes((tag,)) + varint(len(text)) + text.encode()
        for tag, text in ((0x12, "PUT"), (0x1A, path), (0x22, val))
    )
    tail = "2800 3200 3800 4800 5000 5800 6000 6800 7000 7800 800100"
    return b"\x08" + varint(PUT_ID) + texts + bytes.fromhex(tail)


ATTRIBUTES = V2Request(
    PUT_ID, "PUT", "/0/members/628ed94ad692e8a1/attributes", '{"name":"n1","clientURLs":["u"]}'
)


def test_v2_request_of_an_older_log() -> None:
    data = v2_bytes(ATTRIBUTES.path, ATTRIBUTES.val)
    with pytest.raises(WireError):
        unwrap(data)
    assert decode_v2_request(data) == ATTRIBUTES


def test_v2_request_inside_a_wrapper() -> None:
    inner = v2_bytes("/0/version", "3.5.0")
    data = b"\x12" + varint(len(inner)) + inner
    with pytest.raises(WireError):
        unwrap(data)
    assert decode_v2_request(data) == V2Request(PUT_ID, "PUT", "/0/version", "3.5.0")
    assert decode_v2_request(b"\xa2\x06\x02\x08\x05" + data).path == "/0/version"


@pytest.mark.parametrize(
    "data", [b"", PUT_FOO, b"\x12\x03PUT", b"\x0a\x00", b"\x12\x01\xff\x1a\x01/", b"\x12"]
)
def test_bytes_that_are_no_v2_request(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_v2_request(data)


def test_request_ids_ascend_from_member_and_time() -> None:
    ids = RequestIds(0x628ED94AD692E8A1, 0x1A1FCAB3A53 | 1 << 40)
    assert [ids.next(), ids.next()] == [0xE8A1A1FCAB3A5301, 0xE8A1A1FCAB3A5302]


def test_request_ids_carry_into_the_time_and_stay_within_48_bits() -> None:
    ids = RequestIds(1, 5)
    last = [ids.next() for _ in range(256)][-1]
    assert last == 1 << 48 | 6 << 8
    ids = RequestIds(1, (1 << 40) - 1)
    last = [ids.next() for _ in range(256)][-1]
    assert last == 1 << 48
