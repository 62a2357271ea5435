"""Requests about leases forwarded to the leader, which alone counts them down.

    LeaderRequest ──► task: POST to the leader's peer port ──► answer, "no such lease", or a failure
                          ▲                                                               │
                          └───────────────────────── 50 ms ───────────────────────────────┘

A request is retried until the request timeout. A retry does no harm: a renewal gives a lease its
full TTL, however often. Permissions are checked before.
"""

from typing import Final

from kvstack.component.units import MILLISECOND_NS
from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import LEASE_NOT_FOUND, NO_LEADER, TIMEOUT, Refusal
from kvstore.node.parts import Parts
from kvstore.raft.model import NO_NODE

RENEW: Final = b"/leases"
TIME_TO_LIVE: Final = b"/leases/internal"
_RETRY_NS: Final = 50 * MILLISECOND_NS
_NOT_FOUND: Final = "HTTP 404"


class LeaderRequest:
    """One request and, later, its answer."""

    __slots__ = ("_is_sent", "_tried_ns", "answer", "body", "path", "since_ns")

    def __init__(self, path: bytes, body: bytes, since_ns: int) -> None:
        self.path = path
        self.body = body
        self.since_ns = since_ns
        self.answer: bytes | Refusal | None = None
        self._is_sent = False
        self._tried_ns = since_ns - _RETRY_NS

    def step(self, parts: Parts, now_ns: int) -> bytes | Refusal | None:
        """Return the leader's answer, or why there is none; None: not yet.

        Not to be called while this member leads.
        """
        if self.answer is not None:
            return self.answer
        lead = parts.raft.lead
        if now_ns - self.since_ns >= parts.limits.request_timeout_ns:
            return NO_LEADER if lead == NO_NODE else TIMEOUT
        if not self._is_sent and lead != NO_NODE and now_ns - self._tried_ns >= _RETRY_NS:
            self._is_sent = True
            self._tried_ns = now_ns
            args = (f"{lead:x}".encode(), self.path, self.body)
            parts.host.tasks.ask(TaskKind.POST_PEER, args, self._handle_result)
        return None

    def _handle_result(self, result: TaskResult, _out: Outbox) -> None:
        self._is_sent = False
        if not result.error:
            self.answer = result.body
        elif result.error.startswith(_NOT_FOUND):
            self.answer = LEASE_NOT_FOUND
