import json

import pytest

from kvstore.wire.members import (
    Member,
    cluster_id,
    decode_change_context,
    decode_member,
    decode_members,
    encode_member,
    encode_promotion,
    member_id,
)
from kvstore.wire.varint import WireError

N1 = 0x628ED94AD692E8A1
SEEN = b'{"id":7101852577860610209,"peerURLs":["http://127.0.0.1:23800"],"name":"n1"}'


def test_ids_of_a_first_member_and_its_cluster() -> None:
    assert member_id(["http://127.0.0.1:23800"], "tok1", None) == N1
    assert cluster_id([N1]) == 0xDDCDF4F4FBBA999B


def test_ids_do_not_depend_on_order_but_on_time_and_token() -> None:
    urls = ["http://10.0.0.2:2380", "http://10.0.0.10:2380"]
    assert member_id(urls, "t", None) == member_id(urls[::-1], "t", None)
    assert member_id(urls, "", 12) == member_id(urls, "12", None)
    assert len({member_id(urls, "", second) for second in range(3)}) == 3
    assert cluster_id([1, 2**63]) == cluster_id([2**63, 1])


def test_member_as_etcd_writes_it() -> None:
    member = Member(N1, "n1", ["http://127.0.0.1:23800"])
    assert encode_member(member) == SEEN
    assert decode_member(SEEN) == member


def test_all_fields_in_etcds_order() -> None:
    member = Member(2**64 - 1, "l", ["p1", "p2"], ["c"], is_learner=True)
    text = encode_member(member)
    assert text == (
        b'{"id":18446744073709551615,"peerURLs":["p1","p2"],"isLearner":true,'
        b'"name":"l","clientURLs":["c"]}'
    )
    assert decode_member(text) == member


def test_escapes_are_gos() -> None:
    name = '<a>&"\\\x00\x1f\b\f\n\r\t\x7f/\u2028\u2029é\U0001f600'
    text = encode_member(Member(1, name))
    assert text.decode() == (
        '{"id":1,"peerURLs":[],"name":"\\u003ca\\u003e\\u0026\\"\\\\\\u0000\\u001f\\b\\f\\n\\r\\t'
        '\x7f/\\u2028\\u2029é\U0001f600"}'
    )
    assert decode_member(text).name == name


def test_text_that_is_no_utf8_is_replaced_as_go_does() -> None:
    name = b"a\xff".decode(errors="surrogateescape")
    assert encode_member(Member(1, name)).endswith(b'"name":"a\\ufffd"}')


def test_promotion() -> None:
    text = encode_promotion(N1)
    assert text == b'{"id":7101852577860610209,"peerURLs":null,"isPromote":true}'
    assert decode_change_context(text) == (Member(N1), True)
    assert decode_change_context(SEEN)[1] is False


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff",
        b"[1]",
        b"7",
        b'{"id":',
        b'{"id":"7"}',
        b'{"id":true}',
        b'{"id":1.0}',
        b'{"id":-1}',
        b'{"id":18446744073709551616}',
        b'{"id":1,"peerURLs":"u"}',
        b'{"id":1,"clientURLs":[1]}',
        b'{"id":1,"name":7}',
        b'{"id":1,"isLearner":1}',
        b"[" * 100_000,
        b'{"id":' + b"9" * 10_000 + b"}",
    ],
)
def test_text_that_is_no_member(text: bytes) -> None:
    with pytest.raises(WireError):
        decode_change_context(text)


def test_absent_fields_are_empty() -> None:
    assert decode_member(json.dumps({"id": 7}).encode()) == Member(7)


def test_a_list_of_members_as_the_peer_port_tells_it() -> None:
    other = Member(5, "", ["p"], [], is_learner=True)
    text = b"[%b,%b]\n" % (SEEN, encode_member(other))
    found = decode_members(text)
    assert found == [decode_member(SEEN), other]
    assert [member.is_started for member in found] == [True, False]
    assert decode_members(b"[]") == []


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"[{}", b'[{"id":-1}]', b"\xff"])
def test_no_list_of_members(text: bytes) -> None:
    with pytest.raises(WireError):
        decode_members(text)
