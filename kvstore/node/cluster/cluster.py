"""The parts of the turn that concern the cluster as a whole.

    members      calls that change the list of members
    versions     the cluster version; downgrades
    corruption   whether all members hold the same data

These modules do not import one another.
"""

from kvstore.batch import Outbox
from kvstore.node.call_context import Handler
from kvstore.node.cluster.corruption import Corruption
from kvstore.node.cluster.members import Members
from kvstore.node.cluster.versions import Versions
from kvstore.node.committed import Committed
from kvstore.node.maintenance.long_jobs import LongJobs
from kvstore.node.parts import Parts
from kvstore.node.reads.reads import Reads


class Cluster:
    """Members, versions and corruption checks."""

    def __init__(self, parts: Parts, reads: Reads, committed: Committed, jobs: LongJobs) -> None:
        self._parts = parts
        self._committed = committed
        self._members = Members(parts)
        self._versions = Versions(parts, reads)
        self._corruption = Corruption(parts, reads, jobs)
        self._due_ns: int | None = None

    def handlers(self) -> dict[int, Handler]:
        """Return the handler of each method."""
        return self._members.handlers() | self._versions.handlers()

    def step(self, now_ns: int, out: Outbox) -> None:
        """Do what is due; before the turn's proposals are made."""
        self._members.step(now_ns, out)
        raft = self._parts.raft
        leads = raft.is_leader and self._committed.confirmed_term == raft.term
        self._due_ns = self._versions.step(now_ns, leads=leads)
        self._corruption.step(now_ns, leads=leads)

    @property
    def delays_serving(self) -> bool:
        """Whether this member must not serve clients yet."""
        return self._corruption.delays_serving

    @property
    def due_ns(self) -> int | None:
        """When step() has something to do; None: not before something else happens."""
        return self._due_ns

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away."""
        self._members.cancel(call_id)
