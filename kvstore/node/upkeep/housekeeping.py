"""What keeps the store in its bounds by itself: automatic compaction, and an eye on the quota."""

from collections.abc import Callable
from typing import Final

from kvstore.node.limits import MILLISECOND_NS
from kvstore.node.parts import Parts
from kvstore.node.upkeep.autocompaction import AutoCompaction, auto_compaction
from kvstore.node.upkeep.space import Space
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field

LOOK_INTERVAL_NS: Final = 50 * MILLISECOND_NS  # turns come far more often
Propose = Callable[[int, bytes], None]  # (field of InternalRaftRequest, body)


class Housekeeping:
    """Proposes compactions and the end of this member's NOSPACE alarm."""

    def __init__(self, parts: Parts, propose: Propose) -> None:
        self._parts = parts
        self._propose = propose
        self._alarm = (parts.member_id, int(pb.AlarmType.NOSPACE))
        self._space = Space(
            parts.logger, parts.quota.limit_bytes, is_alarmed=parts.alarms.is_raised(self._alarm)
        )
        self._compaction: AutoCompaction | None = None  # its time begins with the first turn
        self._look_ns = 0

    def step(self, now_ns: int, *, leads: bool) -> None:
        """Propose what is due."""
        if now_ns < self._look_ns:
            return
        self._look_ns = now_ns + LOOK_INTERVAL_NS
        parts = self._parts
        compaction = self._compaction
        if compaction is None:
            limits = parts.limits
            compaction = self._compaction = auto_compaction(
                limits.auto_compaction_mode, limits.auto_compaction_retention, now_ns
            )
        store = parts.store
        revision = compaction.step(now_ns, store.revision, store.compacted, leads=leads)
        if revision:
            parts.logger.info(
                f"starting auto {parts.limits.auto_compaction_mode} compaction", revision=revision
            )
            self._propose(
                Field.COMPACTION, pb.CompactionRequest(revision=revision).SerializeToString()
            )
        if parts.quota.was_exceeded:
            self._space.ran_out()
        is_alarmed = parts.alarms.no_space and parts.alarms.is_raised(self._alarm)
        if self._space.step(now_ns, parts.backend.size_in_use_bytes(), is_alarmed=is_alarmed):
            request = pb.AlarmRequest(
                action=pb.AlarmRequest.DEACTIVATE,
                memberID=parts.member_id,
                alarm=pb.AlarmType.NOSPACE,
            )
            self._propose(Field.ALARM, request.SerializeToString())

    def due_ns(self) -> list[int]:
        """Return when to come back, besides whenever something happens."""
        compaction, alarms = self._compaction, self._parts.alarms
        due = []
        if compaction is not None and compaction.next_ns is not None:
            due.append(max(compaction.next_ns, self._look_ns))
        if alarms.no_space:
            space_ns = self._space.next_ns(is_alarmed=alarms.is_raised(self._alarm))
            if space_ns is not None:
                due.append(max(space_ns, self._look_ns))
        return due
