"""Attributes of netlink messages."""

from hypothesis import given
from hypothesis import strategies as st

from kvstack.component.net.netlink_attributes import aligned, attribute, attributes

PARTS = st.lists(st.tuples(st.integers(0, 0x3FFF), st.binary(max_size=40)), max_size=8)


@given(PARTS)
def test_what_is_written_is_read(parts: list[tuple[int, bytes]]) -> None:
    data = b"".join(attribute(kind, each) for kind, each in parts)
    assert len(data) == aligned(len(data))
    assert list(attributes(data)) == parts


@given(PARTS, st.integers(1, 40))
def test_an_attribute_that_is_not_whole_is_not_read(
    parts: list[tuple[int, bytes]], cut: int
) -> None:
    data = b"".join(attribute(kind, each) for kind, each in parts)
    found = list(attributes(data[:-cut]))
    assert found == parts[: len(found)]


def test_a_length_below_its_own_head_ends_the_reading() -> None:
    assert list(attributes(bytes((3, 0, 1, 0)) + attribute(1, b"x"))) == []
