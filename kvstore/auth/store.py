"""The users and roles of the cluster, and the check of permissions that everything else uses.

    enable, add, grant, …   changed only by applied entries, the same way on every member;
                            each change is one row and one step of the auth revision
    check, check_admin      (credential, key, range end, READ or WRITE) → None or a Refusal

The auth revision goes up by one with whatever changes users, roles or permissions, and when auth is
disabled; not when it is enabled, and not by a change that changed nothing. A credential carries the
auth revision it was made at, and is refused if that is below the store's: what it was checked
against may have changed. The client gets a new one and tries again.

User "root" with role "root" must exist before auth can be enabled, and stays as long as it is
enabled. Role "root" may do everything, on all keys, whether its row exists or not.

Passwords arrive hashed: hashing is slow, and done before the request goes into the log. Requests
and responses are not known here; that is the applier's part.
"""

import binascii
from base64 import b64decode
from bisect import bisect_left, bisect_right
from enum import IntEnum
from typing import Final, NamedTuple

from kvstore.auth import rows
from kvstore.auth.intervals import OPEN_END, Intervals
from kvstore.auth.tokens import Credential, Tokens
from kvstore.backend import Backend, Table, scan_all
from kvstore.errors import (
    AUTH_FAILED,
    AUTH_NOT_ENABLED,
    AUTH_OLD_REVISION,
    INVALID_AUTH_MANAGEMENT,
    NO_PASSWORD_USER,
    PERMISSION_DENIED,
    PERMISSION_NOT_GRANTED,
    ROLE_EMPTY,
    ROLE_EXISTS,
    ROLE_NOT_FOUND,
    ROLE_NOT_GRANTED,
    ROOT_ROLE_MISSING,
    ROOT_USER_MISSING,
    USER_EMPTY,
    USER_EXISTS,
    USER_NOT_FOUND,
    Code,
    Refusal,
)
from kvstore.wire.gen.auth_pb2 import Permission, Role, User, UserAddOptions

ROOT: Final = "root"  # the user, and the role


class Access(IntEnum):
    """What a request does to a key range."""

    READ = 0
    WRITE = 1


class Grants(NamedTuple):
    """What all roles of one user allow together."""

    is_root: bool
    by_access: tuple[Intervals, Intervals]  # indexed by Access


