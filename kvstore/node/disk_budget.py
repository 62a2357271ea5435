"""What may still be written while the disk is too full: at most the space that is kept back.

    deletes, compactions, revokes ── the log's bytes and the rows fit ──► admitted, and counted
                                  └─ they do not ───────────────────────► refused (NOSPACE)

A delete takes space: an entry of the log, and a row for each key, of which one request may delete
all. A compaction writes the pages anew from which it removes rows. Some of the room is kept for
others: of the log, for the member's own proposals and for requests about alarms, which go
through the log; of the rows, for compactions, and for requests that write almost no rows.

The room is measured once nothing that was admitted is still under way, and is counted down from
there: a measurement does not see what is under way.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstore.apply.quota import NO_LIMIT_BYTES
from kvstore.node.parts import Parts
from kvstore.raft.model import Entry, EntryType
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, unwrap_request
from kvstore.wire.varint import WireError


class Reserve(NamedTuple):
    """The space that a request must leave."""

    log_bytes: int
    rows_bytes: int


KEPT: Final = Reserve(8 << 20, 24 << 20)
KEPT_BY_COMPACTIONS: Final = Reserve(8 << 20, 8 << 20)
KEPT_BY_ALARMS: Final = Reserve(4 << 20, 0)
COMPACTION_BYTES: Final = 8 << 20  # pages of one transaction
ENTRY_BYTES: Final = 64  # of the log, beside an entry's data
ROW_BYTES: Final = 128  # of a deleted key's row, with its share of pages, beside twice the key
PAGE_BYTES: Final = 4096
_LARGE_KEY_BYTES: Final = 1500  # a row of such a key has pages of its own
_KEPT_BY: Final[dict[int, Reserve]] = {
    Field.ALARM: KEPT_BY_ALARMS,
    Field.COMPACTION: KEPT_BY_COMPACTIONS,
}


class DiskBudget:
    """Counts what is written while the disk of one member is short."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._log_bytes = 0
        self._rows_bytes = 0
        self._is_counting = False

    @property
    def is_counting(self) -> bool:
        """Whether the disk is short."""
        return self._is_counting

    def begin_turn(self) -> None:
        """Measure the space that is left, if that is possible now."""
        room = self._parts.host.room
        was_counting, self._is_counting = self._is_counting, room.is_short
        if self._is_counting and (not was_counting or self._is_quiet()):
            self._log_bytes, self._rows_bytes = room.log_bytes, room.rows_bytes

    def admits(self, field: int, body: bytes, log_bytes: int) -> bool:
        """Count a request if it fits, and return whether it does; log_bytes: of its entry."""
        reserve = _KEPT_BY.get(field, KEPT)
        return self._take(ENTRY_BYTES + log_bytes, self._rows_of(field, body), reserve)

    def admits_entries(self, entries: Iterable[Entry]) -> bool:
        """Return whether another member's entries fit, and count them if they do."""
        log_bytes = rows_bytes = 0
        for entry in entries:
            log_bytes += ENTRY_BYTES + len(entry.data)
            if entry.type == EntryType.NORMAL and entry.data:
                try:
                    rows_bytes += self._rows_of(*unwrap_request(entry.data))
                except WireError:
                    continue  # of the v2 API: it writes no rows
        return self._take(log_bytes, rows_bytes, KEPT)

    def _take(self, log_bytes: int, rows_bytes: int, reserve: Reserve) -> bool:
        if log_bytes > self._log_bytes - reserve.log_bytes:
            return False
        if 0 < rows_bytes > self._rows_bytes - reserve.rows_bytes:
            return False
        self._log_bytes -= log_bytes
        self._rows_bytes -= rows_bytes
        return True

    def _is_quiet(self) -> bool:
        """Return whether all that was admitted is in the database on disk, or will never be."""
        pending, backend = self._parts.replication.pending, self._parts.state.backend
        placed = pending.by_index or pending.runs or pending.by_request
        under_way = placed or pending.is_waiting
        return not under_way and not backend.pending_ops()

    # What a request costs at most.

    def _rows_of(self, field: int, body: bytes) -> int:
        if field == Field.DELETE_RANGE:
            return self._deleted(pb.DeleteRangeRequest.FromString(body))
        if field == Field.TXN:
            return self._rows_of_txn(pb.TxnRequest.FromString(body))
        if field == Field.COMPACTION:
            return COMPACTION_BYTES
        if field == Field.LEASE_REVOKE:
            lease = pb.LeaseRevokeRequest.FromString(body).ID
            return _rows(self._parts.state.lessor.keys(lease))
        return 0

    def _rows_of_txn(self, request: pb.TxnRequest) -> int:
        """Return the cost of the costlier branch, nested ones included."""
        branches = (request.success, request.failure)
        return max(sum(map(self._rows_of_op, each)) for each in branches)

    def _rows_of_op(self, op: pb.RequestOp) -> int:
        match op.WhichOneof("request"):
            case "request_delete_range":
                return self._deleted(op.request_delete_range)
            case "request_txn":
                return self._rows_of_txn(op.request_txn)
            case _:
                return 0

    def _deleted(self, request: pb.DeleteRangeRequest) -> int:
        # One key more than fits is enough to know.
        most = max(self._rows_bytes, 0) // ROW_BYTES + 1
        keys, count = self._parts.state.store.range_keys(request.key, request.range_end, most)
        return NO_LIMIT_BYTES if count > len(keys) else _rows(keys)


def _rows(keys: Iterable[bytes]) -> int:
    """Return the size of the rows of deleted keys."""
    return sum(
        ROW_BYTES + 2 * len(key) + (PAGE_BYTES if len(key) > _LARGE_KEY_BYTES else 0)
        for key in keys
    )
