"""A member without a store: raft, the links to others, and memory; for tests of the links.

It keeps what it would save and applies nothing but changes of members, so it can follow a leader,
vote and lead. It runs in a thread that does what the server's driver does.
"""

import contextlib
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Self

from typing_extensions import override

from kvstore.batch import Inbox
from kvstore.peers.handlers import Questions
from kvstore.peers.http_client import HttpConnection
from kvstore.peers.identity import Identity
from kvstore.peers.listener import PeerRequest, Reply, plain
from kvstore.peers.network import NetworkOptions, PeerNetwork
from kvstore.peers.snapshots.snapshot_receiver import SnapshotReceiver
from kvstore.peers.snapshots.snapshot_sender import PIECE_BYTES, OpenSnapshot
from kvstore.peers.tls import PeerTls
from kvstore.raft.config import Config
from kvstore.raft.model import ConfChange, Message, MessageType
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState
from tests.support.list_log import ListLog
from tests.support.raft.node import Driven
from tests.support.waiting import wait_for as wait_for

WAIT_S = 60.0
TICK_S = 0.1


class Echo:
    """Answers every request with its path."""

    def ask(self, request: PeerRequest, body: bytes) -> "Future[Reply]":
        answer: Future[Reply] = Future()
        answer.set_result(Reply(200, [], request.path.encode() + b"|" + body))
        return answer


