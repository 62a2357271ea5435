"""A small world for raft: several nodes, a network that misbehaves, disks that forget what was not
synced, all from one seed; and the invariants of the Raft paper, checked at every step.

    election safety       at most one leader a term
    log matching          equal (index, term) in two logs: equal entries there
    state machine safety  no two members apply different entries at one index
    durability            what was applied anywhere is never lost, whoever crashes

A member's disk is: the hard state and entries (as far as synced), and a database (what was applied
up to its last commit, with the configuration there). A crash takes everything else.

Most worlds drive raft as the server's turn does: rounds that defer what can be saved later, then
rounds that save it, then commit notifications. A member may crash at any point of that, and in some
worlds messages come between a deferred save and the save. The other worlds do plain rounds.
"""

import pickle
import random
from dataclasses import dataclass, field
from typing import Any

from kvstore.node.turn import READY_ROUNDS_MAX
from kvstore.raft import confchange_codec
from kvstore.raft.config import Config
from kvstore.raft.model import (
    ConfChange,
    ConfChangeSingle,
    ConfChangeType,
    ConfChangeV2,
    ConfState,
    Entry,
    EntryType,
    HardState,
    Message,
    MessageType,
    Role,
    Snapshot,
)
from kvstore.raft.rawnode import RawNode
from kvstore.raft.ready import InitialState, ProposeOutcome, Ready
from tests.support.raft.script import copied

Applied = list[tuple[int, int, bytes]]  # (term, type, data) of entry 1, 2, 3 …


@dataclass(slots=True)
class Database:
    """What survives of the applied state."""

    index: int = 0
    term: int = 0
    conf_state: ConfState = field(default_factory=ConfState)
    applied: Applied = field(default_factory=list)


@dataclass(slots=True)
class Disk:
    """What survives of the log."""

    hard_state: HardState = field(default_factory=HardState)
    unsynced: HardState | None = None
    offset: int = 0
    offset_term: int = 0
    entries: list[Entry] = field(default_factory=list)


class Member:
    """One node with its disk."""

    def __init__(self, member_id: int, rng: random.Random, settings: dict[str, Any]) -> None:
        self.id = member_id
        self.rng = rng
        self.settings = settings
        self.disk = Disk()
        self.database = Database()
        self.applied: Applied = []
        self.reads: list[tuple[int, bytes]] = []
        self.founding: list[ConfChange] = []
        self.raft: RawNode | None = None

    def start(self) -> RawNode:
        """Start from what is on disk."""
        disk, database = self.disk, self.database
        state = InitialState(
            hard_state=disk.hard_state,
            conf_state=database.conf_state,
            snapshot_index=disk.offset,
            snapshot_term=disk.offset_term,
            entries=list(disk.entries),
            applied=database.index,
        )
        self.applied = list(database.applied)
        self.reads = []
        seed = random.Random(self.rng.randrange(2**32))
        self.raft = RawNode(Config(self.id, **self.settings), state, seed)
        if self.founding and disk == Disk():
            self.raft.bootstrap(self.founding)
        return self.raft

    def crash(self) -> None:
        """Lose what is not on disk; a hard state that was not synced may be there or not."""
        disk = self.disk
        if disk.unsynced is not None and self.rng.randrange(2):
            disk.hard_state = disk.unsynced
        disk.unsynced = None
        self.raft = None

    def commit(self) -> None:
        """Commit the database."""
        raft = self.raft
        assert raft is not None
        if raft.applied > self.database.index:
            term = raft.applied_term
            self.database = Database(raft.applied, term, raft.conf_state, list(self.applied))

    def compact(self, keep: int) -> None:
        """Drop entries the database covers, but keep some."""
        raft, disk = self.raft, self.disk
        assert raft is not None
        index = self.database.index - keep
        if index <= disk.offset:
            return
        term = raft.term_at(index)
        if term is None:
            return  # a snapshot has replaced the log, and is still to be saved
        raft.compact(index)
        disk.entries = [entry for entry in disk.entries if entry.index > index]
        disk.offset, disk.offset_term = index, term

    def save(self, ready: Ready) -> None:
        """Put a Ready on disk."""
        disk = self.disk
        if ready.snapshot is not None:
            metadata = ready.snapshot.metadata
            disk.offset, disk.offset_term, disk.entries = metadata.index, metadata.term, []
            self.applied = pickle.loads(ready.snapshot.data)
            assert len(self.applied) == metadata.index
            self.database = Database(
                metadata.index, metadata.term, metadata.conf_state, list(self.applied)
            )
        if ready.entries:
            first = ready.entries[0].index
            kept = [entry for entry in disk.entries if entry.index < first]
            assert disk.offset + len(kept) + 1 == first
            disk.entries = kept + ready.entries
        if ready.hard_state is not None:
            disk.unsynced = ready.hard_state
        if ready.must_sync and disk.unsynced is not None:
            disk.hard_state, disk.unsynced = disk.unsynced, None


