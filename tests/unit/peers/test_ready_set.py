"""The set of streams that the turn sleeps on, together with the client port's descriptor."""

import os
import socket
import time
from collections.abc import Iterator

import pytest

from kvstore.peers.counters import PeerCounters
from kvstore.peers.streams.inbound_stream import InboundStream
from kvstore.peers.streams.ready_set import ReadySet
from kvstore.raft.model import Message, MessageType
from kvstore.wire.msgapp_codec import MessageDecoder, MessageEncoder

WAIT_S = 10.0
LONG_NS = 3_600_000_000_000


class Ends:
    """A ready set, the far end of its one stream, and that of what it shares."""

    def __init__(self) -> None:
        self.ready = ReadySet()
        self.clients, self._bell = os.pipe()
        self.ready.share(self.clients)
        near, self.member = socket.socketpair()
        self.inbound = InboundStream(
            near,
            MessageDecoder(),
            b"",
            is_chunked=False,
            counters=PeerCounters(),
            silence_s_max=WAIT_S,
        )
        self.ready.add(self.inbound)
        self.take()  # a new stream is read at once

    def close(self) -> None:
        self.ready.stop()
        self.inbound.close()
        self.member.close()
        os.close(self.clients)
        os.close(self._bell)

    def take(self) -> list[Message]:
        taken: list[Message] = []
        self.ready.take(taken)
        return taken

    def say(self) -> None:
        """Let the member say something."""
        self.member.sendall(MessageEncoder().encode(Message(MessageType.HEARTBEAT_RESP, 1, 2)))

    def ring(self) -> None:
        """Let a client say something."""
        os.write(self._bell, b"x")

    def wait(self) -> float:
        """Return how long a sleep took."""
        began_s = time.monotonic()
        self.ready.wait(WAIT_S)
        return time.monotonic() - began_s


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def test_either_ends_a_sleep(ends: Ends) -> None:
    ends.say()
    assert ends.wait() < WAIT_S
    assert len(ends.take()) == 1
    ends.ring()
    assert ends.wait() < WAIT_S
    assert ends.take() == []


def test_while_it_rests_only_clients_end_a_sleep(ends: Ends) -> None:
    ends.say()
    ends.ring()
    ends.ready.defer_wakeups(LONG_NS)
    assert ends.wait() < WAIT_S
    assert len(ends.take()) == 1  # a turn takes what has come all the same


def test_after_the_rest_the_sleep_goes_on_with_all(ends: Ends) -> None:
    ends.ready.defer_wakeups(50_000_000)
    ends.say()
    assert 0.04 < ends.wait() < WAIT_S
    assert len(ends.take()) == 1
    ends.ready.defer_wakeups(1_000_000)
    began_s = time.monotonic()
    ends.ready.wait(0.1)
    assert time.monotonic() - began_s > 0.09  # nothing came: no turn is taken for the rest's end


def test_a_rest_is_for_one_sleep_and_can_be_taken_back(ends: Ends) -> None:
    ends.ready.defer_wakeups(LONG_NS)
    ends.ready.defer_wakeups(0)
    ends.say()
    assert ends.wait() < WAIT_S
    ends.take()
    ends.ready.defer_wakeups(LONG_NS)
    ends.ring()
    ends.wait()
    os.read(ends.clients, 1)
    ends.say()
    assert ends.wait() < WAIT_S
