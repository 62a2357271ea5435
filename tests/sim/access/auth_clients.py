"""Who calls, and what administrators do: logins, tokens, changes of users, roles and permissions.

Administrators look at the newest state of the model to draw changes that mostly succeed. Tokens
are used for as long as they are remembered, at every member, whether they are still valid or not.
"""

import random
from typing import Final

from google.protobuf.message import Message

from kvstore.node.auth.checker import COMMON_NAME
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.gen.auth_pb2 import Permission as PermissionMessage
from kvstore.wire.gen.auth_pb2 import UserAddOptions
from tests.sim.access.access_checks import NEEDS_ADMIN
from tests.sim.access.auth_model import ROOT, AuthModel, hash_of
from tests.sim.calls import NOBODY, Caller, CallerKind
from tests.sim.options import Options

USERS: Final = (ROOT, "ann", "ben", "cleo")
ROLES: Final = (ROOT, "r1", "r2", "r3")
PASSWORDS: Final = ("secret-1", "secret-2")
SESSIONS_MAX: Final = 12

Request = tuple[int, Message]
"""(method, request)"""


class AuthClients:
    """The callers of one world; without options.auth they are all nobody."""

    def __init__(self, rng: random.Random, options: Options, model: AuthModel) -> None:
        self._rng = rng
        self._options = options
        self._model = model
        self._sessions: list[Caller] = []

    # Callers.

    def caller(self, method: int) -> Caller:
        """Draw who makes a call."""
        rng = self._rng
        if not self._options.auth:
            return NOBODY
        if not self._model.enabled and rng.randrange(3):
            return NOBODY
        kind = rng.randrange(20)
        if kind == 0:
            return NOBODY
        if kind == 1:
            return self._with_token("", rng.choice(("rubbish", "abcdefghijklmnop.1", "signed:x")))
        is_admin = method in NEEDS_ADMIN or method in ADMIN_METHODS
        if is_admin and rng.randrange(4):
            return self._one_of([each for each in self._sessions if each.user == ROOT], ROOT)
        return self._one_of(self._sessions, rng.choice(USERS))

    def _one_of(self, sessions: list[Caller], user: str) -> Caller:
        """Return one of the sessions, or the user by certificate where that is possible."""
        if self._options.certificates and (not sessions or self._rng.randrange(3) == 0):
            return Caller(CallerKind.CERTIFICATE, user, metadata={COMMON_NAME: user})
        return self._rng.choice(sessions) if sessions else NOBODY

    def _with_token(self, user: str, token: str) -> Caller:
        metadata = self._rng.choice(
            ({"token": token}, {"authorization": token}, {"authorization": f"Bearer {token}"})
        )
        return Caller(CallerKind.TOKEN, user, token, metadata)

    def logged_in(self, user: str, token: str) -> None:
        """Remember a token, in the place of the oldest if there are many."""
        self._sessions.append(self._with_token(user, token))
        del self._sessions[:-SESSIONS_MAX]

    # Requests.

    def login(self) -> Request:
        """Draw a login; the password is mostly right."""
        rng = self._rng
        name = rng.choice(USERS)
        password = self.password_of(name)
        if not password or rng.randrange(6) == 0:
            password = rng.choice(PASSWORDS)
        return rpc.AUTHENTICATE, pb.AuthenticateRequest(name=name, password=password)

    def password_of(self, name: str) -> str:
        """Return a user's password as of now; "": there is none."""
        user = self._model.users.get(name)
        hashed = None if user is None else user.password
        return next((each for each in PASSWORDS if hash_of(each.encode()) == hashed), "")

    def look_up(self) -> Request:
        """Draw a question about users and roles."""
        rng = self._rng
        requests: list[Request] = [
            (rpc.AUTH_STATUS, pb.AuthStatusRequest()),
            (rpc.AUTH_USER_GET, pb.AuthUserGetRequest(name=rng.choice(USERS))),
            (rpc.AUTH_USER_LIST, pb.AuthUserListRequest()),
            (rpc.AUTH_ROLE_GET, pb.AuthRoleGetRequest(role=rng.choice(ROLES))),
            (rpc.AUTH_ROLE_LIST, pb.AuthRoleListRequest()),
        ]
        return rng.choice(requests)

    def switch(self) -> Request:
        """Draw a step towards auth being enabled, or seldom disable it."""
        model = self._model
        if model.enabled:
            if self._rng.randrange(4):
                return rpc.AUTH_ENABLE, pb.AuthEnableRequest()
            return rpc.AUTH_DISABLE, pb.AuthDisableRequest()
        if ROOT not in model.users:
            return self._user_add(ROOT)
        if ROOT not in model.users[ROOT].roles:
            request = pb.AuthUserGrantRoleRequest(user=ROOT, role=ROOT)
            return rpc.AUTH_USER_GRANT_ROLE, request
        return rpc.AUTH_ENABLE, pb.AuthEnableRequest()

    def administer(self) -> Request:
        """Draw a change of users, roles or permissions."""
        rng, model = self._rng, self._model
        user, role = rng.choice(USERS), rng.choice(ROLES)
        if user not in model.users and rng.randrange(8):
            return self._user_add(user)
        if role not in model.roles and role != ROOT and rng.randrange(8):
            return rpc.AUTH_ROLE_ADD, pb.AuthRoleAddRequest(name=role)
        kind = rng.randrange(20)
        if kind < 4:
            request = pb.AuthUserGrantRoleRequest(user=user, role=role)
            return rpc.AUTH_USER_GRANT_ROLE, request
        if kind < 6:
            had = sorted(model.users[user].roles) if user in model.users else []
            revoked = rng.choice(had) if had else role
            return rpc.AUTH_USER_REVOKE_ROLE, pb.AuthUserRevokeRoleRequest(name=user, role=revoked)
        if kind < 12:
            return self._grant_permission(role)
        if kind < 16:
            return self._revoke_permission(role)
        if kind == 16:
            return rpc.AUTH_USER_DELETE, pb.AuthUserDeleteRequest(name=user)
        if kind == 17:
            return rpc.AUTH_ROLE_DELETE, pb.AuthRoleDeleteRequest(role=role)
        if kind == 18:
            return self._user_add(user)
        change = pb.AuthUserChangePasswordRequest(name=user, password=rng.choice(PASSWORDS))
        return rpc.AUTH_USER_CHANGE_PASSWORD, change

    def _user_add(self, name: str) -> Request:
        rng = self._rng
        request = pb.AuthUserAddRequest(name=name, password=rng.choice(PASSWORDS))
        if name != ROOT and rng.randrange(6) == 0:
            request.ClearField("password")
            request.options.CopyFrom(UserAddOptions(no_password=True))
        return rpc.AUTH_USER_ADD, request

    def _grant_permission(self, role: str) -> Request:
        rng, keys = self._rng, self._options.keys
        key, end = rng.choice(keys), rng.choice(keys)
        kind = rng.randrange(4)
        if kind == 0:
            key, end = b"\0", b"\0"
        elif kind == 1:
            end = b"\0"
        elif kind == 2 or key >= end:
            end = b""
        granted = PermissionMessage(permType=rng.randrange(3), key=key, range_end=end)  # type: ignore[arg-type]
        request = pb.AuthRoleGrantPermissionRequest(name=role, perm=granted)
        return rpc.AUTH_ROLE_GRANT_PERMISSION, request

    def _revoke_permission(self, role: str) -> Request:
        had = self._model.roles.get(role, ())
        key, end = self._rng.choice(had)[:2] if had else (b"k", b"")
        request = pb.AuthRoleRevokePermissionRequest(role=role, key=key, range_end=end)
        return rpc.AUTH_ROLE_REVOKE_PERMISSION, request


ADMIN_METHODS: Final = frozenset(
    {
        rpc.AUTH_ENABLE,
        rpc.AUTH_DISABLE,
        rpc.AUTH_USER_ADD,
        rpc.AUTH_USER_DELETE,
        rpc.AUTH_USER_CHANGE_PASSWORD,
        rpc.AUTH_USER_GRANT_ROLE,
        rpc.AUTH_USER_REVOKE_ROLE,
        rpc.AUTH_ROLE_ADD,
        rpc.AUTH_ROLE_DELETE,
        rpc.AUTH_ROLE_GRANT_PERMISSION,
        rpc.AUTH_ROLE_REVOKE_PERMISSION,
    }
)
