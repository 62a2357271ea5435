"""Whether all members hold the same data: compared at a start, now and then, and after compactions.

    start        a member that comes back compares itself before (--feature-gates
                 InitialCorruptCheck=true) or soon after it serves
    now and then the leader compares all: each --corrupt-check-time, or seldom enough that hashing
                 takes less than half a percent of the time
    compaction   the leader compares what compactions hashed on their way, each minute: free

A member that a majority disagrees with is named by a CORRUPT alarm, which refuses writes on all
members as in etcd, and fences itself off (see fence) until it is rebuilt. Where no majority shows
who is right, everybody is meant, and only those are alarmed who asked for the check: what is on by
itself says so in the log. A member rebuilt from the others lifts its own alarm once they agree.

A check that nobody asked for looks again before it accuses anybody, and is not made while the
cluster's version is below 3.6: older releases may hash a tombstone at the compacted revision
differently.
"""

from typing import Final

from kvstore.batch import Outbox
from kvstore.errors import CorruptionError
from kvstore.mvcc.hashing import HashResult
from kvstore.node.cluster.hash_comparison import HashCollector, HashComparison, Then, majority
from kvstore.node.limits import MILLISECOND_NS, SECOND_NS
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL, Waiter
from kvstore.node.reads.reads import Reads
from kvstore.node.upkeep.maintenance import Maintenance
from kvstore.raft.model import NO_NODE
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, wrap
from kvstore.wire.versions import Version, parse_version

QUIET_INTERVAL_NS: Final = 600 * SECOND_NS  # at least, between checks nobody asked for
QUIET_RATIO: Final = 200  # such a check takes at most one part in so many of the time
_ALIKE: Final = Version(3, 6)
_START_AGAIN_NS: Final = 10 * SECOND_NS
_START_TRIES: Final = 6
_LIFT_AGAIN_NS: Final = 2 * SECOND_NS
_HAND_OVER_AGAIN_NS: Final = 2 * SECOND_NS
_LOOK_INTERVAL_NS: Final = 50 * MILLISECOND_NS  # turns come far more often
REBUILD_FLAG: Final = "--rebuild-from-peers"


