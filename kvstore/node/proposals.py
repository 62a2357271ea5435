"""What the server itself proposes: its name, the cluster version, the end of leases, alarms.

    every start   the member's name and client URLs
    as leader     revokes of expired leases, lease checkpoints
    any time      automatic compactions, the end of the NOSPACE alarm (see housekeeping)

A proposal that got lost is made again: nothing here counts on having been heard.
"""

from kvstore.auth.store import ROOT
from kvstore.auth.tokens import NOBODY, Who
from kvstore.failpoints import hit
from kvstore.node.committed import Committed
from kvstore.node.parts import Parts
from kvstore.node.pending import INTERNAL, Waiter
from kvstore.node.upkeep.housekeeping import Housekeeping
from kvstore.wire.gen import membership_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, wrap


class Proposals:
    """Makes the server's own proposals, and makes them again until they are applied."""

    def __init__(self, parts: Parts, committed: Committed) -> None:
        self._parts = parts
        self._committed = committed
        self._publish_again_ns = 0
        self._housekeeping = Housekeeping(parts, self._propose)

    def make(self, now_ns: int) -> None:
        """Propose what is due; goes with this turn's batch."""
        parts = self._parts
        leads = parts.raft.is_leader
        self._housekeeping.step(now_ns, leads=leads)  # without a leader, too: else it stays due
        if parts.raft.lead == 0:
            return
        if not self._committed.is_published and now_ns >= self._publish_again_ns:
            self._publish_again_ns = now_ns + parts.limits.request_timeout_ns
            self._publish()
        if leads:
            self._expire_leases(now_ns)

    def may_be_lost(self) -> None:
        """Make again at once what another leader, or a snapshot that came, passed over."""
        self._publish_again_ns = 0

    def next_ns(self) -> int | None:
        """Return when to come back (None: not before something else happens)."""
        due = self._housekeeping.due_ns()
        if not self._committed.is_published and self._parts.raft.lead != 0:
            due.append(self._publish_again_ns)
        expiry_ns = self._parts.lessor.next_expiry_ns()
        if expiry_ns is not None and self._parts.raft.is_leader:
            due.append(expiry_ns)
        return min(due) if due else None

    def _propose(self, field: int, body: bytes, who: Who = NOBODY) -> None:
        parts = self._parts
        data = wrap(field, body, parts.request_ids.next(), *who)
        parts.pending.add(data, Waiter(INTERNAL, field, None, body, who=who))

    def _publish(self) -> None:
        hit("beforePublishing")
        limits = self._parts.limits
        request = membership_pb2.ClusterMemberAttrSetRequest(
            member_ID=self._parts.member_id,
            member_attributes=membership_pb2.Attributes(
                name=limits.name, client_urls=limits.client_urls
            ),
        )
        self._propose(Field.CLUSTER_MEMBER_ATTR_SET, request.SerializeToString())

    def _expire_leases(self, now_ns: int) -> None:
        lessor, auth = self._parts.lessor, self._parts.auth
        who = (ROOT, auth.revision) if auth.enabled else NOBODY  # may delete whatever hangs on it
        for lease in lessor.due(now_ns):
            self._parts.counters.expired_leases += 1
            body = pb.LeaseRevokeRequest(ID=lease).SerializeToString()
            self._propose(Field.LEASE_REVOKE, body, who)
        checkpoints = lessor.checkpoints_due(now_ns)
        if checkpoints:
            request = pb.LeaseCheckpointRequest(
                checkpoints=[
                    pb.LeaseCheckpoint(ID=lease, remaining_TTL=remaining_s)
                    for lease, remaining_s in checkpoints
                ]
            )
            self._propose(Field.LEASE_CHECKPOINT, request.SerializeToString())
