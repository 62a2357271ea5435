"""The state of one member as plain data; the modules of the roles change it.

    election ─┐
    follower  ├──► transitions ──► state ──► log, progress, read_index, confchange
    candidate ├──► replication ──►
    leader   ─┘

Messages are collected in two lists until the next Ready. `messages_late` are votes and
acknowledgements: they must not be sent before what they acknowledge is saved. `messages` of a
leader may be sent before its own log is saved.
"""

from dataclasses import dataclass, field
from typing import Final

from kvstore.raft.confchange import EMPTY_CONFIGURATION, Configuration
from kvstore.raft.config import Config, Rng
from kvstore.raft.log import Log
from kvstore.raft.model import EMPTY_CONF_STATE, NO_NODE, ConfState, Message, MessageType, Role
from kvstore.raft.progress import Progress
from kvstore.raft.read_index import ReadIndex

WARNINGS_MAX: Final = 64  # per Ready; more would be repetitions
_ACKNOWLEDGEMENTS: Final = frozenset(
    (MessageType.APP_RESP, MessageType.VOTE_RESP, MessageType.PRE_VOTE_RESP)
)
# Forwarded for a client, whatever the leader's term: they carry no term.
_WITHOUT_TERM: Final = frozenset((MessageType.PROP, MessageType.READ_INDEX))


@dataclass(slots=True)
class State:
    """One member."""

    config: Config
    rng: Rng
    log: Log

    # Saved before a message that depends on them is sent.
    term: int = 0
    vote: int = NO_NODE

    role: Role = Role.FOLLOWER
    lead: int = NO_NODE

    # The members. conf_state_applied belongs to log.applied; configuration may be ahead of it
    # while a Ready is being applied.
    configuration: Configuration = EMPTY_CONFIGURATION
    conf_state_applied: ConfState = EMPTY_CONF_STATE
    conf_index: int = 0  # conf_state_applied is in force from this index on, or earlier
    progress: dict[int, Progress] = field(default_factory=dict)
    votes: dict[int, bool] = field(default_factory=dict)

    # Time, in ticks: since the last message of the leader (a leader: since the last quorum check).
    election_elapsed: int = 0
    heartbeat_elapsed: int = 0
    election_timeout: int = 0  # chosen at random at every change of role

    # Of a leader.
    transferee: int = NO_NODE
    pending_conf_index: int = 0  # no configuration change enters before this is applied
    uncommitted_bytes: int = 0  # kept only if there is a limit
    reads: ReadIndex = field(default_factory=ReadIndex)

    append_due: dict[int, bool] = field(default_factory=dict)  # member → send even without entries
    heartbeat_due: bool = False

    # For the next Ready.
    messages: list[Message] = field(default_factory=list)
    messages_late: list[Message] = field(default_factory=list)
    read_states: list[tuple[int, bytes]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def id(self) -> int:
        """This member's id."""
        return self.config.id

    @property
    def is_learner(self) -> bool:
        """Whether this member gets the log but does not vote."""
        return self.config.id in self.configuration.learners

    @property
    def is_only_voter(self) -> bool:
        """Whether this member alone is a quorum."""
        configuration = self.configuration
        return not configuration.outgoing and configuration.voters == {self.config.id}

    @property
    def is_promotable(self) -> bool:
        """Whether this member may become leader."""
        votes = self.config.id in self.configuration.all_voters
        return votes and self.log.pending_snapshot is None


def send(state: State, message: Message) -> None:
    """Add a message to the next Ready; its term is the current one unless it is set."""
    if message.from_ == NO_NODE:
        message.from_ = state.config.id
    if message.term == 0 and message.type not in _WITHOUT_TERM:
        message.term = state.term
    late = message.type in _ACKNOWLEDGEMENTS
    (state.messages_late if late else state.messages).append(message)


def warn(state: State, text: str) -> None:
    """Add a warning about an invalid message of a peer to the next Ready."""
    if len(state.warnings) < WARNINGS_MAX:
        state.warnings.append(text)
