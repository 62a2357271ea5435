"""Links between two members of this project: order, limits, loss, snapshots, tasks, bad bytes."""

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.batch import OffloadedTask, Outbox, TaskKind, TaskResult
from kvstore.peers.questions import ask_once
from kvstore.peers.streams import outbound_stream
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Entry, Message, MessageType, Snapshot, SnapshotMetadata
from kvstore.transport import native
from kvstore.wire import rpc
from kvstore.wire.msgapp_codec import MessageEncoder
from kvstore.wire.raft_codec import encode_message
from tests.support import raw_grpc
from tests.support.cluster.peer_member import WAIT_S, LinkEnd, connect, raw_request, wait_for
from tests.support.rpc_client import Client

A, B, C = 0xA1 << 56, 0xB2 << 56, 0xC3 << 56


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[LinkEnd, LinkEnd]]:
    with LinkEnd(tmp_path / "a", A) as a, LinkEnd(tmp_path / "b", B) as b:
        connect(a, b)
        yield a, b


def app(index: int, data: bytes = b"x", to: int = B) -> Message:
    return Message(MessageType.APP, to, A, 2, 2, index, [Entry(0, 2, index + 1, data)], index)


def beat(commit: int, to: int = B, from_: int = A) -> Message:
    return Message(MessageType.HEARTBEAT, to, from_, 2, commit=commit)


