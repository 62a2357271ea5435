"""Upkeep: commits of the database, snapshots of the log, trimming of both.

    commit    every 100 ms or N rows: applied index, term and configuration with the data
    snapshot  every snapshot-count entries: commit, snapshot file, record in the log, then
              segments before it are free and memory keeps only the catch-up entries

A log entry may be dropped only when the database on disk holds what it did: the commit always
comes first.
"""

import json

from kvstore.failpoints import hit
from kvstore.mvcc.backend import Table
from kvstore.mvcc.meta_rows import (
    CONF_STATE_KEY,
    CONSISTENT_INDEX_KEY,
    STORAGE_VERSION_KEY,
    TERM_KEY,
)
from kvstore.node.parts import Parts
from kvstore.raft.model import ConfState
from kvstore.types import MIN_CLUSTER_VERSION


class Upkeep:
    """Keeps disk and memory in shape, a bounded piece a turn."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._snapshot_index = parts.raft.first_index - 1  # the log begins after its snapshot
        self._committed_ns = 0
        self._committed_index = parts.raft.applied
        self._stamped_index = parts.raft.applied
        self._conf_state: ConfState | None = None
        self._purge_ns = 0
        self._kept_index: int | None = None

    def keep_log_after(self, index: int | None) -> None:
        """Let no entry after index go from memory; None: none is needed."""
        self._kept_index = index

    def installed(self, index: int) -> None:
        """Take note that a received snapshot is the state now, committed and in the log."""
        self._snapshot_index = self._committed_index = self._stamped_index = index
        self._conf_state = None

    def step(self, now_ns: int, *, must_commit: bool) -> int | None:
        """Do what is due; return when to come back (None: not before something else happens)."""
        parts, limits = self._parts, self._parts.limits
        applied = parts.raft.applied
        lowered = parts.membership.was_lowered and applied > self._snapshot_index
        if lowered or applied - self._snapshot_index > limits.snapshot_count:
            # After a lower cluster version, what stands in the log before must not be needed again.
            parts.membership.was_lowered = False
            self._snapshot(now_ns)
        elif applied - parts.raft.first_index > 2 * limits.snapshot_catchup_entries:
            self._compact(applied - limits.snapshot_catchup_entries)
        if now_ns >= self._purge_ns:
            self._purge_ns = now_ns + limits.purge_interval_ns
            parts.snapshots.purge()
        ops = parts.backend.pending_ops()
        is_dirty = ops > 0 or applied > self._committed_index
        due_ns = self._committed_ns + limits.commit_interval_ns
        if must_commit or ops >= limits.commit_ops_max or (is_dirty and now_ns >= due_ns):
            self.commit(now_ns)
            return None
        return due_ns if is_dirty else None

    def commit(self, now_ns: int) -> None:
        """Make everything applied durable in the database, with the index it stands for."""
        hit("commitBeforePreCommitHook")
        self.stamp()
        hit("commitAfterPreCommitHook")
        self._parts.backend.commit()
        self._committed_ns = now_ns
        self._committed_index = self._parts.raft.applied

    def stamp(self) -> None:
        """Put the index, and what else goes with the rows applied so far, beside them.

        Whatever commits the backend must have this done before, or a restart applies them twice.
        """
        parts = self._parts
        raft, backend = parts.raft, parts.backend
        parts.store.flush()
        applied = raft.applied
        if applied > self._stamped_index:
            backend.put(Table.META, CONSISTENT_INDEX_KEY, applied.to_bytes(8, "big"))
            backend.put(Table.META, TERM_KEY, raft.applied_term.to_bytes(8, "big"))
        conf_state = raft.conf_state
        if conf_state != self._conf_state:
            backend.put(Table.META, CONF_STATE_KEY, _conf_state_json(conf_state))
            self._conf_state = conf_state
        self._note_storage_version()
        self._stamped_index = applied

    def _note_storage_version(self) -> None:
        """Let the storage version follow the cluster version, as each etcd member does."""
        parts = self._parts
        version = parts.membership.cluster_version
        if version is None or version == MIN_CLUSTER_VERSION:
            return
        if parts.backend.get(Table.META, STORAGE_VERSION_KEY) != version.encode():
            parts.backend.put(Table.META, STORAGE_VERSION_KEY, version.encode())

    def _snapshot(self, now_ns: int) -> None:
        parts = self._parts
        raft = parts.raft
        applied = raft.applied
        self.commit(now_ns)
        metadata = raft.create_snapshot_metadata(applied)
        parts.snapshots.save(metadata, parts.membership)
        parts.logger.info("saved snapshot", snapshot_index=applied)
        self._snapshot_index = applied
        self._compact(applied - parts.limits.snapshot_catchup_entries)

    def _compact(self, index: int) -> None:
        """Forget entries up to index, but for those a member on its way up will need."""
        raft = self._parts.raft
        if self._kept_index is not None:
            index = min(index, self._kept_index)
        if index > raft.first_index:
            raft.compact(index)


def _conf_state_json(state: ConfState) -> bytes:
    """Return the configuration as etcd writes it in the meta table."""
    fields: dict[str, list[int] | bool] = {}
    if state.voters:
        fields["voters"] = list(state.voters)
    if state.learners:
        fields["learners"] = list(state.learners)
    if state.voters_outgoing:
        fields["voters_outgoing"] = list(state.voters_outgoing)
    if state.learners_next:
        fields["learners_next"] = list(state.learners_next)
    fields["auto_leave"] = state.auto_leave
    return json.dumps(fields, separators=(",", ":")).encode()