class Corruption:
    """The checks of one member, and its fence."""

    def __init__(self, parts: Parts, reads: Reads, maintenance: Maintenance) -> None:
        self._parts = parts
        self._reads = reads
        self._collector = HashCollector(parts, maintenance)
        self._until_ns: int | None = None  # a check is under way; if nothing comes of it, until
        self._check = 0  # which: answers to an earlier one do not count
        self._now_ns = 0
        self._began_ns = 0
        others = [each for each in parts.membership.members if each != parts.member_id]
        comes_back = parts.raft.applied > 0 and bool(others)
        self._start_tries = _START_TRIES if comes_back else 0
        self._start_ns = 0
        self._holds_up = comes_back and parts.limits.initial_corrupt_check
        self._periodic_ns: int | None = None
        self._compact_ns = 0
        self._checked_revision = 0  # of the newest compaction found the same everywhere
        self._suspects: frozenset[int] = frozenset()  # of the last check that found any
        self._lift_ns = 0
        self._look_ns = 0
        self._hand_over_ns = 0

    @property
    def holds_up(self) -> bool:
        """Whether the member must not serve yet: its first comparison is not done."""
        return self._holds_up

    def step(self, now_ns: int, *, leads: bool) -> None:
        """Begin the check that is due, if none is under way."""
        self._now_ns = now_ns
        parts = self._parts
        if parts.alarms.corrupt or parts.fence.refusal is not None:
            self._mind_fence()
        if self._until_ns is not None:
            if now_ns < self._until_ns:
                return
            self._end()
        if now_ns < self._look_ns:
            return
        self._look_ns = now_ns + _LOOK_INTERVAL_NS
        if self._start_tries and self._may_start() and (self._holds_up or self._is_comparable):
            self._begin_start()
        elif self._parts.limits.is_rebuilt and self._is_accused and now_ns >= self._lift_ns:
            self._lift_ns = now_ns + _LIFT_AGAIN_NS
            self._comparison(self._lift)
        elif leads:
            self._step_leader()
        else:
            self._periodic_ns = None

    @property
    def _is_comparable(self) -> bool:
        """Whether all members hash alike; before 3.6 some leave out a tombstone others take in."""
        version = self._parts.membership.cluster_version
        return version is not None and parse_version(version) >= _ALIKE

    # The fence.

    @property
    def _is_accused(self) -> bool:
        """Whether others say that this member's data differs; alone there is nobody to say so."""
        parts = self._parts
        accused = (parts.member_id, int(pb.AlarmType.CORRUPT))
        return parts.alarms.is_raised(accused) and len(parts.membership.members) > 1

    def _mind_fence(self) -> None:
        parts = self._parts
        fence, is_accused = parts.fence, self._is_accused
        if is_accused and fence.refusal is None:
            fence.close(parts.member_id)
            self._tell_how_to_rebuild()
        elif not is_accused and fence.refusal is not None:
            fence.open()
            parts.logger.info("this member's data is the others' again; it serves")
        if is_accused and parts.raft.is_leader and self._now_ns >= self._hand_over_ns:
            self._hand_over_ns = self._now_ns + _HAND_OVER_AGAIN_NS
            self._hand_over()

    def _tell_how_to_rebuild(self) -> None:
        parts = self._parts
        urls = [
            url
            for member in parts.membership.sorted_members()
            if member.id != parts.member_id and not member.is_learner
            for url in member.client_urls
        ]
        parts.logger.error(
            "this member's data differs from the others': it is fenced off and serves no data. "
            "Start it once more with the flag below, beside those it has, to rebuild it",
            local_member_id=f"{parts.member_id:x}",
            flag=f"{REBUILD_FLAG}={','.join(dict.fromkeys(urls))}",
        )

    def _hand_over(self) -> None:
        """Let a sound member lead: this one cannot answer its clients."""
        parts = self._parts
        accused = {member for member, _ in parts.alarms.raised(pb.AlarmType.CORRUPT)}
        for member in parts.membership.sorted_members():
            is_sound = member.id not in accused and not member.is_learner
            if is_sound and parts.peers.active_since_ns(member.id) is not None:
                parts.raft.transfer_leader(member.id)
                return

    # One check at a time.

    def _comparison(self, then: Then) -> None:
        """Hash here and ask the others; then is told, unless the check is over by then."""
        self._begin()
        check = self._check
        self._collector.begin(lambda comparison: then(comparison) if check == self._check else None)

    def _begin(self) -> None:
        self._check += 1
        self._began_ns = self._now_ns
        # Hashing takes as long as it takes: it is bounded by the data, not by a time.
        self._until_ns = self._now_ns + 3600 * SECOND_NS

    def _end(self) -> None:
        self._check += 1
        self._until_ns = None

    # At a start.

    def _may_start(self) -> bool:
        raft = self._parts.raft
        if self._now_ns < self._start_ns:
            return False
        return self._holds_up or (raft.lead != NO_NODE and raft.applied >= raft.committed)

    def _begin_start(self) -> None:
        self._start_tries -= 1
        self._start_ns = self._now_ns + _START_AGAIN_NS
        self._parts.logger.info(
            "starting initial corruption check", local_member_id=f"{self._parts.member_id:x}"
        )
        self._comparison(self._finish_start)

    def _finish_start(self, comparison: HashComparison) -> None:
        parts = self._parts
        self._end()
        own = comparison.own
        for member, peer in comparison.peers.items():
            if peer.hash not in (own.hash, own.other):
                same = peer.compact_revision == own.compact_revision
                what = "hash values" if same else "compact revision values"
                parts.logger.warning(
                    f"found different {what} from remote peer",
                    remote_peer_id=f"{member:x}",
                    local_member_revision=own.hash_revision,
                    local_member_compact_revision=own.compact_revision,
                    local_member_hash=own.hash,
                    remote_peer_revision=peer.revision,
                    remote_peer_compact_revision=peer.compact_revision,
                    remote_peer_hash=peer.hash,
                )
        compared = comparison.comparable()
        differing = [member for member, value in compared.items() if value != own.hash]
        if differing and self._holds_up:
            raise CorruptionError(
                f"{parts.member_id:x} found data inconsistency with peers; to rebuild this member "
                f"from them, start it with {REBUILD_FLAG}"
            )
        if not differing and (compared or self._holds_up):
            self._start_tries = 0
            self._holds_up = False
            parts.logger.info(
                "initial corruption checking passed; no corruption",
                local_member_id=f"{parts.member_id:x}",
            )
            return
        if self._accuse(comparison, asked_for=False):
            self._start_tries = 0

    # As leader.

    def _step_leader(self) -> None:
        limits, now_ns = self._parts.limits, self._now_ns
        if len(self._parts.membership.members) < 2:
            return
        if self._periodic_ns is None:
            self._periodic_ns = now_ns + (limits.corrupt_check_ns or QUIET_INTERVAL_NS)
            self._compact_ns = now_ns + limits.compact_hash_check_ns
        alike = self._is_comparable
        if now_ns >= self._compact_ns and (limits.compact_hash_check or alike):
            self._compact_ns = now_ns + limits.compact_hash_check_ns
            self._check_compactions()
        elif now_ns >= self._periodic_ns and (limits.corrupt_check_ns or alike):
            self._comparison(self._confirm_lead)

    def _confirm_lead(self, comparison: HashComparison) -> None:
        """Make sure that this member led while the others answered: read again after a quorum."""
        check = self._check

        def confirmed(_out: Outbox) -> None:
            if check == self._check:
                self._finish_periodic(comparison)

        self._until_ns = self._now_ns + self._parts.limits.request_timeout_ns
        self._reads.add(INTERNAL, confirmed)

    def _finish_periodic(self, comparison: HashComparison) -> None:
        parts, limits = self._parts, self._parts.limits
        took_ns = self._now_ns - self._began_ns
        self._end()
        interval_ns = limits.corrupt_check_ns or max(QUIET_INTERVAL_NS, QUIET_RATIO * took_ns)
        self._periodic_ns = self._now_ns + interval_ns
        parts.logger.info(
            "finished peer corruption check", number_of_peers_checked=len(comparison.peers)
        )
        asked_for = limits.corrupt_check_ns > 0
        ahead = self._ahead(comparison)
        if ahead is not None and asked_for:
            self._raise_alarm(ahead)
        elif not self._accuse(comparison, asked_for=asked_for) and not asked_for and self._suspects:
            self._periodic_ns = self._now_ns + _START_AGAIN_NS

    def _ahead(self, comparison: HashComparison) -> int | None:
        """Return a member that is further than the leader, which none can be."""
        store, logger = self._parts.store, self._parts.logger
        for member, peer in comparison.peers.items():
            if peer.revision > store.revision:
                logger.warning(
                    "revision from follower must be less than or equal to leader's",
                    leader_revision=store.revision,
                    follower_revision=peer.revision,
                    follower_peer_id=f"{member:x}",
                )
                return member
            if peer.compact_revision > store.compacted:
                logger.warning(
                    "compact revision from follower must be less than or equal to leader's",
                    leader_compact_revision=store.compacted,
                    follower_compact_revision=peer.compact_revision,
                    follower_peer_id=f"{member:x}",
                )
                return member
        return None

    # After compactions.

    def _check_compactions(self) -> None:
        unchecked = [
            each
            for each in self._parts.store.compaction_hashes()
            if each.hash_revision > self._checked_revision
        ]
        if unchecked:
            self._begin()
            self._ask_about(unchecked, self._check)

    def _ask_about(self, hashes: list[HashResult], check: int) -> None:
        """Compare the newest; older ones only while some member could not answer."""

        def take(comparison: HashComparison) -> None:
            if check != self._check:
                return
            if self._compare_compaction(comparison) or len(hashes) == 1:
                self._end()
                self._parts.logger.info("finished compaction hash check")
            else:
                self._ask_about(hashes[1:], check)

        self._collector.ask_others(hashes[0], take)

    def _compare_compaction(self, comparison: HashComparison) -> bool:
        """Tell whether this settles the matter."""
        own, compared = comparison.own, comparison.comparable()
        if any(value != own.hash for value in compared.values()):
            # What a compaction hashed cannot change any more: no need to look twice.
            asked_for = self._parts.limits.compact_hash_check
            self._accuse(comparison, asked_for=asked_for, is_final=True)
            return True
        if len(compared) < comparison.asked:
            return False
        self._checked_revision = max(self._checked_revision, own.hash_revision)
        return True

    # Findings.

    def _accuse(
        self, comparison: HashComparison, *, asked_for: bool, is_final: bool = False
    ) -> bool:
        """Raise the alarm for those a majority disagrees with; tell whether it was raised."""
        parts = self._parts
        groups = comparison.groups(parts.member_id)
        if len(groups) == 1:
            self._suspects = frozenset()
            return False
        right = majority(groups, parts.membership.members)
        wrong = {m for value, having in groups.items() if value != right for m in having}
        parts.logger.error(
            "found data inconsistency with peers",
            revision=comparison.own.hash_revision,
            compact_revision=comparison.own.compact_revision,
            members_by_hash={
                f"{value:08x}": [f"{member:x}" for member in having]
                for value, having in groups.items()
            },
            majority="none" if right is None else f"{right:08x}",
        )
        if not (asked_for or is_final) and self._suspects != wrong:
            self._suspects = frozenset(wrong)  # look again before anybody is accused
            return False
        self._suspects = frozenset()
        if right is not None:
            for member in sorted(wrong):
                self._raise_alarm(member)
        elif asked_for:
            self._raise_alarm(0)
        return right is not None or asked_for

    def _raise_alarm(self, member: int) -> None:
        if (member, pb.AlarmType.CORRUPT) in self._parts.alarms.raised(pb.AlarmType.CORRUPT):
            return
        self._propose_alarm(pb.AlarmRequest.ACTIVATE, member)

    def _lift(self, comparison: HashComparison) -> None:
        """Take back the accusation of a rebuilt member that most of all members agree with."""
        parts = self._parts
        self._end()
        groups = comparison.groups(parts.member_id)
        if majority(groups, parts.membership.members) == comparison.own.hash:
            parts.logger.info(
                "the rebuilt data is the others'", revision=comparison.own.hash_revision
            )
            self._propose_alarm(pb.AlarmRequest.DEACTIVATE, parts.member_id)

    def _propose_alarm(self, action: pb.AlarmRequest.AlarmAction, member: int) -> None:
        parts = self._parts
        alarm = pb.AlarmRequest(action=action, memberID=member, alarm=pb.AlarmType.CORRUPT)
        body = alarm.SerializeToString()
        data = wrap(Field.ALARM, body, parts.request_ids.next())
        parts.pending.add(data, Waiter(INTERNAL, Field.ALARM, None, body))
