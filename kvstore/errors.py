"""The tree of all errors, and every refusal with etcd's text and gRPC code.

Two kinds, never mixed:

- A **Refusal** is a value: one call of a client cannot be served. It is part of the batch like a
  result and does not affect other calls. Go clients map errors by text, so the texts are etcd's to
  the byte (etcd 3.7.1, api/v3rpc/rpctypes).
- A **KvstoreError** is an exception: the process cannot continue.

      ComponentError
      ├── ConfigError        a flag, variable or file the operator gave is wrong    → exit 1
      KvstoreError           of the store, a ComponentError
      ├── DataDirError       the data directory cannot be used: locked, foreign, newer
      ├── CorruptionError    bytes on disk are not what was written; names file and offset
      └── StorageFatalError  a write or sync failed; nothing after it may be acknowledged
"""

from enum import IntEnum
from typing import Final, NamedTuple

from kvstack.component.errors import ComponentError


class Code(IntEnum):
    """gRPC status codes."""

    OK = 0
    CANCELED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Refusal(NamedTuple):
    """Why one call is refused: a gRPC code and the text for the client."""

    code: int
    text: str


def _etcd(code: Code, text: str) -> Refusal:
    return Refusal(int(code), f"etcdserver: {text}")


EMPTY_KEY: Final = _etcd(Code.INVALID_ARGUMENT, "key is not provided")
KEY_NOT_FOUND: Final = _etcd(Code.INVALID_ARGUMENT, "key not found")
VALUE_PROVIDED: Final = _etcd(Code.INVALID_ARGUMENT, "value is provided")
LEASE_PROVIDED: Final = _etcd(Code.INVALID_ARGUMENT, "lease is provided")
TOO_MANY_OPS: Final = _etcd(Code.INVALID_ARGUMENT, "too many operations in txn request")
DUPLICATE_KEY: Final = _etcd(Code.INVALID_ARGUMENT, "duplicate key given in txn request")
INVALID_SORT_OPTION: Final = _etcd(Code.INVALID_ARGUMENT, "invalid sort option")
REQUEST_TOO_LARGE: Final = _etcd(Code.INVALID_ARGUMENT, "request is too large")
COMPACTED: Final = _etcd(Code.OUT_OF_RANGE, "mvcc: required revision has been compacted")
FUTURE_REVISION: Final = _etcd(Code.OUT_OF_RANGE, "mvcc: required revision is a future revision")
LEASE_TTL_TOO_LARGE: Final = _etcd(Code.OUT_OF_RANGE, "too large lease TTL")
NO_SPACE: Final = _etcd(Code.RESOURCE_EXHAUSTED, "mvcc: database space exceeded")
TOO_MANY_REQUESTS: Final = _etcd(Code.RESOURCE_EXHAUSTED, "too many requests")
LEASE_NOT_FOUND: Final = _etcd(Code.NOT_FOUND, "requested lease not found")
LEASE_EXISTS: Final = _etcd(Code.FAILED_PRECONDITION, "lease already exists")
MEMBER_NOT_FOUND: Final = _etcd(Code.NOT_FOUND, "member not found")
MEMBER_EXISTS: Final = _etcd(Code.FAILED_PRECONDITION, "member ID already exist")
PEER_URL_EXISTS: Final = _etcd(Code.FAILED_PRECONDITION, "Peer URLs already exists")
MEMBER_NOT_LEARNER: Final = _etcd(Code.FAILED_PRECONDITION, "can only promote a learner member")
TOO_MANY_LEARNERS: Final = _etcd(Code.FAILED_PRECONDITION, "too many learner members in cluster")
MEMBER_BAD_URLS: Final = _etcd(Code.INVALID_ARGUMENT, "given member URLs are invalid")
NOT_ENOUGH_STARTED: Final = _etcd(
    Code.FAILED_PRECONDITION, "re-configuration failed due to not enough started members"
)
LEARNER_NOT_READY: Final = _etcd(
    Code.FAILED_PRECONDITION,
    "can only promote a learner member which is in sync with leader",
)
UNHEALTHY: Final = _etcd(Code.UNAVAILABLE, "unhealthy cluster")
WRONG_DOWNGRADE_VERSION: Final = _etcd(
    Code.INVALID_ARGUMENT, "wrong downgrade target version format"
)
INVALID_DOWNGRADE_TARGET: Final = _etcd(Code.INVALID_ARGUMENT, "invalid downgrade target version")
CLUSTER_VERSION_UNKNOWN: Final = _etcd(
    Code.FAILED_PRECONDITION, "cluster version not found during downgrade"
)
DOWNGRADE_IN_PROGRESS: Final = _etcd(
    Code.FAILED_PRECONDITION, "cluster has a downgrade job in progress"
)
CORRUPT: Final = _etcd(Code.DATA_LOSS, "corrupt cluster")
NO_LEADER: Final = _etcd(Code.UNAVAILABLE, "no leader")
LEADER_CHANGED: Final = _etcd(Code.UNAVAILABLE, "leader changed")
NOT_LEADER: Final = _etcd(Code.FAILED_PRECONDITION, "not leader")
BAD_LEADER_TRANSFEREE: Final = _etcd(Code.FAILED_PRECONDITION, "bad leader transferee")
LEARNER_NOT_SUPPORTED: Final = _etcd(Code.FAILED_PRECONDITION, "rpc not supported for learner")
STOPPED: Final = _etcd(Code.UNAVAILABLE, "server stopped")
TIMEOUT: Final = _etcd(Code.UNAVAILABLE, "request timed out")
TIMEOUT_LEADER_FAIL: Final = _etcd(
    Code.UNAVAILABLE, "request timed out, possibly due to previous leader failure"
)
TIMEOUT_CONNECTION_LOST: Final = _etcd(
    Code.UNAVAILABLE, "request timed out, possibly due to connection lost"
)
TIMEOUT_LEADER_TRANSFER: Final = _etcd(
    Code.UNKNOWN, "request timed out, leader transfer took too long"
)
PROPOSAL_DROPPED: Final = Refusal(Code.UNKNOWN, "raft proposal dropped")
TIMEOUT_WAIT_APPLY: Final = _etcd(
    Code.UNAVAILABLE, "request timed out, waiting for the applied index took too long"
)
ROOT_USER_MISSING: Final = _etcd(Code.FAILED_PRECONDITION, "root user does not exist")
ROOT_ROLE_MISSING: Final = _etcd(Code.FAILED_PRECONDITION, "root user does not have root role")
USER_EXISTS: Final = _etcd(Code.FAILED_PRECONDITION, "user name already exists")
USER_EMPTY: Final = _etcd(Code.INVALID_ARGUMENT, "user name is empty")
USER_NOT_FOUND: Final = _etcd(Code.FAILED_PRECONDITION, "user name not found")
ROLE_EXISTS: Final = _etcd(Code.FAILED_PRECONDITION, "role name already exists")
ROLE_EMPTY: Final = _etcd(Code.INVALID_ARGUMENT, "role name is empty")
ROLE_NOT_FOUND: Final = _etcd(Code.FAILED_PRECONDITION, "role name not found")
ROLE_NOT_GRANTED: Final = _etcd(Code.FAILED_PRECONDITION, "role is not granted to the user")
AUTH_FAILED: Final = _etcd(
    Code.INVALID_ARGUMENT, "authentication failed, invalid user ID or password"
)
AUTH_NOT_ENABLED: Final = _etcd(Code.FAILED_PRECONDITION, "authentication is not enabled")
AUTH_OLD_REVISION: Final = _etcd(Code.INVALID_ARGUMENT, "revision of auth store is old")
INVALID_AUTH_MANAGEMENT: Final = _etcd(Code.INVALID_ARGUMENT, "invalid auth management")
INVALID_AUTH_TOKEN: Final = _etcd(Code.UNAUTHENTICATED, "invalid auth token")
PERMISSION_DENIED: Final = _etcd(Code.PERMISSION_DENIED, "permission denied")
PERMISSION_NOT_GIVEN: Final = _etcd(Code.INVALID_ARGUMENT, "permission not given")
PERMISSION_NOT_GRANTED: Final = _etcd(
    Code.FAILED_PRECONDITION, "permission is not granted to the role"
)
# Errors without a code in etcd are sent to the client as they are.
NO_PASSWORD_USER: Final = Refusal(
    Code.UNKNOWN, "auth: authentication failed, password was given for no password user"
)
PASSWORD_TOO_LONG: Final = Refusal(Code.UNKNOWN, "bcrypt: password length exceeds 72 bytes")
VERIFY_ONLY: Final = Refusal(Code.UNKNOWN, "auth: token signing attempted with verify-only key")
STREAM_SORT: Final = Refusal(Code.UNIMPLEMENTED, "RangeStream does not support custom sort orders")
STREAM_FILTER: Final = Refusal(Code.UNIMPLEMENTED, "RangeStream does not support revision filters")


class KvstoreError(ComponentError):
    """The root of the store's own errors."""


class DataDirError(KvstoreError):
    """The data directory cannot be used: locked, of another cluster, or of a newer version."""


class DefragmentError(KvstoreError):
    """A defragmentation was abandoned; the old file stays in use."""


class CorruptionError(KvstoreError):
    """Bytes on disk are not what was written; the text names the file and the offset."""


class StorageFatalError(KvstoreError):
    """A write or a sync failed: nothing may be acknowledged after it, so the process must stop."""
