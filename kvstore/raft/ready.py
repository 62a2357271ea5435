"""The initial state of a RawNode, and its output: plain data.

One Ready is one round: save, send, apply, advance. Order within it:

    messages_early   may be sent at once
    snapshot         saved and applied first, if there is one
    entries          saved; then hard_state; synced if must_sync
    messages_late    sent only now
    committed        applied: saved in an earlier round, or, if this member is alone, in this one
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from kvstore.raft.model import (
    EMPTY_CONF_STATE,
    EMPTY_HARD_STATE,
    ConfState,
    Entry,
    HardState,
    Message,
    Role,
    Snapshot,
)


@dataclass(slots=True)
class InitialState:
    """The saved state; all empty for a new member.

    entries follow snapshot_index without a gap. conf_state belongs to applied, which is between
    snapshot_index and the last entry, and may be greater than hard_state.commit (everything applied
    was committed).
    """

    hard_state: HardState = EMPTY_HARD_STATE
    conf_state: ConfState = EMPTY_CONF_STATE
    snapshot_index: int = 0
    snapshot_term: int = 0
    entries: list[Entry] = field(default_factory=list)
    applied: int = 0


class SoftState(NamedTuple):
    """The leader and this member's role; not saved."""

    lead: int
    role: Role


@dataclass(slots=True)
class Ready:
    """The work of one round, passed to RawNode.advance once it is done."""

    soft_state: SoftState | None  # if changed
    hard_state: HardState | None  # if changed
    snapshot: Snapshot | None  # to save and apply before anything else
    entries: list[Entry]  # to save; they replace the log from the first one's index on
    committed: list[Entry]  # to apply
    messages_early: list[Message]  # may be sent before anything is saved
    messages_late: list[Message]  # only once entries, hard_state and snapshot are saved
    read_states: list[
        tuple[int, bytes]
    ]  # (index, context): reads may be served at applied >= index
    must_sync: bool  # whether saving must be durable; else the next save that must be includes it
    warnings: list[str]  # about ignored or refused messages of peers, for the operator

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do in this round."""
        return not (
            self.committed
            or self.messages_early
            or self.messages_late
            or self.read_states
            or self.entries
            or self.warnings
            or self.hard_state is not None
            or self.soft_state is not None
            or self.snapshot is not None
        )


class ProposeOutcome(IntEnum):
    """The outcome of a proposal; all but the first three are refusals."""

    ACCEPTED = 0  # in the log of this leader
    FORWARDED = 1  # sent to the leader; it may get lost
    EMPTY = 2  # nothing was proposed
    NO_LEADER = 3
    TRANSFERRING = 4  # a leader transfer is under way
    UNCOMMITTED_FULL = 5  # the uncommitted tail is too large
    REMOVED = 6  # this leader is no longer a member
    CHANGE_REFUSED = 7  # the configuration change cannot be made; see reason
    CHANGE_UNDER_WAY = 8  # an earlier configuration change must be applied first; see reason


class ProposeResult(NamedTuple):
    """The outcome of a proposal, and the position of its first entry if it was accepted."""

    outcome: ProposeOutcome
    first_index: int = 0
    term: int = 0
    reason: str = ""
