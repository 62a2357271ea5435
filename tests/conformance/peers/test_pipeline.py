"""POSTs to a member that is down: one connection is dialled at a time, and not one per message."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from kvstore.peers.counters import PeerCounters
from kvstore.peers.identity import Identity
from kvstore.peers.pipeline import SENDERS_MAX, Pipeline
from kvstore.peers.status import PeerStatus, UrlPicker
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message, MessageType
from tests.support.cluster.peer_member import wait_for
from tests.support.list_log import ListLog

A, B = 0xA1 << 56, 0xB2 << 56
DIAL_S = 0.3
MESSAGES = 20


class Mute:
    """A port that accepts connections and never answers, as a proxy before a dead member."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._listening.getsockname()[1]}"
        self.accepted = 0
        self.open_max = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._open = [each for each in self._open if not _has_ended(each)]
            self._open.append(connection)
            self.accepted += 1
            self.open_max = max(self.open_max, len(self._open))

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()
        for each in self._open:
            each.close()


def _has_ended(connection: socket.socket) -> bool:
    """Read what was sent; tell whether the caller has closed, and close then."""
    connection.setblocking(False)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    connection.close()
    return True


@contextmanager
def mute() -> Iterator[Mute]:
    made = Mute()
    try:
        yield made
    finally:
        made.close()


def test_one_dial_at_a_time_and_its_failure_loses_what_is_queued() -> None:
    lines, counters, lost = ListLog(), PeerCounters(), threading.Semaphore(0)
    with mute() as port:
        pipeline = Pipeline(
            Identity(A, 1, ("https://127.0.0.1:1",)),
            B,
            UrlPicker((port.url,)),
            PeerStatus(B, counters, lines),
            counters,
            tls=PeerTls(is_self_signed=True),
            dial_timeout_s=DIAL_S,
            on_lost=lost.release,
            on_removed=lambda _: None,
            logger=lines,
        )
        for index in range(MESSAGES):
            assert pipeline.send(Message(MessageType.HEARTBEAT, B, A, 2, commit=index))
        assert lost.acquire(timeout=10), "a failed dial is not reported"
        wait_for(lambda: counters.sent_failures == MESSAGES, "the loss of all messages")
        assert port.open_max == 1
        assert port.accepted <= SENDERS_MAX
        assert pipeline.send(Message(MessageType.HEARTBEAT, B, A, 2))
        wait_for(lambda: counters.sent_failures == MESSAGES + 1, "another dial")
        pipeline.stop()
