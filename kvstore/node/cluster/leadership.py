"""Who leads, as this member knows it, and what hangs on that.

    a leader is known         reads asked of the one before are told, lost publishes made again
    this member leads         leases are counted down once its term's first entry is applied
    it stood still meanwhile  it may have been replaced: no lease is renewed before a quorum says no
    nobody leads for long     streams that asked for a leader are ended

Handing over (MoveLeader, or the end of the process) waits here until it is done: raft gives a
transfer up after an election timeout, and it is then begun anew while the caller's time lasts.

The texts are etcd's. Elections themselves are raft's affair.
"""

from typing import Final

from kvstore.batch import Outbox
from kvstore.errors import (
    TIMEOUT,
    TIMEOUT_CONNECTION_LOST,
    TIMEOUT_LEADER_FAIL,
    TIMEOUT_LEADER_TRANSFER,
    Code,
    Refusal,
)
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL
from kvstore.node.reads.reads import Reads
from kvstore.raft.model import NO_NODE, Role
from kvstore.raft.ready import SoftState

_DOUBT_TICKS: Final = 3  # a leader that saw so many pass at once may have been replaced
_LOST_TIMEOUTS: Final = 3  # election timeouts without a leader that streams bear
_ROLE_NAMES: Final = {
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "pre-candidate",
    Role.CANDIDATE: "candidate",
    Role.LEADER: "leader",
}


