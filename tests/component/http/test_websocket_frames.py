"""Frames of a server's WebSocket, with wsproto's client on the other side."""

import pytest
from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from kvstack.component.http.websocket import (
    BINARY,
    GOODBYE,
    PROTOCOL_ERROR,
    TEXT,
    TOO_BIG,
    Frames,
    GoodbyeError,
    accept_token,
    frame,
)


def client() -> Connection:
    return Connection(ConnectionType.CLIENT)


def test_messages_however_they_are_cut() -> None:
    for size in (1, 7, 10_000):
        frames, peer = Frames(1000), client()
        data = (
            peer.send(TextMessage("ä" * 10, message_finished=False))
            + peer.send(Ping(b"p"))
            + peer.send(TextMessage("b"))
            + peer.send(BytesMessage(b"\x00" * 1000))
        )
        found, replies = [], b""
        for at in range(0, len(data), size):
            found += frames.receive(data[at : at + size])
            replies += frames.replies()
        assert found == ["ä".encode() * 10 + b"b", b"\x00" * 1000]
        peer.receive_data(replies)
        assert list(peer.events()) == [Pong(b"p")]
        assert not frames.is_over
        assert frames.receive(b"") == []
        assert frames.is_over
        assert not frames.fault


def test_a_message_that_is_too_long_in_whatever_pieces_is_a_fault() -> None:
    frames, peer = Frames(1000), client()
    assert frames.receive(peer.send(BytesMessage(b"a"))) == [b"a"]
    for _ in range(3):
        frames.receive(peer.send(BytesMessage(b"x" * 400, message_finished=False)))
    assert (frames.is_over, frames.fault) == (True, TOO_BIG)
    assert frames.receive(peer.send(BytesMessage(b"late"))) == []
    peer.receive_data(frames.goodbye(frames.fault))
    assert [each.code for each in peer.events() if isinstance(each, CloseConnection)] == [TOO_BIG]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"\x81\x01a", PROTOCOL_ERROR),
        (b"\xff\xff" * 10, PROTOCOL_ERROR),
        (b"\x81\x82\0\0\0\0\xff\xff", 1007),  # no UTF-8
    ],
)
def test_what_is_no_frame_of_a_client_is_a_fault(data: bytes, fault: int) -> None:
    frames = Frames(1000)
    assert frames.receive(data) == []
    assert frames.is_over
    assert frames.fault == fault


def test_a_goodbye_is_answered_and_nothing_is_sent_after_it() -> None:
    frames, peer = Frames(1000), client()
    data = peer.send(BytesMessage(b"last")) + peer.send(CloseConnection(1000))
    assert frames.receive(data) == [b"last"]
    assert frames.is_over
    peer.receive_data(frames.replies())
    assert [type(each) for each in peer.events()] == [CloseConnection]
    assert frames.goodbye() == b""
    with pytest.raises(GoodbyeError):
        frames.message(b"late")


def test_an_own_goodbye_is_said_once() -> None:
    frames, peer = Frames(1000), client()
    assert frames.goodbye() == GOODBYE
    assert frames.goodbye() == b""
    peer.receive_data(GOODBYE)
    (event,) = peer.events()
    assert isinstance(event, CloseConnection)
    frames.receive(peer.send(event.response()))
    assert frames.is_over
    assert frames.replies() == b""


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_frame_for_all_is_the_message_of_each(size: int) -> None:
    assert frame(b"x" * size, TEXT) == Frames(1).message(b"x" * size, is_text=True)
    assert frame(b"x" * size, BINARY) == Frames(1).message(b"x" * size)


def test_the_answer_to_a_key() -> None:
    """The example of RFC 6455."""
    assert accept_token("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
