"""The table of gRPC methods: services, names, message types and gateway paths, by number.

    METHODS[PUT] == Method(PUT, "etcdserverpb.KV", "Put", Kind.UNARY, ...)
    BY_PATH["/etcdserverpb.KV/Put"] is METHODS[PUT]

A method's id is its index in METHODS; transports and the node use that number, never the path. Ids
are valid in one process only and are in no file and no message, so rows may be added anywhere. The
gateway paths are those of etcd's JSON API, all POST; the first is the main one.

This does not say which methods are served.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from google.protobuf.message import Message

from kvstore.wire.gen import election_pb2, health_pb2, lock_pb2, rpc_pb2


class Kind(IntEnum):
    """How many messages are sent in each direction."""

    UNARY = 0
    SERVER_STREAM = 1
    BIDI = 2


class Method(NamedTuple):
    """One gRPC method."""

    id: int
    service: str  # with its package: "etcdserverpb.KV"
    name: str
    kind: Kind
    request: type[Message]
    response: type[Message]
    gateway: tuple[str, ...]  # HTTP paths

    @property
    def path(self) -> str:
        """The HTTP/2 path of the method: "/etcdserverpb.KV/Put"."""
        return f"/{self.service}/{self.name}"


_methods: list[Method] = []


def _add(
    service: str,
    name: str,
    request: type[Message],
    response: type[Message],
    *gateway: str,
    kind: Kind = Kind.UNARY,
) -> int:
    paths = tuple(f"/v3/{path}" for path in gateway)
    method = Method(len(_methods), service, name, kind, request, response, paths)
    _methods.append(method)
    return method.id


_KV: Final = "etcdserverpb.KV"

RANGE: Final = _add(_KV, "Range", rpc_pb2.RangeRequest, rpc_pb2.RangeResponse, "kv/range")
RANGE_STREAM: Final = _add(
    _KV, "RangeStream", rpc_pb2.RangeRequest, rpc_pb2.RangeStreamResponse, kind=Kind.SERVER_STREAM
)
PUT: Final = _add(_KV, "Put", rpc_pb2.PutRequest, rpc_pb2.PutResponse, "kv/put")
DELETE_RANGE: Final = _add(
    _KV, "DeleteRange", rpc_pb2.DeleteRangeRequest, rpc_pb2.DeleteRangeResponse, "kv/deleterange"
)
TXN: Final = _add(_KV, "Txn", rpc_pb2.TxnRequest, rpc_pb2.TxnResponse, "kv/txn")
COMPACT: Final = _add(
    _KV, "Compact", rpc_pb2.CompactionRequest, rpc_pb2.CompactionResponse, "kv/compaction"
)
_WATCH: Final = "etcdserverpb.Watch"

WATCH: Final = _add(
    _WATCH, "Watch", rpc_pb2.WatchRequest, rpc_pb2.WatchResponse, "watch", kind=Kind.BIDI
)
_LEASE: Final = "etcdserverpb.Lease"

LEASE_GRANT: Final = _add(
    _LEASE, "LeaseGrant", rpc_pb2.LeaseGrantRequest, rpc_pb2.LeaseGrantResponse, "lease/grant"
)
LEASE_REVOKE: Final = _add(
    _LEASE,
    "LeaseRevoke",
    rpc_pb2.LeaseRevokeRequest,
    rpc_pb2.LeaseRevokeResponse,
    "lease/revoke",
    "kv/lease/revoke",
)
LEASE_KEEP_ALIVE: Final = _add(
    _LEASE,
    "LeaseKeepAlive",
    rpc_pb2.LeaseKeepAliveRequest,
    rpc_pb2.LeaseKeepAliveResponse,
    "lease/keepalive",
    kind=Kind.BIDI,
)
LEASE_TIME_TO_LIVE: Final = _add(
    _LEASE,
    "LeaseTimeToLive",
    rpc_pb2.LeaseTimeToLiveRequest,
    rpc_pb2.LeaseTimeToLiveResponse,
    "lease/timetolive",
    "kv/lease/timetolive",
)
LEASE_LEASES: Final = _add(
    _LEASE,
    "LeaseLeases",
    rpc_pb2.LeaseLeasesRequest,
    rpc_pb2.LeaseLeasesResponse,
    "lease/leases",
    "kv/lease/leases",
)
_CLUSTER: Final = "etcdserverpb.Cluster"

MEMBER_ADD: Final = _add(
    _CLUSTER, "MemberAdd", rpc_pb2.MemberAddRequest, rpc_pb2.MemberAddResponse, "cluster/member/add"
)
MEMBER_REMOVE: Final = _add(
    _CLUSTER,
    "MemberRemove",
    rpc_pb2.MemberRemoveRequest,
    rpc_pb2.MemberRemoveResponse,
    "cluster/member/remove",
)
MEMBER_UPDATE: Final = _add(
    _CLUSTER,
    "MemberUpdate",
    rpc_pb2.MemberUpdateRequest,
    rpc_pb2.MemberUpdateResponse,
    "cluster/member/update",
)
MEMBER_LIST: Final = _add(
    _CLUSTER,
    "MemberList",
    rpc_pb2.MemberListRequest,
    rpc_pb2.MemberListResponse,
    "cluster/member/list",
)
MEMBER_PROMOTE: Final = _add(
    _CLUSTER,
    "MemberPromote",
    rpc_pb2.MemberPromoteRequest,
    rpc_pb2.MemberPromoteResponse,
    "cluster/member/promote",
)
_MAINTENANCE: Final = "etcdserverpb.Maintenance"

ALARM: Final = _add(
    _MAINTENANCE, "Alarm", rpc_pb2.AlarmRequest, rpc_pb2.AlarmResponse, "maintenance/alarm"
)
STATUS: Final = _add(
    _MAINTENANCE, "Status", rpc_pb2.StatusRequest, rpc_pb2.StatusResponse, "maintenance/status"
)
DEFRAGMENT: Final = _add(
    _MAINTENANCE,
    "Defragment",
    rpc_pb2.DefragmentRequest,
    rpc_pb2.DefragmentResponse,
    "maintenance/defragment",
)
HASH: Final = _add(
    _MAINTENANCE, "Hash", rpc_pb2.HashRequest, rpc_pb2.HashResponse, "maintenance/hash"
)
HASH_KV: Final = _add(
    _MAINTENANCE, "HashKV", rpc_pb2.HashKVRequest, rpc_pb2.HashKVResponse, "maintenance/hashkv"
)
SNAPSHOT: Final = _add(
    _MAINTENANCE,
    "Snapshot",
    rpc_pb2.SnapshotRequest,
    rpc_pb2.SnapshotResponse,
    "maintenance/snapshot",
    kind=Kind.SERVER_STREAM,
)
MOVE_LEADER: Final = _add(
    _MAINTENANCE,
    "MoveLeader",
    rpc_pb2.MoveLeaderRequest,
    rpc_pb2.MoveLeaderResponse,
    "maintenance/transfer-leadership",
)
DOWNGRADE: Final = _add(
    _MAINTENANCE,
    "Downgrade",
    rpc_pb2.DowngradeRequest,
    rpc_pb2.DowngradeResponse,
    "maintenance/downgrade",
)
_AUTH: Final = "etcdserverpb.Auth"

AUTH_ENABLE: Final = _add(
    _AUTH, "AuthEnable", rpc_pb2.AuthEnableRequest, rpc_pb2.AuthEnableResponse, "auth/enable"
)
AUTH_DISABLE: Final = _add(
    _AUTH, "AuthDisable", rpc_pb2.AuthDisableRequest, rpc_pb2.AuthDisableResponse, "auth/disable"
)
AUTH_STATUS: Final = _add(
    _AUTH, "AuthStatus", rpc_pb2.AuthStatusRequest, rpc_pb2.AuthStatusResponse, "auth/status"
)
AUTHENTICATE: Final = _add(
    _AUTH,
    "Authenticate",
    rpc_pb2.AuthenticateRequest,
    rpc_pb2.AuthenticateResponse,
    "auth/authenticate",
)
AUTH_USER_ADD: Final = _add(
    _AUTH, "UserAdd", rpc_pb2.AuthUserAddRequest, rpc_pb2.AuthUserAddResponse, "auth/user/add"
)
AUTH_USER_GET: Final = _add(
    _AUTH, "UserGet", rpc_pb2.AuthUserGetRequest, rpc_pb2.AuthUserGetResponse, "auth/user/get"
)
AUTH_USER_LIST: Final = _add(
    _AUTH, "UserList", rpc_pb2.AuthUserListRequest, rpc_pb2.AuthUserListResponse, "auth/user/list"
)
AUTH_USER_DELETE: Final = _add(
    _AUTH,
    "UserDelete",
    rpc_pb2.AuthUserDeleteRequest,
    rpc_pb2.AuthUserDeleteResponse,
    "auth/user/delete",
)
AUTH_USER_CHANGE_PASSWORD: Final = _add(
    _AUTH,
    "UserChangePassword",
    rpc_pb2.AuthUserChangePasswordRequest,
    rpc_pb2.AuthUserChangePasswordResponse,
    "auth/user/changepw",
)
AUTH_USER_GRANT_ROLE: Final = _add(
    _AUTH,
    "UserGrantRole",
    rpc_pb2.AuthUserGrantRoleRequest,
    rpc_pb2.AuthUserGrantRoleResponse,
    "auth/user/grant",
)
AUTH_USER_REVOKE_ROLE: Final = _add(
    _AUTH,
    "UserRevokeRole",
    rpc_pb2.AuthUserRevokeRoleRequest,
    rpc_pb2.AuthUserRevokeRoleResponse,
    "auth/user/revoke",
)
AUTH_ROLE_ADD: Final = _add(
    _AUTH, "RoleAdd", rpc_pb2.AuthRoleAddRequest, rpc_pb2.AuthRoleAddResponse, "auth/role/add"
)
AUTH_ROLE_GET: Final = _add(
    _AUTH, "RoleGet", rpc_pb2.AuthRoleGetRequest, rpc_pb2.AuthRoleGetResponse, "auth/role/get"
)
AUTH_ROLE_LIST: Final = _add(
    _AUTH, "RoleList", rpc_pb2.AuthRoleListRequest, rpc_pb2.AuthRoleListResponse, "auth/role/list"
)
AUTH_ROLE_DELETE: Final = _add(
    _AUTH,
    "RoleDelete",
    rpc_pb2.AuthRoleDeleteRequest,
    rpc_pb2.AuthRoleDeleteResponse,
    "auth/role/delete",
)
AUTH_ROLE_GRANT_PERMISSION: Final = _add(
    _AUTH,
    "RoleGrantPermission",
    rpc_pb2.AuthRoleGrantPermissionRequest,
    rpc_pb2.AuthRoleGrantPermissionResponse,
    "auth/role/grant",
)
AUTH_ROLE_REVOKE_PERMISSION: Final = _add(
    _AUTH,
    "RoleRevokePermission",
    rpc_pb2.AuthRoleRevokePermissionRequest,
    rpc_pb2.AuthRoleRevokePermissionResponse,
    "auth/role/revoke",
)
_LOCK: Final = "v3lockpb.Lock"

LOCK: Final = _add(_LOCK, "Lock", lock_pb2.LockRequest, lock_pb2.LockResponse, "lock/lock")
UNLOCK: Final = _add(
    _LOCK, "Unlock", lock_pb2.UnlockRequest, lock_pb2.UnlockResponse, "lock/unlock"
)
_ELECTION: Final = "v3electionpb.Election"

ELECTION_CAMPAIGN: Final = _add(
    _ELECTION,
    "Campaign",
    election_pb2.CampaignRequest,
    election_pb2.CampaignResponse,
    "election/campaign",
)
ELECTION_PROCLAIM: Final = _add(
    _ELECTION,
    "Proclaim",
    election_pb2.ProclaimRequest,
    election_pb2.ProclaimResponse,
    "election/proclaim",
)
ELECTION_LEADER: Final = _add(
    _ELECTION, "Leader", election_pb2.LeaderRequest, election_pb2.LeaderResponse, "election/leader"
)
ELECTION_OBSERVE: Final = _add(
    _ELECTION,
    "Observe",
    election_pb2.LeaderRequest,
    election_pb2.LeaderResponse,
    "election/observe",
    kind=Kind.SERVER_STREAM,
)
ELECTION_RESIGN: Final = _add(
    _ELECTION, "Resign", election_pb2.ResignRequest, election_pb2.ResignResponse, "election/resign"
)

_HEALTH: Final = "grpc.health.v1.Health"

HEALTH_CHECK: Final = _add(
    _HEALTH, "Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
)
HEALTH_LIST: Final = _add(
    _HEALTH, "List", health_pb2.HealthListRequest, health_pb2.HealthListResponse
)
HEALTH_WATCH: Final = _add(
    _HEALTH,
    "Watch",
    health_pb2.HealthCheckRequest,
    health_pb2.HealthCheckResponse,
    kind=Kind.SERVER_STREAM,
)

METHODS: Final[tuple[Method, ...]] = tuple(_methods)
SERVER_STREAMS: Final = frozenset(
    method.id for method in METHODS if method.kind is Kind.SERVER_STREAM
)
# Methods made of calls of other methods, which are admitted by themselves.
COMPOSED: Final = frozenset(
    {
        LOCK,
        UNLOCK,
        ELECTION_CAMPAIGN,
        ELECTION_PROCLAIM,
        ELECTION_LEADER,
        ELECTION_OBSERVE,
        ELECTION_RESIGN,
    }
)
# Server streams without an end of their own: a server that stops ends them.
ENDLESS: Final = frozenset({ELECTION_OBSERVE, HEALTH_WATCH})
BY_PATH: Final[dict[str, Method]] = {method.path: method for method in METHODS}
BY_GATEWAY_PATH: Final[dict[str, Method]] = {
    path: method for method in METHODS for path in method.gateway
}
