"""The requests of the peer port: raft's paths are handled here, the others by the node.

    /raft                        one message
    /raft/stream/<kind>/<from>   from now on the connection carries messages to the caller
    /raft/snapshot               a message and the database
    /raft/probing                for probers
    other known paths            Questions

Checks, their order, their texts and their statuses are etcd's.
"""

import json
import posixpath
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from datetime import UTC, datetime
from typing import Final, Protocol

from kvstack.component.errors import ComponentError
from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters
from kvstore.peers.identity import Identity, parse_id, refusal, sender
from kvstore.peers.listener import (
    Body,
    BodyTooLongError,
    PeerRequest,
    Reply,
    StreamOwner,
    Upgrade,
    plain,
)
from kvstore.peers.snapshots.snapshot_receiver import SnapshotReceiver
from kvstore.raft.model import Message, MessageType
from kvstore.types import SERVER_VERSION
from kvstore.wire.raft_codec import decode_message
from kvstore.wire.varint import WireError

MESSAGE_BYTES_MAX: Final = 512 << 20
QUESTION_BYTES_MAX: Final = 64 << 10
ANSWER_S: Final = 30.0
_METHODS: Final = {
    "/members": "GET",
    "/members/hashkv": "GET",
    "/version": "GET",
    "/downgrade/enabled": "GET",
    "/leases": "POST",
    "/leases/internal": "POST",
}
_PROMOTE: Final = "/members/promote/"
_STREAMS: Final = "/raft/stream/"


class Questions(Protocol):
    """Answers for the node; called in any thread."""

    def ask(self, request: PeerRequest, body: bytes) -> "Future[Reply]":
        """Answer one of the paths below; the method has been checked.

        /members, /members/promote/<id>, /members/hashkv, /version, /leases, /leases/internal and
        /downgrade/enabled.
        """
        ...


class Mailbox(Protocol):
    """The queue of messages that were received in requests."""

    def post(self, message: Message, size_bytes: int) -> bool:
        """Queue a message; wait for space and until the node has taken it.

        False: it was dropped.
        """
        ...


class Membership(Protocol):
    """The members known to the links."""

    def is_removed(self, member_id: int) -> bool:
        """Return whether the member was removed."""
        ...

    def stream_to(self, member_id: int, kind: str) -> StreamOwner | None:
        """Return the stream of a kind to a member; None if the member is not known."""
        ...

    def add_remote(self, member_id: int, urls: Sequence[str]) -> None:
        """Remember the peer URLs that an unknown member advertises."""
        ...

    def counters_of(self, member_id: int) -> PeerCounters:
        """Return a member's counters."""
        ...