class FileSource:
    """Snapshots that are a file the test wrote."""

    def __init__(self, directory: Path, data: bytes = b"database" * 1000) -> None:
        self.path = directory / "sent.db"
        self.path.write_bytes(data)
        self.opened = 0
        self.failure: OSError | None = None  # at the end of the file

    @contextlib.contextmanager
    def open(self, message: Message) -> Iterator[OpenSnapshot]:
        self.opened += 1
        yield OpenSnapshot(message, self._pieces())

    def _pieces(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
        if self.failure is not None:
            raise self.failure

    def stop(self) -> None:
        pass


class WholeFile:
    """Imports a file once it is complete."""

    def __init__(self, take: Callable[[], None]) -> None:
        self._take = take
        self.grown_bytes = 0

    def report_growth(self, size_bytes: int) -> None:
        assert size_bytes > self.grown_bytes
        self.grown_bytes = size_bytes

    def finish(self, size_bytes: int) -> None:
        assert size_bytes >= self.grown_bytes
        self._take()


class LinkEnd:
    """The links of one member; the test takes its turns."""

    def __init__(
        self,
        directory: Path,
        member_id: int,
        *,
        cluster_id: int = 0xC1,
        tls: PeerTls | None = None,
        urls: Sequence[str] = ("http://127.0.0.1:0",),
        questions: Questions | None = None,
        prepare: Callable[[int, Path], None] | None = None,
        removed: set[int] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.id = member_id
        self.logger = ListLog()
        self.removed = removed or set()
        self.removals: list[str] = []
        self.received: list[tuple[int, bytes]] = []
        self.bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.source = FileSource(directory)
        self.prepare = prepare or (
            lambda index, path: self.received.append((index, path.read_bytes()))
        )
        self.network = PeerNetwork(
            NetworkOptions(
                Identity(member_id, cluster_id, tuple(urls)),
                tls or PeerTls(),
                dial_timeout_s=2.0,
                request_timeout_s=5.0,
                probe_interval_s=0.5,
            ),
            source=self.source,
            receiver=SnapshotReceiver(directory, self._take, self.logger),
            questions=questions or Echo(),
            is_removed=lambda each: each in self.removed,
            on_removed=self.removals.append,
            logger=self.logger,
        )
        self.urls = self.network.bind(urls)
        self.inbox = Inbox()

    @contextlib.contextmanager
    def _take(self, index: int, path: Path) -> Iterator[WholeFile]:
        yield WholeFile(lambda: self.prepare(index, path))

    def start(self) -> Self:
        self.network.start(lambda: self.bell.put(None))
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.network.stop()

    def wait_logged(self, text: str) -> None:
        wait_for(lambda: text in self.logger.text(), f"a line with {text!r}")

    def turn(self) -> Inbox:
        """Take in what has arrived; all of it so far."""
        self.network.fill(self.inbox)
        return self.inbox

    def await_inbox(self, condition: Callable[[Inbox], object], what: str) -> Inbox:
        wait_for(lambda: condition(self.turn()), f"{what}\n{self.logger.text()}")
        return self.inbox

    def await_messages(self, count: int) -> list[Message]:
        return self.await_inbox(
            lambda inbox: len(inbox.messages) >= count, f"{count} messages"
        ).messages


def connect(*ends: LinkEnd) -> None:
    """Set the members of all ends and wait until every stream is attached."""
    for end in ends:
        end.network.set_members({each.id: each.urls for each in ends if each is not end})
    for end in ends:
        for each in ends:
            if each is not end:
                await_streams(end, each.id, *ends)


def await_streams(end: LinkEnd, member_id: int, *turning: LinkEnd) -> None:
    """Wait until both streams to a member are attached, while others, or none, take turns."""
    for kind in ("msgapp", "message"):
        wait_for(
            lambda kind=kind: (  # type: ignore[misc]
                all(each.turn() for each in turning)
                and (stream := end.network.stream_to(member_id, kind))
                and stream.is_attached
            ),
            f"stream {kind} to {member_id:x}\n{end.logger.text()}",
        )


class PeerMember(LinkEnd):
    """A complete member, driven by a thread."""

    def __init__(
        self,
        directory: Path,
        member_id: int,
        others: Mapping[int, Sequence[str]],
        **options: object,
    ) -> None:
        super().__init__(directory, member_id, **options)  # type: ignore[arg-type]
        self.members: dict[int, Sequence[str]] = dict(others)
        self.driven = Driven(RawNode(Config(member_id), InitialState(), random.Random(member_id)))
        self.work: queue.SimpleQueue[Callable[[RawNode], object]] = queue.SimpleQueue()
        self.on_conf_change: Callable[[ConfChange], None] = lambda change: None
        self.failure: BaseException | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"member-{member_id:x}")

    @override
    def start(self) -> Self:
        super().start()
        self.network.set_members(self.members)
        self._thread.start()
        return self

    @override
    def __enter__(self) -> Self:
        return self.start()

    @override
    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self.bell.put(None)
        self._thread.join(WAIT_S)
        super().__exit__()
        if self.failure is not None:
            raise self.failure

    def do(self, action: Callable[[RawNode], object]) -> None:
        """Have the thread do something with its raft."""
        self.work.put(action)
        self.bell.put(None)

    def _run(self) -> None:
        try:
            ticked_s = time.monotonic()
            while not self._stopping:
                with contextlib.suppress(queue.Empty):
                    self.bell.get(timeout=max(ticked_s + TICK_S - time.monotonic(), 0.0))
                now_s = time.monotonic()
                while ticked_s + TICK_S <= now_s:
                    ticked_s += TICK_S
                    self.driven.raft.tick()
                self._turn()
        except BaseException as error:  # noqa: BLE001 - raised by the test's thread
            self.failure = error

    def _turn(self) -> None:
        raft = self.driven.raft
        inbox = Inbox()
        self.network.fill(inbox)
        for message in inbox.messages:
            raft.step(message)
        for member in inbox.unreachable:
            raft.report_unreachable(member)
        if inbox.reached:
            raft.report_reached()
        for member, arrived in inbox.snapshots_sent:
            raft.report_snapshot(member, ok=arrived)
        while not self.work.empty():
            self.work.get()(raft)
        self.driven.settle()
        messages = self.driven.take_sent()
        for message in messages:
            if message.type == MessageType.SNAP:
                self.network.send_snapshot(message)
        self.network.send([each for each in messages if each.type != MessageType.SNAP])


def raw_request(url: str, head: str, body: bytes = b"") -> HttpConnection:
    """Send a request's head as it stands, and a body; for what no client would send."""
    from kvstore.peers.http_client import dial

    connection = dial(url, PeerTls(), 5.0)
    connection.socket.sendall(head.replace("\n", "\r\n").encode() + body)
    return connection


__all__ = ["LinkEnd", "PeerMember", "connect", "plain", "raw_request", "wait_for"]