class World:
    """Members, messages under way, and what everybody agreed on."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.settings = {
            "max_size_per_message": rng.choice((30, 200, 1 << 20)),
            "max_inflight_messages": rng.choice((1, 3, 512)),
            "max_committed_size_per_ready": rng.choice((1, 100, 1 << 20)),
            "pre_vote": rng.choice((0, 1)),
            "check_quorum": rng.choice((0, 1)),
            "step_down_on_removal": 1,  # else it leads until its process ends, as etcd's does
        }
        self.takes_turns = rng.randrange(4) > 0  # as the server; else plain rounds
        self.settings["notifies_commits"] = 0 if self.takes_turns else 1
        self.postponed_saves = rng.choice((0.0, 0.0, 0.3))  # turns that end before their save
        self.loss = rng.choice((0.0, 0.05, 0.3))
        self.copies = rng.choice((0.0, 0.1))
        self.members = {member: Member(member, rng, dict(self.settings)) for member in range(1, 6)}
        self.wire: list[Message] = []
        self.cut: set[tuple[int, int]] = set()
        self.is_calm = False
        self.answers_before_saving = False  # a planted fault, for canaries
        self.crash_every = 1000  # rounds
        self.leaders: dict[int, int] = {}
        self.agreed: Applied = []
        self.proposed = 0
        self.counts = {
            "applied": 0,
            "snapshots": 0,
            "crashes": 0,
            "changes": 0,
            "leaders": 0,
            "stranded": 0,
            "deferred": 0,
            "notified": 0,
        }
        first = [
            ConfChange(0, ConfChangeType.ADD_NODE, i) for i in range(1, rng.choice((1, 3)) + 1)
        ]
        for member in self.members.values():
            member.founding = first if member.id <= len(first) else []
            member.start()

    # One step.

    def step(self) -> None:
        """Let one thing happen."""
        rng = self.rng
        member = self.members[rng.randrange(1, 6)]
        kind = rng.randrange(1000)
        if kind < 450:
            self.deliver()
        elif kind < 800:
            self.run_member(member)
        elif kind < 900:
            self.tick(member)
        elif kind < 950:
            self.propose(member)
        elif kind < 965:
            self.change(member)
        elif kind < 985:
            self.ask(member)
        elif kind < 996:
            self.keep(member)
        elif kind < 998:
            self.crash(member)
        else:
            self.partition()

    def deliver(self) -> None:
        """Hand over a message, or lose it, or hand it over and keep it."""
        rng = self.rng
        if not self.wire:
            return
        at = rng.randrange(min(len(self.wire), 8))  # late by up to seven others
        message = self.wire[at]
        if rng.random() >= self.copies:
            del self.wire[at]
        target = self.members[message.to]
        lost = rng.random() < self.loss or (message.from_, message.to) in self.cut
        source = self.members[message.from_]
        if message.type == MessageType.SNAP and source.raft is not None:
            source.raft.report_snapshot(message.to, ok=not lost)
        if lost or target.raft is None:
            if source.raft is not None and rng.randrange(2):
                source.raft.report_unreachable(message.to)
            return
        target.raft.step(copied(message))

    def run_member(self, member: Member) -> None:
        """Start a member that is down; else do a turn or a round."""
        if member.raft is None:
            member.start()
        elif self.takes_turns:
            self.turn(member, member.raft)
        else:
            self.round(member, member.raft, may_save=True)

    def turn(self, member: Member, raft: RawNode) -> None:
        """Do rounds as the server's turn does, or crash in the middle of it."""
        self.rounds(member, raft, may_save=False)
        if not self.is_calm and self.rng.random() < self.postponed_saves:
            return
        if member.raft is raft and raft.can_defer_save:
            self.counts["deferred"] += 1
            if not self.is_calm and self.rng.randrange(self.crash_every) == 0:
                self.crash(member)
                return
            self.rounds(member, raft, may_save=True)
        if member.raft is raft and raft.owes_commit_notification and self.rng.randrange(2):
            self.counts["notified"] += 1
            self.send(member, raft.commit_notifications())

    def rounds(self, member: Member, raft: RawNode, *, may_save: bool) -> None:
        for _ in range(READY_ROUNDS_MAX):
            if member.raft is not raft or not self.round(member, raft, may_save=may_save):
                return

    def round(self, member: Member, raft: RawNode, *, may_save: bool) -> bool:
        """Do a round, or crash in the middle of it; tell whether there was anything to do."""
        ready = raft.ready(may_save=may_save)
        if ready is None:
            return False
        self.send(member, ready.messages_early)
        if self.answers_before_saving:
            self.send(member, ready.messages_late)
        crash_at = -1 if self.is_calm else self.rng.randrange(self.crash_every)
        if crash_at == 0:
            self.crash(member)
            return True
        member.save(ready)
        if ready.snapshot is not None:
            self.counts["snapshots"] += 1
            self.check_applied(member)
        if crash_at == 1:
            self.crash(member)
            return True
        self.send(member, ready.messages_late)
        for entry in ready.committed:
            self.apply(member, raft, entry)
        member.reads += ready.read_states
        assert all(text.startswith("change forwarded") for text in ready.warnings), ready.warnings
        raft.advance(ready)
        self.check_leader(raft)
        return True

    def send(self, member: Member, messages: list[Message]) -> None:
        """Put messages on the wire; snapshots get their data, of where the state is now."""
        raft = member.raft
        assert raft is not None
        for message in messages:
            if message.type == MessageType.SNAP:
                metadata = raft.create_snapshot_metadata(raft.applied)
                assert message.snapshot is not None
                assert metadata.index >= message.snapshot.metadata.index
                message.snapshot = Snapshot(metadata, pickle.dumps(member.applied))
            self.wire.append(message)

    def apply(self, member: Member, raft: RawNode, entry: Entry) -> None:
        """Apply an entry, which must be what everybody applies there."""
        member.applied.append((entry.term, entry.type, entry.data))
        assert entry.index == len(member.applied)
        if entry.type != EntryType.NORMAL:
            raft.apply_conf_change(confchange_codec.decode(entry.type, entry.data))
            self.counts["changes"] += 1
        self.check_applied(member)

    def check_applied(self, member: Member) -> None:
        """State machine safety."""
        count, agreed = len(member.applied), self.agreed
        if count > len(agreed):
            agreed += member.applied[len(agreed) :]
            self.counts["applied"] = count
        assert member.applied[-1] == agreed[count - 1], (member.id, count)

    def check_leader(self, raft: RawNode) -> None:
        """Election safety, and leader completeness: it holds all that was ever applied."""
        if raft.role is not Role.LEADER:
            return
        known = self.leaders.setdefault(raft.term, raft.id)
        assert known == raft.id, (raft.term, known, raft.id)
        self.counts["leaders"] = len(self.leaders)
        if raft.term == max(self.leaders):
            count = len(self.agreed)
            assert raft.last_index >= count
            if raft.first_index <= count:
                assert raft.term_at(count) == self.agreed[-1][0]

    def check_logs(self) -> None:
        """Log matching, between what is on the disks."""
        seen: dict[tuple[int, int], Entry] = {}
        for member in self.members.values():
            for entry in member.disk.entries:
                known = seen.setdefault((entry.term, entry.index), entry)
                assert known == entry

    # What may happen.

    def tick(self, member: Member) -> None:
        if member.raft is not None:
            if self.rng.randrange(50):
                member.raft.tick()
            else:
                member.raft.tick_many(self.rng.randrange(30))

    def propose(self, member: Member) -> None:
        if member.raft is None:
            return
        count = self.rng.randrange(1, 4)
        datas = [b"%d" % (self.proposed + each) for each in range(count)]
        self.proposed += count
        member.raft.propose(datas)

    def change(self, member: Member) -> None:
        """Propose a change of members, single or joint."""
        rng, raft = self.rng, member.raft
        if raft is None:
            return
        kinds = (
            ConfChangeType.ADD_NODE,
            ConfChangeType.ADD_NODE,
            ConfChangeType.REMOVE_NODE,
            ConfChangeType.ADD_LEARNER_NODE,
        )
        count = rng.choice((1, 1, 2, 3))
        steps = tuple(
            ConfChangeSingle(rng.choice(kinds), rng.randrange(1, 6)) for _ in range(count)
        )
        if raft.status().conf_state.voters_outgoing and rng.randrange(2):
            raft.propose_conf_change(ConfChangeV2())
        elif count == 1 and rng.randrange(2):
            raft.propose_conf_change(ConfChange(7, *steps[0]))
        else:
            raft.propose_conf_change(ConfChangeV2(rng.randrange(3), steps))

    def ask(self, member: Member) -> None:
        """Read, hand over, or forget the leader."""
        raft, rng = member.raft, self.rng
        if raft is None:
            return
        kind = rng.randrange(4)
        if kind == 0:
            raft.transfer_leader(rng.randrange(1, 6))
        elif kind == 1:
            raft.forget_leader()
        else:
            raft.read_index(b"%d" % len(self.agreed))

    def keep(self, member: Member) -> None:
        """Commit the database, and sometimes shorten the log."""
        if member.raft is None:
            return
        member.commit()
        if self.rng.randrange(2):
            member.compact(self.rng.randrange(20))

    def crash(self, member: Member) -> None:
        member.crash()
        self.counts["crashes"] += 1

    def partition(self) -> None:
        """Cut some directions, or heal all."""
        self.cut = set()
        if self.rng.randrange(3):
            side = {member for member in self.members if self.rng.randrange(2)}
            one_way = self.rng.randrange(2)
            for a in self.members:
                for b in self.members:
                    if (a in side and b not in side) or (
                        not one_way and b in side and a not in side
                    ):
                        self.cut.add((a, b))

    def check_reads(self, member: Member) -> None:
        """Linearizable reads: an answer is never older than what was applied when it was asked."""
        for index, context in member.reads:
            assert index >= int(context)
        member.reads = []

    # The end.

    def run(self, steps: int) -> None:
        """Let steps happen, then stop all faults and wait for progress everywhere."""
        for _ in range(steps):
            self.step()
            for member in self.members.values():
                if member.reads:
                    self.check_reads(member)
        self.check_logs()
        self.heal()

    def heal(self) -> None:
        """Liveness: without faults, a new proposal is applied by every member."""
        self.is_calm, self.cut, self.loss, self.copies = True, set(), 0.0, 0.0
        for member in self.members.values():
            if member.raft is None:
                member.start()
        wanted: bytes | None = None
        for number in range(400):
            for member in self.members.values():
                assert member.raft is not None
                member.raft.tick()
            self.settle()
            leader = self.leader()
            if leader is None:
                continue
            assert leader.raft is not None
            if number % 40 == 20:
                data = b"last %d" % number
                if leader.raft.propose([data]).outcome is ProposeOutcome.ACCEPTED:
                    wanted = data
                    self.settle()
            conf_state = leader.raft.conf_state
            everybody = {*conf_state.voters, *conf_state.learners, *conf_state.voters_outgoing}
            if wanted is not None and all(
                any(each[2] == wanted for each in self.members[member].applied[-5:])
                for member in everybody
            ):
                return
        assert self.is_stranded(), "no progress after all faults stopped"
        self.counts["stranded"] += 1

    def is_stranded(self) -> bool:
        """Whether members wait for the vote of one that knows it is no longer a member.

        A known limit of changes that come into force as they are applied: a leader that left, and
        went down before the others heard that its leaving was committed, may hold a longer log than
        all of them; it cannot lead and may not vote for them.
        """
        status = {each.id: each.raft.status() for each in self.members.values() if each.raft}
        gone = {
            member
            for member, each in status.items()
            if each.applied
            and member not in each.conf_state.voters + each.conf_state.voters_outgoing
        }
        return any(
            gone & {*each.conf_state.voters, *each.conf_state.voters_outgoing}
            for member, each in status.items()
            if member not in gone
        )

    def settle(self) -> None:
        """Rounds and deliveries until nothing is under way."""
        for _ in range(20_000):
            busy = bool(self.wire)
            for member in self.members.values():
                assert member.raft is not None
                if member.raft.has_ready() or member.raft.owes_commit_notification:
                    busy = True
                    self.run_member(member)
            while self.wire:
                self.deliver()
            if not busy:
                return
        raise AssertionError("messages never cease")

    def leader(self) -> Member | None:
        leaders = [m for m in self.members.values() if m.raft is not None and m.raft.is_leader]
        return max(leaders, key=lambda each: each.raft.term if each.raft else 0, default=None)
