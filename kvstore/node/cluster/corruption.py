"""Checks that all members hold the same data: at a start, periodically, and after compactions.

    start        a restarted member compares itself with the others, before it serves
                 (--feature-gates InitialCorruptCheck=true) or soon after
    periodic     the leader compares all members: each --corrupt-check-time, or, if that is not
                 set, so rarely that hashing takes less than half a percent of the time
    compaction   each minute the leader compares the hashes that compactions have computed: free

A member that differs from a majority gets a CORRUPT alarm, which refuses writes on all members as
in etcd, and fences itself off (see fence) until it is rebuilt. If there is no majority, a check
that the operator configured raises the alarm for member 0, and a check that is on by default only
logs an error. A member rebuilt from the others clears its own alarm once a majority has the same
hash.

A check that is on by default must find the same difference twice before it raises an alarm, and is
not made while the cluster version is below 3.6: older releases may hash a tombstone at the
compacted revision differently.
"""

from typing import Final

from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.batch import Outbox
from kvstore.errors import CorruptionError
from kvstore.mvcc.hashing import HashResult
from kvstore.node.call_context import UNRESTRICTED
from kvstore.node.cluster.hash_comparison import (
    ComparisonCallback,
    HashCollector,
    HashComparison,
    majority,
)
from kvstore.node.internal_requests import propose
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL
from kvstore.node.reads.reads import Reads
from kvstore.raft.model import NO_NODE
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from kvstore.wire.versions import Version, parse_version

QUIET_INTERVAL_NS: Final = 600 * SECOND_NS  # at least, between checks that are on by default
QUIET_RATIO: Final = 200  # such a check takes at most this part of the time
_COMPARABLE_SINCE: Final = Version(3, 6)
_RETRY_NS: Final = 10 * SECOND_NS
_START_TRIES: Final = 6
_CLEAR_RETRY_NS: Final = 2 * SECOND_NS
_TRANSFER_RETRY_NS: Final = 2 * SECOND_NS
_STEP_INTERVAL_NS: Final = 50 * MILLISECOND_NS  # the interval of steps; turns are far more frequent
REBUILD_FLAG: Final = "--rebuild-from-peers"


