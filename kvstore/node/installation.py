"""A snapshot of the leader's takes the place of everything this member has applied.

    record the snapshot in the log ─► save its commit index, synced ─► the received database becomes
    the state ─► every room reads it anew ─► watchers are caught up from its history

Up to the second step a crash leaves the old state, from then on the new one (see SnapshotKeeper).
Watchers lose nothing: what happened between the two states is in the new one's history, or they
are told that it was compacted. Who waits for an entry that the snapshot covers is told that nobody
here can know what came of it.
"""

from kvstore.batch import Outbox
from kvstore.errors import TIMEOUT_LEADER_FAIL
from kvstore.failpoints import hit
from kvstore.node.parts import Parts
from kvstore.node.submission import refuse
from kvstore.node.upkeep.maintenance import Maintenance
from kvstore.node.upkeep.upkeep import Upkeep
from kvstore.raft.model import Snapshot
from kvstore.raft.ready import Ready
from kvstore.wire.v2_members import decode_v2_members
from kvstore.wire.varint import WireError


class Installation:
    """Takes received snapshots."""

    def __init__(self, parts: Parts, upkeep: Upkeep, maintenance: Maintenance) -> None:
        self._parts = parts
        self._upkeep = upkeep
        self._maintenance = maintenance

    def install(self, snapshot: Snapshot, ready: Ready, out: Outbox) -> None:
        """Take the snapshot of a round; what is applied up to now is published already."""
        parts = self._parts
        index, term = snapshot.metadata.index, snapshot.metadata.term
        about = {
            "current_applied_index": parts.raft.applied,
            "incoming_leader_snapshot_index": index,
            "incoming_leader_snapshot_term": term,
        }
        parts.logger.info("applying snapshot", **about)
        hit("raftBeforeSaveSnap")
        parts.snapshots.record(snapshot)
        hit("raftAfterSaveSnap")
        hit("raftBeforeSave")
        parts.log.save(ready.hard_state, ready.entries, sync=True)
        hit("raftAfterSave")
        hit("raftBeforeApplySnap")
        hit("applyBeforeOpenSnapshot")
        parts.snapshots.install(index)
        hit("applyAfterOpenSnapshot")
        hit("raftAfterWALRelease")
        self._restore()
        self._correct_members(snapshot)
        self._upkeep.installed(index)
        hit("raftAfterApplySnap")
        self._maintenance.restart()
        refuse(parts, parts.pending.forget_up_to(index), TIMEOUT_LEADER_FAIL, out)
        parts.logger.info("applied snapshot", **about)

    def _correct_members(self, snapshot: Snapshot) -> None:
        """Believe what came with the snapshot: the rows of an etcd 3.5 may be wrong."""
        parts = self._parts
        try:
            known = decode_v2_members(snapshot.data)
        except WireError as error:
            parts.logger.warning("members of a snapshot are those of its rows", error=str(error))
            return
        wrong = parts.membership.correct(known)
        if wrong:
            members = [f"{each:x}" for each in wrong]
            parts.logger.info("corrected rows of members by the snapshot", members=members)

    def _restore(self) -> None:
        parts = self._parts
        for key, lease in parts.lessor.restore(parts.store.restore()):
            parts.logger.warning(
                "key of a lease that does not exist", key=key, lease=f"{lease:016x}"
            )
        parts.alarms.restore()
        parts.membership.restore()
        parts.auth.restore()
