"""Sends messages as POST requests, one each: to members without a stream, and while there is none.

    send(message) ──► queue of QUEUE_MAX ──► up to SENDERS_MAX threads ──► POST /raft ──► 204

Threads are started on demand and end after IDLE_S without work. A message is lost if the queue is
full or its POST fails; the member is then reported unreachable. One connection is dialled at a
time, and a failed dial loses what is queued: a member that is down is not dialled once per message.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters
from kvstore.peers.http_client import Answer, HttpConnection, PeerRequestError, dial
from kvstore.peers.identity import Identity
from kvstore.peers.status import PeerStatus, UrlPicker
from kvstore.peers.tls import PeerTls
from kvstore.peers.worker_threads import WorkerThreads
from kvstore.raft.model import Message
from kvstore.wire.raft_codec import encode_message

QUEUE_MAX: Final = 64
SENDERS_MAX: Final = 4
IDLE_S: Final = 3.0  # less than the five seconds after which a member closes an idle connection
ANSWER_S: Final = 30.0
_SOURCE: Final = "pipeline"


class Pipeline:
    """The queue to one member and the threads that empty it."""

    def __init__(
        self,
        identity: Identity,
        member_id: int,
        picker: UrlPicker,
        status: PeerStatus,
        counters: PeerCounters,
        *,
        tls: PeerTls,
        dial_timeout_s: float,
        on_lost: Callable[[], None],
        on_removed: Callable[[str], None],
        logger: Logger,
    ) -> None:
        """Start without threads; on_lost is called, in any thread, when messages were lost."""
        self._headers = [*identity.headers(), ("Content-Type", "application/protobuf")]
        self._name = f"{member_id:x}"
        self._picker = picker
        self._status = status
        self._counters = counters
        self._tls = tls
        self._dial_timeout_s = dial_timeout_s
        self._on_lost = on_lost
        self._on_removed = on_removed
        self._logger = logger
        self._dialling = threading.Lock()  # of the next
        self._dial_failure: tuple[float, str] = (0.0, "")  # time and reason of the last failed dial
        self._workers: WorkerThreads[Message] = WorkerThreads(
            f"peer-post-{self._name}",
            self._run,
            threads_max=SENDERS_MAX,
            queue_max=QUEUE_MAX,
            idle_s=IDLE_S,
        )

    def send(self, message: Message) -> bool:
        """Queue a message; False: it is lost. Does not block."""
        is_queued = self._workers.put(message)
        if not is_queued and not self._workers.is_stopping:
            self._counters.sent_failures += 1
        return is_queued

    def stop(self) -> None:
        """Drop the queue and let the threads end; does not wait for a POST in progress."""
        self._workers.stop()

    def _run(self) -> None:
        connection: HttpConnection | None = None
        while (message := self._workers.take()) is not None:
            connection = self._post(message, connection)
        if connection is not None:
            connection.close()

    def _post(self, message: Message, connection: HttpConnection | None) -> HttpConnection | None:
        """Send one message; return the connection if it can be used again."""
        url = self._picker.pick()
        body = encode_message(message)
        try:
            if connection is not None and connection.is_stale:
                connection.close()
                connection = None
            if connection is None:
                connection = self._dial(url)
            # Never retried: a proposal that arrived twice would be applied twice.
            answer = connection.ask("POST", "/raft", self._headers, body, timeout_s=ANSWER_S)
            check_post(url, answer, self._on_removed)
        except PeerRequestError as error:
            if connection is not None:
                connection.close()
            self._picker.unreachable(url)
            self._status.deactivate(_SOURCE, "write", str(error))
            self._counters.sent_failures += 1
            self._on_lost()
            return None
        self._status.activate()
        self._counters.sent_bytes += len(body)
        if connection.is_reusable and answer.headers.get("connection", "").lower() != "close":
            return connection
        connection.close()
        return None

    def _dial(self, url: str) -> HttpConnection:
        """Return a new connection; PeerRequestError if this dial or the one before it failed."""
        begun_s = time.monotonic()
        with self._dialling:
            failed_s, error = self._dial_failure
            if failed_s >= begun_s:
                raise PeerRequestError(error)
            try:
                return dial(url, self._tls, self._dial_timeout_s)
            except PeerRequestError as failure:
                self._dial_failure = time.monotonic(), str(failure)
                self._counters.sent_failures += self._workers.drop()
                raise


def check_post(url: str, answer: Answer, on_removed: Callable[[str], None]) -> None:
    """Raise PeerRequestError unless the answer says that the message was accepted."""
    if answer.status == 204:
        return
    if answer.status == 403:
        on_removed(f"{url} answered: {answer.text}")
        raise PeerRequestError("the member has been permanently removed from the cluster")
    raise PeerRequestError(f"{url} answered HTTP status {answer.status}: {answer.text}")
