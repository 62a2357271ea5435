"""Sends a snapshot to a member: the message and the database after it, in one POST.

    send(message) ──► thread ──► source.open(message) ──► POST /raft/snapshot ──► 204
                                 (length u64BE | raftpb.Message | the database file)

Each snapshot has a thread, which sends the database while it is written and waits until the member
has imported it; SENDING_MAX at once. The result is reported exactly once. If the database cannot
be written completely, the body is not ended properly, and the member drops what it received.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol

from kvstack.component.errors import ComponentError
from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters
from kvstore.peers.http_client import PeerRequestError, dial
from kvstore.peers.identity import Identity
from kvstore.peers.pipeline import check_post
from kvstore.peers.status import PeerStatus, UrlPicker
from kvstore.peers.tls import PeerTls
from kvstore.raft.model import Message
from kvstore.wire.msgapp_codec import MessageEncoder

SENDING_MAX: Final = 2
ANSWER_S: Final = 1800.0  # a member answers when the import is complete
PIECE_BYTES: Final = 256 << 10


class OpenSnapshot(NamedTuple):
    """A database at one position of the log."""

    message: Message  # with that position
    pieces: Iterator[bytes]  # as they are written; KvstoreError or OSError if that fails


class SnapshotProvider(Protocol):
    """Makes database files of the state; for the snapshots' threads."""

    def open(self, message: Message) -> AbstractContextManager[OpenSnapshot]:
        """Write the last commit, which is at message's position or after it.

        The snapshot's message has the position that is written. The end of the block frees
        everything. KvstoreError or OSError if it fails.
        """
        ...

    def stop(self) -> None:
        """Stop writing."""
        ...


class SnapshotSender:
    """Sends snapshots to any member."""

    def __init__(
        self,
        identity: Identity,
        source: SnapshotProvider,
        *,
        tls: PeerTls,
        dial_timeout_s: float,
        stall_s: float,
        on_done: Callable[[int, bool], None],
        on_removed: Callable[[str], None],
        logger: Logger,
    ) -> None:
        """on_done(member id, arrived) is called once for each send(), in any thread."""
        self._headers = [*identity.headers(), ("Content-Type", "application/octet-stream")]
        self._source = source
        self._tls = tls
        self._dial_timeout_s = dial_timeout_s
        self._stall_s = stall_s
        self._on_done = on_done
        self._on_removed = on_removed
        self._logger = logger
        self._lock = threading.Lock()
        self._sending = 0
        self._is_stopping = False

    def send(
        self, message: Message, picker: UrlPicker, status: PeerStatus, counters: PeerCounters
    ) -> None:
        """Send message and the state; return at once."""
        with self._lock:
            is_refused = self._is_stopping or self._sending >= SENDING_MAX
            if not is_refused:
                self._sending += 1
        if is_refused:
            counters.snapshot_send_failures += 1
            self._on_done(message.to, False)
            return
        threading.Thread(
            target=self._run,
            args=(message, picker, status, counters),
            name=f"peer-snapshot-{message.to:x}",
            daemon=True,
        ).start()

    def stop(self) -> None:
        """Start no further snapshot; those being sent end at their next piece."""
        self._is_stopping = True
        self._source.stop()

    def _run(
        self, message: Message, picker: UrlPicker, status: PeerStatus, counters: PeerCounters
    ) -> None:
        counters.snapshot_send_inflights += 1
        begun_s = time.monotonic()
        arrived = False
        try:
            size_bytes = self._send(message, picker)
            arrived = True
        except (ComponentError, OSError) as error:
            counters.sent_failures += 1
            counters.snapshot_send_failures += 1
            status.deactivate("snapshot", "post", str(error))
            self._logger.warning(
                "failed to send database snapshot",
                remote_peer_id=f"{message.to:x}",
                error=str(error),
            )
        else:
            took_s = time.monotonic() - begun_s
            status.activate()
            counters.sent_bytes += size_bytes
            counters.snapshot_send.observe(took_s)
            self._logger.info(
                "sent database snapshot",
                remote_peer_id=f"{message.to:x}",
                bytes=size_bytes,
                took_s=round(took_s, 3),
            )
        finally:
            counters.snapshot_send_inflights -= 1
            with self._lock:
                self._sending -= 1
            self._on_done(message.to, arrived)

    def _send(self, message: Message, picker: UrlPicker) -> int:
        """Send one snapshot; return the bytes of its file."""
        with self._source.open(message) as snapshot:
            url = picker.pick()
            try:
                return self._post(url, snapshot)
            except PeerRequestError:
                picker.unreachable(url)
                raise

    def _post(self, url: str, snapshot: OpenSnapshot) -> int:
        sent_bytes = 0

        def pieces() -> Iterator[bytes]:
            nonlocal sent_bytes
            yield MessageEncoder().encode(snapshot.message)
            for piece in snapshot.pieces:
                if self._is_stopping:
                    raise PeerRequestError("this member is stopping")
                yield piece
                sent_bytes += len(piece)

        connection = dial(url, self._tls, self._dial_timeout_s)
        try:
            connection.post_pieces("/raft/snapshot", self._headers, pieces(), stall_s=self._stall_s)
            check_post(url, connection.read_answer(timeout_s=ANSWER_S), self._on_removed)
        finally:
            connection.close()
        return sent_bytes
