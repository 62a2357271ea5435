"""The cluster version: the features that all members support, raised and lowered by the leader.

    at its first commit of a term, then every 4 s, the leader asks each member for /version
        no version yet      the least server version of all, or 3.0.0 if one does not answer
        later               up to the least server version, once every member answers
        under a downgrade   down to its target; the downgrade ends when all servers run that

Downgrade calls wait for a read index, so they are decided on the newest state, on any member.
"""

from functools import partial
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import (
    CLUSTER_VERSION_UNKNOWN,
    DOWNGRADE_IN_PROGRESS,
    INVALID_DOWNGRADE_TARGET,
    WRONG_DOWNGRADE_VERSION,
    Code,
    Refusal,
)
from kvstore.node.call_context import CallContext, Handler
from kvstore.node.internal_requests import propose
from kvstore.node.parts import Parts
from kvstore.node.reads.reads import Reads
from kvstore.types import MIN_CLUSTER_VERSION, SERVER_VERSION
from kvstore.wire import rpc
from kvstore.wire.gen import membership_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field
from kvstore.wire.varint import WireError
from kvstore.wire.versions import (
    Version,
    decode_server_version,
    is_change,
    parse_cluster_version,
    parse_version,
)

MONITOR_INTERVAL_NS: Final = 4 * SECOND_NS
_UNKNOWN_METHOD: Final = Refusal(Code.UNKNOWN, "etcdserver: unknown method")


class Poll:
    """One round of asking every member for its server version."""

    def __init__(self, term: int) -> None:
        self.term = term
        self.waiting: set[int] = set()
        self.servers: dict[int, Version | None] = {}  # None: no answer, or no version

    @property
    def least(self) -> Version | None:
        """The least version of all servers, None if one is not known."""
        known = [version for version in self.servers.values() if version is not None]
        return min(known) if known and len(known) == len(self.servers) else None


