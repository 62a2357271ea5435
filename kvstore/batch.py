"""What one turn is given and what it leaves: plain columns, no objects per call.

Every list holds tuples in the order of arrival. Limits on their length are the transport's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from kvstore.raft.model import Message

Metadata = Mapping[str, str]
HAS_LEADER: Final = "hasleader"
# What the process itself says when it asks with every right, as its health pages do. It counts by
# identity alone, so no client can send it.
AS_ROOT: Final[Metadata] = MappingProxyType({":root": "true"})
# What the peer port says when another member asks about a lease on behalf of its client: with every
# right, too, and answered by this member as the leader or not at all. By identity alone as well.
AS_PEER: Final[Metadata] = MappingProxyType({":peer": "true"})
Headers = list[tuple[str, str]]  # in order; names in lower case
# (id, method, path and query, headers, body); body None: it comes in frames, as a stream's.
Request = tuple[int, str, str, Headers, bytes | None]
# (id, HTTP status, headers, body); body None: it leaves as deliveries, until the id's end.
Response = tuple[int, int, Headers, bytes | None]


# A call of a service built on the store: (id, method, body, metadata).
ServiceCall = tuple[int, int, bytes, Metadata]


class TaskKind(IntEnum):
    """What the shell can be sent to do, off the turn; args are given beside each."""

    CHECK_PASSWORD = 1  # (bcrypt hash, password) → b"" or an error
    HASH_PASSWORD = 2  # (password, cost in decimal) → the bcrypt hash
    GET_PEER = 3  # (member id in hex, path and query, request body) → the body of status 200
    POST_PEER = 4  # the same, with POST; a fourth argument, if there is one: Authorization header
    SIGN_TOKEN = 5  # (user name, auth revision in decimal) → the signed token


class OffloadedTask(NamedTuple):
    """Slow work outside the turn: asked for in one outbox, answered in some later inbox."""

    id: int  # the node's own, unique for the life of the process
    kind: TaskKind
    args: tuple[bytes, ...]


class TaskResult(NamedTuple):
    """How a task ended."""

    id: int
    error: str  # empty: it went well; "HTTP 404" for an answer of another status than 200
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
    unreachable: list[int] = field(default_factory=list)  # members to whom something was lost
    reached: list[int] = field(default_factory=list)  # members that a stream now leads to
    snapshots_sent: list[tuple[int, bool]] = field(default_factory=list)  # (member id, arrived)
    task_results: list[TaskResult] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)  # HTTP that is no gRPC, for the shell


@dataclass(slots=True)
class Outbox:
    """All that must leave.

    A delivery's message is head + tail: the tail may be shared by many streams, so a fan-out
    encodes its events once. An end closes a stream after the deliveries before it; code 0 is a
    plain end, any other code carries the error text.
    """

    replies: list[tuple[int, int, bytes]] = field(
        default_factory=list
    )  # (call id, gRPC code, response bytes; for code ≠ 0 the error text in UTF-8)
    deliveries: list[tuple[int, bytes, bytes]] = field(
        default_factory=list
    )  # (stream id, head, tail)
    ends: list[tuple[int, int, bytes]] = field(
        default_factory=list
    )  # (stream id, gRPC code, error text in UTF-8)
    snapshots: list[tuple[int, bytes]] = field(
        default_factory=list
    )  # (stream id, encoded ResponseHeader): the shell streams the database to these
    tasks: list[OffloadedTask] = field(default_factory=list)
    services: list[ServiceCall] = field(default_factory=list)  # locks, elections: the shell's
    responses: list[Response] = field(default_factory=list)  # to requests

    @property
    def is_empty(self) -> bool:
        """Whether nothing must leave."""
        return not (
            self.replies
            or self.deliveries
            or self.ends
            or self.snapshots
            or self.tasks
            or self.services
            or self.responses
        )
