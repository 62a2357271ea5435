"""The settings of a member: its id, timeouts in ticks, and every limit. Defaults are etcd's.

The caller decides how long a tick is (etcd: the heartbeat interval, 100 ms). The size of an entry
is `kvstore.raft.log.entry_size`: the data and a fixed allowance for its other fields.
"""

from dataclasses import dataclass
from typing import Protocol

from kvstore.raft.model import UINT64_MAX, RaftError


class Rng(Protocol):
    """A random number generator: a random.Random, or the simulator's."""

    def randrange(self, stop: int, /) -> int:
        """Return a number from 0 to stop - 1."""
        ...


@dataclass(slots=True)
class Config:
    """The settings of one member; an invalid value raises RaftError."""

    id: int
    election_tick: int = 10  # ticks without a leader before a campaign; at random up to 2n-1
    heartbeat_tick: int = 1
    max_size_per_message: int = 1 << 20  # bytes of entries; one entry may be larger
    max_inflight_messages: int = 512  # unacknowledged appends to one follower
    max_committed_size_per_ready: int = 1 << 20  # bytes of entries; one entry may be larger
    max_uncommitted_size: int = 0  # bytes of data in the leader's uncommitted tail; 0: unlimited
    max_pending_reads: int = 4096  # read-index requests waiting at a leader; more are dropped
    pre_vote: bool = True
    check_quorum: bool = True
    step_down_on_removal: bool = False  # etcd: the server ends the process instead
    notifies_commits: bool = True  # immediately; False: see RawNode.commit_notifications

    def __post_init__(self) -> None:
        """Check every value against its limits."""
        if not 0 < self.id <= UINT64_MAX:
            raise RaftError(f"id {self.id} is not between 1 and 2^64-1")
        if self.heartbeat_tick < 1:
            raise RaftError(f"heartbeat_tick {self.heartbeat_tick} is less than 1")
        if self.election_tick <= self.heartbeat_tick:
            raise RaftError(
                f"election_tick {self.election_tick} is not greater than"
                f" heartbeat_tick {self.heartbeat_tick}"
            )
        if self.max_uncommitted_size < 0:
            raise RaftError(f"max_uncommitted_size {self.max_uncommitted_size} is less than 0")
        for name, value in (
            ("max_size_per_message", self.max_size_per_message),
            ("max_inflight_messages", self.max_inflight_messages),
            ("max_committed_size_per_ready", self.max_committed_size_per_ready),
            ("max_pending_reads", self.max_pending_reads),
        ):
            if value < 1:
                raise RaftError(f"{name} {value} is less than 1")
