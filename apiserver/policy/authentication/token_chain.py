"""The chain of bearer token authenticators, with a cache.

    token ──► cached? ──► static ──► legacy ──► service accounts ──► bootstrap ──► …

The first that knows the token decides. Errors of the others are only reported if none does. Only
successes are cached, for ten seconds: a token may outlive its revocation by that long.
"""

from collections.abc import Awaitable, Sequence
from typing import Final, TypeAlias

from kvstack.apimachinery.attributes import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User
from kvstack.apiserver.policy.authentication.results import (
    AuthenticationError,
    Found,
    Identified,
    TokenAuthenticator,
    combined,
)
from kvstack.apiserver.policy.metrics import TokenMetrics
from kvstack.component.clock import Clock

REMEMBERED_NS: Final = 10_000_000_000
REMEMBERED_MAX: Final = 16_384
TOKEN_LENGTH_MAX: Final = 65_536
"""Longer texts are never tokens."""

_Key: TypeAlias = tuple[str, tuple[str, ...]]


class TokenChain:
    """Authenticates bearer tokens of all kinds; the user gets the group system:authenticated."""

    def __init__(self, members: Sequence[TokenAuthenticator], clock: Clock) -> None:
        self._members: Final = tuple(members)
        self._clock: Final = clock
        self._remembered: dict[_Key, tuple[Identified, int]] = {}
        self.metrics: Final = TokenMetrics()

    def authenticate(
        self, token: str, audiences: tuple[str, ...]
    ) -> Identified | Awaitable[Identified]:
        """Return the token's user; raises AuthenticationError."""
        known = self._remembered.get((token, audiences))
        began = self._clock.monotonic_ns()
        if known is not None and began < known[1]:
            self.metrics.hits += 1
            return known[0]
        if len(token) > TOKEN_LENGTH_MAX:
            raise invalid_token()
        try:
            result = self._ask(token, audiences, 0, [])
        except AuthenticationError:
            self.metrics.missed(self._clock.monotonic_ns() - began, is_known=False)
            raise
        if not isinstance(result, Identified):
            return self._timed(result, began)
        self.metrics.missed(self._clock.monotonic_ns() - began, is_known=True)
        return result

    async def _timed(self, waiting: Awaitable[Identified], began: int) -> Identified:
        """Wait for an answer, and record its duration."""
        is_known = False
        self.metrics.waiting += 1
        try:
            found = await waiting
            is_known = True
        finally:
            self.metrics.waiting -= 1
            self.metrics.missed(self._clock.monotonic_ns() - began, is_known=is_known)
        return found

    def forget(self) -> None:
        """Clear the cache, since the authenticators have changed."""
        self._remembered.clear()

    def _ask(
        self,
        token: str,
        audiences: tuple[str, ...],
        position: int,
        errors: list[AuthenticationError],
    ) -> Identified | Awaitable[Identified]:
        """Call the members from a position on."""
        for member in self._members[position:]:
            position += 1
            try:
                result = member.authenticate(token, audiences)
            except AuthenticationError as error:
                errors.append(error)
                continue
            if isinstance(result, Identified):
                return self._remember(token, audiences, result)
            if result is not None:
                return self._wait(token, audiences, position, result, errors)
        raise _failure(errors)

    async def _wait(
        self,
        token: str,
        audiences: tuple[str, ...],
        position: int,
        waiting: Awaitable[Found],
        errors: list[AuthenticationError],
    ) -> Identified:
        """Wait for one member, and call those from a position on."""
        try:
            found = await waiting
        except AuthenticationError as error:
            errors.append(error)
        else:
            if found is not None:
                return self._remember(token, audiences, found)
        rest = self._ask(token, audiences, position, errors)
        return rest if isinstance(rest, Identified) else await rest

    def _remember(self, token: str, audiences: tuple[str, ...], found: Identified) -> Identified:
        identified = found._replace(user=with_group_of_authenticated(found.user))
        now = self._clock.monotonic_ns()
        if len(self._remembered) >= REMEMBERED_MAX:
            self._forget_old(now)
        self._remembered[token, audiences] = identified, now + REMEMBERED_NS
        return identified

    def _forget_old(self, now: int) -> None:
        kept = {key: value for key, value in self._remembered.items() if now < value[1]}
        self._remembered = kept if len(kept) < REMEMBERED_MAX else {}


def with_group_of_authenticated(user: User) -> User:
    """Return a user with the group of all authenticated users, or of all unauthenticated ones."""
    if user.name == ANONYMOUS or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return user._replace(groups=(*user.groups, AUTHENTICATED))


def invalid_token() -> AuthenticationError:
    """Return the error of an unknown token."""
    return AuthenticationError("invalid bearer token")


def _failure(errors: list[AuthenticationError]) -> AuthenticationError:
    # Upstream checks the token of its own loopback client first, which fails with this for any
    # other.
    return combined([invalid_token(), *errors])