def test_messages_arrive_complete_and_in_order(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair
    rng = random.Random(1)
    sent = [app(index, rng.randbytes(rng.choice((1, 300, 100_000)))) for index in range(200)]
    for at in range(0, 200, 7):
        a.network.send(sent[at : at + 7])
    assert b.await_messages(200) == sent
    answers = [Message(MessageType.APP_RESP, A, B, 2, index=index) for index in range(50)]
    b.network.send(answers)
    assert a.await_messages(50) == answers
    assert a.network.counters[B].sent_bytes > 1_000_000
    assert b.network.counters[A].received_bytes == a.network.counters[B].sent_bytes


def test_appends_have_a_stream_of_their_own(pair: tuple[LinkEnd, LinkEnd]) -> None:
    """A large append does not delay heartbeats: there are two connections per direction."""
    a, b = pair
    peer = a.network._peers[B]
    assert peer.outbound_for(app(1)) is peer.msgapp
    assert peer.outbound_for(beat(1)) is peer.message
    peer.msgapp.close()
    assert peer.outbound_for(app(1)) is peer.message
    a.network.send([app(1)])
    assert b.await_messages(1) == [app(1)]


def test_members_on_unix_sockets(tmp_path: Path) -> None:
    urls = [f"unix://{tmp_path}/{name}.sock" for name in "ab"]
    with (
        LinkEnd(tmp_path / "a", A, urls=urls[:1]) as a,
        LinkEnd(tmp_path / "b", B, urls=urls[1:]) as b,
    ):
        connect(a, b)
        a.network.send([app(1), beat(1)])
        assert len(b.await_messages(2)) == 2
    assert list(tmp_path.glob("*.sock")) == []


def test_a_connection_that_is_not_read_is_closed_and_its_queue_dropped(
    pair: tuple[LinkEnd, LinkEnd], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr(outbound_stream, "QUEUE_BYTES_MAX", 8 << 20)
    big = b"x" * (1 << 20)
    sent = 0
    while B not in a.turn().unreachable:
        a.network.send([app(sent, big)])
        sent += 1
        assert sent < 64, "nothing was ever refused"
    assert a.network.counters[B].sent_failures >= 1
    a.network.send([beat(7)])  # the other stream has room
    b.await_inbox(
        lambda inbox: any(each.type == MessageType.HEARTBEAT for each in inbox.messages), "a beat"
    )
    got = b.await_messages(sent)  # what was queued arrives whole, what was refused never does
    appended = [each for each in got if each.type == MessageType.APP]
    assert appended == [app(index, big) for index in range(sent - 1)]


def test_an_unknown_member_is_sent_nothing(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, _ = pair
    a.network.send([beat(1, to=C)])
    assert a.turn().unreachable == []
    a.network.send_snapshot(Message(MessageType.SNAP, C, A, 2))
    a.await_inbox(lambda inbox: inbox.snapshots_sent == [(C, False)], "the end of the snapshot")


def test_lost_messages_are_reported(tmp_path: Path) -> None:
    with LinkEnd(tmp_path / "a", A) as a:
        a.network.set_members({B: ["http://127.0.0.1:1"]})
        a.network.send([beat(1)])
        a.await_inbox(lambda inbox: B in inbox.unreachable, "the loss")
        assert a.network.active_since_ns(B) is None
        a.network.send([beat(number) for number in range(200)])  # more than a queue holds
        a.await_inbox(lambda inbox: inbox.unreachable.count(B) >= 2, "the loss of the rest")


def test_links_are_restored_and_removed(pair: tuple[LinkEnd, LinkEnd], tmp_path: Path) -> None:
    a, b = pair
    since = a.network.active_since_ns(B)
    assert since is not None
    b.network.stop()
    a.await_inbox(lambda _: a.network.active_since_ns(B) is None, "the loss")
    with LinkEnd(tmp_path / "c", B, urls=b.urls) as again:
        again.network.set_members({A: a.urls})
        wait_for(lambda: (a.network.active_since_ns(B) or 0) > since, "the return")
        connect(a, again)
        a.await_inbox(lambda inbox: inbox.reached.count(B) >= 2, "word of the second stream")
        a.network.send([app(1)])
        assert again.await_messages(1) == [app(1)]
        a.network.set_members({})
        again.await_inbox(lambda _: again.network.active_since_ns(A) is None, "the parting")
        assert a.network.active_since_ns(B) is None


def test_a_member_changes_its_urls(pair: tuple[LinkEnd, LinkEnd], tmp_path: Path) -> None:
    a, b = pair
    b.network.stop()
    with LinkEnd(tmp_path / "c", B) as moved:
        moved.network.set_members({A: a.urls})
        a.network.set_members({B: ["http://127.0.0.1:1", *moved.urls]})  # the second one works
        wait_for(lambda: a.network.active_since_ns(B) is not None, "the new address")


def test_a_snapshot_is_sent_while_messages_are(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair
    a.source.path.write_bytes(random.Random(5).randbytes(20 << 20))
    snapshot = Snapshot(SnapshotMetadata(index=77, term=2), b"{}")
    message = Message(MessageType.SNAP, B, A, 2, snapshot=snapshot)
    a.network.send_snapshot(message)
    a.network.send([beat(3)])
    b.await_inbox(
        lambda inbox: any(each.type == MessageType.SNAP for each in inbox.messages), "a snapshot"
    )
    assert beat(3) in b.inbox.messages
    assert message in b.inbox.messages
    assert b.received == [(77, a.source.path.read_bytes())]
    a.await_inbox(lambda inbox: inbox.snapshots_sent == [(B, True)], "its arrival")
    assert a.network.counters[B].snapshot_send.count == 1
    assert b.network.counters[A].snapshot_receive.count == 1
    assert list(b.source.path.parent.glob("tmp*")) == []


def test_a_snapshot_that_cannot_be_written_is_dropped_by_both(
    pair: tuple[LinkEnd, LinkEnd],
) -> None:
    """All bytes may have been sent by then: only a body that ends properly is a database."""
    a, b = pair
    a.source.failure = OSError("no room")
    snapshot = Snapshot(SnapshotMetadata(index=77, term=2), b"{}")
    a.network.send_snapshot(Message(MessageType.SNAP, B, A, 2, snapshot=snapshot))
    a.await_inbox(lambda inbox: inbox.snapshots_sent == [(B, False)], "its failure")
    wait_for(lambda: b.network.counters[A].snapshot_receive_inflights == 0, "the end of it")
    assert b.received == []
    assert b.turn().messages == []
    assert list(b.source.path.parent.glob("tmp*")) == []


def test_a_snapshot_that_cannot_be_imported_is_reported(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair

    def refuse(_index: int, _path: Path) -> None:
        raise OSError("no room")

    b.prepare = refuse
    snapshot = Snapshot(SnapshotMetadata(index=77, term=2), b"{}")
    a.network.send_snapshot(Message(MessageType.SNAP, B, A, 2, snapshot=snapshot))
    a.await_inbox(lambda inbox: inbox.snapshots_sent == [(B, False)], "its failure")
    assert b.turn().messages == []
    assert a.network.counters[B].snapshot_send_failures == 1
    assert b.network.counters[A].snapshot_receive_failures == 1
    assert list(b.source.path.parent.glob("tmp*")) == []


def test_tasks(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, _ = pair
    member = f"{B:x}".encode()
    out = Outbox()
    check = OffloadedTask(9, TaskKind.CHECK_PASSWORD, (b"", b""))
    out.tasks = [
        OffloadedTask(1, TaskKind.GET_PEER, (member, b"/version?x=1", b"")),
        OffloadedTask(2, TaskKind.POST_PEER, (member, b"/leases", b"\x08\x01", b"token")),
        OffloadedTask(3, TaskKind.GET_PEER, (member, b"/nothing", b"")),
        OffloadedTask(4, TaskKind.GET_PEER, (b"77", b"/version", b"")),
        check,
    ]
    a.network.drain(out)
    assert out.tasks == [check]  # another's
    done = a.await_inbox(lambda inbox: len(inbox.task_results) == 4, "the answers").task_results
    assert sorted(done) == [
        TaskResult(1, "", b"/version|"),
        TaskResult(2, "", b"/leases|\x08\x01"),
        TaskResult(3, "HTTP 404", b"404 page not found\n"),
        TaskResult(4, "member 77 is not known", b""),
    ]


# What no member of good will does.


def stream_head(end: LinkEnd, member_id: int, kind: str = "message") -> str:
    return (
        f"GET /raft/stream/{kind}/{member_id:x} HTTP/1.1\nHost: x\nX-Server-From: {member_id:x}\n"
        f"X-Server-Version: 3.5.1\nX-Min-Cluster-Version: 3.0.0\nX-Etcd-Cluster-ID: c1\n"
        f"X-Raft-To: {end.id:x}\n\n"
    )


def post_head(path: str, size: int) -> str:
    return (
        f"POST {path} HTTP/1.1\nHost: x\nX-Server-From: {A:x}\nX-Server-Version: 3.5.1\n"
        f"X-Min-Cluster-Version: 3.0.0\nX-Etcd-Cluster-ID: c1\nContent-Length: {size}\n\n"
    )


def closed(connection: socket.socket) -> bool:
    """Tell whether the other side has closed, now or within the socket's time limit."""
    try:
        while connection.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "head",
    [
        "NONSENSE\n\n",
        "GET / HTTP/1.1\nno colon here\n\n",
        "GET /raft HTTP/1.1\n\n",  # no Host
        "X" * 70_000,
        "POST /raft HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\nzz\n",
        "POST /raft HTTP/1.1\nHost: x\nContent-Length: -5\n\n",
    ],
)
def test_invalid_requests_end_the_connection(pair: tuple[LinkEnd, LinkEnd], head: str) -> None:
    _, b = pair
    connection = raw_request(b.urls[0], head)
    assert closed(connection.socket)
    connection.close()
    assert ask_once(b.urls[0], "GET", "/raft/probing", PeerTls(), 2.0).status == 200


def test_an_incomplete_body_leaves_no_file(pair: tuple[LinkEnd, LinkEnd]) -> None:
    _, b = pair
    snapshot = Snapshot(SnapshotMetadata(index=77, term=2), b"{}")
    body = MessageEncoder().encode(Message(MessageType.SNAP, B, A, 2, snapshot=snapshot))
    for path in ("/raft", "/raft/snapshot"):
        connection = raw_request(b.urls[0], post_head(path, 1 << 20), body + b"database")
        connection.socket.shutdown(socket.SHUT_WR)
        assert closed(connection.socket)
        connection.close()
    assert b.received == []
    assert b.turn().messages == []
    assert list(b.source.path.parent.glob("tmp*")) == []


def test_messages_of_unknown_and_removed_members_are_dropped(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair
    b.removed.add(C)
    for message in (beat(1, from_=C), beat(2, to=C)):
        body = encode_message(message)
        with_head = raw_request(b.urls[0], post_head("/raft", len(body)), body)
        assert b"500 Internal Server Error" in with_head.socket.recv(4096)
        with_head.close()
    refused = raw_request(b.urls[0], stream_head(b, C))
    assert b"410 Gone" in refused.socket.recv(4096)
    refused.close()
    a.network._peers[B].message.write([beat(3, to=C), beat(4, from_=C), beat(5)])
    assert b.await_messages(1) == [beat(5)]


def test_unexpected_bytes_end_an_outbound_stream(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair
    connection = raw_request(b.urls[0], stream_head(b, A))
    assert connection.socket.recv(4096).startswith(b"HTTP/1.1 200 OK\r\n")
    connection.socket.sendall(b"what is this")
    assert closed(connection.socket)
    connection.close()
    connect(a, b)  # the real one is back


def test_a_new_stream_replaces_the_old_one(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair
    a.network.stop()
    outbound = b.network._peers[A].message
    wait_for(lambda: not outbound.is_attached, "the end of its stream")
    older = raw_request(b.urls[0], stream_head(b, A))
    assert older.socket.recv(4096).startswith(b"HTTP/1.1 200 OK\r\nX-Server-Version: 3.7.1\r\n")
    wait_for(lambda: outbound.is_attached, "the first stream")
    first = outbound._socket
    newer = raw_request(b.urls[0], stream_head(b, A))
    got = newer.socket.recv(4096)
    wait_for(lambda: outbound._socket is not first, "the second stream")
    assert closed(older.socket)
    b.network.send([Message(MessageType.HEARTBEAT_RESP, A, B, 2)])
    expected = MessageEncoder().encode(Message(MessageType.HEARTBEAT_RESP, A, B, 2))
    while b"%x\r\n%b\r\n" % (len(expected), expected) not in got:
        piece = newer.socket.recv(4096)
        assert piece, got
        got += piece
    older.close()
    newer.close()


class FalseMember:
    """A server that answers a stream's dial and then sends what it was given."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.dials = 0
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._open: list[socket.socket] = []
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self._open.append(connection)
            with contextlib.suppress(OSError):  # the caller may have given up
                connection.recv(65536)
                self.dials += 1
                connection.sendall(self.answer)

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join()
        for connection in self._open:
            connection.close()


HEAD_200 = b"HTTP/1.1 200 OK\r\nX-Server-Version: 3.5.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD_200 + b"zz\r\n",
        HEAD_200 + b"10\r\n" + b"\xff" * 16 + b"\r\n",
        HEAD_200 + b"1\r\n\x00XX",
        HEAD_200 + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"\xff" * 16,
        b"HTTP/1.1 200 OK\r\nX-Server-Version: 1.0.0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\nno",
        b"HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_invalid_bytes_of_a_stream_cause_another_dial(tmp_path: Path, answer: bytes) -> None:
    false = FalseMember(answer)
    try:
        with LinkEnd(tmp_path / "a", A) as a:
            a.network.set_members({B: [false.url]})

            def is_dialled_again() -> bool:
                a.turn()
                return false.dials >= 4

            wait_for(is_dialled_again, f"new dials\n{a.logger.text()}")
            assert a.inbox.messages == []
    finally:
        false.close()


def test_the_answer_that_this_member_was_removed_is_reported(tmp_path: Path) -> None:
    false = FalseMember(b"HTTP/1.1 410 Gone\r\nContent-Length: 15\r\n\r\nremoved member\n")
    try:
        with LinkEnd(tmp_path / "a", A) as a:
            a.network.set_members({B: [false.url]})
            wait_for(lambda: a.removals, "the news")
            assert "removed member" in a.removals[0]
    finally:
        false.close()


@pytest.mark.skipif(not native.is_available(), reason="the native transport is not built")
def test_clients_and_members_are_polled_together(pair: tuple[LinkEnd, LinkEnd]) -> None:
    a, b = pair
    transport = native.NativeTransport(["http://127.0.0.1:0"], [rpc.PUT])
    try:
        transport.sleep_with(b.network.ready)
        b.turn()
        for number in range(20):
            a.network.send([beat(number)])
            while len(b.turn().messages) <= number:
                before_s = time.monotonic()
                transport.poll(WAIT_S)
                assert time.monotonic() - before_s < WAIT_S / 2, "nothing ended the sleep"
        timer = threading.Timer(0.05, transport.wake)
        timer.start()
        before_s = time.monotonic()
        transport.poll(WAIT_S)
        assert time.monotonic() - before_s < WAIT_S / 2
        timer.join()
        with Client(transport.bound_urls[0].removeprefix("http://")) as client:
            call = raw_grpc.unary(client.channel, rpc.METHODS[rpc.PUT].path).future(b"body")
            calls = wait_for(lambda: transport.poll(1.0).calls, "a call")
            transport.flush(Outbox(replies=[(calls[0][0], 0, b"answer")]))
            assert call.result(WAIT_S) == b"answer"
    finally:
        transport.stop(0.0)
