"""Authentication of a request by all methods, in Kubernetes' order.

    front proxy ──► client certificate ──► bearer token ──► token of a WebSocket ──► anonymous

The first success counts. Invalid credentials are only refused if no others are valid, but then the
request is refused (401) and not anonymous.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.apimachinery.attributes import ANONYMOUS, UNAUTHENTICATED, User
from kvstack.apimachinery.objects import status
from kvstack.apiserver.policy.authentication.certificates import CertificateUsers
from kvstack.apiserver.policy.authentication.front_proxy import FrontProxy
from kvstack.apiserver.policy.authentication.results import AuthenticationError, Identified
from kvstack.apiserver.policy.authentication.token_chain import (
    TokenChain,
    with_group_of_authenticated,
)
from kvstack.apiserver.policy.credentials import Credentials

TokenSource: TypeAlias = Callable[[Credentials], str]
"""Returns the token at one location of the credentials; empty: there is none."""

PROTOCOL_PREFIX: Final = "base64url.bearer.authorization.k8s.io."
"""Prefix of a WebSocket subprotocol that holds a token; it must not be echoed."""

_EXTRA_SPACE: Final = (
    "the provided Authorization header contains extra space before the bearer token, and is ignored"
)
_NOBODY: Final = User(ANONYMOUS, groups=(UNAUTHENTICATED,))


class Anonymous:
    """Whether requests without credentials are served, and for which paths."""

    def __init__(self, *, is_allowed: bool = True, paths: Sequence[str] = ()) -> None:
        """paths: none means all."""
        self._is_allowed: Final = is_allowed
        self._paths: Final = frozenset(paths)

    def user(self, path: str) -> User | None:
        """Return the anonymous user; None: such a request is refused."""
        if not self._is_allowed or (self._paths and path not in self._paths):
            return None
        return _NOBODY


class RequestAuthenticator:
    """Authenticates requests; see `policy.interfaces.Authenticator`."""

    def __init__(
        self,
        tokens: TokenChain,
        api_audiences: Sequence[str],
        *,
        front_proxy: FrontProxy | None = None,
        certificates: CertificateUsers | None = None,
        anonymous: Anonymous,
    ) -> None:
        """Tokens must be meant for one of the audiences."""
        self._tokens: Final = tokens
        self._audiences: Final = tuple(api_audiences)
        self._front_proxy: Final = front_proxy
        self._certificates: Final = certificates
        self._anonymous: Final = anonymous

    def authenticate(self, credentials: Credentials) -> User | Awaitable[User]:
        """Return the user, possibly the anonymous one; raises ApiError 401."""
        has_failed = False
        if credentials.certificates:
            try:
                user = self._of_connection(credentials)
            except AuthenticationError:
                has_failed = True
            else:
                if user is not None:
                    return user
        return self._of_tokens(credentials, [bearer_token, protocol_token], has_failed=has_failed)

    def _of_tokens(
        self, credentials: Credentials, ways: Sequence[TokenSource], *, has_failed: bool
    ) -> User | Awaitable[User]:
        """Return the user of a token at one of these locations, or the anonymous one."""
        for position, way in enumerate(ways):
            try:
                token = way(credentials)
                if not token:
                    continue
                answer = self._tokens.authenticate(token, self._audiences)
            except AuthenticationError:
                has_failed = True
                continue
            if isinstance(answer, Identified):
                return _accept(credentials, answer)
            return self._wait(credentials, answer, ways[position + 1 :])
        anonymous = None if has_failed else self._anonymous.user(credentials.path)
        if anonymous is None:
            raise status.unauthorized()
        return anonymous

    async def _wait(
        self,
        credentials: Credentials,
        waiting: Awaitable[Identified],
        others: Sequence[TokenSource],
    ) -> User:
        try:
            return _accept(credentials, await waiting)
        except AuthenticationError:
            rest = self._of_tokens(credentials, others, has_failed=True)
            return rest if isinstance(rest, User) else await rest

    def _of_connection(self, credentials: Credentials) -> User | None:
        """Return the user that a proxy names, or else that of the certificate."""
        errors: list[AuthenticationError] = []
        if self._front_proxy is not None:
            try:
                user = self._front_proxy.authenticate(credentials)
            except AuthenticationError as error:
                errors.append(error)
            else:
                if user is not None:
                    return with_group_of_authenticated(user)
        if self._certificates is not None:
            user = self._certificates.authenticate(credentials.certificates)
            if user is not None:
                return with_group_of_authenticated(user)
        if errors:
            raise errors[0]
        return None


def bearer_token(credentials: Credentials) -> str:
    """Return the token of the Authorization header; empty: there is none."""
    parts = credentials.authorization.strip().split(" ", 2)
    if len(parts) < 2 or parts[0].lower() != "bearer":
        return ""
    if not parts[1] and len(parts) > 2:
        credentials.warnings.append(_EXTRA_SPACE)
    return parts[1]


def protocol_token(credentials: Credentials) -> str:
    """Return the token among the subprotocols of a WebSocket; empty: there is none.

    Raises AuthenticationError.
    """
    encodings: list[str] = []
    other_count = 0
    for each in _parts(credentials.protocols):
        if each.startswith(PROTOCOL_PREFIX):
            encodings.append(each[len(PROTOCOL_PREFIX) :])
        else:
            other_count += 1
    if not encodings:
        return ""
    if len(encodings) > 1:
        raise AuthenticationError("multiple base64.bearer.authorization tokens specified")
    try:
        encoded = encodings[0].encode() + b"=" * (-len(encodings[0]) % 4)
        token = base64.b64decode(encoded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise AuthenticationError("invalid base64.bearer.authorization token encoding") from None
    if token and not other_count:
        raise AuthenticationError("missing additional subprotocol")
    return token


def without_token(protocols: Sequence[str]) -> list[str]:
    """Return the subprotocols of a WebSocket that may be selected: all but a token."""
    return [each for each in protocols_of(protocols) if not each.startswith(PROTOCOL_PREFIX)]


def protocols_of(headers: Sequence[str]) -> list[str]:
    """Return the subprotocols that a client offers."""
    return [each for each in _parts(headers) if each]


def _parts(protocols: Sequence[str]) -> Iterable[str]:
    return (part.strip() for header in protocols for part in header.split(","))


def _accept(credentials: Credentials, found: Identified) -> User:
    if found.warnings:
        credentials.warnings.extend(found.warnings)
    if found.annotations:
        credentials.annotations.update(found.annotations)
    return found.user
