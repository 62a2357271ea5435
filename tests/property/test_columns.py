"""Kernels: the crate's functions of columns and their twins in Python give the same bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.component import crate
from kvstore.wire import columns, splice
from kvstore.wire.columns import ABSENT, GOT, PYTHON
from kvstore.wire.gen import kv_pb2, rpc_pb2

pytestmark = pytest.mark.skipif(crate.KERNELS is None, reason="the crate was not built")

# The same examples in every run, and no deadline on a busy machine.
QUICK = settings(derandomize=True, deadline=None)

UINT63 = st.integers(1, 300) | st.integers(1, 2**62)
TEXTS = st.binary(max_size=300)
LEASES = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 0, 0, 7])
CALL_IDS = st.integers(-(2**41), 2**63 - 1)
HEADERS = st.builds(
    lambda cluster, member, term: splice.HeaderMaker(cluster, member).parts(term),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**40),
)


def kernels() -> columns.Kernels:
    assert crate.KERNELS is not None
    return crate.KERNELS


@QUICK
@given(
    puts=st.lists(st.tuples(TEXTS, TEXTS, LEASES, UINT63, UINT63), max_size=5),
    first=UINT63,
    with_leases=st.booleans(),
)
def test_records(
    puts: list[tuple[bytes, bytes, int, int, int]], first: int, *, with_leases: bool
) -> None:
    keys, values = [each[0] for each in puts], [each[1] for each in puts]
    leases = [each[2] for each in puts] if with_leases else None
    creates, versions = [each[3] for each in puts], [each[4] for each in puts]
    found = kernels().encode_puts(keys, values, leases, (creates, versions), first)
    assert found == PYTHON.encode_puts(keys, values, leases, (creates, versions), first)
    for at, kv in enumerate(found[1]):
        assert kv_pb2.KeyValue.FromString(kv) == kv_pb2.KeyValue(
            key=keys[at],
            value=values[at],
            lease=leases[at] if leases else 0,
            create_revision=creates[at],
            mod_revision=first + at,
            version=versions[at],
        )


@QUICK
@given(st.lists(CALL_IDS, max_size=5), HEADERS, UINT63)
def test_replies_to_puts(call_ids: list[int], header: tuple[bytes, bytes], first: int) -> None:
    found = kernels().put_replies(call_ids, header, first)
    assert found == PYTHON.put_replies(call_ids, header, first)
    for _, _, response in found:
        rpc_pb2.PutResponse.FromString(response)


@QUICK
@given(
    st.lists(st.tuples(CALL_IDS, st.integers(0, 3), UINT63), max_size=8),
    st.lists(TEXTS, min_size=8, max_size=8),
    HEADERS,
)
def test_replies_to_swaps(
    swaps: list[tuple[int, int, int]], texts: list[bytes], header: tuple[bytes, bytes]
) -> None:
    call_ids, revisions = [each[0] for each in swaps], [each[2] for each in swaps]
    outcomes = bytes(each[1] for each in swaps)
    kvs = [splice.encode_kv(text, 1, 2, 3, text, 0) for text in texts]
    found = kernels().swap_replies(call_ids, outcomes, revisions, kvs, header)
    assert found == PYTHON.swap_replies(call_ids, outcomes, revisions, kvs, header)
    for (_, _, response), outcome in zip(found, outcomes, strict=True):
        message = rpc_pb2.TxnResponse.FromString(response)
        assert message.succeeded is (outcome == columns.SWAPPED)
        assert len(message.responses) == (outcome != columns.NOT_SWAPPED)
        if outcome in (ABSENT, GOT):
            assert message.responses[0].response_range.count == (outcome == GOT)


@QUICK
@given(st.lists(st.tuples(CALL_IDS, TEXTS, st.none() | TEXTS), max_size=5), TEXTS)
def test_replies_to_gets(gets: list[tuple[int, bytes, bytes | None]], header: bytes) -> None:
    asked, kvs = [(each[0], each[1]) for each in gets], [each[2] for each in gets]
    found = kernels().get_replies(asked, kvs, header)
    assert found == PYTHON.get_replies(asked, kvs, header)


@QUICK
@given(st.lists(st.tuples(CALL_IDS, st.integers(0, 20), TEXTS), max_size=20))
def test_a_tally(tuples: list[tuple[int, int, bytes]]) -> None:
    assert kernels().tally(tuples) == PYTHON.tally(tuples)


def test_columns_of_different_lengths_are_refused() -> None:
    found = kernels()
    with pytest.raises(ValueError, match="differ in length"):
        found.encode_puts([b"k"], [], None, ([1], [1]), 1)
    with pytest.raises(ValueError, match="differ in length"):
        found.encode_puts([b"k"], [b"v"], [], ([1], [1]), 1)
    with pytest.raises(ValueError, match="differ in length"):
        found.swap_replies([1], b"", [1], [], (b"", b""))
    with pytest.raises(ValueError, match="1 gets and 0 KeyValues"):
        found.get_replies([(1, b"k")], [], b"")
    with pytest.raises(ValueError, match="9 is no outcome"):
        found.swap_replies([1], b"\x09", [1], [], (b"", b""))
    with pytest.raises(IndexError):
        found.swap_replies([1], bytes((GOT,)), [1], [], (b"", b""))


def test_columns_of_other_types_are_refused() -> None:
    found = kernels()
    with pytest.raises(TypeError):
        found.encode_puts(["k"], [b"v"], None, ([1], [1]), 1)  # type: ignore[list-item]
    with pytest.raises(TypeError):
        found.get_replies([5], [None], b"")  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        found.encode_puts([b"k"], [b"v"], None, ([-1], [1]), 1)
