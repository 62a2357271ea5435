"""Users, roles and permissions as a plain model: the log's auth requests applied one by one.

    apply(field, body, credential, …) → the response (without its header), or the error text
    states[n]                         → users, roles and permissions after the n-th change

A state is never changed, so that a permission can be looked up as of any log index. Which keys a
permission covers is found by walking from the first key of a range to its end, without any index.
Passwords are stored as hash_of(password), which stands for bcrypt.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from kvstore import errors
from kvstore.wire.gen import raft_internal_pb2 as internal
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.auth_pb2 import Permission as PermissionMessage
from kvstore.wire.internal import Field

ROOT: Final = "root"
READ, WRITE, READ_WRITE = 0, 1, 2  # kinds of a permission; the first two: of an access

Credential = tuple[str, int]
"""(user name, auth revision); ("", 0): the call named no user."""

Answer = Message | str


def hash_of(password: bytes) -> bytes:
    """Return what is stored in the place of a password."""
    return b"hash:" + blake2b(password, digest_size=8).hexdigest().encode()


class Permission(NamedTuple):
    """One permission of a role."""

    key: bytes
    range_end: bytes
    kind: int


class User(NamedTuple):
    """One user; password: its hash, None for a user that logs in by certificate only."""

    password: bytes | None
    roles: frozenset[str]


class AuthState(NamedTuple):
    """What auth was at some index of the log."""

    enabled: bool
    revision: int
    users: Mapping[str, User]
    roles: Mapping[str, tuple[Permission, ...]]

    def check(self, credential: Credential, key: bytes, end: bytes, access: int) -> str:
        """Return why a credential may not access a range, or nothing."""
        if not self.enabled:
            return ""
        name, revision = credential
        if revision == 0:
            return errors.USER_EMPTY.text
        if revision < self.revision:
            return errors.AUTH_OLD_REVISION.text
        return self.check_user(name, key, end, access)

    def check_user(self, name: str, key: bytes, end: bytes, access: int) -> str:
        """Return why a user may not access a range, or nothing."""
        user = self.users.get(name)
        if user is None:
            return errors.PERMISSION_DENIED.text
        if ROOT in user.roles:
            return ""
        granted = [
            each
            for role in user.roles
            for each in self.roles.get(role, ())
            if each.kind in (access, READ_WRITE)
        ]
        return "" if _covers(granted, key, end) else errors.PERMISSION_DENIED.text

    def check_admin(self, credential: Credential | None) -> str:
        """Return why a credential is not an administrator's, or nothing."""
        if not self.enabled:
            return ""
        if credential is None or not credential[0]:
            return errors.USER_EMPTY.text
        user = self.users.get(credential[0])
        if user is None:
            return errors.USER_NOT_FOUND.text
        return "" if ROOT in user.roles else errors.PERMISSION_DENIED.text


def _covers(granted: list[Permission], key: bytes, end: bytes) -> bool:
    """Tell whether every key of a range is in some permission: step from one to the next."""
    last = _end_of(key, end)
    at = key
    while True:
        ends = [
            _end_of(each.key, each.range_end)
            for each in granted
            if each.key <= at and _is_below(at, _end_of(each.key, each.range_end))
        ]
        if not ends:
            return False
        if None in ends:
            return True
        furthest = max(each for each in ends if each is not None)
        if last is not None and furthest >= last:
            return True
        at = furthest


def _end_of(key: bytes, end: bytes) -> bytes | None:
    """Return the first key behind a range; None: there is none."""
    if not end:
        return key + b"\0"
    return None if end == b"\0" else end


def _is_below(key: bytes, end: bytes | None) -> bool:
    return end is None or key < end


@dataclass(slots=True)
class Token:
    """A token of letters: from which index of the log to which it is valid."""

    user: str
    from_index: int
    from_ns: int
    until_index: int | None = None

    def is_valid(self, index: int) -> bool:
        """Tell whether it is valid after the entry at an index."""
        return self.from_index <= index and (self.until_index is None or index < self.until_index)


