"""Bytes that are alike take little room, and come back as they were."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.component.packing import EXAMPLES_BYTES_MAX, Packed, Packing


def packed_of(packing: Packing, content: bytes) -> Packed:
    packed = packing.of(content)
    assert packed is not None
    assert packed.content() == content
    return packed


def test_each_form_becomes_an_example_until_there_are_enough() -> None:
    packing = Packing()
    forms = [b'{"form":"%d %b"}' % (n, b"%d" % pow(3, 900 + n)) for n in range(40)]
    for form in (*forms, *forms):
        packed_of(packing, form)
    assert len(packing._examples) <= EXAMPLES_BYTES_MAX
    similar = forms[0].replace(b"form", b"from")
    assert len(packed_of(packing, similar).data) < len(similar) / 8


def test_what_was_packed_before_an_example_came_is_read_with_its_own() -> None:
    packing = Packing()
    first = packed_of(packing, b"a" * 500)
    packed_of(packing, bytes(range(256)) * 2)
    assert first.content() == b"a" * 500


@pytest.mark.parametrize("content", [b"", b"}", b"xy"])
def test_what_does_not_get_smaller_is_not_packed(content: bytes) -> None:
    assert Packing().of(content) is None


@pytest.mark.parametrize("size", [1, 100, 5_000, 100_000])
def test_any_size(size: int) -> None:
    """Also what is larger than all examples together, and than what is looked back at."""
    packing = Packing()
    for number in range(3):
        packed_of(packing, b'{"a":"%d%b"}' % (number, b"x" * size + zlib.compress(b"%d" % number)))


@given(st.lists(st.binary(max_size=300)))
def test_anything_comes_back(contents: list[bytes]) -> None:
    packing = Packing()
    packed = [(packing.of(content), content) for content in contents]
    for each, content in packed:
        assert each is None or each.content() == content
