"""Answers of HTTP/1.1, however they are cut into pieces."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.component.http.answers import (
    HEAD_BYTES_MAX,
    AnswerError,
    AnswerReader,
    MalformedError,
    TooLongError,
    TornError,
)

BYTES_MAX = 1000
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\n"
    b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: t\r\n\r\n"
)
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\nhello"


def read(*pieces: bytes, ends: bool = False) -> AnswerReader:
    reader = AnswerReader(BYTES_MAX)
    is_complete = False
    for piece in pieces:
        assert not is_complete
        is_complete = reader.take(piece)
    if ends:
        assert not is_complete
        reader.end()
    else:
        assert is_complete
    return reader


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED, ENDLESS])
@given(data=st.data())
def test_any_pieces_give_the_same(answer: bytes, data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(answer) - 1)))
    places = [0, *sorted(cuts), len(answer)]
    pieces = [answer[a:b] for a, b in pairwise(places)]
    reader = read(*pieces, ends=answer is ENDLESS)
    assert (reader.answer.code, reader.answer.body) == (200, b"hello")
    assert reader.is_last == (answer is ENDLESS)


@pytest.mark.parametrize(
    ("head", "is_last"),
    [
        (b"HTTP/1.1 204 None\r\n", False),
        (b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: Close\r\n", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 0\r\n", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n", False),
    ],
)
def test_when_a_connection_can_be_used_again(head: bytes, is_last: bool) -> None:  # noqa: FBT001
    reader = read(head + b"\r\n")
    assert reader.answer.body == b""
    assert reader.is_last == is_last


def test_what_comes_beyond_an_answer_ends_the_connection() -> None:
    assert read(PLAIN + b"HTTP/1.1").is_last


@pytest.mark.parametrize(
    "text",
    [
        b"garbage\r\n\r\n",
        b"garbage",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nName : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * HEAD_BYTES_MAX,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 5000,
    ],
)
def test_what_is_no_http(text: bytes) -> None:
    with pytest.raises(MalformedError):
        AnswerReader(BYTES_MAX).take(text)


@pytest.mark.parametrize(
    "text",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
    ],
)
def test_what_is_too_long(text: bytes) -> None:
    with pytest.raises(TooLongError, match="more than 1000 bytes"):
        AnswerReader(BYTES_MAX).take(text)


@pytest.mark.parametrize("answer", [PLAIN, CHUNKED])
def test_what_ends_too_early(answer: bytes) -> None:
    reader = AnswerReader(BYTES_MAX)
    assert not reader.take(answer[:-1])
    with pytest.raises(TornError):
        reader.end()


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(data: bytes) -> None:
    reader = AnswerReader(BYTES_MAX)
    try:
        reader.take(b"HTTP/1.1 200 OK\r\n" + data)
    except AnswerError:
        return
    assert len(reader.answer.body) <= BYTES_MAX
