"""JSON of the gateway: where values end, what they become, how messages are written."""

import base64
import json
import re

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from kvstore.http.go_text import quote
from kvstore.server.gateway.json_decode import DEPTH_MAX, decode
from kvstore.server.gateway.json_encode import encode, encode_chunk, encode_status
from kvstore.server.gateway.json_scan import JsonError, ValueScanner
from kvstore.wire import rpc
from kvstore.wire.gen import kv_pb2
from kvstore.wire.gen import rpc_pb2 as pb

MAX_BYTES = 1 << 20
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def values(pieces: list[bytes], max_bytes: int = MAX_BYTES) -> list[bytes]:
    """Scan pieces to their end."""
    scanner = ValueScanner(max_bytes)
    found = []
    for piece in pieces:
        scanner.feed(piece)
        while (value := scanner.take()) is not None:
            found.append(value)
    last = scanner.finish()
    return found if last is None else [*found, last]


def fault(data: bytes, max_bytes: int = MAX_BYTES) -> str:
    with pytest.raises(JsonError) as caught:
        values([data], max_bytes)
    return str(caught.value)


def read(text: str | bytes) -> pb.RangeRequest:
    message = pb.RangeRequest()
    decode(text.encode() if isinstance(text, str) else text, message)
    return message


@given(st.lists(JSON_VALUES), st.data())
def test_values_end_where_they_end_however_they_arrive(
    items: list[object], data: st.DataObject
) -> None:
    texts = [json.dumps(item, ensure_ascii=data.draw(st.booleans())).encode() for item in items]
    whole = b" \n".join(texts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)))))
    pieces = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert values(pieces) == texts


@given(st.text(alphabet='{}[]",:\\u0aeE+-.tfn 19\n\x01é', max_size=20))
def test_exactly_json_is_accepted(text: str) -> None:
    try:
        json.loads(text)
        is_json = True
    except ValueError:
        is_json = False
    scanner = ValueScanner(MAX_BYTES)
    scanner.feed(text.encode())
    try:
        first = scanner.take() or scanner.finish()
    except JsonError:
        first = None
    if is_json:
        assert first is not None
        assert first.decode() == text.strip(" \t\r\n")
    elif first is not None:  # only its beginning was one value
        json.loads(first)


def test_an_error_stays() -> None:
    scanner = ValueScanner(MAX_BYTES)
    scanner.feed(b"}")
    for _ in range(2):
        with pytest.raises(JsonError, match="'}' looking for beginning of value"):
            scanner.take()


def test_limits_of_size_and_depth() -> None:
    assert fault(b'"' + b"x" * 100, 50) == "a JSON value is longer than the limit of 50 bytes"
    assert fault(b"[" * 10_001) == "invalid character '[' exceeded max depth"
    assert values([b"[" * 10_000 + b"]" * 10_000])


def test_space_between_values_is_not_kept() -> None:
    scanner = ValueScanner(100)
    for _ in range(1000):
        scanner.feed(b" \n" * 100)
        assert scanner.take() is None
    assert len(scanner._bytes) == 0
    scanner.feed(b' {"a":')
    assert scanner.take() is None
    scanner.feed(b"1} ")
    assert scanner.take() == b'{"a":1}'
    assert scanner.finish() is None


def test_deep_values_of_unknown_fields_are_skipped() -> None:
    deep = '{"x":' + '{"a":[' * 4000 + "]}" * 4000 + ',"key":"Zm9v"}'
    assert read(deep).key == b"foo"


