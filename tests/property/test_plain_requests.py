"""Plain puts and gets: known by their sizes; a run of puts ends as they do one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstore.apply.entry_context import EntryContext
from kvstore.apply.plain_requests import plain_get, plain_put
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.wire.columns import put_replies
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.varint import varint
from tests.support.node.applier_parts import LEASE, ApplierParts

SPACE_BYTES = 1 << 20
KEYS = st.sampled_from([b"a", b"b", b"c", b"dd"])
PUTS = st.lists(st.tuples(KEYS, st.binary(max_size=3)), min_size=1, max_size=6)

# What can stand in a body beside key and value, or in their place: (bytes, is a plain put).
ODD_FIELDS = st.sampled_from(
    [
        b"\x0a\x01k",  # the key once more
        b"\x12\x01v",  # the value once more
        b"\x12\x00",  # a value of nothing, spelled out
        b"\x18\x00",  # the lease 0, spelled out
        b"\x18\x07",
        b"\x20\x01",
        b"\x28\x01",
        b"\x30\x01",
        b"\x78\x01",  # a field that nobody knows
        b"\x0a\x81\x00k",  # a size of more bytes than it needs
    ]
)


@pytest.mark.parametrize("key_size", [1, 2, 126, 127, 128, 300])
@pytest.mark.parametrize("value_size", [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_sizes(key_size: int, value_size: int) -> None:
    request = pb.PutRequest(key=b"k" * key_size, value=b"v" * value_size)
    body = request.SerializeToString()
    plain = plain_put(body)
    if key_size <= 127 and value_size <= 2_097_151:
        assert plain == (request.key, request.value)
    else:
        assert plain is None


@given(
    st.binary(max_size=200), st.binary(max_size=300), st.lists(ODD_FIELDS, min_size=1, max_size=3)
)
def test_whatever_else_is_asked_is_seen(key: bytes, value: bytes, odd: list[bytes]) -> None:
    for at in range(len(odd) + 1):
        fields = [*odd[:at], b"\x0a%b%b" % (varint(len(key)), key)]
        fields += [b"\x12%b%b" % (varint(len(value)), value), *odd[at:]]
        body = b"".join(fields)
        assert plain_put(body) is None


@pytest.mark.parametrize("key_size", [1, 127, 128])
@pytest.mark.parametrize("serializable", [False, True])
def test_gets(key_size: int, *, serializable: bool) -> None:
    request = pb.RangeRequest(key=b"k" * key_size, serializable=serializable)
    body = request.SerializeToString()
    expected = (request.key, serializable) if key_size <= 127 else None
    assert plain_get(body) == expected
    for option in (b"\x12\x01z", b"\x18\x01", b"\x20\x01", b"\x40\x01", b"\x48\x01", b"\x78\x01"):
        assert plain_get(body + option) is None
        assert plain_get(option + body) is None


@given(before=PUTS, run=PUTS, leased=st.lists(KEYS, max_size=3))
def test_a_run_and_one_by_one(
    before: list[tuple[bytes, bytes]], run: list[tuple[bytes, bytes]], leased: list[bytes]
) -> None:
    together, apart = ApplierParts(SPACE_BYTES), ApplierParts(SPACE_BYTES)
    for parts in (together, apart):
        for key, value in before:
            parts.applier.put(pb.PutRequest(key=key, value=value), NO_CREDENTIAL)
        for key in leased:
            parts.applier.put(pb.PutRequest(key=key, lease=LEASE), NO_CREDENTIAL)
    keys, values = [key for key, _ in run], [value for _, value in run]
    first = together.applier.put_run(keys, values)
    assert first is not None
    replies = put_replies([*range(len(run))], together.applier.header_parts(), first)
    assert [response for _, _, response in replies] == [
        apart.applier.put(pb.PutRequest(key=k, value=v), NO_CREDENTIAL) for k, v in run
    ]
    assert together.store.revision == apart.store.revision
    assert together.view() == apart.view()


@pytest.mark.parametrize("alarm", [pb.AlarmType.NOSPACE, pb.AlarmType.CORRUPT])
def test_a_run_into_an_alarm_is_not_one(alarm: pb.AlarmType) -> None:
    parts = ApplierParts(SPACE_BYTES)
    raised = pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, memberID=1, alarm=alarm)
    parts.applier.apply(10, raised.SerializeToString(), EntryContext(NO_CREDENTIAL, 0, 0))
    before = parts.view()
    assert parts.applier.put_run([b"k"], [b"v"]) is None
    assert parts.view() == before


def test_a_run_over_the_quota_is_not_one() -> None:
    parts = ApplierParts(SPACE_BYTES)
    assert parts.applier.put_run([b"k", b"k"], [b"v", bytes(SPACE_BYTES)]) is None
    assert parts.store.revision == 1
    assert parts.applier.put_run([b"k"], [b"v"]) == 2
