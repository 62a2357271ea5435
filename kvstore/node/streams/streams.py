"""Streams of messages: watches go to the hub, lease keep-alives to KeepAlives.

Messages are handled after the turn's applies, so a keep-alive sees a lease granted in the same
batch. A stream whose client requires a leader ("hasleader") is refused while there is none, and
ended when there has been none for long. A learner serves no streams.
"""

from collections.abc import Iterable

from kvstore.batch import AS_PEER, HAS_LEADER, Inbox, Outbox
from kvstore.errors import LEARNER_NOT_SUPPORTED, NO_LEADER, Refusal
from kvstore.node.auth.checker import AuthChecker
from kvstore.node.cluster.leadership import Leadership
from kvstore.node.parts import Parts
from kvstore.node.streams.keep_alives import KeepAlives
from kvstore.raft.model import NO_NODE
from kvstore.wire import rpc

SERVED = frozenset({rpc.WATCH, rpc.LEASE_KEEP_ALIVE})


class Streams:
    """The open streams of messages."""

    def __init__(self, parts: Parts, leadership: Leadership, checker: AuthChecker) -> None:
        self._parts = parts
        self._leadership = leadership
        self._checker = checker
        self._keep_alives = KeepAlives(parts, leadership, checker)
        self._need_leader: dict[int, None] = {}

    def open(self, inbox: Inbox, out: Outbox) -> None:
        """Open the streams of the inbox."""
        for stream_id, method in inbox.opened:
            metadata = inbox.metadata.get(stream_id, {})
            needs_leader = metadata.get(HAS_LEADER) == "true"
            refusal = self._refusal(needs_leader=needs_leader)
            if refusal is not None:
                out.end(stream_id, refusal)
                continue
            if needs_leader:
                self._need_leader[stream_id] = None
            if method == rpc.WATCH:
                self._parts.state.hub.open(stream_id, inbox.now_ns)
            else:
                self._keep_alives.open(stream_id, for_peer=metadata is AS_PEER)

    def _refusal(self, *, needs_leader: bool) -> Refusal | None:
        parts = self._parts
        if parts.replication.fence.refusal is not None:
            return parts.replication.fence.refusal
        member = parts.state.membership.members.get(parts.member_id)
        if member is not None and member.is_learner:
            return LEARNER_NOT_SUPPORTED
        return NO_LEADER if needs_leader and parts.raft.lead == NO_NODE else None

    @property
    def is_waiting(self) -> bool:
        """Whether keep-alives wait for something that is to be applied or confirmed."""
        return self._keep_alives.is_waiting

    def close(self, stream_id: int) -> None:
        """Forget a stream whose client went away."""
        if not self._keep_alives.close(stream_id):
            self._parts.state.hub.close(stream_id)
        self._need_leader.pop(stream_id, None)
        self._checker.forget(stream_id)

    def receive(self, inbox: Inbox, out: Outbox) -> None:
        """Handle the messages of all streams."""
        hub, now_ns = self._parts.state.hub, inbox.now_ns
        keep_alives = self._keep_alives
        fenced = self._parts.replication.fence.refusal
        if fenced is not None:
            for stream_id in [*hub.stream_ids(), *keep_alives.stream_ids()]:
                self._end(stream_id, fenced, out)
            return
        frames = inbox.frames
        if frames and keep_alives:
            frames, refused = keep_alives.receive(frames, now_ns, out)
            for stream_id, reason in refused:
                self._end(stream_id, reason, out)
        for stream_id, body in frames:
            refusal = hub.request(stream_id, body, now_ns, out.deliveries)
            if refusal is not None:
                self._end(stream_id, refusal, out)
        for stream_id in inbox.half_closed:
            # A watch stream stays open when its client has sent its last request.
            if stream_id in keep_alives:
                keep_alives.half_close(stream_id)
        for stream_id, end in keep_alives.step(now_ns, out):
            self._end(stream_id, end, out)
        if self._need_leader and self._leadership.is_lost(now_ns):
            self._end_all(list(self._need_leader), out)

    def _end_all(self, stream_ids: Iterable[int], out: Outbox) -> None:
        for stream_id in stream_ids:
            self._end(stream_id, NO_LEADER, out)

    def _end(self, stream_id: int, refusal: Refusal | None, out: Outbox) -> None:
        out.end(stream_id, refusal)
        self.close(stream_id)
