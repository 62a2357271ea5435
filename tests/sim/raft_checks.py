"""What raft promises, checked from outside: by what members save, send, and have committed.

    saving ─► log matching        an entry of one (index, term) follows the same one everywhere
    synced ─► what a crash must leave; checked when the member starts again
    sent   ─► votes and acknowledgements cover only what is durable; one vote a term
    after_turn ─► one leader a term, whose log holds everything committed before; equal entries at
              equal indexes; what a leader commits is durable at a majority of the voters

A member is identified by its raft id. A LogView mirrors its log, and survives the process as the
disk does. What entries mean is not looked at here: see checks.py.
"""

from collections.abc import Collection, Sequence
from typing import Final

from kvstore.raft.model import Entry, HardState, Message, MessageType
from kvstore.raft.rawnode import RawNode
from tests.sim.violation import demand

_ANSWERS: Final = frozenset({MessageType.APP_RESP, MessageType.VOTE_RESP})


class LogView:
    """One member's log as it must be: its entries, and how much of it is durable."""

    def __init__(self) -> None:
        self.entries: dict[int, Entry] = {}  # that may still be needed: not applied, or recent
        self.terms: dict[int, int] = {}  # of every entry, and of the last snapshot
        self.last = 0
        self.durable_last = 0
        self.snapshot_index = 0
        self.arriving: tuple[int, int] | None = None  # (index, term) of a snapshot recorded
        self.behind: Sequence[Entry] = ()  # that came with it
        self.state = HardState()
        self.durable_state = HardState()
        self.committed = 0  # as of the last check

    def replace_from(self, entries: Sequence[Entry]) -> None:
        """Replace all entries from the first's index on."""
        first = entries[0].index
        for index in range(first, self.last + 1):
            self.entries.pop(index, None)
            self.terms.pop(index, None)
        for entry in entries:
            self.entries[entry.index] = entry
            self.terms[entry.index] = entry.term
        self.last = entries[-1].index
        self.durable_last = min(self.durable_last, first - 1)

    def sync(self) -> None:
        """Note that everything is durable."""
        self.durable_last, self.durable_state = self.last, self.state

    def install(self, index: int, term: int) -> None:
        """Replace the entries up to a snapshot; all of them if they are of another log."""
        self.arriving = None
        if self.terms.get(index) != term:
            self.entries.clear()
            self.terms.clear()
            self.last = self.durable_last = index
        self.terms[index] = term
        self.snapshot_index = index
        self.committed = max(self.committed, index)
        self.last, self.durable_last = max(self.last, index), max(self.durable_last, index)