class AuthModel:
    """The users and roles of one cluster."""

    def __init__(self) -> None:
        self.enabled = False
        self.revision = 1
        self.users: dict[str, User] = {}
        self.roles: dict[str, tuple[Permission, ...]] = {}
        self.states = [AuthState(False, 1, {}, {})]
        self.tokens: dict[str, Token] = {}  # all that were ever given out
        self.are_signed = False  # tokens are signed and not kept
        self._handlers: dict[int, Callable[[Any, Credential], Answer]] = {
            Field.AUTH_ENABLE: self._enable,
            Field.AUTH_DISABLE: self._disable,
            Field.AUTH_STATUS: self._status,
            Field.AUTH_USER_ADD: self._user_add,
            Field.AUTH_USER_DELETE: self._user_delete,
            Field.AUTH_USER_GET: self._user_get,
            Field.AUTH_USER_CHANGE_PASSWORD: self._change_password,
            Field.AUTH_USER_GRANT_ROLE: self._grant_role,
            Field.AUTH_USER_REVOKE_ROLE: self._revoke_role,
            Field.AUTH_USER_LIST: self._user_list,
            Field.AUTH_ROLE_LIST: self._role_list,
            Field.AUTH_ROLE_ADD: self._role_add,
            Field.AUTH_ROLE_DELETE: self._role_delete,
            Field.AUTH_ROLE_GET: self._role_get,
            Field.AUTH_ROLE_GRANT_PERMISSION: self._grant_permission,
            Field.AUTH_ROLE_REVOKE_PERMISSION: self._revoke_permission,
        }
        self._index = 0

    @property
    def state(self) -> AuthState:
        """The newest state."""
        return self.states[-1]

    def apply(
        self, request_field: int, body: bytes, credential: Credential, index: int, now_ns: int
    ) -> Answer | None:
        """Apply one request; None: it is not about auth, or nobody is answered."""
        self._index = index
        if request_field == Field.AUTHENTICATE:
            self._authenticate(body, now_ns)
            return None
        handler = self._handlers.get(request_field)
        if handler is None:
            return None
        if request_field not in _OPEN:
            refusal = self.state.check_admin(credential)
            if refusal:
                return refusal
        return handler(MESSAGES[request_field].FromString(body), credential)

    def _authenticate(self, body: bytes, now_ns: int) -> None:
        request = internal.InternalAuthenticateRequest.FromString(body)
        user = self.users.get(request.name)
        if self.are_signed or not self.enabled or user is None or user.password is None:
            return
        token = f"{request.simple_token}.{self._index - 1}"
        self.tokens[token] = Token(request.name, self._index, now_ns)

    def _changed(self, answer: Answer, *, steps: int = 1) -> Answer:
        self.revision += steps
        self.states.append(
            AuthState(self.enabled, self.revision, dict(self.users), dict(self.roles))
        )
        return answer

    def _forget(self, name: str | None) -> None:
        """End the tokens of a user, or of all."""
        for token in self.tokens.values():
            if token.until_index is None and name in (None, token.user):
                token.until_index = self._index

    def _enable(self, _request: Any, _credential: Credential) -> Answer:
        answer = pb.AuthEnableResponse()
        if self.enabled:
            return answer
        if ROOT not in self.users:
            return errors.ROOT_USER_MISSING.text
        if ROOT not in self.users[ROOT].roles:
            return errors.ROOT_ROLE_MISSING.text
        self.enabled = True
        return self._changed(answer, steps=0)

    def _disable(self, _request: Any, _credential: Credential) -> Answer:
        answer = pb.AuthDisableResponse()
        if not self.enabled:
            return answer
        self.enabled = False
        self._forget(None)
        return self._changed(answer)

    def _status(self, _request: Any, _credential: Credential) -> Answer:
        return pb.AuthStatusResponse(enabled=self.enabled, authRevision=self.revision)

    def _user_add(self, request: pb.AuthUserAddRequest, _credential: Credential) -> Answer:
        if request.name in self.users:
            return errors.USER_EXISTS.text
        hashed = None if request.options.no_password else b64decode(request.hashedPassword)
        self.users[request.name] = User(hashed, frozenset())
        return self._changed(pb.AuthUserAddResponse())

    def _user_delete(self, request: pb.AuthUserDeleteRequest, _credential: Credential) -> Answer:
        if self.enabled and request.name == ROOT:
            return errors.INVALID_AUTH_MANAGEMENT.text
        if self.users.pop(request.name, None) is None:
            return errors.USER_NOT_FOUND.text
        self._forget(request.name)
        return self._changed(pb.AuthUserDeleteResponse())

    def _change_password(
        self, request: pb.AuthUserChangePasswordRequest, _credential: Credential
    ) -> Answer:
        user = self.users.get(request.name)
        if user is None:
            return errors.USER_NOT_FOUND.text
        if user.password is not None:
            self.users[request.name] = user._replace(password=b64decode(request.hashedPassword))
        self._forget(request.name)
        return self._changed(pb.AuthUserChangePasswordResponse())

    def _user_get(self, request: pb.AuthUserGetRequest, credential: Credential) -> Answer:
        refusal = self.state.check_admin(credential)
        if refusal and request.name != credential[0]:
            return refusal
        user = self.users.get(request.name)
        if user is None:
            return errors.USER_NOT_FOUND.text
        return pb.AuthUserGetResponse(roles=sorted(user.roles))

    def _grant_role(self, request: pb.AuthUserGrantRoleRequest, _credential: Credential) -> Answer:
        user = self.users.get(request.user)
        if user is None:
            return errors.USER_NOT_FOUND.text
        if request.role != ROOT and request.role not in self.roles:
            return errors.ROLE_NOT_FOUND.text
        answer = pb.AuthUserGrantRoleResponse()
        if request.role in user.roles:
            return answer
        self.users[request.user] = user._replace(roles=user.roles | {request.role})
        return self._changed(answer)

    def _revoke_role(
        self, request: pb.AuthUserRevokeRoleRequest, _credential: Credential
    ) -> Answer:
        if self.enabled and request.name == request.role == ROOT:
            return errors.INVALID_AUTH_MANAGEMENT.text
        user = self.users.get(request.name)
        if user is None:
            return errors.USER_NOT_FOUND.text
        if request.role not in user.roles:
            return errors.ROLE_NOT_GRANTED.text
        self.users[request.name] = user._replace(roles=user.roles - {request.role})
        return self._changed(pb.AuthUserRevokeRoleResponse())

    def _user_list(self, _request: Any, _credential: Credential) -> Answer:
        return pb.AuthUserListResponse(users=sorted(self.users))

    def _role_list(self, _request: Any, _credential: Credential) -> Answer:
        return pb.AuthRoleListResponse(roles=sorted(self.roles))

    def _role_add(self, request: pb.AuthRoleAddRequest, _credential: Credential) -> Answer:
        if request.name in self.roles:
            return errors.ROLE_EXISTS.text
        self.roles[request.name] = ()
        return self._changed(pb.AuthRoleAddResponse())

    def _role_delete(self, request: pb.AuthRoleDeleteRequest, _credential: Credential) -> Answer:
        role = request.role
        if self.enabled and role == ROOT:
            return errors.INVALID_AUTH_MANAGEMENT.text
        if self.roles.pop(role, None) is None:
            return errors.ROLE_NOT_FOUND.text
        self.users = {
            name: user._replace(roles=user.roles - {role}) for name, user in self.users.items()
        }
        return self._changed(pb.AuthRoleDeleteResponse())

    def _role_get(self, request: pb.AuthRoleGetRequest, credential: Credential) -> Answer:
        role = request.role
        refusal = self.state.check_admin(credential)
        caller = self.users.get(credential[0])
        if refusal and (caller is None or role not in caller.roles):
            return refusal
        if role not in self.roles:
            return errors.ROLE_NOT_FOUND.text
        shown = [Permission(b"", b"\0", READ_WRITE)] if role == ROOT else self.roles[role]
        return pb.AuthRoleGetResponse(perm=[_message(each) for each in shown])

    def _grant_permission(
        self, request: pb.AuthRoleGrantPermissionRequest, _credential: Credential
    ) -> Answer:
        had = self.roles.get(request.name)
        if had is None:
            return errors.ROLE_NOT_FOUND.text
        perm = request.perm
        granted = Permission(perm.key, perm.range_end, int(perm.permType))
        # As in etcd, only the first of several permissions with the same key is found again.
        first = next((each for each in had if each.key == granted.key), None)
        if first is not None and first.range_end == granted.range_end:
            now = [granted if each is first else each for each in had]
        else:
            now = sorted([*had, granted], key=lambda each: each.key)
        self.roles[request.name] = tuple(now)
        return self._changed(pb.AuthRoleGrantPermissionResponse())

    def _revoke_permission(
        self, request: pb.AuthRoleRevokePermissionRequest, _credential: Credential
    ) -> Answer:
        had = self.roles.get(request.role)
        if had is None:
            return errors.ROLE_NOT_FOUND.text
        left = tuple(each for each in had if each[:2] != (request.key, request.range_end))
        if left == had:
            return errors.PERMISSION_NOT_GRANTED.text
        self.roles[request.role] = left
        return self._changed(pb.AuthRoleRevokePermissionResponse())


