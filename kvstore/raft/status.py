"""The status of one member: for operators, metrics, and the promotion of learners."""

from dataclasses import dataclass
from typing import NamedTuple

from kvstore.raft import confchange
from kvstore.raft.model import ConfState, Role
from kvstore.raft.progress import ProgressKind
from kvstore.raft.state import State


class ProgressStatus(NamedTuple):
    """A leader's view of one member."""

    match: int
    next: int
    kind: ProgressKind
    is_learner: bool
    recent_active: bool
    is_paused: bool
    pending_snapshot: int
    inflight: int  # unacknowledged appends


@dataclass(slots=True)
class Status:
    """The status of one member; progress is empty unless it leads."""

    id: int
    role: Role
    lead: int
    term: int
    vote: int
    first_index: int
    last_index: int
    commit: int
    applied: int
    transferee: int
    conf_state: ConfState
    progress: dict[int, ProgressStatus]


def status_of(state: State) -> Status:
    """Return the current status of a member."""
    log = state.log
    return Status(
        id=state.id,
        role=state.role,
        lead=state.lead,
        term=state.term,
        vote=state.vote,
        first_index=log.first_index,
        last_index=log.last_index,
        commit=log.committed,
        applied=log.applied,
        transferee=state.transferee,
        conf_state=confchange.to_conf_state(state.configuration),
        progress=_progress_status(state) if state.role is Role.LEADER else {},
    )


def _progress_status(state: State) -> dict[int, ProgressStatus]:
    return {
        member: ProgressStatus(
            each.match,
            each.next,
            each.kind,
            each.is_learner,
            each.recent_active,
            each.is_paused,
            each.pending_snapshot,
            len(each.inflight),
        )
        for member, each in sorted(state.progress.items())
    }
