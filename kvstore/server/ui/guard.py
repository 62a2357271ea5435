"""Access to the status page: anyone while authentication is off, root once it is on.

    Authorization: Basic <user:password>     from the browser's prompt; checked with Authenticate
    Authorization: <token>, Bearer <token>   as for the gateway

An accepted credential is cached for CACHED_S, so that an open page does not hash a password every
other second. Only digests of credentials are cached.
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS
from kvstore.errors import Code
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

CACHED_S: Final = 30
CACHED_MAX: Final = 64
_LOGINS_MAX: Final = 4  # concurrent, because each costs a password hash
_TIMEOUT_S: Final = 10.0

Refused = tuple[int, str]  # HTTP status, reason


class Guard:
    """Checks the Authorization header of a request."""

    def __init__(
        self, client: LocalClient, is_auth_enabled: Callable[[], bool], clock: Clock
    ) -> None:
        self._client = client
        self._is_auth_enabled = is_auth_enabled
        self._clock = clock
        self._known: dict[bytes, int] = {}  # digest of an accepted credential → its expiry, ns
        self._logins = asyncio.Semaphore(_LOGINS_MAX)

    async def check(self, authorization: str) -> Refused | None:
        """Return why the page is refused, or None."""
        if not self._is_auth_enabled():
            return None
        if not authorization:
            return 401, "authentication is on: log in as a user with the root role"
        digest = hashlib.sha256(authorization.encode()).digest()
        now_ns = self._clock.monotonic_ns()
        if self._known.get(digest, 0) > now_ns:
            return None
        try:
            await self._admit(authorization)
        except CallRefusedError as refused:
            self._known.pop(digest, None)
            if refused.code == Code.PERMISSION_DENIED:
                return 403, refused.text
            if refused.code in {Code.UNAUTHENTICATED, Code.INVALID_ARGUMENT}:
                return 401, refused.text
            return 503, refused.text
        except ValueError as error:
            return 401, str(error)
        if len(self._known) >= CACHED_MAX:
            self._known.clear()
        self._known[digest] = now_ns + CACHED_S * SECOND_NS
        return None

    async def _admit(self, authorization: str) -> None:
        """Raise CallRefusedError, or ValueError, unless the credential is root's."""
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "basic":
            async with self._logins:
                token = await self._login(rest)
        else:
            token = rest.strip() if scheme.lower() == "bearer" else authorization
        request = pb.AuthUserListRequest().SerializeToString()  # which only root may call
        await self._client.call(rpc.AUTH_USER_LIST, request, {"token": token}, _TIMEOUT_S)

    async def _login(self, encoded: str) -> str:
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise ValueError("malformed Authorization header") from None
        if not colon:
            raise ValueError("malformed Authorization header")
        request = pb.AuthenticateRequest(name=name, password=password).SerializeToString()
        reply = await self._client.call(rpc.AUTHENTICATE, request, None, _TIMEOUT_S)
        return pb.AuthenticateResponse.FromString(reply).token
