"""The faults of one member's disk; the fault injector sets them.

    cut_at        power is cut at the n-th call from now: PowerCut is raised
    sync_fails    the n-th sync from now fails with EIO, and what it would make durable is lost
    is_full       every call that needs space fails with ENOSPC; a write first fills some sectors
    stalled_ns    how long calls have taken so far; the world moves its clock by it

Nothing fails unless it is set here. Only the sectors of a short write are drawn.
"""

import errno
import random
from typing import Final

SECTOR_BYTES: Final = 512

_NEEDS_ROOM: Final = frozenset({"create", "allocate", "make_directory", "write", "commit"})
_SYNCS: Final = frozenset({"sync", "sync_data", "sync_directory", "commit"})


class PowerCut(BaseException):
    """The machine is off: its process has ended, and what was not synced is lost."""


class DiskFaults:
    """The faults of one disk, and the number of calls so far."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.calls = 0
        self.cut_in = 0  # calls; 0: not armed
        self.sync_fails_in = 0  # syncs; 0: not armed
        self.stall_ns = 0  # of each sync
        self.stalled_ns = 0
        self.is_full = False
        self.has_failed = False  # since the last start

    def clear(self) -> None:
        """Remove all faults."""
        self.cut_in = self.sync_fails_in = self.stall_ns = 0
        self.is_full = False

    def check(self, call: str) -> None:
        """Raise the fault that is due, if any: PowerCut or OSError."""
        self.calls += 1
        if self.cut_in:
            self.cut_in -= 1
            if not self.cut_in:
                raise PowerCut(call)
        if call in _SYNCS:
            self.stalled_ns += self.stall_ns
            if self.sync_fails_in:
                self.sync_fails_in -= 1
                if not self.sync_fails_in:
                    self.has_failed = True
                    raise OSError(errno.EIO, "Input/output error")
        if self.is_full and call in _NEEDS_ROOM:
            self.has_failed = True
            raise OSError(errno.ENOSPC, "No space left on device")

    def room_for(self, offset: int, size_bytes: int) -> int:
        """Return how much of a write a full disk still takes: whole sectors, maybe none."""
        if not self.is_full:
            return 0
        sectors = (offset + size_bytes) // SECTOR_BYTES - offset // SECTOR_BYTES
        if sectors <= 0:
            return 0
        end = (offset // SECTOR_BYTES + self.rng.randrange(sectors + 1)) * SECTOR_BYTES
        return max(end - offset, 0)
