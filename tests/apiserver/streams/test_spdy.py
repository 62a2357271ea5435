"""SPDY/3.1: its frames, and its streams between two sides."""

import asyncio
import hashlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.component.streams.spdy import frames
from kvstack.component.streams.spdy.frames import Codec, Frame, SpdyError
from kvstack.component.streams.spdy.session import Session, SessionOverError

NAMES = st.text(st.characters(codec="ascii", categories=("Ll", "Nd")), min_size=1, max_size=20)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50)


def test_the_dictionary_is_the_protocols() -> None:
    digest = hashlib.sha256(frames.DICTIONARY).hexdigest()
    assert digest == "51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02"


@given(
    st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4),
    st.integers(1, 30),
)
def test_headers_come_as_they_went_however_the_bytes_are_cut(
    headers: list[dict[str, str]], piece: int
) -> None:
    sender, receiver = Codec(is_client=True), Codec(is_client=False)
    sent = b"".join(sender.syn_stream(each)[1] for each in headers)
    found = [
        frame
        for at in range(0, len(sent), piece)
        for frame in receiver.receive(sent[at : at + piece])
    ]
    assert [(each.kind, each.id, dict(each.headers)) for each in found] == [
        (frames.SYN_STREAM, 2 * number + 1, each) for number, each in enumerate(headers)
    ]


def test_frames_of_a_stream() -> None:
    sender, receiver = Codec(is_client=False), Codec(is_client=True)
    number, opened = sender.syn_stream({"a": "b"})
    sent = opened + sender.reply(1) + sender.data(1, b"x" * 70_000, fin=True)
    sent += sender.reset(3) + sender.ping(2) + sender.goaway(1)
    found = list(receiver.receive(sent))
    assert number == 2
    assert [(each.kind, each.id, len(each.data), each.is_last, each.status) for each in found] == [
        (frames.SYN_STREAM, 2, 0, False, 0),
        (frames.SYN_REPLY, 1, 0, False, 0),
        (frames.DATA, 1, 65536, False, 0),
        (frames.DATA, 1, 70_000 - 65536, True, 0),
        (frames.RST_STREAM, 3, 0, False, frames.CANCEL),
        (frames.PING, 0, 0, False, 2),
        (frames.GOAWAY, 0, 0, False, 1),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02\x00\x01\x00\x00\x00\x04\x00\x00\x00\x01",  # version 2
        b"\x80\x03\x00\x01\x00\x00\x00\x01\x00",  # too short
        b"\x80\x03\x00\x01\x00\x00\x00\x0c" + b"\x00\x00\x00\x01" + b"\x00" * 6 + b"zz",  # no zlib
    ],
)
def test_what_is_not_spdy(data: bytes) -> None:
    with pytest.raises(SpdyError):
        list(Codec(is_client=False).receive(data))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    found: list[Frame] = []
    try:
        found += Codec(is_client=False).receive(data)
    except SpdyError:
        assert data[0] >> 7, "only control frames are refused"


class Pipe:
    """One side of a connection in memory."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue()
        self.other: Pipe | None = None

    async def read(self) -> bytes:
        return await self.received.get()

    async def write(self, data: bytes) -> None:
        assert self.other is not None
        await self.other.received.put(data)

    def close(self) -> None:
        assert self.other is not None
        self.other.received.put_nowait(b"")


def run(story: Callable[[Session, Session], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        near, far = Pipe(), Pipe()
        near.other, far.other = far, near
        client, server = Session(near, is_client=True), Session(far, is_client=False)
        try:
            async with asyncio.timeout(20):
                await story(client, server)
        finally:
            await client.close()
            await server.close()

    asyncio.run(main())


def test_streams_end_on_each_side_alone() -> None:
    async def story(client: Session, server: Session) -> None:
        ours = await client.open({"streamtype": "data"})
        theirs = await server.accept()
        assert theirs is not None
        assert theirs.headers == {"streamtype": "data"}
        await ours.write(b"question")
        await ours.finish()
        assert await theirs.read() == b"question"
        assert await theirs.read() == b""
        await theirs.write(b"answer")
        await theirs.finish()
        assert await ours.read() == b"answer"
        assert await ours.read() == b""
        assert await ours.read() == b""

    run(story)


def test_a_reset_ends_a_stream_and_the_end_of_the_connection_all() -> None:
    async def story(client: Session, server: Session) -> None:
        one, two = await client.open({"a": "1"}), await client.open({"a": "2"})
        first, second = await server.accept(), await server.accept()
        assert first is not None
        assert second is not None
        await first.reset()
        assert await one.read() == b""
        await server.close()
        assert await two.read() == b""
        with pytest.raises(SessionOverError):
            await two.write(b"x")
        assert await client.accept() is None

    run(story)