class AuthStore:
    """Users, roles and tokens of one member."""

    def __init__(self, backend: Backend, tokens: Tokens) -> None:
        """Take the rows' backend; call restore before anything else."""
        self._backend = backend
        self.tokens = tokens
        self.enabled = False
        self.revision = 0
        self.changes = 0  # raised whenever permissions may have changed
        self._users: dict[str, User] = {}
        self._roles: dict[str, Role] = {}
        self._grants: dict[str, Grants] = {}  # computed when first needed

    def restore(self) -> None:
        """Read everything from the backend again; tokens are not stored there and are kept."""
        backend = self._backend
        self.enabled = backend.get(Table.AUTH, rows.ENABLED_KEY) == rows.ON
        self.revision = rows.decode_revision(backend.get(Table.AUTH, rows.REVISION_KEY))
        if self.revision == 0:  # a database older than auth; it begins with 1
            self.revision = 1
            backend.put(Table.AUTH, rows.REVISION_KEY, rows.encode_revision(1))
        self._users = {
            user.name.decode(): user
            for user in (rows.decode_user(*row) for row in scan_all(backend, Table.AUTH_USERS))
        }
        self._roles = {
            role.name.decode(): role
            for role in (rows.decode_role(*row) for row in scan_all(backend, Table.AUTH_ROLES))
        }
        if not self.enabled:
            self.tokens.clear()
        self._changed()

    # Queries.

    def user(self, name: str) -> User | None:
        """Return a user."""
        return self._users.get(name)

    def role(self, name: str) -> Role | None:
        """Return a role."""
        return self._roles.get(name)

    def user_names(self) -> list[str]:
        """Return the names of all users, ascending."""
        return sorted(self._users)

    def role_names(self) -> list[str]:
        """Return the names of all roles, ascending."""
        return sorted(self._roles)

    def has_role(self, username: str, role: str) -> bool:
        """Return whether a user was granted a role."""
        user = self._users.get(username)
        return user is not None and role in user.roles

    def check(
        self, credential: Credential, key: bytes, range_end: bytes, access: Access
    ) -> Refusal | None:
        """Return why a credential may not access a key range, or None; O(log n)."""
        if not self.enabled:
            return None
        username, revision = credential
        if revision == 0:
            return USER_EMPTY
        if revision < self.revision:
            return AUTH_OLD_REVISION
        return self.check_user(username, key, range_end, access)

    def check_user(
        self, username: str, key: bytes, range_end: bytes, access: Access
    ) -> Refusal | None:
        """Return why a user may not access a key range, whatever the credential's revision."""
        grants = self._grants.get(username)
        if grants is None:
            user = self._users.get(username)
            if user is None:
                return PERMISSION_DENIED
            grants = self._grants[username] = self._merge(user)
        if grants.is_root or grants.by_access[access].covers(key, range_end):
            return None
        return PERMISSION_DENIED

    def check_admin(self, credential: Credential | None) -> Refusal | None:
        """Return why a credential is not a root user's, or None; its revision does not matter."""
        if not self.enabled:
            return None
        if credential is None or not credential[0]:
            return USER_EMPTY
        user = self._users.get(credential[0])
        if user is None:
            return USER_NOT_FOUND
        return None if ROOT in user.roles else PERMISSION_DENIED

    def _merge(self, user: User) -> Grants:
        reads: list[tuple[bytes, bytes]] = []
        writes: list[tuple[bytes, bytes]] = []
        for name in user.roles:
            role = self._roles.get(name)
            for permission in () if role is None else role.keyPermission:
                span = (permission.key, permission.range_end)
                if permission.permType in (Permission.READ, Permission.READWRITE):
                    reads.append(span)
                if permission.permType in (Permission.WRITE, Permission.READWRITE):
                    writes.append(span)
        return Grants(ROOT in user.roles, (Intervals(reads), Intervals(writes)))

    # Changes.

    def enable(self) -> Refusal | None:
        """Enable auth; enabling it again changes nothing."""
        if self.enabled:
            return None
        root = self._users.get(ROOT)
        if root is None:
            return ROOT_USER_MISSING
        if ROOT not in root.roles:
            return ROOT_ROLE_MISSING
        self._backend.put(Table.AUTH, rows.ENABLED_KEY, rows.ON)
        self.enabled = True
        self._changed()
        return None

    def disable(self) -> None:
        """Disable auth and drop all tokens."""
        if not self.enabled:
            return
        self._backend.put(Table.AUTH, rows.ENABLED_KEY, rows.OFF)
        self.enabled = False
        self.tokens.clear()
        self._commit()

    def authenticate(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Give a user whose password was verified a token ("" if it is still to be signed)."""
        if not self.enabled:
            return AUTH_NOT_ENABLED
        user = self._users.get(username)
        if user is None or user.options.no_password:
            return AUTH_FAILED
        return self.tokens.assign(username, prefix, index, now_ns)

    def add_user(
        self, name: str, options: UserAddOptions | None, hashed_password: str
    ) -> Refusal | None:
        """Add a user; hashed_password is base64 of a bcrypt string."""
        if not name:
            return USER_EMPTY
        if name in self._users:
            return USER_EXISTS
        refusal = check_name("user", name)
        if refusal is not None:
            return refusal
        user = User(name=name.encode(), options=options or UserAddOptions())
        if not user.options.no_password:
            password = _decode_password(hashed_password)
            if password is None:
                return NO_PASSWORD_USER
            user.password = password
        self._put_user(user)
        self._commit()
        return None

    def delete_user(self, name: str) -> Refusal | None:
        """Delete a user and drop the user's tokens."""
        if self.enabled and name == ROOT:
            return INVALID_AUTH_MANAGEMENT
        if self._users.pop(name, None) is None:
            return USER_NOT_FOUND
        self._backend.delete(Table.AUTH_USERS, name.encode())
        self._commit()
        self.tokens.forget_user(name)
        return None

    def change_password(self, name: str, hashed_password: str) -> Refusal | None:
        """Set a user's password and drop the user's tokens; a user without one gets none."""
        old = self._users.get(name)
        if old is None:
            return USER_NOT_FOUND
        password = b"" if old.options.no_password else _decode_password(hashed_password)
        if password is None:
            return NO_PASSWORD_USER
        user = User()
        user.CopyFrom(old)
        user.password = password
        self._put_user(user)
        self._commit()
        self.tokens.forget_user(name)
        return None

    def grant_role(self, username: str, role: str) -> Refusal | None:
        """Give a user a role; the root role need not exist. A role the user has changes nothing."""
        user = self._users.get(username)
        if user is None:
            return USER_NOT_FOUND
        if role != ROOT and role not in self._roles:
            return ROLE_NOT_FOUND
        if role in user.roles:
            return None
        self._set_roles(user, sorted([*user.roles, role]))
        self._commit()
        return None

    def revoke_role(self, username: str, role: str) -> Refusal | None:
        """Take a role from a user."""
        if self.enabled and username == ROOT and role == ROOT:
            return INVALID_AUTH_MANAGEMENT
        user = self._users.get(username)
        if user is None:
            return USER_NOT_FOUND
        if role not in user.roles:
            return ROLE_NOT_GRANTED
        self._set_roles(user, [each for each in user.roles if each != role])
        self._commit()
        return None

    def add_role(self, name: str) -> Refusal | None:
        """Add a role without permissions."""
        if not name:
            return ROLE_EMPTY
        if name in self._roles:
            return ROLE_EXISTS
        refusal = check_name("role", name)
        if refusal is not None:
            return refusal
        self._put_role(Role(name=name.encode()))
        self._commit()
        return None

    def delete_role(self, name: str) -> Refusal | None:
        """Delete a role and take it from all users."""
        if self.enabled and name == ROOT:
            return INVALID_AUTH_MANAGEMENT
        if self._roles.pop(name, None) is None:
            return ROLE_NOT_FOUND
        self._backend.delete(Table.AUTH_ROLES, name.encode())
        for user in self._users.values():
            if name in user.roles:
                self._set_roles(user, [each for each in user.roles if each != name])
        self._commit()
        return None

    def grant_permission(self, name: str, permission: Permission) -> Refusal | None:
        """Give a role a permission; if it has one on this range, that one's type is set.

        Of several permissions with the same key only the first can be found again, as in etcd.
        """
        if not _is_range(permission.key, permission.range_end):
            return INVALID_AUTH_MANAGEMENT
        role = self._roles.get(name)
        if role is None:
            return ROLE_NOT_FOUND
        had = role.keyPermission
        keys = [each.key for each in had]
        at = bisect_left(keys, permission.key)
        if at < len(keys) and _same_range(had[at], permission.key, permission.range_end):
            had[at].permType = permission.permType
        else:
            added = Permission(
                permType=permission.permType, key=permission.key, range_end=permission.range_end
            )
            had.insert(bisect_right(keys, permission.key), added)
        self._put_role(role)
        self._commit()
        return None

    def revoke_permission(self, name: str, key: bytes, range_end: bytes) -> Refusal | None:
        """Take the permissions on a range from a role."""
        role = self._roles.get(name)
        if role is None:
            return ROLE_NOT_FOUND
        kept = [each for each in role.keyPermission if not _same_range(each, key, range_end)]
        if len(kept) == len(role.keyPermission):
            return PERMISSION_NOT_GRANTED
        self._put_role(Role(name=role.name, keyPermission=kept))
        self._commit()
        return None

    def _set_roles(self, user: User, roles: list[str]) -> None:
        del user.roles[:]
        user.roles.extend(roles)
        self._put_user(user)

    def _put_user(self, user: User) -> None:
        self._users[user.name.decode()] = user
        self._backend.put(Table.AUTH_USERS, user.name, rows.encode(user))

    def _put_role(self, role: Role) -> None:
        self._roles[role.name.decode()] = role
        self._backend.put(Table.AUTH_ROLES, role.name, rows.encode(role))

    def _commit(self) -> None:
        """Increment the auth revision: something changed."""
        self.revision += 1
        self._backend.put(Table.AUTH, rows.REVISION_KEY, rows.encode_revision(self.revision))
        self._changed()

    def _changed(self) -> None:
        self._grants.clear()
        self.changes += 1


def check_name(kind: str, name: str) -> Refusal | None:
    """Return why a name cannot be a row's key, or None; kind: "user" or "role"."""
    size_bytes = len(name.encode())
    if size_bytes <= rows.NAME_BYTES_MAX:
        return None
    return Refusal(
        Code.INVALID_ARGUMENT,
        f"etcdserver: {kind} name of {size_bytes} bytes, the limit is {rows.NAME_BYTES_MAX}",
    )


def _decode_password(hashed_password: str) -> bytes | None:
    """Return the bytes encoded in base64; None for a text that is not base64."""
    try:
        return b64decode(hashed_password.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return None


def _same_range(permission: Permission, key: bytes, range_end: bytes) -> bool:
    return permission.key == key and permission.range_end == range_end


def _is_range(key: bytes, range_end: bytes) -> bool:
    """Return whether a permission's range can contain a key."""
    return bool(key) and (not range_end or key < range_end or range_end == OPEN_END)
