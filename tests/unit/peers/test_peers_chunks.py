"""Chunked coding: what is put in comes out, however it is cut; what is no chunk is refused."""

import random

import pytest

from kvstore.peers.streams.chunks import Dechunker, chunk
from kvstore.wire.varint import WireError


@pytest.mark.parametrize("seed", range(5))
def test_what_is_put_in_comes_out(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [rng.randbytes(rng.choice((1, 15, 16, 300, 70_000))) for _ in range(50)]
    stream = b"".join(map(chunk, pieces)) + b"0\r\n\r\n" + b"not ours"
    dechunker = Dechunker()
    got = b""
    at = 0
    while at < len(stream):
        size = rng.choice((1, 2, 3, 100, 100_000))
        got += dechunker.feed(stream[at : at + size])
        at += size
    assert got == b"".join(pieces)
    assert dechunker.is_over


def test_extensions_and_bare_line_ends_are_taken() -> None:
    assert Dechunker().feed(b"3;name=value\r\nabc\r\n1\nx\r\n") == b"abcx"


@pytest.mark.parametrize(
    "data", [b"zz\r\n", b"\r\n", b"-1\r\n", b"+1\r\n", b"1\r\nabc", b"f" * 16 + b"\r\n", b"1" * 300]
)
def test_what_is_no_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        Dechunker().feed(data)
