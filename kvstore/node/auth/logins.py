"""The calls of service Auth: logging in, setting passwords, and all others.

    Authenticate   read index ─► look up the user ─► CHECK_PASSWORD, off the turn ─► entry
                   ─► applied ─► [SIGN_TOKEN, off the turn] ─► token
                                 └─ users changed meanwhile: check the password again
    UserAdd,       HASH_PASSWORD, off the turn ─► entry, with the hash instead of the password
    ChangePassword
    all others     entry

A password is never in an entry, so never in the log. No more than PASSWORDS_MAX of these calls are
under way at once, since each costs some tens of milliseconds of a processor.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol

from kvstore.auth.store import check_name
from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.batch import Outbox, TaskKind, TaskResult
from kvstore.errors import (
    AUTH_FAILED,
    AUTH_NOT_ENABLED,
    NO_PASSWORD_USER,
    PASSWORD_TOO_LONG,
    TOO_MANY_REQUESTS,
    USER_EMPTY,
    Code,
    Refusal,
)
from kvstore.node.auth.checker import AuthChecker
from kvstore.node.call_context import CallContext, Handler
from kvstore.node.parts import Parts
from kvstore.node.pending import ResultCallback
from kvstore.node.reads.reads import Reads
from kvstore.wire import rpc
from kvstore.wire.gen import raft_internal_pb2 as internal
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field

PASSWORDS_MAX: Final = 256  # calls at once
PASSWORD_BYTES_MAX: Final = 72  # bcrypt's

_PLAIN: Final = {
    rpc.AUTH_ENABLE: (Field.AUTH_ENABLE, pb.AuthEnableRequest),
    rpc.AUTH_DISABLE: (Field.AUTH_DISABLE, pb.AuthDisableRequest),
    rpc.AUTH_STATUS: (Field.AUTH_STATUS, pb.AuthStatusRequest),
    rpc.AUTH_USER_GET: (Field.AUTH_USER_GET, pb.AuthUserGetRequest),
    rpc.AUTH_USER_LIST: (Field.AUTH_USER_LIST, pb.AuthUserListRequest),
    rpc.AUTH_USER_DELETE: (Field.AUTH_USER_DELETE, pb.AuthUserDeleteRequest),
    rpc.AUTH_USER_GRANT_ROLE: (Field.AUTH_USER_GRANT_ROLE, pb.AuthUserGrantRoleRequest),
    rpc.AUTH_USER_REVOKE_ROLE: (Field.AUTH_USER_REVOKE_ROLE, pb.AuthUserRevokeRoleRequest),
    rpc.AUTH_ROLE_ADD: (Field.AUTH_ROLE_ADD, pb.AuthRoleAddRequest),
    rpc.AUTH_ROLE_GET: (Field.AUTH_ROLE_GET, pb.AuthRoleGetRequest),
    rpc.AUTH_ROLE_LIST: (Field.AUTH_ROLE_LIST, pb.AuthRoleListRequest),
    rpc.AUTH_ROLE_DELETE: (Field.AUTH_ROLE_DELETE, pb.AuthRoleDeleteRequest),
    rpc.AUTH_ROLE_GRANT_PERMISSION: (
        Field.AUTH_ROLE_GRANT_PERMISSION,
        pb.AuthRoleGrantPermissionRequest,
    ),
    rpc.AUTH_ROLE_REVOKE_PERMISSION: (
        Field.AUTH_ROLE_REVOKE_PERMISSION,
        pb.AuthRoleRevokePermissionRequest,
    ),
}


class Propose(Protocol):
    """Proposes a request for the log; returns a refusal if it cannot be proposed."""

    def __call__(
        self,
        call_id: int,
        field: int,
        body: bytes,
        credential: Credential,
        *,
        callback: ResultCallback | None = None,
    ) -> Refusal | None:
        """Propose; credential: goes into the header of the entry."""
        ...


class _Login:
    """One Authenticate under way."""

    __slots__ = ("call_id", "name", "password", "revision")

    def __init__(self, call_id: int, name: str, password: bytes) -> None:
        self.call_id = call_id
        self.name = name
        self.password = password
        self.revision = 0  # of the users the password was checked against


class AuthLogins:
    """The methods of service Auth."""

    def __init__(self, parts: Parts, reads: Reads, checker: AuthChecker) -> None:
        self._parts = parts
        self._auth = parts.state.auth
        self._reads = reads
        self._checker = checker
        self._under_way: set[int] = set()  # call ids
        self._propose: Propose | None = None

    def handlers(self, propose: Propose) -> Mapping[int, Handler]:
        """Return the handler of each method."""
        self._propose = propose
        return {
            **{method: partial(self._plain, method) for method in _PLAIN},
            rpc.AUTHENTICATE: self._authenticate,
            rpc.AUTH_USER_ADD: self._user_add,
            rpc.AUTH_USER_CHANGE_PASSWORD: self._user_change_password,
        }

    def cancel(self, call_id: int) -> None:
        """Forget a call whose client went away; the result of its task will be ignored."""
        self._under_way.discard(call_id)

    def _plain(
        self, method: int, call_id: int, body: bytes, context: CallContext
    ) -> Refusal | None:
        field, kind = _PLAIN[method]
        request = kind.FromString(body)
        if isinstance(request, pb.AuthRoleAddRequest):
            refusal = check_name("role", request.name)
            if refusal is not None:
                return refusal
        return self._submit(call_id, field, body, context.credential)

    def _submit(
        self,
        call_id: int,
        field: int,
        body: bytes,
        credential: Credential,
        *,
        callback: ResultCallback | None = None,
    ) -> Refusal | None:
        assert self._propose is not None
        return self._propose(call_id, field, body, credential, callback=callback)

    # Setting passwords.

    def _user_add(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.AuthUserAddRequest.FromString(body)
        refusal = check_name("user", request.name)
        if refusal is not None:
            return refusal
        password, request.password = request.password, ""
        field = Field.AUTH_USER_ADD
        if request.HasField("options") and request.options.no_password:
            return self._submit(call_id, field, request.SerializeToString(), context.credential)
        return self._hash(call_id, context, password, field, request)

    def _user_change_password(
        self, call_id: int, body: bytes, context: CallContext
    ) -> Refusal | None:
        request = pb.AuthUserChangePasswordRequest.FromString(body)
        password, request.password = request.password, ""
        field = Field.AUTH_USER_CHANGE_PASSWORD
        if not password:
            return self._submit(call_id, field, request.SerializeToString(), context.credential)
        return self._hash(call_id, context, password, field, request)

    def _hash(
        self,
        call_id: int,
        context: CallContext,
        password: str,
        field: Field,
        request: pb.AuthUserAddRequest | pb.AuthUserChangePasswordRequest,
    ) -> Refusal | None:
        """Hash a password, then propose the request; without a credential nothing is hashed."""
        metadata = context.metadata
        credential = self._checker.credential(metadata)
        if isinstance(credential, Refusal):
            return credential
        if self._auth.enabled and not credential[1]:
            return USER_EMPTY
        secret = password.encode()
        if len(secret) > PASSWORD_BYTES_MAX:
            return PASSWORD_TOO_LONG
        if len(self._under_way) >= PASSWORDS_MAX:
            return TOO_MANY_REQUESTS
        self._under_way.add(call_id)

        def hashed(result: TaskResult, out: Outbox) -> None:
            if not self._finish(call_id):
                return
            refusal = Refusal(Code.UNKNOWN, result.error) if result.error else None
            if refusal is None:
                credential = self._checker.credential(metadata)  # of the revision of now
                if isinstance(credential, Refusal):
                    refusal = credential
                else:
                    request.hashedPassword = b64encode(result.body).decode()
                    body = request.SerializeToString()
                    refusal = self._submit(call_id, field, body, credential)
            if refusal is not None:
                out.refuse(call_id, refusal)

        cost = str(self._parts.limits.bcrypt_cost).encode()
        self._parts.host.tasks.ask(TaskKind.HASH_PASSWORD, (secret, cost), hashed)
        return None

    def _finish(self, call_id: int) -> bool:
        """Count a call as finished; False if its client has gone meanwhile."""
        if call_id not in self._under_way:
            return False
        self._under_way.remove(call_id)
        return True

    # Logging in.

    def _authenticate(self, call_id: int, body: bytes, context: CallContext) -> Refusal | None:
        request = pb.AuthenticateRequest.FromString(body)
        if len(self._under_way) >= PASSWORDS_MAX:
            return TOO_MANY_REQUESTS
        login = _Login(call_id, request.name, request.password.encode())
        self._reads.add(call_id, context, lambda out: self._check(login, out))
        return None

    def _check(self, login: _Login, out: Outbox) -> None:
        """Check the password, off the turn, against the user as it is now."""
        auth = self._auth
        user = auth.user(login.name)
        if user is None or not auth.enabled:
            out.refuse(login.call_id, AUTH_FAILED if auth.enabled else AUTH_NOT_ENABLED)
            return
        if user.options.no_password:
            out.refuse(login.call_id, NO_PASSWORD_USER)
            return
        login.revision = auth.revision
        self._under_way.add(login.call_id)
        self._parts.host.tasks.ask(
            TaskKind.CHECK_PASSWORD,
            (user.password, login.password),
            lambda result, later: self._checked(login, result, later),
        )

    def _checked(self, login: _Login, result: TaskResult, out: Outbox) -> None:
        if not self._finish(login.call_id):
            return
        if result.error:
            self._parts.logger.info("invalid password", user_name=login.name)
            out.refuse(login.call_id, AUTH_FAILED)
            return
        request = internal.InternalAuthenticateRequest(
            name=login.name, simple_token=self._auth.tokens.new_prefix()
        )
        refusal = self._submit(
            login.call_id,
            Field.AUTHENTICATE,
            request.SerializeToString(),
            NO_CREDENTIAL,
            callback=lambda answer, later: self._applied(login, answer, later),
        )
        if refusal is not None:
            out.refuse(login.call_id, refusal)

    def _applied(self, login: _Login, result: bytes | Refusal, out: Outbox) -> None:
        if isinstance(result, Refusal):
            out.refuse(login.call_id, result)
        elif login.revision != self._auth.revision:
            self._parts.logger.info("users changed while a password was checked; checking again")
            self._check(login, out)
        elif self._auth.tokens.signs:
            self._sign(login, result)
        else:
            out.replies.append((login.call_id, Code.OK, result))

    def _sign(self, login: _Login, answer: bytes) -> None:
        self._under_way.add(login.call_id)

        def signed(result: TaskResult, out: Outbox) -> None:
            if not self._finish(login.call_id):
                return
            if result.error:
                out.refuse(login.call_id, Refusal(Code.UNKNOWN, result.error))
                return
            token = pb.AuthenticateResponse(token=result.body.decode())
            out.replies.append((login.call_id, Code.OK, answer + token.SerializeToString()))

        args = (login.name.encode(), str(login.revision).encode())
        self._parts.host.tasks.ask(TaskKind.SIGN_TOKEN, args, signed)