class Handlers:
    """The paths of the peer port."""

    def __init__(
        self,
        identity: Identity,
        membership: Membership,
        mailbox: Mailbox,
        snapshots: SnapshotReceiver,
        questions: Questions,
        logger: Logger,
    ) -> None:
        self._identity = identity
        self._cluster = ("X-Etcd-Cluster-ID", f"{identity.cluster_id:x}")
        self._membership = membership
        self._mailbox = mailbox
        self._snapshots = snapshots
        self._questions = questions
        self._logger = logger
        self._raft: dict[str, tuple[str, Callable[[PeerRequest, Body], Reply | Upgrade]]] = {
            "/raft": ("POST", self._message),
            "/raft/snapshot": ("POST", self._snapshot),
        }

    def handle(self, request: PeerRequest, body: Body) -> Reply | Upgrade:
        """Answer one request."""
        path = request.path
        if path == "/raft/probing":
            return _probing()
        if path.startswith(_STREAMS):
            return self._checked("GET", request, body, self._stream)
        known = self._raft.get(path)
        if known is not None:
            return self._checked(known[0], request, body, known[1])
        method = "POST" if path.startswith(_PROMOTE) else _METHODS.get(path)
        if method is None:
            return plain(404, "404 page not found")
        if request.method != method:
            # etcd's lease handler names no method
            allow = [] if path.startswith("/leases") else [("Allow", method)]
            return plain(405, "Method Not Allowed", allow)
        return self._ask(request, body)

    def _checked(
        self,
        method: str,
        request: PeerRequest,
        body: Body,
        handle: Callable[[PeerRequest, Body], Reply | Upgrade],
    ) -> Reply | Upgrade:
        if request.method != method:
            return plain(405, "Method Not Allowed", [("Allow", method)])
        reason = refusal(request.headers, self._identity.cluster_id)
        if reason:
            self._logger.warning(
                "refused a request from a member",
                path=request.path,
                reason=reason,
                remote=request.remote,
                remote_version=request.headers.get("x-server-version", ""),
                remote_cluster_id=request.headers.get("x-etcd-cluster-id", ""),
            )
            return plain(412, reason, self._stream_headers())
        return handle(request, body)

    def _message(self, request: PeerRequest, body: Body) -> Reply:
        self._note_remote(request)
        try:
            data = body.read(MESSAGE_BYTES_MAX)
        except BodyTooLongError:
            return self._plain(400, "error reading raft message")
        try:
            message = decode_message(data)
        except WireError as error:
            self._logger.warning("failed to unmarshal Raft message", error=str(error))
            return self._plain(400, "error unmarshalling raft message")
        self._membership.counters_of(message.from_).received_bytes += len(data)
        reason = self._refusal_of(message)
        if reason or not self._mailbox.post(message, len(data)):
            self._logger.warning(
                "failed to process Raft message", error=reason or "too many messages are waiting"
            )
            return self._plain(500, "error processing raft message")._replace(is_last=True)
        return Reply(204, [self._cluster], b"")

    def _refusal_of(self, message: Message) -> str:
        if self._membership.is_removed(message.from_):
            return f"member {message.from_:x} was removed"
        if message.to != self._identity.member_id:
            return f"message to {message.to:x}, this is {self._identity.member_id:x}"
        return ""

    def _snapshot(self, request: PeerRequest, body: Body) -> Reply:
        self._note_remote(request)
        pieces = body.pieces()
        begun_s = time.monotonic()
        try:
            message, first = self._snapshots.read_message(pieces)
        except (WireError, EOFError) as error:
            return self._plain(400, f"failed to decode raft message ({error})")
        if message.type != MessageType.SNAP or message.snapshot is None:
            return self._plain(400, "wrong raft message type")
        counters = self._membership.counters_of(message.from_)
        counters.snapshot_receive_inflights += 1
        try:
            reply = self._receive_snapshot(message, first, pieces, counters)
        finally:
            counters.snapshot_receive_inflights -= 1
        if reply.status == 204:
            counters.snapshot_receive.observe(time.monotonic() - begun_s)
        else:
            counters.snapshot_receive_failures += 1
        return reply

    def _receive_snapshot(
        self, message: Message, first: bytes, pieces: Iterable[bytes], counters: PeerCounters
    ) -> Reply:
        reason = self._refusal_of(message)
        if reason:
            return self._plain(500, f"failed to process raft message ({reason})")
        try:
            counters.received_bytes += self._snapshots.save(message, first, pieces)
        except (ComponentError, OSError) as error:
            self._logger.warning("failed to save incoming database snapshot", error=str(error))
            return self._plain(500, f"failed to save KV snapshot ({error})")
        if not self._mailbox.post(message, 0):
            return self._plain(
                500, "failed to process raft message (too many messages are waiting)"
            )
        return Reply(204, [self._cluster], b"")

    def _stream(self, request: PeerRequest, _body: Body) -> Reply | Upgrade:
        headers = self._stream_headers()
        kind = posixpath.dirname(request.path).removeprefix(_STREAMS)
        if kind not in {"message", "msgapp"}:
            return plain(404, "invalid path", headers)
        member_id = parse_id(posixpath.basename(request.path))
        if member_id is None:
            return plain(404, "invalid from", headers)
        if self._membership.is_removed(member_id):
            return plain(410, "removed member", headers)
        owner = self._membership.stream_to(member_id, kind)
        if owner is None:
            urls = sender(request.headers)[1]
            if urls:
                self._membership.add_remote(member_id, urls)
            self._logger.warning(
                "failed to find remote peer in cluster", remote_peer_id=f"{member_id:x}"
            )
            return plain(404, "error sender not found", headers)
        if request.headers.get("x-raft-to", "") != f"{self._identity.member_id:x}":
            return plain(412, "to field mismatch", headers)
        return Upgrade(headers, owner)

    def _ask(self, request: PeerRequest, body: Body) -> Reply:
        try:
            asked = self._questions.ask(request, body.read(QUESTION_BYTES_MAX))
            return asked.result(ANSWER_S)
        except BodyTooLongError:
            return plain(413, "request body too large")._replace(is_last=True)
        except (TimeoutError, CancelledError):
            return plain(503, "the member did not answer in time")

    def _note_remote(self, request: PeerRequest) -> None:
        member_id, urls = sender(request.headers)
        if member_id and urls:
            self._membership.add_remote(member_id, urls)

    def _plain(self, status: int, text: str) -> Reply:
        return plain(status, text, [self._cluster])

    def _stream_headers(self) -> list[tuple[str, str]]:
        return [("X-Server-Version", SERVER_VERSION), self._cluster]


def _probing() -> Reply:
    now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    body = json.dumps({"OK": True, "Now": now}, separators=(",", ":")) + "\n"
    return Reply(200, [("Content-Type", "text/plain; charset=utf-8")], body.encode())
