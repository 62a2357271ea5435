"""Keeps the store within its limits: automatic compaction, and the NOSPACE alarm of this member."""

from typing import Final

from kvstack.component.units import MILLISECOND_NS
from kvstore.node.internal_requests import propose
from kvstore.node.maintenance.autocompaction import AutoCompaction, auto_compaction
from kvstore.node.maintenance.disk_alarm import DiskAlarm
from kvstore.node.maintenance.quota_alarm import QuotaAlarm
from kvstore.node.parts import Parts
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field

CHECK_INTERVAL_NS: Final = 50 * MILLISECOND_NS  # turns are far more frequent


class MaintenanceProposals:
    """Proposes compactions, and this member's NOSPACE alarm and its end."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._alarm = (parts.member_id, int(pb.AlarmType.NOSPACE))
        self._quota_alarm = QuotaAlarm(
            parts.logger,
            parts.state.quota.limit_bytes,
            is_alarmed=parts.state.alarms.is_raised(self._alarm),
        )
        self._disk = DiskAlarm(parts.logger, parts.host.room)
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
        store = parts.state.store
        revision = compaction.step(now_ns, store.revision, store.compacted, leads=leads)
        if revision:
            parts.logger.info(
                f"starting auto {parts.limits.auto_compaction_mode} compaction", revision=revision
            )
            body = pb.CompactionRequest(revision=revision).SerializeToString()
            propose(parts, Field.COMPACTION, body)
        if parts.state.quota.was_exceeded:
            self._quota_alarm.ran_out()
        is_alarmed = parts.state.alarms.no_space and parts.state.alarms.is_raised(self._alarm)
        has_room = not parts.host.room.is_short
        in_use_bytes = parts.state.backend.size_in_use_bytes()
        ends = self._quota_alarm.step(now_ns, in_use_bytes, is_alarmed=is_alarmed and has_room)
        raises = self._disk.step(
            now_ns, is_alarmed=is_alarmed, is_over_quota=self._quota_alarm.keeps_alarm
        )
        if ends or raises is not None:
            self._propose_alarm(raises=bool(raises))

    def _propose_alarm(self, *, raises: bool) -> None:
        action = pb.AlarmRequest.ACTIVATE if raises else pb.AlarmRequest.DEACTIVATE
        request = pb.AlarmRequest(
            action=action, memberID=self._parts.member_id, alarm=pb.AlarmType.NOSPACE
        )
        propose(self._parts, Field.ALARM, request.SerializeToString())

    def due_ns(self) -> list[int]:
        """Return the times when step has something to do even if nothing else happens."""
        compaction, alarms = self._compaction, self._parts.state.alarms
        due = []
        if compaction is not None and compaction.next_ns is not None:
            due.append(max(compaction.next_ns, self._check_ns))
        if alarms.no_space:
            quota_ns = self._quota_alarm.next_ns(is_alarmed=alarms.is_raised(self._alarm))
            if quota_ns is not None:
                due.append(max(quota_ns, self._check_ns))
        return due
