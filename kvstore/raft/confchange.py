"""The configuration of the cluster, and the only ways to change it.

A change of one voter at a time is simple: any majority before shares a member with any majority
after. Several at once go through a joint configuration in which both majorities are needed:

    {1 2 3}  ── enter, r1 v4 ──►  {2 3 4} and {1 2 3}  ── leave ──►  {2 3 4}

A voter that is to become a learner still votes in the outgoing half of a joint configuration; until
the joint configuration is left it is in learners_next, so no member is voter and learner at once.

These are functions from a configuration to the next one; a change that is not allowed raises
ConfChangeError. The leader sees to it that only one change is under way at a time; a change takes
effect when its entry is applied.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from kvstore.raft.model import (
    NO_NODE,
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
)

Change: TypeAlias = ConfChange | ConfChangeV2
Ids: TypeAlias = frozenset[int]

TRANSITION_AUTO: Final = 0  # joint if several change at once; left automatically
TRANSITION_JOINT_IMPLICIT: Final = 1  # joint; left automatically
TRANSITION_JOINT_EXPLICIT: Final = 2  # joint; left by an empty change
_NOBODY: Final[Ids] = frozenset()


# The change that leaves a joint configuration; encoded it is empty.
LEAVE_JOINT: Final = ConfChangeV2()


class ConfChangeError(Exception):
    """The change cannot be made from this configuration."""


class Configuration(NamedTuple):
    """The members by role; outgoing is empty unless the configuration is joint."""

    voters: Ids = _NOBODY
    outgoing: Ids = _NOBODY
    learners: Ids = _NOBODY
    learners_next: Ids = _NOBODY
    auto_leave: bool = False

    @property
    def is_joint(self) -> bool:
        """Whether majorities of two sets are needed."""
        return bool(self.outgoing)

    @property
    def all_voters(self) -> Ids:
        """All members that vote in either half."""
        return self.voters | self.outgoing

    @property
    def members(self) -> Ids:
        """All members to which the log is replicated."""
        return self.voters | self.outgoing | self.learners


EMPTY_CONFIGURATION: Final = Configuration()


def as_v2(change: Change) -> ConfChangeV2:
    """Return the change as a list of steps."""
    if isinstance(change, ConfChangeV2):
        return change
    return ConfChangeV2(0, (ConfChangeSingle(change.type, change.node_id),), change.context)


def wants_leave(change: Change) -> bool:
    """Return whether the change leaves a joint configuration."""
    v2 = as_v2(change)
    return v2.transition == TRANSITION_AUTO and not v2.changes


def next_configuration(configuration: Configuration, change: Change) -> Configuration:
    """Return the configuration after change."""
    v2 = as_v2(change)
    if wants_leave(v2):
        return _leave_joint(configuration)
    if v2.transition == TRANSITION_AUTO and len(v2.changes) == 1:
        return _simple(configuration, v2.changes)
    if v2.transition not in (TRANSITION_AUTO, TRANSITION_JOINT_IMPLICIT, TRANSITION_JOINT_EXPLICIT):
        raise ConfChangeError(f"transition {v2.transition} is not known")
    return _enter_joint(
        configuration, v2.changes, auto_leave=v2.transition != TRANSITION_JOINT_EXPLICIT
    )


def restore(state: ConfState) -> Configuration:
    """Return the configuration that state describes."""
    configuration = Configuration(
        frozenset(state.voters),
        frozenset(state.voters_outgoing),
        frozenset(state.learners),
        frozenset(state.learners_next),
        state.auto_leave,
    )
    _check(configuration)
    return configuration


def to_conf_state(configuration: Configuration) -> ConfState:
    """Return the configuration as it is written into snapshots, ids ascending."""
    voters, outgoing, learners, learners_next, auto_leave = configuration
    return ConfState(
        tuple(sorted(voters)),
        tuple(sorted(learners)),
        tuple(sorted(outgoing)),
        tuple(sorted(learners_next)),
        auto_leave,
    )


def _simple(configuration: Configuration, changes: Iterable[ConfChangeSingle]) -> Configuration:
    if configuration.is_joint:
        raise ConfChangeError("a simple change cannot be made in a joint configuration")
    changed = _changed(configuration, changes)
    if len(changed.voters ^ configuration.voters) > 1:
        raise ConfChangeError("more than one voter changes without a joint configuration")
    return changed


def _enter_joint(
    configuration: Configuration, changes: Iterable[ConfChangeSingle], *, auto_leave: bool
) -> Configuration:
    if configuration.is_joint:
        raise ConfChangeError("the configuration is joint already")
    if not configuration.voters:
        raise ConfChangeError("a configuration without voters cannot become joint")
    outgoing = configuration._replace(outgoing=configuration.voters)
    return _changed(outgoing, changes)._replace(auto_leave=auto_leave)


def _leave_joint(configuration: Configuration) -> Configuration:
    if not configuration.is_joint:
        raise ConfChangeError("the configuration is not joint")
    return Configuration(
        voters=configuration.voters, learners=configuration.learners | configuration.learners_next
    )


def _changed(configuration: Configuration, changes: Iterable[ConfChangeSingle]) -> Configuration:
    """Return the configuration after changes to the incoming half."""
    outgoing = configuration.outgoing
    voters = set(configuration.voters)
    learners = set(configuration.learners)
    learners_next = set(configuration.learners_next)
    for kind, node_id in changes:
        if node_id == NO_NODE or kind == ConfChangeType.UPDATE_NODE:
            continue  # a refused change, or one that does not concern raft
        if kind == ConfChangeType.ADD_LEARNER_NODE and node_id in learners:
            continue
        voters.discard(node_id)
        learners.discard(node_id)
        learners_next.discard(node_id)
        if kind == ConfChangeType.ADD_NODE:
            voters.add(node_id)
        elif kind == ConfChangeType.ADD_LEARNER_NODE:
            (learners_next if node_id in outgoing else learners).add(node_id)
        elif kind != ConfChangeType.REMOVE_NODE:
            raise ConfChangeError(f"change type {kind} is not known")
    if not voters:
        raise ConfChangeError("the change removes all voters")
    changed = configuration._replace(
        voters=frozenset(voters),
        learners=frozenset(learners),
        learners_next=frozenset(learners_next),
    )
    _check(changed)
    return changed


def _check(configuration: Configuration) -> None:
    """Raise ConfChangeError for an inconsistent configuration."""
    voters, outgoing, learners, learners_next, auto_leave = configuration
    if NO_NODE in configuration.members:
        raise ConfChangeError("0 is not a member's id")
    both = learners & (voters | outgoing)
    if both:
        raise ConfChangeError(f"voters and learners at once: {sorted(both)}")
    if not learners_next <= outgoing:
        raise ConfChangeError(f"learners-next that do not vote: {sorted(learners_next - outgoing)}")
    if (outgoing or learners) and not voters:
        raise ConfChangeError("a configuration with members has no voters")
    if auto_leave and not outgoing:
        raise ConfChangeError("auto-leave is set, but the configuration is not joint")
