"""The leader as this member knows it, and what depends on it.

    a new leader              reads waiting for the previous one are refused, lost proposals retried
    this member leads         leases are counted down once its term's first entry is applied
    it was stopped for long   another may have been elected: no lease is renewed before a quorum
                              has confirmed this leader
    no leader for long        streams that require a leader are ended

Leader transfers (MoveLeader, or the end of the process) wait here until they are done: raft aborts
a transfer after an election timeout, and it is then started again until the caller's time is over.

The texts are etcd's. The elections themselves are raft's.
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
from kvstore.node.call_context import UNRESTRICTED
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL
from kvstore.node.reads.reads import Reads
from kvstore.raft.model import NO_NODE, Role
from kvstore.raft.ready import SoftState

_STALL_TICKS: Final = 3  # a leader that saw so many pass at once may have been replaced
_LOST_TIMEOUTS: Final = 3  # election timeouts without a leader until streams are ended
_ROLE_NAMES: Final = {
    Role.FOLLOWER: "follower",
    Role.PRE_CANDIDATE: "pre-candidate",
    Role.CANDIDATE: "candidate",
    Role.LEADER: "leader",
}


class Leadership:
    """The leader as this member knows it, and leader transfers."""

    def __init__(self, parts: Parts, reads: Reads) -> None:
        self._parts = parts
        self._reads = reads
        self._lead = NO_NODE
        self._elected_ns = 0  # when this member became leader last
        self._lost_ns: int | None = None  # since when there is no leader
        self._is_primary = False
        self._is_unconfirmed = False  # a quorum must confirm that this member still leads
        self._confirm_asked_ns: int | None = None
        self._transfers: list[tuple[int, int, int]] = []  # (call id, target, since ns)
        self._transfer_until_ns: int | None = None  # of the transfer at the end of the process
        self.changes = 0  # how many leaders were seen

    @property
    def lead(self) -> int:
        """The leader as of the last Ready; 0: not known."""
        return self._lead

    # Changes.

    def update(self, soft_state: SoftState, now_ns: int, out: Outbox) -> bool:
        """Take the new leader and role; return whether there is a leader other than before."""
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
        """Make the lessor primary while this member leads and its term's first entry is applied."""
        parts = self._parts
        raft = parts.raft
        leads = raft.is_leader and confirmed_term == raft.term
        if leads and not self._is_primary:
            parts.state.lessor.promote(now_ns)
        elif self._is_primary and not leads:
            parts.state.lessor.demote()
        self._is_primary = leads

    def snapshot_installed(self) -> None:
        """Note that the lessor was restored and is not primary."""
        self._is_primary = False

    # Confirmation.

    def ticked(self, ticks: int) -> None:
        """Require a confirmation after a stall in which the others may have elected another."""
        raft = self._parts.raft
        if ticks >= _STALL_TICKS and raft.is_leader and not raft.is_only_voter:
            self._is_unconfirmed = True

    def is_confirmed(self, now_ns: int) -> bool:
        """Return whether this member surely was the leader a moment ago; if not, ask a quorum."""
        if not self._is_unconfirmed:
            return True
        if not self._parts.raft.is_leader:
            self._is_unconfirmed = False
            return True
        asked_ns = self._confirm_asked_ns
        if asked_ns is None or now_ns - asked_ns >= self._parts.limits.request_timeout_ns:
            self._confirm_asked_ns = now_ns
            self._reads.add(INTERNAL, UNRESTRICTED, self._confirm)
        return False

    def _confirm(self, _out: Outbox) -> None:
        self._is_unconfirmed = False
        self._confirm_asked_ns = None

    def is_lost(self, now_ns: int) -> bool:
        """Return whether there has been no leader for so long that streams are to end."""
        timeout_ns = self._parts.limits.election_timeout_ns
        return self._lost_ns is not None and now_ns - self._lost_ns >= _LOST_TIMEOUTS * timeout_ns

    # Timeouts.

    def timeout_since(self, since_ns: int) -> Refusal:
        """Return the most likely reason why a proposal made then was not answered."""
        parts = self._parts
        lost_ns = self._elected_ns - 2 * parts.limits.election_timeout_ns
        if lost_ns < since_ns < self._elected_ns:
            return TIMEOUT_LEADER_FAIL
        if self._lead == parts.member_id:
            members = parts.state.membership.members
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
        active_ns = self._parts.replication.peers.active_since_ns(member_id)
        return active_ns is not None and active_ns < since_ns

    # Leader transfers.

    def move(self, call_id: int, to: int, now_ns: int) -> None:
        """Transfer leadership to a voter; the call is answered when it leads, or times out."""
        parts = self._parts
        parts.logger.info(
            "leadership transfer starting",
            local_member_id=f"{parts.member_id:x}",
            current_leader_member_id=f"{parts.raft.lead:x}",
            transferee_member_id=f"{to:x}",
        )
        self._transfers.append((call_id, to, now_ns))
        parts.raft.transfer_leader(to)

    def transfer_leadership(self, now_ns: int) -> None:
        """Transfer to the voter connected longest, if this member leads and there is one."""
        parts = self._parts
        to = self._longest_connected()
        if to == NO_NODE or not parts.raft.is_leader:
            parts.logger.info(
                "skipped leadership transfer",
                local_member_id=f"{parts.member_id:x}",
                current_leader_member_id=f"{parts.raft.lead:x}",
            )
            return
        self._transfer_until_ns = now_ns + parts.limits.election_timeout_ns
        self.move(INTERNAL, to, now_ns)

    def transfer_to_another(self) -> bool:
        """Transfer leadership and stay a member; False: there is no other voter to lead."""
        raft = self._parts.raft
        to = self._longest_connected()
        if to == NO_NODE or raft.transferee != NO_NODE:
            return False
        raft.transfer_leader(to)
        return True

    @property
    def is_transferring_leadership(self) -> bool:
        """Whether a transfer at the end of the process is still under way."""
        return self._transfer_until_ns is not None

    def _longest_connected(self) -> int:
        parts = self._parts
        connected = [
            (since_ns, each)
            for each, member in sorted(parts.state.membership.members.items())
            if each != parts.member_id
            and not member.is_learner
            and (since_ns := parts.replication.peers.active_since_ns(each)) is not None
        ]
        return min(connected, default=(0, NO_NODE))[1]

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away; its transfer goes on."""
        if self._transfers:
            self._transfers = [each for each in self._transfers if each[0] != call_id]

    def step_transfers(self, now_ns: int, out: Outbox) -> None:
        """Answer calls whose transfer is done or has taken too long; restart aborted ones."""
        if not self._transfers:
            return
        parts = self._parts
        raft = parts.raft
        left: list[tuple[int, int, int]] = []
        for call_id, to, since_ns in self._transfers:
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
        self._transfers = left
        until_ns = self._transfer_until_ns
        another_leads = self._lead not in (NO_NODE, parts.member_id)
        if until_ns is not None and (now_ns >= until_ns or another_leads):
            self._transfer_until_ns = None
            self._transfers = [each for each in left if each[0] != INTERNAL]


def _reply(out: Outbox, call_id: int, refusal: Refusal | None) -> None:
    if call_id == INTERNAL:
        return
    if refusal is None:
        out.replies.append((call_id, Code.OK, b""))
    else:
        out.refuse(call_id, refusal)