class RaftChecker:
    """The promises of one raft group."""

    def __init__(self) -> None:
        self.views: dict[int, LogView] = {}  # by raft id
        self.leaders: dict[int, int] = {}  # term → who led
        self.committed = 0  # the highest index known to be committed
        self.terms: dict[int, int] = {}  # of every committed index
        self._reached: dict[int, int] = {}  # term → highest index committed in it
        self._before: dict[tuple[int, int], tuple[int, int, bytes]] = {}
        self._votes: dict[tuple[int, int], int] = {}  # (voter, term) → candidate

    def view(self, member: int) -> LogView:
        """Return the mirror of a member's log."""
        view = self.views.get(member)
        if view is None:
            view = self.views[member] = LogView()
        return view

    # The log.

    def saving(
        self, member: int, hard_state: HardState | None, entries: Sequence[Entry], *, sync: bool
    ) -> None:
        """Check what is about to be written; synced reports when it is durable."""
        view = self.view(member)
        if view.arriving is not None:
            index, term = view.arriving
            demand(sync, "a snapshot is not synced:", index)
            demand(index <= self.committed, "a snapshot of what is not committed:", index)
            demand(self.terms.get(index, term) == term, "a snapshot of another log at", index)
            demand(not entries or entries[0].index == index + 1, "a gap behind a snapshot", entries)
            view.behind = entries
        elif entries:
            first = entries[0].index
            is_next = first <= view.last + 1
            demand(is_next, "member", hex(member), "leaves a gap before", first)
            demand(first > view.committed, "committed entry", first, "is written again")
            self._append(view, entries)
        if hard_state is not None:
            old = view.state
            demand(hard_state.term >= old.term, "the term falls", old, hard_state)
            demand(hard_state.commit >= old.commit, "the commit index falls", old, hard_state)
            if hard_state.term == old.term and old.vote:
                demand(hard_state.vote == old.vote, "a vote is changed", old, hard_state)
            view.state = hard_state
        changed = hard_state is not None and hard_state[:2] != view.durable_state[:2]
        demand(sync or not (entries or changed), "not synced:", hard_state, entries)

    def _append(self, view: LogView, entries: Sequence[Entry]) -> None:
        before_term = view.terms.get(entries[0].index - 1, 0)
        for entry in entries:
            self._match(entry, before_term)
            before_term = entry.term
        view.replace_from(entries)

    def _match(self, entry: Entry, before_term: int) -> None:
        """Log matching: by induction, two logs that share one entry are equal up to it."""
        key = entry.index, entry.term
        wanted = before_term, entry.type, entry.data
        known = self._before.setdefault(key, wanted)
        is_equal = known[1:] == wanted[1:]
        if known[0] and before_term:  # 0: the entry before a snapshot is not known
            is_equal = known == wanted
        demand(is_equal, "two entries at (index, term)", key, known, wanted)

    def synced(self, member: int) -> None:
        """Note that all a member has written is durable, and a recorded snapshot installed."""
        view = self.view(member)
        if view.arriving is not None:
            view.install(*view.arriving)
            if view.behind:
                self._append(view, view.behind)
        view.sync()

    def recorded(self, member: int, index: int, term: int) -> None:
        """Note that a snapshot is recorded: with the next sync it replaces the log."""
        self.view(member).arriving = index, term

    def restarted(
        self, member: int, state: HardState, snapshot: tuple[int, int], entries: Sequence[Entry]
    ) -> None:
        """Compare what a member found on its disk with what must be there."""
        view = self.view(member)
        index, term = snapshot
        found = {entry.index: entry for entry in entries}
        last = index + len(entries)
        who = "member", hex(member)
        demand(last >= view.durable_last, *who, "ends at", last, "not", view.durable_last)
        for entry in entries:
            known = self._before.get((entry.index, entry.term))
            demand(known, *who, "found an entry that was never saved:", entry)
            assert known is not None
            demand(known[1:] == (entry.type, entry.data), *who, "found a changed entry:", entry)
        if view.durable_last > index:
            at = view.durable_last
            demand(found[at].term == view.terms[at], *who, "lost durable entry", at)
        durable = view.durable_state
        demand(state.term >= durable.term, *who, "forgot term", durable, state)
        if state.term == durable.term:
            demand(durable.vote in (0, state.vote), *who, "forgot its vote", durable, state)
        fresh = LogView()
        if index:
            fresh.install(index, term)
        if entries:
            fresh.replace_from(entries)
        fresh.state = state
        fresh.sync()
        self.views[member] = fresh

    # Messages.

    def sent(self, member: int, message: Message) -> None:
        """Check a message when it is sent."""
        if message.type not in _ANSWERS or message.reject:
            return
        view = self.view(member)
        state, who = view.durable_state, hex(member)
        demand(state.term >= message.term, who, "answers in a term not saved:", message)
        if message.type == MessageType.VOTE_RESP:
            voted = self._votes.setdefault((member, message.term), message.to)
            demand(voted == message.to, who, "votes twice in term", message.term)
            kept = state.term > message.term or state.vote == message.to
            demand(kept, who, "votes and has not saved it:", message, state)
        else:
            # What a newer leader has overwritten in the same turn counts as saved before it.
            is_durable = message.index <= view.durable_last or state.term > message.term
            demand(is_durable, who, "acknowledges what is not synced:", message, view.durable_last)

    # Turns.

    def after_turn(self, member: int, raft: RawNode, voters: Collection[Collection[int]]) -> None:
        """Check a member after a turn; voters: the configurations it may have used."""
        view = self.view(member)
        if raft.is_leader:
            self._leads(member, raft)
        top = raft.committed
        for index in range(view.committed + 1, top + 1):
            term = view.terms.get(index)
            demand(term is not None, hex(member), "commits entry", index, "which it does not have")
            assert term is not None
            known = self.terms.setdefault(index, term)
            demand(known == term, "entry", index, "is committed of terms", known, term)
        view.committed = top
        if top > self.committed:
            self.committed = self._reached[raft.term] = top
            if raft.is_leader:
                is_safe = any(self._is_durable(top, each) for each in voters)
                demand(is_safe, "entry", top, "is committed, and is not durable at a majority")

    def _is_durable(self, index: int, voters: Collection[int]) -> bool:
        term = self.terms[index]
        having = 0
        for voter in voters:
            view = self.view(voter)
            if view.durable_last >= index and view.terms.get(index, term) == term:
                having += 1
        return having > len(voters) // 2

    def _leads(self, member: int, raft: RawNode) -> None:
        term = raft.term
        known = self.leaders.get(term)
        demand(known in (None, member), "term", term, "has leaders", known, member)
        if known is None:
            self.leaders[term] = member
            self._is_complete(member, term)

    def _is_complete(self, member: int, term: int) -> None:
        """Leader completeness: a leader has what was committed in any term before its own."""
        view = self.view(member)
        top = max((index for each, index in self._reached.items() if each < term), default=0)
        is_known = top in view.terms or top <= view.snapshot_index
        has_all = is_known and view.terms.get(top) in (self.terms.get(top), None)
        demand(has_all, "leader", hex(member), "of term", term, "lacks committed entry", top)
