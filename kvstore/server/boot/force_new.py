"""--force-new-cluster: makes a member that has lost the others the only one.

    log   1 … commit │ commit+1 …            uncommitted: dropped
    log   1 … commit │ remove b │ remove c    appended, and marked as committed

If this member is not in the list, its addition comes before the removals, or its promotion if it is
a learner: a configuration always has a voter. The entries are applied like any others, so the
removed ids are never used again.

Dropped entries were not known to be committed here. What only the other members have is lost, even
if it was acknowledged; those members must not be started again.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvstack.component.logger import Logger
from kvstore.raft.model import ConfChange, ConfChangeType, Entry, EntryType, HardState
from kvstore.storage.wal.wal import Wal
from kvstore.wire.members import Member, decode_change_context, encode_member, encode_promotion
from kvstore.wire.raft_codec import decode_conf_change, encode_conf_change


class Forced(NamedTuple):
    """The content of the log after the entries were appended."""

    hard_state: HardState
    entries: list[Entry]


def force_new_cluster(
    wal: Wal,
    state: HardState,
    entries: Sequence[Entry],
    *,
    applied: int,
    members: Mapping[int, bool],
    own: Member,
    logger: Logger,
) -> Forced:
    """Drop what is not committed and append what makes this the only member; both are synced.

    members: whether each is a learner, by id, as of the applied index.
    """
    commit = max(state.commit, applied)
    committed = [entry for entry in entries if entry.index <= commit]
    dropped = len(entries) - len(committed)
    # Entries that replace dropped ones have a later term, as in any log.
    term, vote = (state.term + 1, 0) if dropped else (state.term, state.vote)
    learners = dict(members)
    for entry in committed:
        if entry.index > applied and entry.type == EntryType.CONF_CHANGE:
            _follow(learners, decode_conf_change(entry.data))
    added = [
        Entry(EntryType.CONF_CHANGE, term, index, encode_conf_change(change))
        for index, change in enumerate(_changes(learners, own), start=commit + 1)
    ]
    forced = HardState(term, vote, commit + len(added))
    if added or forced != state:
        wal.save(forced, added, sync=True)
    logger.info(
        "forcing restart member",
        local_member_id=f"{own.id:x}",
        wal_commit_index=state.commit,
        commit_index=forced.commit,
        discarded_entries=dropped,
        removed_members=[f"{each:x}" for each in sorted(learners) if each != own.id],
    )
    return Forced(forced, committed + added)


def _follow(learners: dict[int, bool], change: ConfChange) -> None:
    match change.type:
        case ConfChangeType.ADD_NODE:
            learners[change.node_id] = False
        case ConfChangeType.ADD_LEARNER_NODE:
            learners[change.node_id] = decode_change_context(change.context)[0].is_learner
        case ConfChangeType.REMOVE_NODE:
            learners.pop(change.node_id, None)
        case _:
            pass


def _changes(learners: Mapping[int, bool], own: Member) -> list[ConfChange]:
    changes: list[ConfChange] = []
    is_learner = learners.get(own.id)
    if is_learner is None:
        changes.append(ConfChange(0, ConfChangeType.ADD_NODE, own.id, encode_member(own)))
    elif is_learner:
        changes.append(ConfChange(0, ConfChangeType.ADD_NODE, own.id, encode_promotion(own.id)))
    changes += [
        ConfChange(0, ConfChangeType.REMOVE_NODE, each)
        for each in sorted(learners)
        if each != own.id
    ]
    return changes
