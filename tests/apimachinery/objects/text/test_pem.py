"""Blocks of PEM, found where Go finds them."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.text.pem import Block, blocks

ONE = b"-----BEGIN A-----\nYWJj\n-----END A-----\n"


def blocks_in(data: bytes) -> list[tuple[str, bytes]]:
    """Return the kinds and contents of blocks."""
    return [(each.kind, each.content) for each in blocks(data)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"text", []),
        (ONE, [("A", b"abc")]),
        (ONE.rstrip(), [("A", b"abc")]),
        (ONE.replace(b"\n", b"\r\n"), [("A", b"abc")]),
        (b"note\n" + ONE + b"more\n" + ONE, [("A", b"abc"), ("A", b"abc")]),
        (b"note" + ONE, []),
        (ONE.replace(b"END A", b"END B") + ONE, [("A", b"abc")]),
        (ONE.replace(b"YWJj", b"YW!j") + ONE, [("A", b"abc")]),
        (ONE.replace(b"YWJj", b"YWJ") + ONE, [("A", b"abc")]),
        (b"-----BEGIN A-----\n-----END A-----\n", [("A", b"")]),
        (ONE.replace(b"END A-----", b"END A-----x"), []),
        (b"-----BEGIN A-----\n" + ONE, [("A", b"abc")]),
        (b"-----BEGIN A\n" + ONE, [("A", b"abc")]),
    ],
)
def test_blocks(data: bytes, expected: list[tuple[str, bytes]]) -> None:
    """What is no block is passed over."""
    assert blocks_in(data) == expected


def test_headers() -> None:
    """They stand between the beginning and the content."""
    data = ONE.replace(b"YWJj", b"Proc-Type: 4,ENCRYPTED\nX: y \n\nYWJj")
    headers = {"Proc-Type": "4,ENCRYPTED", "X": "y"}
    assert list(blocks(data)) == [Block("A", headers, b"abc")]


@given(st.lists(st.binary(max_size=60), max_size=4))
def test_what_was_written_is_found(contents: list[bytes]) -> None:
    """Blocks come back in order."""
    data = b"".join(
        b"-----BEGIN X-----\n" + base64.encodebytes(each) + b"-----END X-----\n"
        for each in contents
    )
    assert blocks_in(data) == [("X", each) for each in contents]


@given(st.text("-BEGIND A\nYWJj:=", max_size=200))
def test_nothing_fails(text: str) -> None:
    """Any bytes can be looked at."""
    assert isinstance(blocks_in(text.encode()), list)