class Corruption:
    """The checks of one member, and its fence."""

    def __init__(self, parts: Parts, reads: Reads, jobs: LongJobs) -> None:
        self._parts = parts
        self._time = parts.time
        self._reads = reads
        self._collector = HashCollector(parts, jobs)
        self._until_ns: int | None = None  # when the check under way times out
        self._check = 0  # its number: answers to an earlier one are ignored
        self._began_ns = 0
        others = [each for each in parts.state.membership.members if each != parts.member_id]
        is_restart = parts.raft.applied > 0 and bool(others)
        self._start_tries = _START_TRIES if is_restart else 0
        self._start_ns = 0
        self._start_compacted = 0  # this member's compact revision in the last comparison
        self._delays_serving = is_restart and parts.limits.initial_corrupt_check
        self._periodic_ns: int | None = None
        self._compact_ns = 0
        self._checked_revision = 0  # of the newest compaction with the same hash everywhere
        self._suspects: frozenset[int] = frozenset()  # of the last check that found any
        self._clear_ns = 0
        self._step_ns = 0
        self._transfer_ns = 0

    @property
    def delays_serving(self) -> bool:
        """Whether the member must not serve yet: its first comparison is not done."""
        return self._delays_serving

    def step(self, now_ns: int, *, leads: bool) -> None:
        """Begin the check that is due, if none is under way."""
        parts = self._parts
        if parts.state.alarms.corrupt or parts.replication.fence.refusal is not None:
            self._update_fence()
        if self._until_ns is not None:
            if now_ns < self._until_ns:
                return
            self._end()
        if now_ns < self._step_ns:
            return
        self._step_ns = now_ns + _STEP_INTERVAL_NS
        if (
            self._start_tries
            and self._may_start()
            and (self._delays_serving or self._is_comparable)
        ):
            self._begin_start()
        elif self._parts.limits.is_rebuilt and self._is_alarmed and now_ns >= self._clear_ns:
            self._clear_ns = now_ns + _CLEAR_RETRY_NS
            self._compare(self._clear_own_alarm)
        elif leads:
            self._step_leader()
        else:
            self._periodic_ns = None

    @property
    def _is_comparable(self) -> bool:
        """Whether all members hash alike; before 3.6 some skip a tombstone that others hash."""
        version = self._parts.state.membership.cluster_version
        return version is not None and parse_version(version) >= _COMPARABLE_SINCE

    # The fence.

    @property
    def _is_alarmed(self) -> bool:
        """Whether the CORRUPT alarm is raised for this member, and there are others."""
        parts = self._parts
        alarm = (parts.member_id, int(pb.AlarmType.CORRUPT))
        return parts.state.alarms.is_raised(alarm) and len(parts.state.membership.members) > 1

    def _update_fence(self) -> None:
        parts = self._parts
        fence, is_alarmed = parts.replication.fence, self._is_alarmed
        if is_alarmed and fence.refusal is None:
            fence.close(parts.member_id)
            self._log_how_to_rebuild()
        elif not is_alarmed and fence.refusal is not None:
            fence.open()
            parts.logger.info("this member's data equals the others' again; it serves")
        if is_alarmed and parts.raft.is_leader and self._time.now_ns >= self._transfer_ns:
            self._transfer_ns = self._time.now_ns + _TRANSFER_RETRY_NS
            self._transfer_leadership()

    def _log_how_to_rebuild(self) -> None:
        parts = self._parts
        urls = [
            url
            for member in parts.state.membership.sorted_members()
            if member.id != parts.member_id and not member.is_learner
            for url in member.client_urls
        ]
        parts.logger.error(
            "this member's data differs from the others': it is fenced off and serves no data. "
            "To rebuild it, restart it with the flag below in addition to its present ones",
            local_member_id=f"{parts.member_id:x}",
            flag=f"{REBUILD_FLAG}={','.join(dict.fromkeys(urls))}",
        )

    def _transfer_leadership(self) -> None:
        """Make a member without the alarm leader: this one cannot answer its clients."""
        parts = self._parts
        alarmed = {member for member, _ in parts.state.alarms.raised(pb.AlarmType.CORRUPT)}
        for member in parts.state.membership.sorted_members():
            may_lead = member.id not in alarmed and not member.is_learner
            if may_lead and parts.replication.peers.active_since_ns(member.id) is not None:
                parts.raft.transfer_leader(member.id)
                return

    # One check at a time.

    def _compare(self, callback: ComparisonCallback) -> None:
        """Hash here and ask the others; callback is called unless the check has timed out."""
        self._begin()
        check = self._check

        def compared(comparison: HashComparison) -> None:
            if check == self._check:
                callback(comparison)

        self._collector.begin(compared)

    def _begin(self) -> None:
        self._check += 1
        self._began_ns = self._time.now_ns
        # How long hashing takes depends on the size of the data, so the limit is generous.
        self._until_ns = self._time.now_ns + 3600 * SECOND_NS

    def _end(self) -> None:
        self._check += 1
        self._until_ns = None

    # At a start.

    def _may_start(self) -> bool:
        """Return whether to compare now: again when a compaction of the others has come here."""
        if self._delays_serving:
            return True
        raft, compacted = self._parts.raft, self._parts.state.store.compacted
        is_due = self._time.now_ns >= self._start_ns or compacted > self._start_compacted
        return is_due and raft.lead != NO_NODE and raft.applied >= raft.committed

    def _begin_start(self) -> None:
        self._start_tries -= 1
        self._start_ns = self._time.now_ns + _RETRY_NS
        self._start_compacted = self._parts.state.store.compacted
        self._parts.logger.info(
            "starting initial corruption check", local_member_id=f"{self._parts.member_id:x}"
        )
        self._compare(self._finish_start)

    def _finish_start(self, comparison: HashComparison) -> None:
        parts = self._parts
        self._end()
        own = comparison.own
        for member, peer in comparison.peers.items():
            if peer.hash not in (own.hash, own.alternative):
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
        if differing and self._delays_serving:
            raise CorruptionError(
                f"{parts.member_id:x} found data inconsistency with peers; to rebuild this member "
                f"from them, start it with {REBUILD_FLAG}"
            )
        if not differing and (compared or self._delays_serving):
            # Where the others have compacted the revision, as in etcd, nothing is compared before
            # the member serves. It is compared as soon as it has caught up.
            self._delays_serving = False
            if compared:
                self._start_tries = 0
            parts.logger.info(
                "initial corruption checking passed; no corruption",
                local_member_id=f"{parts.member_id:x}",
            )
            return
        if self._judge(comparison, is_configured=False):
            self._start_tries = 0

    # As leader.

    def _step_leader(self) -> None:
        limits, now_ns = self._parts.limits, self._time.now_ns
        if len(self._parts.state.membership.members) < 2:
            return
        if self._periodic_ns is None:
            self._periodic_ns = now_ns + (limits.corrupt_check_ns or QUIET_INTERVAL_NS)
            self._compact_ns = now_ns + limits.compact_hash_check_ns
        is_comparable = self._is_comparable
        if now_ns >= self._compact_ns and (limits.compact_hash_check or is_comparable):
            self._compact_ns = now_ns + limits.compact_hash_check_ns
            self._check_compactions()
        elif now_ns >= self._periodic_ns and (limits.corrupt_check_ns or is_comparable):
            self._compare(self._confirm_leadership)

    def _confirm_leadership(self, comparison: HashComparison) -> None:
        """Confirm by a read index that this member was leader while the others answered."""
        check = self._check

        def confirmed(_out: Outbox) -> None:
            if check == self._check:
                self._finish_periodic(comparison)

        self._until_ns = self._time.now_ns + self._parts.limits.request_timeout_ns
        self._reads.add(INTERNAL, UNRESTRICTED, confirmed)

    def _finish_periodic(self, comparison: HashComparison) -> None:
        parts, limits = self._parts, self._parts.limits
        took_ns = self._time.now_ns - self._began_ns
        self._end()
        interval_ns = limits.corrupt_check_ns or max(QUIET_INTERVAL_NS, QUIET_RATIO * took_ns)
        self._periodic_ns = self._time.now_ns + interval_ns
        parts.logger.info(
            "finished peer corruption check", number_of_peers_checked=len(comparison.peers)
        )
        is_configured = limits.corrupt_check_ns > 0
        ahead = self._member_ahead(comparison)
        if ahead is not None and is_configured:
            self._raise_alarm(ahead)
            return
        is_raised = self._judge(comparison, is_configured=is_configured)
        if not is_raised and not is_configured and self._suspects:
            self._periodic_ns = self._time.now_ns + _RETRY_NS

    def _member_ahead(self, comparison: HashComparison) -> int | None:
        """Return a member with a higher revision than the leader, which must not be."""
        store, logger = self._parts.state.store, self._parts.logger
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
            for each in self._parts.state.store.compaction_hashes()
            if each.hash_revision > self._checked_revision
        ]
        if unchecked:
            self._begin()
            self._ask_about(unchecked, self._check)

    def _ask_about(self, hashes: list[HashResult], check: int) -> None:
        """Compare the newest hash, and older ones only if some member did not have that one."""

        def compared(comparison: HashComparison) -> None:
            if check != self._check:
                return
            if self._compare_compaction(comparison) or len(hashes) == 1:
                self._end()
                self._parts.logger.info("finished compaction hash check")
            else:
                self._ask_about(hashes[1:], check)

        self._collector.ask_others(hashes[0], compared)

    def _compare_compaction(self, comparison: HashComparison) -> bool:
        """Return whether older hashes need not be compared."""
        own, compared = comparison.own, comparison.comparable()
        if any(value != own.hash for value in compared.values()):
            # The hash of a compaction does not change any more: no second check is needed.
            is_configured = self._parts.limits.compact_hash_check
            self._judge(comparison, is_configured=is_configured, is_final=True)
            return True
        if len(compared) < comparison.answered:
            return False
        self._checked_revision = max(self._checked_revision, own.hash_revision)
        return True

    # Results.

    def _judge(
        self, comparison: HashComparison, *, is_configured: bool, is_final: bool = False
    ) -> bool:
        """Raise the alarm for members that differ from a majority; return whether it was raised.

        is_configured: the operator configured this check. is_final: one difference is enough.
        """
        parts = self._parts
        groups = comparison.groups(parts.member_id)
        if len(groups) == 1:
            self._suspects = frozenset()
            return False
        right = majority(groups, parts.state.membership.members)
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
        if not (is_configured or is_final) and self._suspects != wrong:
            self._suspects = frozenset(wrong)  # the next check must find the same
            return False
        self._suspects = frozenset()
        if right is not None:
            for member in sorted(wrong):
                self._raise_alarm(member)
        elif is_configured:
            self._raise_alarm(0)
        return right is not None or is_configured

    def _raise_alarm(self, member: int) -> None:
        if (member, pb.AlarmType.CORRUPT) in self._parts.state.alarms.raised(pb.AlarmType.CORRUPT):
            return
        self._propose_alarm(pb.AlarmRequest.ACTIVATE, member)

    def _clear_own_alarm(self, comparison: HashComparison) -> None:
        """Clear this rebuilt member's alarm if a majority has the same hash."""
        parts = self._parts
        self._end()
        groups = comparison.groups(parts.member_id)
        if majority(groups, parts.state.membership.members) == comparison.own.hash:
            parts.logger.info(
                "the rebuilt data equals the others'", revision=comparison.own.hash_revision
            )
            self._propose_alarm(pb.AlarmRequest.DEACTIVATE, parts.member_id)

    def _propose_alarm(self, action: pb.AlarmRequest.AlarmAction, member: int) -> None:
        alarm = pb.AlarmRequest(action=action, memberID=member, alarm=pb.AlarmType.CORRUPT)
        propose(self._parts, Field.ALARM, alarm.SerializeToString())
