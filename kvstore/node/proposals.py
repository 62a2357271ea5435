"""The server's own proposals: its name, revokes of leases, compactions, alarms.

    at every start   the member's name and client URLs
    as leader        revokes of expired leases, lease checkpoints
    at any time      automatic compactions, the end of the NOSPACE alarm (see maintenance)

Rule: a proposal may get lost, so each is made again until its effect is seen.
"""

from kvstore.auth.store import ROOT
from kvstore.auth.tokens import NO_CREDENTIAL
from kvstore.failpoints import hit
from kvstore.node.committed import Committed
from kvstore.node.disk_budget import DiskBudget
from kvstore.node.internal_requests import propose
from kvstore.node.maintenance.maintenance_proposals import MaintenanceProposals
from kvstore.node.parts import Parts
from kvstore.wire.gen import membership_pb2
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field


class Proposals:
    """Makes the server's own proposals, and makes them again until they are applied."""

    def __init__(self, parts: Parts, committed: Committed, budget: DiskBudget) -> None:
        self._parts = parts
        self._budget = budget
        self._committed = committed
        self._publish_again_ns = 0
        self._maintenance = MaintenanceProposals(parts)

    def make(self, now_ns: int) -> None:
        """Propose what is due, with this turn's batch."""
        parts = self._parts
        leads = parts.raft.is_leader
        self._maintenance.step(now_ns, leads=leads)  # without a leader, too: else it stays due
        if parts.raft.lead == 0:
            return
        if not self._committed.is_published and now_ns >= self._publish_again_ns:
            self._publish_again_ns = now_ns + parts.limits.request_timeout_ns
            self._publish()
        if leads:
            self._expire_leases(now_ns)

    def retry_now(self) -> None:
        """Make proposals again at once: a change of leader or a snapshot may have lost them."""
        self._publish_again_ns = 0

    def next_ns(self) -> int | None:
        """Return when make() has something to do (None: not before something else happens)."""
        due = self._maintenance.due_ns()
        if not self._committed.is_published and self._parts.raft.lead != 0:
            due.append(self._publish_again_ns)
        expiry_ns = self._parts.state.lessor.next_expiry_ns()
        if expiry_ns is not None and self._parts.raft.is_leader:
            due.append(expiry_ns)
        return min(due) if due else None

    def _publish(self) -> None:
        hit("beforePublishing")
        limits = self._parts.limits
        request = membership_pb2.ClusterMemberAttrSetRequest(
            member_ID=self._parts.member_id,
            member_attributes=membership_pb2.Attributes(
                name=limits.name, client_urls=limits.client_urls
            ),
        )
        propose(self._parts, Field.CLUSTER_MEMBER_ATTR_SET, request.SerializeToString())

    def _expire_leases(self, now_ns: int) -> None:
        parts, lessor, auth = self._parts, self._parts.state.lessor, self._parts.state.auth
        # Root may delete every key that is attached to the lease.
        credential = (ROOT, auth.revision) if auth.enabled else NO_CREDENTIAL
        for lease in lessor.due(now_ns):
            body = pb.LeaseRevokeRequest(ID=lease).SerializeToString()
            if not self._fits(Field.LEASE_REVOKE, body):
                continue  # it is due again after a request timeout
            parts.counters.expired_leases += 1
            propose(parts, Field.LEASE_REVOKE, body, credential=credential)
        checkpoints = lessor.checkpoints_due(now_ns)
        if checkpoints:
            request = pb.LeaseCheckpointRequest(
                checkpoints=[
                    pb.LeaseCheckpoint(ID=lease, remaining_TTL=remaining_s)
                    for lease, remaining_s in checkpoints
                ]
            )
            body = request.SerializeToString()
            if self._fits(Field.LEASE_CHECKPOINT, body):
                propose(parts, Field.LEASE_CHECKPOINT, body)

    def _fits(self, field: Field, body: bytes) -> bool:
        return not self._budget.is_counting or self._budget.admits(field, body, len(body))
