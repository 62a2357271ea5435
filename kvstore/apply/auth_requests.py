"""Applies the requests about users and roles: one row changes, or the request is refused.

The credential is in the entry's header. All but these need the root role, checked here on every
member:

    Authenticate   the password was verified before the entry was made
    AuthStatus     open to all
    UserGet        of the caller's own user        RoleGet   of a role the caller has

Requests that only read are answered by the member that proposed them; the others ignore the result.
"""

from collections.abc import Callable
from typing import Final

from google.protobuf.message import Message

from kvstore.apply.entry_context import EntryContext
from kvstore.apply.txn import Result
from kvstore.auth.store import ROOT, AuthStore
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

_Response = Message | Refusal | None  # None: a response with nothing but the header
_Handler = Callable[[bytes, EntryContext], _Response]

OPEN_TO_ALL: Final = frozenset(
    {Field.AUTHENTICATE, Field.AUTH_STATUS, Field.AUTH_USER_GET, Field.AUTH_ROLE_GET}
)
ROOT_PERMISSION: Final = Permission(permType=Permission.READWRITE, key=b"", range_end=b"\0")


class AuthRequests:
    """Applies the requests about users and roles."""

    def __init__(self, auth: AuthStore, header: Callable[[], bytes]) -> None:
        """Take the store, and the function that makes the header of a response."""
        self._auth = auth
        self._header = header
        self._handlers: dict[int, _Handler] = {
            Field.AUTH_ENABLE: self._enable,
            Field.AUTH_DISABLE: self._disable,
            Field.AUTH_STATUS: self._status,
            Field.AUTHENTICATE: self._authenticate,
            Field.AUTH_USER_ADD: self._user_add,
            Field.AUTH_USER_DELETE: self._user_delete,
            Field.AUTH_USER_GET: self._user_get,
            Field.AUTH_USER_CHANGE_PASSWORD: self._user_change_password,
            Field.AUTH_USER_GRANT_ROLE: self._user_grant_role,
            Field.AUTH_USER_REVOKE_ROLE: self._user_revoke_role,
            Field.AUTH_USER_LIST: self._user_list,
            Field.AUTH_ROLE_LIST: self._role_list,
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

    def apply(self, field: int, body: bytes, context: EntryContext) -> Result:
        """Apply one request of the entry that context belongs to."""
        if field not in OPEN_TO_ALL:
            refusal = self._auth.check_admin(context.credential)
            if refusal is not None:
                return refusal
        response = self._handlers[field](body, context)
        if isinstance(response, Refusal):
            return response
        header = self._header()
        return header if response is None else header + response.SerializeToString()

    def _enable(self, _body: bytes, _context: EntryContext) -> _Response:
        return self._auth.enable()

    def _disable(self, _body: bytes, _context: EntryContext) -> _Response:
        self._auth.disable()
        return None

    def _status(self, _body: bytes, _context: EntryContext) -> _Response:
        return pb.AuthStatusResponse(enabled=self._auth.enabled, authRevision=self._auth.revision)

    def _authenticate(self, body: bytes, context: EntryContext) -> _Response:
        request = internal.InternalAuthenticateRequest.FromString(body)
        # The index in a token is that of the database before this entry.
        token = self._auth.authenticate(
            request.name, request.simple_token, context.index - 1, context.now_ns
        )
        return token if isinstance(token, Refusal) else pb.AuthenticateResponse(token=token)

    def _user_list(self, _body: bytes, _context: EntryContext) -> _Response:
        return pb.AuthUserListResponse(users=self._auth.user_names())

    def _role_list(self, _body: bytes, _context: EntryContext) -> _Response:
        return pb.AuthRoleListResponse(roles=self._auth.role_names())

    def _user_add(self, body: bytes, context: EntryContext) -> _Response:
        request = pb.AuthUserAddRequest.FromString(body)
        options = request.options if request.HasField("options") else None
        if options is None or not options.no_password:
            _check_hashed(request.password, request.hashedPassword, context.index)
        return self._auth.add_user(request.name, options, request.hashedPassword)

    def _user_delete(self, body: bytes, _context: EntryContext) -> _Response:
        return self._auth.delete_user(pb.AuthUserDeleteRequest.FromString(body).name)

    def _user_get(self, body: bytes, context: EntryContext) -> _Response:
        name = pb.AuthUserGetRequest.FromString(body).name
        refusal = self._auth.check_admin(context.credential)
        if refusal is not None and name != context.credential[0]:
            return refusal
        user = self._auth.user(name)
        return USER_NOT_FOUND if user is None else pb.AuthUserGetResponse(roles=user.roles)

    def _user_change_password(self, body: bytes, context: EntryContext) -> _Response:
        request = pb.AuthUserChangePasswordRequest.FromString(body)
        _check_hashed(request.password, request.hashedPassword, context.index)
        return self._auth.change_password(request.name, request.hashedPassword)

    def _user_grant_role(self, body: bytes, _context: EntryContext) -> _Response:
        request = pb.AuthUserGrantRoleRequest.FromString(body)
        return self._auth.grant_role(request.user, request.role)

    def _user_revoke_role(self, body: bytes, _context: EntryContext) -> _Response:
        request = pb.AuthUserRevokeRoleRequest.FromString(body)
        return self._auth.revoke_role(request.name, request.role)

    def _role_add(self, body: bytes, _context: EntryContext) -> _Response:
        return self._auth.add_role(pb.AuthRoleAddRequest.FromString(body).name)

    def _role_delete(self, body: bytes, _context: EntryContext) -> _Response:
        return self._auth.delete_role(pb.AuthRoleDeleteRequest.FromString(body).role)

    def _role_get(self, body: bytes, context: EntryContext) -> _Response:
        name = pb.AuthRoleGetRequest.FromString(body).role
        auth = self._auth
        refusal = auth.check_admin(context.credential)
        if refusal is not None and not auth.has_role(context.credential[0], name):
            return refusal
        role = auth.role(name)
        if role is None:
            return ROLE_NOT_FOUND
        return pb.AuthRoleGetResponse(
            perm=[ROOT_PERMISSION] if name == ROOT else role.keyPermission
        )

    def _role_grant_permission(self, body: bytes, _context: EntryContext) -> _Response:
        request = pb.AuthRoleGrantPermissionRequest.FromString(body)
        if not request.HasField("perm"):
            return PERMISSION_NOT_GIVEN
        return self._auth.grant_permission(request.name, request.perm)

    def _role_revoke_permission(self, body: bytes, _context: EntryContext) -> _Response:
        request = pb.AuthRoleRevokePermissionRequest.FromString(body)
        return self._auth.revoke_permission(request.role, request.key, request.range_end)


def _check_hashed(password: str, hashed_password: str, index: int) -> None:
    """Raise CorruptionError for a password in plain text: each member would hash it differently."""
    if password and not hashed_password:
        raise CorruptionError(
            f"log entry {index} holds a password that is not hashed, as an etcd before "
            "3.5 wrote it: run etcd 3.5 or newer on this data until it has taken a snapshot"
        )
