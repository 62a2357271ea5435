"""The requests about users and roles, applied: one row changed, or a refusal, and the answer.

Who asked is in the entry's header. All but these need the root role, checked here on every member:

    Authenticate   proves itself by a password, which was checked before the entry was made
    AuthStatus     tells everybody
    UserGet        of oneself            RoleGet   of a role one has

What only reads is answered by the member that proposed it; the others pass it over.
"""

from collections.abc import Callable
from typing import Final

from google.protobuf.message import Message

from kvstore.apply.txn import Result
from kvstore.auth.store import ROOT, AuthStore
from kvstore.auth.tokens import Who
from kvstore.errors import (
    PERMISSION_NOT_GIVEN,
    ROLE_NOT_FOUND,
    USER_NOT_FOUND,
    CorruptionError,
    Refusal,
)
from kvstore.wire.gen import raft_internal_pb2 as internal
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.auth_pb2 import Permission
from kvstore.wire.internal import Field

Handler = Callable[[bytes], Message | Refusal | None]

OPEN_TO_ALL: Final = frozenset(
    {Field.AUTHENTICATE, Field.AUTH_STATUS, Field.AUTH_USER_GET, Field.AUTH_ROLE_GET}
)
ROOT_PERMISSION: Final = Permission(permType=Permission.READWRITE, key=b"", range_end=b"\0")


class AuthRequests:
    """Applies the requests about users and roles."""

    def __init__(self, auth: AuthStore, header: Callable[[], bytes]) -> None:
        """Take the store, and what makes the header of a response."""
        self._auth = auth
        self._header = header
        self._who: Who = ("", 0)
        self._index = 0
        self._now_ns = 0
        self._handlers: dict[int, Handler] = {
            Field.AUTH_ENABLE: lambda _: self._auth.enable(),
            Field.AUTH_DISABLE: self._disable,
            Field.AUTH_STATUS: self._status,
            Field.AUTHENTICATE: self._authenticate,
            Field.AUTH_USER_ADD: self._user_add,
            Field.AUTH_USER_DELETE: self._user_delete,
            Field.AUTH_USER_GET: self._user_get,
            Field.AUTH_USER_CHANGE_PASSWORD: self._user_change_password,
            Field.AUTH_USER_GRANT_ROLE: self._user_grant_role,
            Field.AUTH_USER_REVOKE_ROLE: self._user_revoke_role,
            Field.AUTH_USER_LIST: lambda _: pb.AuthUserListResponse(users=auth.user_names()),
            Field.AUTH_ROLE_LIST: lambda _: pb.AuthRoleListResponse(roles=auth.role_names()),
            Field.AUTH_ROLE_ADD: self._role_add,
            Field.AUTH_ROLE_DELETE: self._role_delete,
            Field.AUTH_ROLE_GET: self._role_get,
            Field.AUTH_ROLE_GRANT_PERMISSION: self._role_grant_permission,
            Field.AUTH_ROLE_REVOKE_PERMISSION: self._role_revoke_permission,
        }

    @property
    def fields(self) -> frozenset[int]:
        """The requests that are applied here."""
        return frozenset(self._handlers)

    def apply(self, field: int, body: bytes, who: Who, index: int, now_ns: int) -> Result:
        """Apply one request of the entry at index; who: from its header."""
        if field not in OPEN_TO_ALL:
            refusal = self._auth.check_admin(who)
            if refusal is not None:
                return refusal
        self._who, self._index, self._now_ns = who, index, now_ns
        answer = self._handlers[field](body)
        if isinstance(answer, Refusal):
            return answer
        return self._header() if answer is None else self._header() + answer.SerializeToString()

    def _disable(self, _body: bytes) -> None:
        self._auth.disable()

    def _status(self, _body: bytes) -> Message:
        return pb.AuthStatusResponse(enabled=self._auth.enabled, authRevision=self._auth.revision)

    def _authenticate(self, body: bytes) -> Message | Refusal:
        request = internal.InternalAuthenticateRequest.FromString(body)
        # The index is that of the database before this entry.
        token = self._auth.authenticate(
            request.name, request.simple_token, self._index - 1, self._now_ns
        )
        return token if isinstance(token, Refusal) else pb.AuthenticateResponse(token=token)

    def _user_add(self, body: bytes) -> Refusal | None:
        request = pb.AuthUserAddRequest.FromString(body)
        options = request.options if request.HasField("options") else None
        if options is None or not options.no_password:
            self._refuse_plain(request.password, request.hashedPassword)
        return self._auth.add_user(request.name, options, request.hashedPassword)

    def _user_delete(self, body: bytes) -> Refusal | None:
        return self._auth.delete_user(pb.AuthUserDeleteRequest.FromString(body).name)

    def _user_get(self, body: bytes) -> Message | Refusal:
        name = pb.AuthUserGetRequest.FromString(body).name
        refusal = self._auth.check_admin(self._who)
        if refusal is not None and name != self._who[0]:
            return refusal
        user = self._auth.user(name)
        return USER_NOT_FOUND if user is None else pb.AuthUserGetResponse(roles=user.roles)

    def _user_change_password(self, body: bytes) -> Refusal | None:
        request = pb.AuthUserChangePasswordRequest.FromString(body)
        self._refuse_plain(request.password, request.hashedPassword)
        return self._auth.change_password(request.name, request.hashedPassword)

    def _user_grant_role(self, body: bytes) -> Refusal | None:
        request = pb.AuthUserGrantRoleRequest.FromString(body)
        return self._auth.grant_role(request.user, request.role)

    def _user_revoke_role(self, body: bytes) -> Refusal | None:
        request = pb.AuthUserRevokeRoleRequest.FromString(body)
        return self._auth.revoke_role(request.name, request.role)

    def _role_add(self, body: bytes) -> Refusal | None:
        return self._auth.add_role(pb.AuthRoleAddRequest.FromString(body).name)

    def _role_delete(self, body: bytes) -> Refusal | None:
        return self._auth.delete_role(pb.AuthRoleDeleteRequest.FromString(body).role)

    def _role_get(self, body: bytes) -> Message | Refusal:
        name = pb.AuthRoleGetRequest.FromString(body).role
        auth = self._auth
        refusal = auth.check_admin(self._who)
        if refusal is not None and not auth.has_role(self._who[0], name):
            return refusal
        role = auth.role(name)
        if role is None:
            return ROLE_NOT_FOUND
        return pb.AuthRoleGetResponse(
            perm=[ROOT_PERMISSION] if name == ROOT else role.keyPermission
        )

    def _role_grant_permission(self, body: bytes) -> Refusal | None:
        request = pb.AuthRoleGrantPermissionRequest.FromString(body)
        if not request.HasField("perm"):
            return PERMISSION_NOT_GIVEN
        return self._auth.grant_permission(request.name, request.perm)

    def _role_revoke_permission(self, body: bytes) -> Refusal | None:
        request = pb.AuthRoleRevokePermissionRequest.FromString(body)
        return self._auth.revoke_permission(request.role, request.key, request.range_end)

    def _refuse_plain(self, password: str, hashed_password: str) -> None:
        """Give up on a password in plain text: each member would hash it differently."""
        if password and not hashed_password:
            raise CorruptionError(
                f"log entry {self._index} holds a password that is not hashed, as an etcd before "
                "3.5 wrote it: run etcd 3.5 or newer on this data until it has taken a snapshot"
            )