class Versions:
    """Monitors the versions as leader; answers downgrade calls."""

    def __init__(self, parts: Parts, reads: Reads) -> None:
        self._parts = parts
        self._reads = reads
        self._logged = parts.state.membership.cluster_version
        self._poll: Poll | None = None
        self._term_polled = 0  # the last term in which this member asked as leader
        self._monitor_ns = 0
        self._target_seen: str | None = None
        self._downgrade_check_ns = 0
        self._checks_downgrade = False

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each method."""
        return {rpc.DOWNGRADE: self._downgrade}

    # The leader's monitor.

    def step(self, now_ns: int, *, leads: bool) -> int | None:
        """Poll if it is time; leads: this member is leader and its term's first entry is applied.

        Returns when the next step is due (None: not before something else happens).
        """
        if self._parts.state.membership.cluster_version != self._logged:
            self._log_change()
        if not leads:
            self._poll = None
            return None
        term, limits = self._parts.raft.term, self._parts.limits
        if term != self._term_polled:
            self._term_polled, self._poll = term, None
            self._monitor_ns = now_ns
        target = self._parts.state.membership.downgrade_target
        if target != self._target_seen:
            self._target_seen = target
            self._downgrade_check_ns = now_ns + limits.downgrade_check_ns
        checks = limits.downgrade_check_ns > 0 and target is not None
        if checks and now_ns >= self._downgrade_check_ns:
            self._downgrade_check_ns = now_ns + limits.downgrade_check_ns
            self._checks_downgrade = True
            self._monitor_ns = now_ns
        if now_ns >= self._monitor_ns and self._poll is None:
            self._monitor_ns = now_ns + MONITOR_INTERVAL_NS
            self._start_poll()
        if self._poll is not None or (limits.is_solitary and self._logged is not None):
            return None
        return min(self._monitor_ns, self._downgrade_check_ns) if checks else self._monitor_ns

    def _log_change(self) -> None:
        before, self._logged = self._logged, self._parts.state.membership.cluster_version
        if before is None:
            self._parts.logger.info("set initial cluster version", cluster_version=self._logged)
        else:
            self._parts.logger.info("updated cluster version", before=before, to=self._logged)

    def _start_poll(self) -> None:
        parts = self._parts
        poll = self._poll = Poll(parts.raft.term)
        for member_id in parts.state.membership.members:
            if member_id == parts.member_id:
                poll.servers[member_id] = parse_version(SERVER_VERSION)
                continue
            poll.waiting.add(member_id)
            args = (f"{member_id:x}".encode(), b"/version", b"")
            parts.host.tasks.ask(
                TaskKind.GET_PEER, args, partial(self._handle_answer, poll, member_id)
            )
        if not poll.waiting:
            self._decide(poll)

    def _handle_answer(self, poll: Poll, member_id: int, result: TaskResult, _out: Outbox) -> None:
        poll.waiting.discard(member_id)
        poll.servers[member_id] = self._read(member_id, result)
        if not poll.waiting and poll is self._poll and poll.term == self._parts.raft.term:
            self._decide(poll)

    def _read(self, member_id: int, result: TaskResult) -> Version | None:
        error = result.error
        if not error:
            try:
                version = parse_version(decode_server_version(result.body))
            except (WireError, ValueError) as unreadable:
                error = str(unreadable)
            else:
                if version > parse_version(SERVER_VERSION):
                    self._parts.logger.warning(
                        "leader found higher-versioned member",
                        local_member_version=SERVER_VERSION,
                        remote_member_id=f"{member_id:x}",
                        remote_member_version=str(version),
                    )
                return version
        self._parts.logger.warning(
            "failed to get version", remote_member_id=f"{member_id:x}", error=error
        )
        return None

    def _decide(self, poll: Poll) -> None:
        self._poll = None
        if not self._parts.raft.is_leader:
            return
        desired = self._desired_version(poll.least)
        if desired is not None:
            self._set_version(desired.without_patch)
        if self._checks_downgrade:
            self._checks_downgrade = False
            self._end_downgrade(poll)

    def _desired_version(self, least: Version | None) -> Version | None:
        """Return the version the cluster should have, None to leave it as it is."""
        membership = self._parts.state.membership
        if membership.cluster_version is None:
            return least or parse_version(MIN_CLUSTER_VERSION)
        if least is None:
            return None
        current = parse_version(membership.cluster_version)
        if membership.downgrade_target is None:
            return least if current < least and is_change(current, least) else None
        target = parse_version(membership.downgrade_target)
        if target == current:
            return None
        for name, version in (("cluster", current), ("minimal server", least)):
            if target != version.previous_minor():
                self._parts.logger.error(
                    f"cannot downgrade from {name} version to downgrade target",
                    downgrade_target=str(target),
                    version=str(version),
                )
                return None
        return target

    def _set_version(self, version: Version) -> None:
        membership, logger = self._parts.state.membership, self._parts.logger
        if membership.cluster_version is None:
            logger.info("setting up initial cluster version using v3 API", to=str(version))
        else:
            logger.info(
                "updating cluster version using v3 API",
                before=membership.cluster_version,
                to=str(version),
            )
        request = membership_pb2.ClusterVersionSetRequest(ver=str(version))
        propose(self._parts, Field.CLUSTER_VERSION_SET, request.SerializeToString())

    def _end_downgrade(self, poll: Poll) -> None:
        target = self._parts.state.membership.downgrade_target
        if target is None:
            return
        desired = parse_cluster_version(target)
        if all(v is not None and v.without_patch == desired for v in poll.servers.values()):
            self._parts.logger.info("the cluster has been downgraded", cluster_version=target)
            propose(self._parts, Field.DOWNGRADE_INFO_SET, b"")

    # Calls.

    def _downgrade(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.DowngradeRequest.FromString(body)
        match request.action:
            case pb.DowngradeRequest.VALIDATE | pb.DowngradeRequest.ENABLE:
                try:
                    target = parse_cluster_version(request.version)
                except ValueError:
                    return WRONG_DOWNGRADE_VERSION
                enables = request.action == pb.DowngradeRequest.ENABLE
                decide = partial(self._decide_downgrade, call_id, target, enables=enables)
                self._reads.add(call_id, context, decide)
            case pb.DowngradeRequest.CANCEL:
                self._reads.add(call_id, context, partial(self._cancel, call_id))
            case _:
                return _UNKNOWN_METHOD
        return None

    def _decide_downgrade(
        self, call_id: int, target: Version, out: Outbox, *, enables: bool
    ) -> None:
        membership = self._parts.state.membership
        refusal: Refusal | None = None
        if membership.cluster_version is None:
            refusal = CLUSTER_VERSION_UNKNOWN
        elif target != parse_version(membership.cluster_version).previous_minor():
            refusal = INVALID_DOWNGRADE_TARGET
        elif membership.downgrade_target is not None:
            refusal = DOWNGRADE_IN_PROGRESS
        if refusal is not None:
            self._parts.logger.warning("rejected downgrade request", error=refusal.text)
            out.refuse(call_id, refusal)
        elif enables:
            request = membership_pb2.DowngradeInfoSetRequest(enabled=True, ver=str(target))
            self._propose_for(call_id, request.SerializeToString())
        else:
            self._answer(call_id, out)

    def _cancel(self, call_id: int, out: Outbox) -> None:
        """Cancel a downgrade; if there is none, only the operator's log says so, as in etcd."""
        if self._parts.state.membership.downgrade_target is None:
            text = "etcdserver: no inflight downgrade job"
            self._parts.logger.warning("failed to cancel downgrade", error=text)
            self._answer(call_id, out)
        else:
            self._propose_for(call_id, b"")

    def _propose_for(self, call_id: int, body: bytes) -> None:
        def applied(result: bytes | Refusal, out: Outbox) -> None:
            if isinstance(result, Refusal):
                out.refuse(call_id, result)
            else:
                self._answer(call_id, out)

        propose(self._parts, Field.DOWNGRADE_INFO_SET, body, call_id=call_id, callback=applied)

    def _answer(self, call_id: int, out: Outbox) -> None:
        parts = self._parts
        version = parts.state.membership.cluster_version
        shown = "" if version is None else version.rpartition(".")[0]
        header = parts.headers.field(parts.state.store.revision, parts.raft.term)
        response = pb.DowngradeResponse(version=shown)
        out.replies.append((call_id, Code.OK, header + response.SerializeToString()))
