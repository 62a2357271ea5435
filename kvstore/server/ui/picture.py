"""What the page shows of one moment, as plain JSON values; read in the driver's thread."""

from typing import Any, Final

from kvstore.histograms import NANOSECOND_S
from kvstore.raft.progress import ProgressKind
from kvstore.server.metrics.own_families import prefix_text
from kvstore.server.metrics.rooms import Rooms
from kvstore.types import SERVER_VERSION
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member

MEMBERS_MAX: Final = 64
LAGS_SHOWN: Final = 20
PREFIXES_SHOWN: Final = 20

Json = dict[str, Any]


def take_picture(rooms: Rooms) -> Json:
    """Return the member, its cluster, its database, watches and alarms."""
    parts = rooms.parts
    raft, store, backend, membership = parts.raft, parts.store, parts.backend, parts.membership
    return {
        "name": parts.limits.name,
        "member": f"{parts.member_id:x}",
        "cluster": f"{parts.cluster_id:x}",
        "version": SERVER_VERSION,
        "cluster_version": membership.cluster_version or "",
        "at_ms": rooms.clock.unix_ms(),
        "role": raft.role.name.lower(),
        "leader": f"{raft.lead:x}" if raft.lead else "",
        "leader_changes": rooms.watched.leader_changes,
        "term": raft.term,
        "committed": raft.committed,
        "applied": raft.applied,
        "pending": len(parts.pending.by_index),
        "members": _members(rooms),
        "alarms": [
            {"member": f"{member:x}", "alarm": _alarm_name(kind)}
            for member, kind in parts.alarms.raised()
        ],
        "db": {
            "size": backend.size_bytes(),
            "in_use": backend.size_in_use_bytes(),
            "quota": max(parts.quota.limit_bytes, 0),
            "keys": store.key_count,
            "revision": store.revision,
            "compacted": store.compacted,
            "defragmenting": backend.defragmenting(),
        },
        "leases": len(parts.lessor),
        "open_calls": rooms.calls.open_calls,
        "watch": _watches(rooms),
        "stages_s": {
            "disk sync": rooms.disk.wal.sync_ns * NANOSECOND_S,
            "database commit": rooms.disk.backend.commit_ns * NANOSECOND_S,
            "applying": parts.figures.apply_ns * NANOSECOND_S,
            "reading": parts.figures.read_ns * NANOSECOND_S,
        },
        "slow_requests": rooms.watched.slow_requests,
        "writes": [
            {"prefix": prefix_text(prefix), "count": count}
            for prefix, count in parts.figures.written.top(PREFIXES_SHOWN)
        ],
        "written": parts.figures.written.total,
    }


def _members(rooms: Rooms) -> list[Json]:
    members = rooms.parts.membership.sorted_members()
    return [_member(rooms, each) for each in members[:MEMBERS_MAX]]


def _member(rooms: Rooms, member: Member) -> Json:
    """Return one member, with how far a leader knows it to be."""
    parts = rooms.parts
    raft = parts.raft
    is_self = member.id == parts.member_id
    shown: Json = {
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
        shown["match"] = progress.match
        shown["behind"] = max(raft.last_index - progress.match, 0)
        shown["state"] = ProgressKind(progress.kind).name.lower()
        shown["inflight"] = progress.inflight
    peer = rooms.peers().get(member.id)
    if peer is not None:
        shown["active"] = bool(peer.active)
        shown["rtt_ms"] = round(peer.smoothed_rtt_s * 1000, 3)
    return shown


def _watches(rooms: Rooms) -> Json:
    hub = rooms.parts.hub
    stats = hub.stats()
    return {
        "streams": stats.streams,
        "watchers": stats.watchers,
        "unsynced": stats.unsynced,
        "held": stats.held_streams,
        "unsent_bytes": stats.unsent_bytes,
        "slowest": [
            {
                "stream": lag.stream_id,
                "watchers": lag.watchers,
                "unsynced": lag.unsynced,
                "held": lag.held,
                "behind": lag.behind_revisions,
            }
            for lag in hub.slowest(LAGS_SHOWN)
        ],
    }


def _alarm_name(kind: int) -> str:
    return pb.AlarmType.Name(kind) if kind in pb.AlarmType.values() else str(kind)
