"""The rows of users and roles in etcd's tables, byte for byte as etcd writes them.

    auth       authEnabled → 01 or 00 (absent until first enabled), authRevision → 8 bytes
    authUsers  name → authpb.User{name 1, password 2, roles 3*, options 4}      roles sorted
    authRoles  name → authpb.Role{name 1, keyPermission 2*}                     sorted by key

A name is a row's key, so it has the limit of keys: NAME_BYTES_MAX.
"""

from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from kvstore.backend import BUCKETS, Table
from kvstore.errors import CorruptionError
from kvstore.wire.gen.auth_pb2 import Role, User

NAME_BYTES_MAX: Final = 511  # the limit of a row's key; etcd panics above 32768

ENABLED_KEY: Final = b"authEnabled"
REVISION_KEY: Final = b"authRevision"
ON: Final = b"\x01"
OFF: Final = b"\x00"

_Row = TypeVar("_Row", User, Role)


def encode_revision(revision: int) -> bytes:
    """Return the value of row authRevision."""
    return revision.to_bytes(8, "big")


def decode_revision(value: bytes | None) -> int:
    """Return the auth revision; 0 for none."""
    if value is None:
        return 0
    if len(value) != 8:
        raise CorruptionError(f"table auth, row authRevision: {len(value)} bytes, not 8")
    return int.from_bytes(value, "big")


def decode_user(key: bytes, value: bytes) -> User:
    """Return the user of a row; CorruptionError if it is not a user or has another name."""
    return _decode(User, Table.AUTH_USERS, key, value)


def decode_role(key: bytes, value: bytes) -> Role:
    """Return the role of a row; CorruptionError if it is not a role or has another name."""
    return _decode(Role, Table.AUTH_ROLES, key, value)


def encode(row: Message) -> bytes:
    """Return the value of a user's or a role's row."""
    return row.SerializeToString()


def _decode(kind: type[_Row], table: Table, key: bytes, value: bytes) -> _Row:
    name = BUCKETS[table].decode()
    try:
        row = kind.FromString(value)
    except DecodeError as error:
        raise CorruptionError(f"table {name}, row {key!r}: cannot be read: {error}") from error
    if row.name != key:
        raise CorruptionError(f"table {name}, row {key!r}: contains {row.name!r}")
    return row
