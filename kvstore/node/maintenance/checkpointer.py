"""Checkpoints: commits of the database, snapshots of the log, trimming of the log.

    commit    every 100 ms, N rows or 32 MiB: applied index, term and configuration with the data
    snapshot  every snapshot-count entries: commit, snapshot file, record in the log; then the
              segments before it may go, and memory keeps only the catch-up entries

A single member has no others to catch up: it keeps ALONE_ENTRIES, and a member that joins begins
with a snapshot.

Rule: a log entry may be dropped only when its effect is in the database on disk, so the commit
always comes first.
"""

import json
from typing import Final

from kvstore.backend import Table
from kvstore.failpoints import hit
from kvstore.meta_rows import (
    CONF_STATE_KEY,
    CONSISTENT_INDEX_KEY,
    STORAGE_VERSION_KEY,
    TERM_KEY,
)
from kvstore.node.parts import Parts
from kvstore.raft.model import ConfState
from kvstore.types import MIN_CLUSTER_VERSION

# Of the 64 MiB kept back for the database, one step may be used before the disk is known to be
# full, and then a commit and the one that is under way: there must be room for deletes after that.
COMMIT_BYTES_MAX: Final = 8 << 20
ALONE_ENTRIES: Final = 100  # kept in memory where there is no other member
TRIM_ENTRIES: Final = 64  # dropped from memory a turn, besides twice those that came
TRIM_BYTES: Final = 16 << 20
SNAPSHOT_RETRY_NS: Final = 1_000_000_000
LARGE_BYTES: Final = 16 << 10  # of an entry; above it, freed memory is returned to the system


