"""Work that takes many turns: hashes, physical compactions, defragmentation, snapshots.

Hashes and compactions read the key table one at a time: a hash must not see half a compaction. Each
turn does one slice of the running job; requests never wait for the rest. Defragmentation copies
beside them (see the backend).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kvstack.component.units import MILLISECOND_NS
from kvstore.batch import Outbox
from kvstore.errors import Code, DefragmentError, Refusal
from kvstore.mvcc.hashing import HashAllJob, HashJob, HashResult
from kvstore.node.maintenance.checkpointer import Checkpointer
from kvstore.node.parts import Parts
from kvstore.wire.gen import rpc_pb2 as pb

# Between two steps of a copy that other threads write: they need the interpreter too.
_DEFRAGMENT_PAUSE_NS: Final = 2 * MILLISECOND_NS

HashCallback = Callable[[HashResult | Refusal], None]
_Requester = int | HashCallback  # a call, or a callback: a hash in the background


class LongJobs:
    """The long work of one member, and the calls that wait for it."""

    def __init__(self, parts: Parts, checkpointer: Checkpointer) -> None:
        self._parts = parts
        self._checkpointer = checkpointer
        self._hashes: deque[tuple[_Requester, int | None]] = (
            deque()
        )  # (waiter, revision; None: all)
        self._running: tuple[_Requester, int | None, HashJob | HashAllJob] | None = None
        self._hash_due_ns = 0  # the next slice of a hash in the background
        self._compactions: list[int] = []  # calls that wait for the physical compaction
        self._defragments: list[int] = []  # calls that wait for the running defragmentation
        self._next_defragments: list[int] = []
        self._snapshots: list[int] = []
        self._is_compacting = False
        self._compaction_due_ns = 0
        self._hash_ns = 0  # spent on the running hash

    # Calls.

    def hash(self, call_id: int) -> None:
        """Add a Hash call."""
        self._hashes.append((call_id, None))

    def hash_kv(self, call_id: int, revision: int) -> None:
        """Add a HashKV call."""
        self._hashes.append((call_id, revision))

    def hash_newest(self, callback: HashCallback) -> None:
        """Hash in the background, after the waiting calls; callback gets the result.

        The revision is the newest one when the hash begins.
        """
        self._hashes.append((callback, 0))

    def snapshot(self, call_id: int) -> None:
        """Add a Snapshot call."""
        self._snapshots.append(call_id)

    def defragment(self, call_id: int) -> None:
        """Add a Defragment call; one that arrives while another runs waits for the next run."""
        self._next_defragments.append(call_id)

    def wait_for_compaction(self, call_id: int) -> None:
        """Add a Compact call that is answered once its rows are removed."""
        self._compactions.append(call_id)

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away; its work goes on."""
        for calls in (self._compactions, self._defragments, self._next_defragments):
            if call_id in calls:
                calls.remove(call_id)
        if call_id in self._snapshots:
            self._snapshots.remove(call_id)

    def restart(self) -> None:
        """Restart the running work: the state it read has been replaced."""
        if self._running is not None:
            requester, revision, job = self._running
            job.close()
            self._hashes.appendleft((requester, revision))
            self._running = None
        self._next_defragments = self._defragments + self._next_defragments
        self._defragments = []
        self._is_compacting |= bool(self._compactions)

    # The turn.

    @property
    def wants_commit(self) -> bool:
        """Whether a caller waits for the database on disk to be up to date."""
        return bool(self._snapshots)

    def take_snapshots(self, out: Outbox) -> None:
        """Put the Snapshot calls into the outbox; everything applied has just been committed."""
        out.snapshots += [(call_id, b"") for call_id in self._snapshots]
        self._snapshots = []

    def step(self, now_ns: int, out: Outbox, *, is_idle: bool) -> int | None:
        """Do a slice of each kind of work; return when the next is due (None: nothing to do)."""
        table_ns = self._step_table(now_ns, out, is_idle=is_idle)
        defragment_ns = self._step_defragment(now_ns, out)
        if table_ns is None or defragment_ns is None:
            return defragment_ns if table_ns is None else table_ns
        return min(table_ns, defragment_ns)

    def _step_table(self, now_ns: int, out: Outbox, *, is_idle: bool) -> int | None:
        """Hash or compact; a running job is finished before another kind begins."""
        store = self._parts.state.store
        self._is_compacting |= store.compaction_pending
        while self._running is None and self._hashes:
            self._start_hash(out)
        if self._running is not None:
            due_ns: int | None = self._step_hash(now_ns, out, is_idle=is_idle)
        else:
            due_ns = self._step_compaction(now_ns, is_idle=is_idle)
        # A hash job also drives a compaction that was due before it.
        if self._is_compacting and not store.compaction_pending:
            self._is_compacting = False
            self._finish_compaction(out)
        return due_ns

    def _step_hash(self, now_ns: int, out: Outbox, *, is_idle: bool) -> int:
        """Do a slice; a hash in the background pauses for requests, as compactions do."""
        assert self._running is not None
        requester, _, job = self._running
        if not isinstance(requester, int):
            if not is_idle and now_ns < self._hash_due_ns:
                return self._hash_due_ns
            self._hash_due_ns = now_ns + self._parts.limits.compaction_pause_ns
        clock = self._parts.counters.clock
        began_ns = clock()
        result = job.step(self._parts.limits.hash_rows)
        self._hash_ns += clock() - began_ns
        if result is not None:
            self._running = None
            self._answer_hash(requester, result, out)
        return now_ns

    def _step_compaction(self, now_ns: int, *, is_idle: bool) -> int | None:
        store, limits = self._parts.state.store, self._parts.limits
        if not store.compaction_pending:
            return None
        if is_idle or now_ns >= self._compaction_due_ns:
            self._compaction_due_ns = now_ns + limits.compaction_pause_ns
            counters = self._parts.counters
            began_ns = counters.clock()
            is_done = store.compaction_step(limits.compaction_rows)
            counters.note_compaction(counters.clock() - began_ns)
            if is_done:
                return None
        return now_ns if is_idle else self._compaction_due_ns

    def _start_hash(self, out: Outbox) -> None:
        requester, revision = self._hashes.popleft()
        store = self._parts.state.store
        if not isinstance(requester, int):
            revision = store.revision  # 0 could be answered with the hash of a compaction at 0
        job = store.hash_all() if revision is None else store.start_hash(revision)
        if isinstance(job, HashJob | HashAllJob):
            self._running = (requester, revision, job)
        elif isinstance(job, HashResult):
            self._answer_hash(requester, job, out)
        elif isinstance(requester, int):
            out.refuse(requester, job)
        else:
            requester(job)

    def _answer_hash(self, requester: _Requester, result: HashResult | int, out: Outbox) -> None:
        parts = self._parts
        parts.counters.note_hash(isinstance(result, HashResult), self._hash_ns)
        self._hash_ns = 0
        if not isinstance(requester, int):
            assert isinstance(result, HashResult), "hashes in the background are of a revision"
            requester(result)
            return
        if isinstance(result, HashResult):
            header = parts.headers.field(result.revision, parts.raft.term)
            body = pb.HashKVResponse(
                hash=result.hash,
                compact_revision=result.compact_revision,
                hash_revision=result.hash_revision,
            ).SerializeToString()
        else:
            header = parts.headers.field(parts.state.store.revision, parts.raft.term)
            body = pb.HashResponse(hash=result).SerializeToString()
        out.replies.append((requester, Code.OK, header + body))

    def _finish_compaction(self, out: Outbox) -> None:
        parts = self._parts
        parts.counters.note_compacted()
        parts.logger.info(
            "finished scheduled compaction", compact_revision=parts.state.store.compacted
        )
        header = parts.headers.field(parts.state.store.revision, parts.raft.term)
        out.replies += [(call_id, Code.OK, header) for call_id in self._compactions]
        self._compactions = []

    def _step_defragment(self, now_ns: int, out: Outbox) -> int | None:
        parts = self._parts
        is_running = parts.state.backend.defragmenting()  # also if all its clients have gone away
        if not is_running and not self._next_defragments:
            return None
        self._checkpointer.write_applied()  # each step may commit
        if not is_running:
            self._defragments, self._next_defragments = self._next_defragments, []
            parts.logger.info("starting defragment")
            parts.counters.note_defragment_begins()
            try:
                parts.state.backend.start_defragment()
            except DefragmentError as error:
                self._fail_defragment(error, out)
                return now_ns
        try:
            if not parts.state.backend.step_defragment():
                return now_ns + _DEFRAGMENT_PAUSE_NS
        except DefragmentError as error:
            self._fail_defragment(error, out)
            return now_ns
        parts.counters.note_defragmented()
        parts.logger.info("finished defragment", db_size_bytes=parts.state.backend.size_bytes())
        out.replies += [(call_id, Code.OK, b"") for call_id in self._defragments]
        self._defragments = []
        return now_ns

    def _fail_defragment(self, error: DefragmentError, out: Outbox) -> None:
        self._parts.logger.warning("failed to defragment", error=str(error))
        text = str(error).encode()
        out.replies += [(call_id, Code.UNKNOWN, text) for call_id in self._defragments]
        self._defragments = []
