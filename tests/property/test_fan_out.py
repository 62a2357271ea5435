"""A fan-out: the crate joins the messages that `messages` has one by one."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.component import crate
from kvstore.batch import AnyDelivery, messages

# The same examples in every run, and no deadline on a busy machine.
QUICK = settings(derandomize=True, deadline=None)
PARTS = st.binary(max_size=40)


@pytest.mark.skipif(crate.KERNELS is None, reason="the crate was not built")
@QUICK
@given(PARTS, PARTS, st.lists(PARTS, max_size=20).map(tuple), st.integers(0, 500))
def test_joined_messages(
    head: bytes, tail: bytes, middles: tuple[bytes, ...], block_bytes_max: int
) -> None:
    assert crate.KERNELS is not None
    blocks = crate.KERNELS.join_messages(head, tail, middles, block_bytes_max)
    expected = [head + rest for _, head, rest in messages([(1, head, tail, middles)])]
    framed = [struct.pack(">BI", 0, len(each)) + each for each in expected]
    assert b"".join(blocks) == b"".join(framed)
    longest = max(map(len, framed), default=0)
    assert all(0 < len(block) <= max(block_bytes_max, longest) for block in blocks)


def test_the_order_of_deliveries_is_kept() -> None:
    deliveries: list[AnyDelivery] = [
        (1, b"a", b"b"),
        (2, b"c", b"d", (b"1", b"2")),
        (1, b"e", b""),
        (3, b"x", b"y", ()),
    ]
    assert list(messages(deliveries)) == [
        (1, b"a", b"b"),
        (2, b"c1", b"d"),
        (2, b"c2", b"d"),
        (1, b"e", b""),
    ]