_OPEN: Final = frozenset(
    {Field.AUTHENTICATE, Field.AUTH_STATUS, Field.AUTH_USER_GET, Field.AUTH_ROLE_GET}
)
MESSAGES: Final[Mapping[int, Any]] = {
    Field.AUTH_ENABLE: pb.AuthEnableRequest,
    Field.AUTH_DISABLE: pb.AuthDisableRequest,
    Field.AUTH_STATUS: pb.AuthStatusRequest,
    Field.AUTH_USER_ADD: pb.AuthUserAddRequest,
    Field.AUTH_USER_DELETE: pb.AuthUserDeleteRequest,
    Field.AUTH_USER_GET: pb.AuthUserGetRequest,
    Field.AUTH_USER_CHANGE_PASSWORD: pb.AuthUserChangePasswordRequest,
    Field.AUTH_USER_GRANT_ROLE: pb.AuthUserGrantRoleRequest,
    Field.AUTH_USER_REVOKE_ROLE: pb.AuthUserRevokeRoleRequest,
    Field.AUTH_USER_LIST: pb.AuthUserListRequest,
    Field.AUTH_ROLE_LIST: pb.AuthRoleListRequest,
    Field.AUTH_ROLE_ADD: pb.AuthRoleAddRequest,
    Field.AUTH_ROLE_DELETE: pb.AuthRoleDeleteRequest,
    Field.AUTH_ROLE_GET: pb.AuthRoleGetRequest,
    Field.AUTH_ROLE_GRANT_PERMISSION: pb.AuthRoleGrantPermissionRequest,
    Field.AUTH_ROLE_REVOKE_PERMISSION: pb.AuthRoleRevokePermissionRequest,
}


def _message(permission: Permission) -> PermissionMessage:
    return PermissionMessage(
        permType=permission.kind,  # type: ignore[arg-type]
        key=permission.key,
        range_end=permission.range_end,
    )
