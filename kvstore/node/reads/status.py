"""The Status response."""

from typing import Final

from kvstore.backend import Table
from kvstore.errors import NO_LEADER
from kvstore.meta_rows import STORAGE_VERSION_KEY
from kvstore.node.parts import Parts
from kvstore.types import SERVER_VERSION
from kvstore.wire.gen import rpc_pb2 as pb

_SCHEMA_WITHOUT_VERSION: Final = "3.5.0"
"""The version of data that has no storage version yet, as in etcd."""


def status_response(parts: Parts) -> bytes:
    """Return the encoded StatusResponse as of now."""
    raft, backend, membership = parts.raft, parts.state.backend, parts.state.membership
    quota_bytes = parts.limits.quota_bytes
    self_member = membership.members.get(parts.member_id)
    errors = [] if raft.lead else [NO_LEADER.text]
    errors += [
        f"memberID:{member} alarm:{_alarm_name(kind)}"
        for member, kind in parts.state.alarms.raised()
    ]
    target = membership.downgrade_target
    response = pb.StatusResponse(
        version=SERVER_VERSION,
        dbSize=backend.size_bytes(),
        leader=raft.lead,
        raftIndex=raft.committed,
        raftTerm=raft.term,
        raftAppliedIndex=raft.applied,
        errors=errors,
        dbSizeInUse=backend.size_in_use_bytes(),
        isLearner=self_member is not None and self_member.is_learner,
        storageVersion=_storage_version(parts),
        dbSizeQuota=quota_bytes if quota_bytes != 0 else parts.state.quota.limit_bytes,
        downgradeInfo=pb.DowngradeInfo(enabled=target is not None, targetVersion=target or ""),
    )
    return parts.headers.field(parts.state.store.revision, raft.term) + response.SerializeToString()


def _storage_version(parts: Parts) -> str:
    """Return the version of the schema of the data; empty while nothing was applied."""
    version = parts.state.backend.get(Table.META, STORAGE_VERSION_KEY)
    if version is not None:
        return version.decode()
    return _SCHEMA_WITHOUT_VERSION if parts.raft.applied else ""


def _alarm_name(kind: int) -> str:
    """Return the alarm's name as Go prints it: the number, if it has no name."""
    return pb.AlarmType.Name(kind) if kind in pb.AlarmType.values() else str(kind)
