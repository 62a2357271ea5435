"""Keeps the store within its limits: automatic compaction, and the end of the NOSPACE alarm."""

from typing import Final

from kvstore.node.internal_requests import propose
from kvstore.node.parts import Parts
from kvstore.node.upkeep.autocompaction import AutoCompaction, auto_compaction
from kvstore.node.upkeep.space import Space
from kvstore.units import MILLISECOND_NS
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field

CHECK_INTERVAL_NS: Final = 50 * MILLISECOND_NS  # turns are far more frequent


class Housekeeping:
    """Proposes compactions and the end of this member's NOSPACE alarm."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._alarm = (parts.member_id, int(pb.AlarmType.NOSPACE))
        self._space = Space(
            parts.logger, parts.quota.limit_bytes, is_alarmed=parts.alarms.is_raised(self._alarm)
        )
        self._compaction: AutoCompaction | None = (
            None  # made in the first turn, when its time begins
        )
        self._check_ns = 0

    def step(self, now_ns: int, *, leads: bool) -> None:
        """Propose what is due."""
        if now_ns < self._check_ns:
            return
        self._check_ns = now_ns + CHECK_INTERVAL_NS
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
            body = pb.CompactionRequest(revision=revision).SerializeToString()
            propose(parts, Field.COMPACTION, body)
        if parts.quota.was_exceeded:
            self._space.ran_out()
        is_alarmed = parts.alarms.no_space and parts.alarms.is_raised(self._alarm)
        if self._space.step(now_ns, parts.backend.size_in_use_bytes(), is_alarmed=is_alarmed):
            request = pb.AlarmRequest(
                action=pb.AlarmRequest.DEACTIVATE,
                memberID=parts.member_id,
                alarm=pb.AlarmType.NOSPACE,
            )
            propose(parts, Field.ALARM, request.SerializeToString())

    def due_ns(self) -> list[int]:
        """Return the times when step has something to do even if nothing else happens."""
        compaction, alarms = self._compaction, self._parts.alarms
        due = []
        if compaction is not None and compaction.next_ns is not None:
            due.append(max(compaction.next_ns, self._check_ns))
        if alarms.no_space:
            space_ns = self._space.next_ns(is_alarmed=alarms.is_raised(self._alarm))
            if space_ns is not None:
                due.append(max(space_ns, self._check_ns))
        return due
