"""Installs a leader's snapshot: it replaces everything this member has applied.

    record the snapshot in the log ─► save its commit index, synced ─► the received database becomes
    the state ─► every component reads it again ─► watchers are caught up from its history

Until the second step is done a crash leaves the old state, from then on the new one (see
SnapshotKeeper). Watchers lose nothing: what happened between the two states is in the new one's
history, or they are canceled because it was compacted. A waiter for an entry that the snapshot
covers is answered that the outcome is unknown.
"""

from kvstore.batch import Outbox
from kvstore.errors import TIMEOUT_LEADER_FAIL
from kvstore.failpoints import hit
from kvstore.node.maintenance.checkpointer import Checkpointer
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.submission import refuse
from kvstore.raft.model import Snapshot
from kvstore.raft.ready import Ready
from kvstore.wire.v2_members import decode_v2_members
from kvstore.wire.varint import WireError


class Installation:
    """Installs received snapshots."""

    def __init__(self, parts: Parts, checkpointer: Checkpointer, jobs: LongJobs) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._jobs = jobs

    def install(self, snapshot: Snapshot, ready: Ready, out: Outbox) -> None:
        """Install the snapshot of a Ready; events of what is applied have been published."""
        parts = self._parts
        index, term = snapshot.metadata.index, snapshot.metadata.term
        about = {
            "current_applied_index": parts.raft.applied,
            "incoming_leader_snapshot_index": index,
            "incoming_leader_snapshot_term": term,
        }
        parts.logger.info("applying snapshot", **about)
        hit("raftBeforeSaveSnap")
        parts.replication.snapshots.record(snapshot)
        hit("raftAfterSaveSnap")
        hit("raftBeforeSave")
        parts.replication.log.save(ready.hard_state, ready.entries, sync=True)
        hit("raftAfterSave")
        hit("raftBeforeApplySnap")
        hit("applyBeforeOpenSnapshot")
        parts.replication.snapshots.install(index)
        hit("applyAfterOpenSnapshot")
        hit("raftAfterWALRelease")
        self._restore()
        self._correct_members(snapshot)
        self._checkpointer.installed(index)
        hit("raftAfterApplySnap")
        self._jobs.restart()
        refuse(parts, parts.replication.pending.forget_up_to(index), TIMEOUT_LEADER_FAIL, out)
        parts.logger.info("applied snapshot", **about)

    def _correct_members(self, snapshot: Snapshot) -> None:
        """Set the members from the snapshot's data: the rows of etcd 3.5 may be wrong."""
        parts = self._parts
        try:
            known = decode_v2_members(snapshot.data)
        except WireError as error:
            parts.logger.warning("using the members of the snapshot's rows", error=str(error))
            return
        wrong = parts.state.membership.correct(known)
        if wrong:
            members = [f"{each:x}" for each in wrong]
            parts.logger.info("corrected rows of members by the snapshot", members=members)

    def _restore(self) -> None:
        parts = self._parts
        for key, lease in parts.state.lessor.restore(parts.state.store.restore()):
            parts.logger.warning(
                "key of a lease that does not exist", key=key, lease=f"{lease:016x}"
            )
        parts.state.alarms.restore()
        parts.state.membership.restore()
        parts.state.auth.restore()
