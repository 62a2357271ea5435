"""The input and output of one turn: plain columns, no object per call.

    transport, peers, sources ──► Inbox ──► Node.turn ──► Outbox ──► transport, peers, sources

Every list holds tuples in the order of arrival. Limits on their length are the transport's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kvstore.errors import Refusal
from kvstore.raft.model import Message

Metadata = Mapping[str, str]
HAS_LEADER: Final = "hasleader"
# The metadata of calls that the process itself makes with root's permission, as its health pages
# do. It is compared by identity, so no client can send it.
AS_ROOT: Final[Metadata] = MappingProxyType({":root": "true"})
# The metadata of calls that the peer port makes when another member asks about a lease for one of
# its clients: with root's permission, too, and answered by this member as the leader or not at all.
# Also compared by identity.
AS_PEER: Final[Metadata] = MappingProxyType({":peer": "true"})
# Ids of calls by Stores in the process run downwards from here, those of its other clients above.
STORE_IDS: Final = -(1 << 41)
HttpHeaders = list[tuple[str, str]]  # in order; names in lower case
# (id, method, path and query, headers, body); body None: it comes as frames, like a stream's.
PortRequest = tuple[int, str, str, HttpHeaders, bytes | None]
# (id, HTTP status, headers, body); body None: it is sent as deliveries until the id's end.
PortResponse = tuple[int, int, HttpHeaders, bytes | None]

Delivery: TypeAlias = tuple[int, bytes, bytes]
"""(stream id, head, tail): one message, head + tail."""

FanOut: TypeAlias = tuple[int, bytes, bytes, tuple[bytes, ...]]
"""(stream id, head, tail, middles): a message for each middle, head + middle + tail."""

AnyDelivery: TypeAlias = Delivery | FanOut


def messages(deliveries: Iterable[AnyDelivery]) -> Iterator[Delivery]:
    """Yield each message as a delivery of its own."""
    for each in deliveries:
        if len(each) == 3:
            yield each
        else:
            stream_id, head, tail, middles = each
            for middle in middles:
                yield stream_id, head + middle, tail


# A call of a service built on the store: (id, method, body, metadata).
ServiceCall = tuple[int, int, bytes, Metadata]


class TaskKind(IntEnum):
    """What can be done outside the turn; arguments and result are given beside each."""

    CHECK_PASSWORD = 1  # (bcrypt hash, password) → b"" or an error
    HASH_PASSWORD = 2  # (password, cost in decimal) → the bcrypt hash
    GET_PEER = 3  # (member id in hex, path and query, request body) → the body of status 200
    POST_PEER = 4  # the same, with POST; a fourth argument, if there is one: Authorization header
    SIGN_TOKEN = 5  # (user name, auth revision in decimal) → the signed token


class OffloadedTask(NamedTuple):
    """Slow work outside the turn: requested in one outbox, answered in some later inbox."""

    id: int  # the node's own, unique while the process runs
    kind: TaskKind
    args: tuple[bytes, ...]


class TaskResult(NamedTuple):
    """How a task ended."""

    id: int
    error: str  # empty: success; "HTTP 404" for an answer of another status than 200
    body: bytes  # for an HTTP status that is not 200: the body that came with it


@dataclass(slots=True)
class Inbox:
    """All that arrived since the last turn."""

    now_ns: int = 0  # monotonic
    wall_ms: int = 0  # Unix milliseconds: only for ids that must be unique over restarts
    calls: list[tuple[int, int, bytes]] = field(default_factory=list)  # (call id, method id, body)
    opened: list[tuple[int, int]] = field(default_factory=list)  # (stream id, method id)
    frames: list[tuple[int, bytes]] = field(default_factory=list)  # (stream id, message)
    half_closed: list[int] = field(default_factory=list)  # stream ids
    gone: list[int] = field(default_factory=list)  # call and stream ids
    backlog: dict[int, int] = field(default_factory=dict)  # stream id → bytes waiting unsent
    metadata: dict[int, Metadata] = field(default_factory=dict)  # only calls that carry any
    messages: list[Message] = field(default_factory=list)  # raft messages of other members
    unreachable: list[int] = field(default_factory=list)  # members a message to which was lost
    reached: list[int] = field(default_factory=list)  # members to which a stream was opened
    snapshots_sent: list[tuple[int, bool]] = field(default_factory=list)  # (member id, arrived)
    task_results: list[TaskResult] = field(default_factory=list)
    requests: list[PortRequest] = field(default_factory=list)  # HTTP that is not gRPC

    @property
    def has_peer_news(self) -> bool:
        """Whether there is anything from or about the other members."""
        return bool(self.messages or self.unreachable or self.reached or self.snapshots_sent)

    @property
    def has_only_calls(self) -> bool:
        """Whether nothing arrived but calls."""
        return not (
            self.messages
            or self.frames
            or self.opened
            or self.half_closed
            or self.gone
            or self.task_results
            or self.unreachable
            or self.reached
            or self.snapshots_sent
        )


@dataclass(slots=True)
class Outbox:
    """All that must be sent.

    A tail may be shared by many streams, so events are encoded once for all watchers; a fan-out is
    for many watchers of one stream, and streams may share its parts, too. `messages` has them one
    by one. An end closes a stream after the deliveries before it; code 0 is a
    plain end, any other code carries the error text.
    """

    replies: list[tuple[int, int, bytes]] = field(
        default_factory=list
    )  # (call id, gRPC code, response bytes; for code ≠ 0 the error text in UTF-8)
    deliveries: list[AnyDelivery] = field(default_factory=list)
    ends: list[tuple[int, int, bytes]] = field(
        default_factory=list
    )  # (stream id, gRPC code, error text in UTF-8)
    snapshots: list[tuple[int, bytes]] = field(
        default_factory=list
    )  # (stream id, encoded ResponseHeader): the server streams the database to these
    tasks: list[OffloadedTask] = field(default_factory=list)
    services: list[ServiceCall] = field(default_factory=list)  # locks, elections
    responses: list[PortResponse] = field(default_factory=list)  # to requests

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send."""
        return not (
            self.replies
            or self.deliveries
            or self.ends
            or self.snapshots
            or self.tasks
            or self.services
            or self.responses
        )

    def refuse(self, call_id: int, refusal: Refusal) -> None:
        """Reply to a call with a refusal."""
        self.replies.append((call_id, refusal.code, refusal.text.encode()))

    def end(self, stream_id: int, refusal: Refusal | None) -> None:
        """End a stream; None: without an error."""
        code, text = (0, b"") if refusal is None else (refusal.code, refusal.text.encode())
        self.ends.append((stream_id, code, text))