def test_messages_in_messages_have_a_limit() -> None:
    def nested(depth: int) -> bytes:
        return b'{"success":[{"request_txn":' * depth + b"{}" + b"}]}" * depth

    message = pb.TxnRequest()
    decode(nested(DEPTH_MAX // 2 - 1), message)
    pb.TxnRequest.FromString(message.SerializeToString())
    with pytest.raises(JsonError, match="exceeded max recursion depth"):
        decode(nested(DEPTH_MAX), pb.TxnRequest())


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("5", 5),
        ('"5"', 5),
        ("-0", 0),
        ("1.0", 1),
        ("120e-1", 12),
        ("1.5e1", 15),
        ("0e999999999", 0),
        ('"-9223372036854775808"', -(1 << 63)),
        ("9223372036854775808", None),
        ("1" * 5000, None),
        ("1e20", None),
        ("1e-1", None),
        ("1.5", None),
        ('"0x5"', None),
        ('"5 "', None),
        ('""', None),
        ('"1_0"', None),
        ("true", None),
        ("[]", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    body = f'{{"limit":{text}}}'
    if number is not None:
        assert read(body).limit == number
    else:
        with pytest.raises(JsonError, match="invalid value for int64 field limit"):
            read(body)


@given(st.binary())
def test_bytes_in_either_alphabet_padded_or_not(data: bytes) -> None:
    standard = base64.b64encode(data).decode()
    for text in (standard, base64.urlsafe_b64encode(data).decode()):
        assert read(json.dumps({"key": text})).key == data
        assert read(json.dumps({"key": text.rstrip("=")})).key == data


def test_errors_have_line_and_column() -> None:
    with pytest.raises(JsonError, match=re.escape("proto: (line 3:10): invalid value")):
        read('{"é": 1,\n\n"limit": "x"}')


def test_repeated_fields_and_unset_ones() -> None:
    message = pb.TxnRequest()
    text = b'{"compare":[{"version":0},{}],"success":[{"request_range":{}}],"failure":[]}'
    decode(text, message)
    assert [each.WhichOneof("target_union") for each in message.compare] == ["version", None]
    assert message.success[0].WhichOneof("request") == "request_range"


def test_unknown_names_of_enums_in_lists_are_left_out() -> None:
    message = pb.WatchCreateRequest()
    decode(b'{"filters":["NOPUT","NEW","NODELETE",0]}', message)
    assert list(message.filters) == [0, 1, 0]


KVS = st.builds(
    kv_pb2.KeyValue,
    key=st.binary(),
    value=st.binary(),
    create_revision=st.integers(-(1 << 63), (1 << 63) - 1),
    lease=st.integers(-(1 << 63), (1 << 63) - 1),
)
MESSAGES = st.one_of(
    st.builds(
        pb.RangeResponse, kvs=st.lists(KVS, max_size=3), more=st.booleans(), count=st.integers(0, 9)
    ),
    st.builds(
        pb.MemberListResponse,
        members=st.lists(
            st.builds(
                pb.Member,
                ID=st.integers(0, (1 << 64) - 1),
                name=st.text(),
                peerURLs=st.lists(st.text()),
                isLearner=st.booleans(),
            ),
            max_size=3,
        ),
    ),
    st.builds(pb.HashKVResponse, hash=st.integers(0, (1 << 32) - 1)),
    st.builds(pb.AlarmMember, memberID=st.integers(0, (1 << 64) - 1), alarm=st.integers(0, 2)),
)


@given(MESSAGES)
def test_messages_are_written_as_protobuf_has_it_and_read_back(message: pb.RangeResponse) -> None:
    text = encode(message)
    known = json_format.MessageToDict(message, preserving_proto_field_name=True)
    assert json.loads(text) == known
    assert text == json.dumps(known, separators=(",", ":"), ensure_ascii=False)
    back = type(message)()
    decode(text.encode(), back)
    assert back == message


def test_every_message_of_the_gateway_has_a_mapping() -> None:
    """No field is of a kind that the codec does not know."""
    seen = set()

    def walk(descriptor: object) -> None:
        if descriptor.full_name in seen:  # type: ignore[attr-defined]
            return
        seen.add(descriptor.full_name)  # type: ignore[attr-defined]
        numbers = [field.number for field in descriptor.fields]  # type: ignore[attr-defined]
        assert numbers == sorted(numbers), "protojson writes in the order of declaration"
        for field in descriptor.fields:  # type: ignore[attr-defined]
            assert field.type in {3, 4, 5, 8, 9, 11, 12, 13, 14}, field.full_name
            if field.message_type is not None:
                assert not field.message_type.GetOptions().map_entry, field.full_name
                walk(field.message_type)

    for method in rpc.METHODS:
        if method.gateway:
            walk(method.request.DESCRIPTOR)
            walk(method.response.DESCRIPTOR)
    assert len(seen) > 90


def test_enums_without_a_name_are_numbers() -> None:
    assert encode(pb.AlarmMember(alarm=7)) == '{"alarm":7}'  # type: ignore[arg-type]  # no such alarm


def test_chunks_are_safe_in_a_page() -> None:
    line = encode_chunk("result", encode(pb.AuthRoleListResponse(roles=["</script>&\u2028"])))
    assert line == b'{"result":{"roles":["\\u003c/script\\u003e\\u0026\\u2028"]}}\n'


def test_statuses() -> None:
    assert encode_status(3, 'a "b"\n') == '{"code":3,"message":"a \\"b\\"\\n"}'
    assert encode_status(0, "") == "{}"


def test_quoting_as_go() -> None:
    assert quote(b'a"\\\n\x01\x7f\xff\xc3\xa9') == '"a\\"\\\\\\n\\x01\\x7f\\xffé"'
    assert quote("\u2028\U000e0001") == '"\\u2028\\U000e0001"'
