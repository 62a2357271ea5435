"""The page's view of the member at one moment, as JSON values; read in the driver's thread."""

from typing import Any, Final

from kvstack.component.metrics.histograms import NANOSECOND_S
from kvstore.raft.progress import ProgressKind
from kvstore.server.metrics.own_families import prefix_text
from kvstore.server.metrics.sources import MetricSources
from kvstore.types import SERVER_VERSION
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member

MEMBERS_MAX: Final = 64
BACKLOGS_SHOWN: Final = 20
PREFIXES_SHOWN: Final = 20

Json = dict[str, Any]


def take_view(sources: MetricSources) -> Json:
    """Return the member, its cluster, its database, watches and alarms."""
    parts = sources.parts
    raft, store, backend, membership = (
        parts.raft,
        parts.state.store,
        parts.state.backend,
        parts.state.membership,
    )
    return {
        "name": parts.limits.name,
        "member": f"{parts.member_id:x}",
        "cluster": f"{parts.cluster_id:x}",
        "version": SERVER_VERSION,
        "cluster_version": membership.cluster_version or "",
        "at_ms": sources.clock.unix_ms(),
        "role": raft.role.name.lower(),
        "leader": f"{raft.lead:x}" if raft.lead else "",
        "leader_changes": sources.observer.leader_changes,
        "term": raft.term,
        "committed": raft.committed,
        "applied": raft.applied,
        "pending": parts.replication.pending.placed_count,
        "members": _members(sources),
        "alarms": [
            {"member": f"{member:x}", "alarm": _alarm_name(kind)}
            for member, kind in parts.state.alarms.raised()
        ],
        "db": {
            "size": backend.size_bytes(),
            "in_use": backend.size_in_use_bytes(),
            "quota": max(parts.state.quota.limit_bytes, 0),
            "keys": store.key_count,
            "revision": store.revision,
            "compacted": store.compacted,
            "defragmenting": backend.defragmenting(),
        },
        "leases": len(parts.state.lessor),
        "open_calls": sources.calls.open_calls,
        "watch": _watches(sources),
        "stages_s": {
            "disk sync": sources.disk.wal.sync_ns * NANOSECOND_S,
            "database commit": sources.disk.backend.commit_ns * NANOSECOND_S,
            "applying": parts.counters.apply_ns * NANOSECOND_S,
            "reading": parts.counters.read_ns * NANOSECOND_S,
        },
        "slow_requests": sources.observer.slow_requests,
        "writes": [
            {"prefix": prefix_text(prefix), "count": count}
            for prefix, count in parts.counters.written.top(PREFIXES_SHOWN)
        ],
        "written": parts.counters.written.total,
    }


def _members(sources: MetricSources) -> list[Json]:
    members = sources.parts.state.membership.sorted_members()
    return [_member(sources, each) for each in members[:MEMBERS_MAX]]


def _member(sources: MetricSources, member: Member) -> Json:
    """Return one member, with its replication progress if this member is the leader."""
    parts = sources.parts
    raft = parts.raft
    is_self = member.id == parts.member_id
    row: Json = {
        "id": f"{member.id:x}",
        "name": member.name,
        "peer_urls": list(member.peer_urls),
        "client_urls": list(member.client_urls),
        "is_learner": member.is_learner,
        "is_leader": member.id == raft.lead,
        "is_self": is_self,
    }
    progress = raft.status().progress.get(member.id)
    if progress is not None:
        row["match"] = progress.match
        row["behind"] = max(raft.last_index - progress.match, 0)
        row["state"] = ProgressKind(progress.kind).name.lower()
        row["inflight"] = progress.inflight
    peer = sources.peers().get(member.id)
    if peer is not None:
        row["active"] = bool(peer.active)
        row["rtt_ms"] = round(peer.smoothed_rtt_s * 1000, 3)
    return row


def _watches(sources: MetricSources) -> Json:
    hub = sources.parts.state.hub
    stats = hub.stats()
    return {
        "streams": stats.streams,
        "watchers": stats.watchers,
        "unsynced": stats.unsynced,
        "held": stats.paused_streams,
        "unsent_bytes": stats.unsent_bytes,
        "slowest": [
            {
                "stream": backlog.stream_id,
                "watchers": backlog.watchers,
                "unsynced": backlog.unsynced,
                "held": backlog.paused,
                "behind": backlog.behind_revisions,
            }
            for backlog in hub.slowest(BACKLOGS_SHOWN)
        ],
    }


def _alarm_name(kind: int) -> str:
    return pb.AlarmType.Name(kind) if kind in pb.AlarmType.values() else str(kind)
