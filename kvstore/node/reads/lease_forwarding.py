"""Questions about leases to the leader, who alone counts them down: renewals and times to live.

    Question ──► task: POST to the leader's peer port ──► answer, "no such lease", or a failure
                     ▲                                                                  │
                     └──────────────────────────── 50 ms ───────────────────────────────┘

A question ends with the request timeout. Asking twice does no harm: a renewal gives a lease its
full time, however often. Who may ask is judged before.
"""

from typing import Final

from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import LEASE_NOT_FOUND, NO_LEADER, TIMEOUT, Refusal
from kvstore.node.limits import MILLISECOND_NS
from kvstore.node.parts import Parts
from kvstore.raft.model import NO_NODE

RENEW: Final = b"/leases"
TIME_TO_LIVE: Final = b"/leases/internal"
_AGAIN_NS: Final = 50 * MILLISECOND_NS
_NOT_FOUND: Final = "HTTP 404"


class Question:
    """One question and, in time, its answer."""

    __slots__ = ("_is_away", "_tried_ns", "answer", "body", "path", "since_ns")

    def __init__(self, path: bytes, body: bytes, since_ns: int) -> None:
        self.path = path
        self.body = body
        self.since_ns = since_ns
        self.answer: bytes | Refusal | None = None
        self._is_away = False
        self._tried_ns = since_ns - _AGAIN_NS

    def step(self, parts: Parts, now_ns: int) -> bytes | Refusal | None:
        """Return the leader's answer, or why there will be none; None: not yet.

        Not to be called while this member leads.
        """
        if self.answer is not None:
            return self.answer
        lead = parts.raft.lead
        if now_ns - self.since_ns >= parts.limits.request_timeout_ns:
            return NO_LEADER if lead == NO_NODE else TIMEOUT
        if not self._is_away and lead != NO_NODE and now_ns - self._tried_ns >= _AGAIN_NS:
            self._is_away = True
            self._tried_ns = now_ns
            args = (f"{lead:x}".encode(), self.path, self.body)
            parts.tasks.ask(TaskKind.POST_PEER, args, self._take)
        return None

    def _take(self, result: TaskResult, _out: Outbox) -> None:
        self._is_away = False
        if not result.error:
            self.answer = result.body
        elif result.error.startswith(_NOT_FOUND):
            self.answer = LEASE_NOT_FOUND
