"""The parts of a node: state and ports, no behaviour.

Parts ─► RawNode         raft
      ─► StateMachine    the store, leases, watches, users, members
      ─► Replication     the log, the other members, waiting proposals
      ─► HostPorts       threads, the disk's room, memory
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from kvstack.component.logger import Logger
from kvstore.apply.alarms import Alarms
from kvstore.apply.applier import Applier
from kvstore.apply.membership import Membership
from kvstore.apply.quota import Quota
from kvstore.auth.store import AuthStore
from kvstore.backend import Backend
from kvstore.lease.lessor import Lessor
from kvstore.mvcc.store import Store
from kvstore.node.fence import Fence
from kvstore.node.limits import Limits
from kvstore.node.metering.counters import Counters
from kvstore.node.no_peers import NoPeers
from kvstore.node.offloaded import OffloadedTasks
from kvstore.node.pending import Pending
from kvstore.node.ports import AmpleRoom, DiskRoom, LogFile, PeerLinks, SnapshotKeeper
from kvstore.node.turn_time import TurnTime
from kvstore.raft.rawnode import RawNode
from kvstore.watch.hub import Hub
from kvstore.wire.internal import RequestIds
from kvstore.wire.splice import HeaderMaker


def _nothing(_size_bytes: int) -> None:
    return None


@dataclass(slots=True)
class StateMachine:
    """The state that applied entries change, alike on every member, and its watchers."""

    backend: Backend
    store: Store
    lessor: Lessor
    hub: Hub
    alarms: Alarms
    auth: AuthStore
    membership: Membership
    quota: Quota
    applier: Applier


@dataclass(slots=True)
class Replication:
    """The log, the links to the other members, and the waiting proposals."""

    log: LogFile
    snapshots: SnapshotKeeper
    request_ids: RequestIds
    pending: Pending = field(default_factory=Pending)
    peers: PeerLinks = field(default_factory=NoPeers)
    fence: Fence = field(default_factory=Fence)
    # Members as they reported them, until this member's own addition is applied: id → peer URLs.
    remotes: dict[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class HostPorts:
    """The services of the process that the node uses."""

    tasks: OffloadedTasks = field(default_factory=OffloadedTasks)
    room: DiskRoom = field(default_factory=AmpleRoom)
    # Called with the bytes of large entries that were dropped from memory.
    on_freed: Callable[[int], None] = _nothing


@dataclass(slots=True)
class Parts:
    """The parts of one member."""

    member_id: int
    cluster_id: int
    limits: Limits
    raft: RawNode
    state: StateMachine
    replication: Replication
    headers: HeaderMaker
    logger: Logger
    host: HostPorts = field(default_factory=HostPorts)
    counters: Counters = field(default_factory=Counters)
    time: TurnTime = field(default_factory=TurnTime)