class Checkpointer:
    """Commits and trims, a bounded piece a turn."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._snapshot_index = parts.raft.first_index - 1  # the log begins after its snapshot
        self._snapshot_retry_ns = 0  # not before, after one that could not be written
        self._committed_ns = 0
        self._committed_bytes = parts.state.store.written_bytes
        self._committed_index = parts.raft.applied
        self._written_index = parts.raft.applied  # in the open transaction
        self._conf_state: ConfState | None = None
        self._cluster_version: str | None = None  # that the storage version was last computed from
        self._purge_ns = 0
        self._retained_index: int | None = None
        self._trim_index = 0  # entries up to here are to be dropped from memory
        self._seen_index = parts.raft.applied  # at the last step

    def retain_log_after(self, index: int | None) -> None:
        """Keep all entries after index in memory; None: none is needed."""
        self._retained_index = index

    def installed(self, index: int) -> None:
        """Note that a received snapshot is the state now, committed and in the log."""
        self._snapshot_index = self._committed_index = self._written_index = index
        self._conf_state = None

    def step(self, now_ns: int, *, must_commit: bool) -> int | None:
        """Do what is due; return when more is due (None: not before something else happens)."""
        parts, limits = self._parts, self._parts.limits
        applied = parts.raft.applied
        if parts.state.membership.cluster_version != self._cluster_version:
            self._write_storage_version()
        lowered = parts.state.membership.was_lowered and applied > self._snapshot_index
        is_due = lowered or applied - self._snapshot_index > limits.snapshot_count
        # A snapshot's file needs space; the log keeps all until then.
        if is_due and not parts.host.room.is_short and now_ns >= self._snapshot_retry_ns:
            self._snapshot(now_ns)
        first_index = max(parts.raft.first_index, self._trim_index)
        kept = self._kept_entries()
        if applied - first_index > 2 * kept:
            self._trim_index = applied - kept
        is_trimming = self._trim(applied)
        if now_ns >= self._purge_ns:
            self._purge_ns = now_ns + limits.purge_interval_ns
            parts.replication.snapshots.purge()
        ops = parts.state.backend.pending_ops()
        is_dirty = ops > 0 or applied > self._committed_index
        due_ns = self._committed_ns + limits.commit_interval_ns
        is_large = parts.state.store.written_bytes - self._committed_bytes >= COMMIT_BYTES_MAX
        if (
            must_commit
            or is_large
            or ops >= limits.commit_ops_max
            or (is_dirty and now_ns >= due_ns)
        ):
            self.commit(now_ns)
            return now_ns if is_trimming else None
        if is_trimming:
            return now_ns
        return due_ns if is_dirty else None

    def commit(self, now_ns: int) -> None:
        """Make everything applied durable in the database, with its applied index."""
        hit("commitBeforePreCommitHook")
        self.write_applied()
        hit("commitAfterPreCommitHook")
        self._parts.state.backend.commit()
        self._committed_ns = now_ns
        self._committed_bytes = self._parts.state.store.written_bytes
        self._committed_index = self._parts.raft.applied

    def write_applied(self) -> None:
        """Write the applied index, term and configuration beside the rows applied so far.

        Must be called before every commit of the backend, or a restart applies entries twice.
        """
        parts = self._parts
        raft, backend = parts.raft, parts.state.backend
        parts.state.store.flush()
        applied = raft.applied
        if applied > self._written_index:
            backend.put(Table.META, CONSISTENT_INDEX_KEY, applied.to_bytes(8, "big"))
            backend.put(Table.META, TERM_KEY, raft.applied_term.to_bytes(8, "big"))
        conf_state = raft.conf_state
        if conf_state != self._conf_state:
            backend.put(Table.META, CONF_STATE_KEY, _conf_state_json(conf_state))
            self._conf_state = conf_state
        self._write_storage_version()
        self._written_index = applied

    def _write_storage_version(self) -> None:
        """Set the storage version to the cluster version, as each etcd member does."""
        parts = self._parts
        version = self._cluster_version = parts.state.membership.cluster_version
        if version is None or version == MIN_CLUSTER_VERSION:
            return
        if parts.state.backend.get(Table.META, STORAGE_VERSION_KEY) != version.encode():
            parts.state.backend.put(Table.META, STORAGE_VERSION_KEY, version.encode())

    def _snapshot(self, now_ns: int) -> None:
        parts = self._parts
        raft = parts.raft
        applied = raft.applied
        self.commit(now_ns)
        metadata = raft.create_snapshot_metadata(applied)
        if not parts.replication.snapshots.save(metadata, parts.state.membership):
            self._snapshot_retry_ns = now_ns + SNAPSHOT_RETRY_NS
            return
        # After the cluster version was lowered, older log entries must not be needed again.
        parts.state.membership.was_lowered = False
        parts.logger.info("saved snapshot", snapshot_index=applied)
        self._snapshot_index = applied
        self._trim_index = applied - self._kept_entries()

    def _kept_entries(self) -> int:
        """Return how many applied entries are kept for members that are behind."""
        most = self._parts.limits.snapshot_catchup_entries
        members = self._conf_state  # as last committed: an older one costs a snapshot at most
        if members is None or len(members.voters) + len(members.learners) != 1:
            return most
        return most if members.voters_outgoing else min(most, ALONE_ENTRIES)

    def _trim(self, applied: int) -> bool:
        """Drop some of the entries that need not stay in memory; return whether there are more.

        Entries may be large: to free a gigabyte of them at once takes a tenth of a second. Where
        too many have gathered, all that the number of entries allows are dropped.
        """
        raft = self._parts.raft
        arrived, self._seen_index = applied - self._seen_index, applied
        index = self._trim_index
        if self._retained_index is not None:
            index = min(index, self._retained_index)
        first_index = raft.first_index
        if index <= first_index:
            return False
        is_behind = index - first_index > 2 * self._kept_entries()
        end = min(index, first_index + TRIM_ENTRIES + 2 * arrived)
        freed_bytes = raft.compact(end, None if is_behind else TRIM_BYTES)
        if freed_bytes > (raft.first_index - first_index) * LARGE_BYTES:
            self._parts.host.on_freed(freed_bytes)
        return raft.first_index <= index


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