class Leadership:
    """What this member knows of its leader, and what it does as one."""

    def __init__(self, parts: Parts, reads: Reads) -> None:
        self._parts = parts
        self._reads = reads
        self._lead = NO_NODE
        self._term_told = 0
        self._elected_ns = 0  # when this member became leader last
        self._lost_ns: int | None = None  # since when there is no leader
        self._is_primary = False
        self._is_doubted = False
        self._doubt_asked_ns: int | None = None
        self._moves: list[tuple[int, int, int]] = []  # (call id, to whom, since ns)
        self._hand_over_until_ns: int | None = None
        self.changes = 0  # how many leaders were seen

    @property
    def lead(self) -> int:
        """Who leads, as of the last round; 0: nobody known."""
        return self._lead

    # What raft says.

    def take(self, soft_state: SoftState, now_ns: int, out: Outbox) -> bool:
        """Note who leads now; tell whether there is a leader other than before."""
        parts = self._parts
        lead, role = soft_state
        before, self._lead = self._lead, lead
        term, own_id = parts.raft.term, parts.member_id
        parts.logger.info(
            f"{own_id:x} became {_ROLE_NAMES[role]} at term {term}", member_id=f"{own_id:x}"
        )
        if lead == before:
            return False
        if lead == NO_NODE:
            self._lost_ns = now_ns
            parts.logger.info(f"raft.node: {own_id:x} lost leader {before:x} at term {term}")
            return False
        self._lost_ns = None
        if before == NO_NODE:
            text = f"raft.node: {own_id:x} elected leader {lead:x} at term {term}"
        else:
            text = f"raft.node: {own_id:x} changed leader from {before:x} to {lead:x}"
            text += f" at term {term}"
        parts.logger.info(text)
        self.changes += 1
        if lead == own_id:
            self._elected_ns = now_ns
        self._reads.leader_changed(out)
        return True

    def follow(self, confirmed_term: int, now_ns: int) -> None:
        """Count leases down only as the leader, and only once its term's first entry is applied."""
        parts = self._parts
        raft = parts.raft
        leads = raft.is_leader and confirmed_term == raft.term
        if leads and not self._is_primary:
            parts.lessor.promote(now_ns)
        elif self._is_primary and not leads:
            parts.lessor.demote()
        self._is_primary = leads

    def snapshot_installed(self) -> None:
        """Take note that the leases were read anew: nobody counts them down."""
        self._is_primary = False

    # Doubts.

    def ticked(self, ticks: int) -> None:
        """Doubt one's leadership after a time in which others may have elected another."""
        raft = self._parts.raft
        if ticks >= _DOUBT_TICKS and raft.is_leader and not raft.is_only_voter:
            self._is_doubted = True

    def is_sure(self, now_ns: int) -> bool:
        """Tell whether this member surely was the leader a moment ago; if not, ask a quorum."""
        if not self._is_doubted:
            return True
        if not self._parts.raft.is_leader:
            self._is_doubted = False
            return True
        asked_ns = self._doubt_asked_ns
        if asked_ns is None or now_ns - asked_ns >= self._parts.limits.request_timeout_ns:
            self._doubt_asked_ns = now_ns
            self._reads.add(INTERNAL, self._confirm)
        return False

    def _confirm(self, _out: Outbox) -> None:
        self._is_doubted = False
        self._doubt_asked_ns = None

    def is_lost(self, now_ns: int) -> bool:
        """Tell whether there has been no leader for longer than streams bear."""
        timeout_ns = self._parts.limits.election_timeout_ns
        return self._lost_ns is not None and now_ns - self._lost_ns >= _LOST_TIMEOUTS * timeout_ns

    # Timeouts.

    def timeout_since(self, since_ns: int) -> Refusal:
        """Return why a proposal made then has not been answered, as far as can be told."""
        parts = self._parts
        lost_ns = self._elected_ns - 2 * parts.limits.election_timeout_ns
        if lost_ns < since_ns < self._elected_ns:
            return TIMEOUT_LEADER_FAIL
        if self._lead == parts.member_id:
            members = parts.membership.members
            connected = 1 + sum(
                self._is_connected_since(each, since_ns)
                for each in members
                if each != parts.member_id
            )
            return TIMEOUT if connected > len(members) // 2 else TIMEOUT_CONNECTION_LOST
        if self._lead == NO_NODE or self._is_connected_since(self._lead, since_ns):
            return TIMEOUT
        return TIMEOUT_CONNECTION_LOST

    def _is_connected_since(self, member_id: int, since_ns: int) -> bool:
        active_ns = self._parts.peers.active_since_ns(member_id)
        return active_ns is not None and active_ns < since_ns

    # Handing over.

    def move(self, call_id: int, to: int, now_ns: int) -> None:
        """Hand over to a voting member; the call is answered when it leads, or in time."""
        parts = self._parts
        parts.logger.info(
            "leadership transfer starting",
            local_member_id=f"{parts.member_id:x}",
            current_leader_member_id=f"{parts.raft.lead:x}",
            transferee_member_id=f"{to:x}",
        )
        self._moves.append((call_id, to, now_ns))
        parts.raft.transfer_leader(to)

    def hand_over(self, now_ns: int) -> None:
        """Hand over to the voter connected longest, if this member leads and there is one."""
        parts = self._parts
        to = self._longest_connected()
        if to == NO_NODE or not parts.raft.is_leader:
            parts.logger.info(
                "skipped leadership transfer",
                local_member_id=f"{parts.member_id:x}",
                current_leader_member_id=f"{parts.raft.lead:x}",
            )
            return
        self._hand_over_until_ns = now_ns + parts.limits.election_timeout_ns
        self.move(INTERNAL, to, now_ns)

    def shed(self) -> bool:
        """Hand over while going on as a member; False: there is nobody to hand over to."""
        raft = self._parts.raft
        to = self._longest_connected()
        if to == NO_NODE or raft.transferee != NO_NODE:
            return False
        raft.transfer_leader(to)
        return True

    @property
    def is_handing_over(self) -> bool:
        """Whether a hand-over at the end of the process is still under way."""
        return self._hand_over_until_ns is not None

    def _longest_connected(self) -> int:
        parts = self._parts
        found = [
            (since_ns, each)
            for each, member in sorted(parts.membership.members.items())
            if each != parts.member_id
            and not member.is_learner
            and (since_ns := parts.peers.active_since_ns(each)) is not None
        ]
        return min(found, default=(0, NO_NODE))[1]

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away; what it started goes on."""
        if self._moves:
            self._moves = [each for each in self._moves if each[0] != call_id]

    def answer_moves(self, now_ns: int, out: Outbox) -> None:
        """Answer who waits for a hand-over that is done or has taken too long."""
        if not self._moves:
            return
        parts = self._parts
        raft = parts.raft
        left: list[tuple[int, int, int]] = []
        for call_id, to, since_ns in self._moves:
            if self._lead == to:
                parts.logger.info(
                    "leadership transfer finished",
                    local_member_id=f"{parts.member_id:x}",
                    new_leader_member_id=f"{to:x}",
                    took_ms=(now_ns - since_ns) // 1_000_000,
                )
                _reply(out, call_id, None)
            elif now_ns - since_ns >= parts.limits.request_timeout_ns:
                _reply(out, call_id, TIMEOUT_LEADER_TRANSFER)
            else:
                left.append((call_id, to, since_ns))
                if raft.is_leader and raft.transferee == NO_NODE:
                    raft.transfer_leader(to)
        self._moves = left
        until_ns = self._hand_over_until_ns
        is_followed = self._lead not in (NO_NODE, parts.member_id)
        if until_ns is not None and (now_ns >= until_ns or is_followed):
            self._hand_over_until_ns = None
            self._moves = [each for each in left if each[0] != INTERNAL]


def _reply(out: Outbox, call_id: int, refusal: Refusal | None) -> None:
    if call_id == INTERNAL:
        return
    if refusal is None:
        out.replies.append((call_id, Code.OK, b""))
    else:
        out.replies.append((call_id, refusal.code, refusal.text.encode()))
