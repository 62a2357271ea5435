"""Keeps one kind of stream from one member connected: dial, read to the end, dial again.

There is at most one attempt per REDIAL_S, as in etcd. If the member answers that this member was
removed, the process stops.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters
from kvstore.peers.http_client import Answer, HttpConnection, PeerRequestError, dial
from kvstore.peers.identity import Identity, can_stream
from kvstore.peers.status import PeerStatus, UrlPicker
from kvstore.peers.streams.inbound_stream import Decoder, InboundStream
from kvstore.peers.streams.ready_set import ReadySet
from kvstore.peers.tls import PeerTls

REDIAL_S: Final = 0.1
HEAD_S: Final = 5.0  # to receive the head of the response
MSGAPP: Final = "msgapp"
MESSAGE: Final = "message"


class StreamReader:
    """A thread that dials; the turn reads the connection."""

    def __init__(
        self,
        kind: str,
        identity: Identity,
        member_id: int,
        picker: UrlPicker,
        status: PeerStatus,
        counters: PeerCounters,
        *,
        tls: PeerTls,
        dial_timeout_s: float,
        silence_s_max: float,
        make_decoder: Callable[[], Decoder],
        ready: ReadySet,
        on_removed: Callable[[str], None],
        logger: Logger,
    ) -> None:
        self._kind = kind
        self._identity = identity
        self._member_id = member_id
        self._picker = picker
        self._status = status
        self._counters = counters
        self._tls = tls
        self._dial_timeout_s = dial_timeout_s
        self._silence_s_max = silence_s_max
        self._make_decoder = make_decoder
        self._ready = ready
        self._on_removed = on_removed
        self._logger = logger
        self._stopping = threading.Event()
        self._inbound: InboundStream | None = None
        self._thread = threading.Thread(
            target=self._run, name=f"peer-{kind}-{member_id:x}", daemon=True
        )

    def start(self) -> None:
        """Start to dial."""
        self._thread.start()

    def begin_stop(self) -> None:
        """Stop the thread; does not wait for it."""
        self._stopping.set()
        inbound = self._inbound
        if inbound is not None:
            inbound.end("")

    def join(self, timeout_s: float) -> None:
        """Wait for the thread, which may be dialling."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stopping.is_set():
            begun_s = time.monotonic()
            url = self._picker.pick()
            try:
                connection, answer = self._dial(url)
            except PeerRequestError as error:
                self._picker.unreachable(url)
                self._status.deactivate(f"stream {self._kind}", "dial", str(error))
            else:
                self._status.activate()
                self._read(connection, answer)
            self._stopping.wait(max(begun_s + REDIAL_S - time.monotonic(), 0.0))

    def _dial(self, url: str) -> tuple[HttpConnection, Answer]:
        """Return a connection and the head of the response; PeerRequestError if that fails."""
        connection = dial(url, self._tls, self._dial_timeout_s)
        try:
            headers = [*self._identity.headers(), ("X-Raft-To", f"{self._member_id:x}")]
            target = f"/raft/stream/{self._kind}/{self._identity.member_id:x}"
            answer = connection.open(target, headers, timeout_s=HEAD_S)
            self._check(url, answer)
        except BaseException:
            connection.close()
            raise
        return connection, answer

    def _check(self, url: str, answer: Answer) -> None:
        if answer.status == 410:
            self._on_removed(f"{url} answered: {answer.text}")
        if answer.status != 200:
            raise PeerRequestError(f"{url} answered HTTP status {answer.status}: {answer.text}")
        if not can_stream(answer.headers.get("x-server-version")):
            raise PeerRequestError(f"{url}: unsupported stream type")

    def _read(self, connection: HttpConnection, answer: Answer) -> None:
        inbound = self._inbound = InboundStream(
            connection.socket,
            self._make_decoder(),
            answer.body,
            is_chunked=answer.headers.get("transfer-encoding", "").lower() == "chunked",
            counters=self._counters,
            silence_s_max=self._silence_s_max,
        )
        fields = {"stream": self._kind, "remote_peer_id": f"{self._member_id:x}"}
        self._logger.info("established TCP streaming connection with remote peer", **fields)
        if not self._stopping.is_set():
            self._ready.add(inbound)
            inbound.ended.wait()
            self._ready.remove(inbound)
        inbound.close()
        if self._stopping.is_set():
            return
        reason = inbound.reason
        self._logger.warning(
            "lost TCP streaming connection with remote peer", error=reason or "EOF", **fields
        )
        if reason:
            self._status.deactivate(f"stream {self._kind}", "read", reason)
