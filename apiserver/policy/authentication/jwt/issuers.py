"""Tokens of several issuers, which may change at run time."""

from collections.abc import Awaitable, Iterable, Sequence
from typing import Final

from kvstack.apiserver.policy.authentication.jwt.authenticator import JwtTokens
from kvstack.apiserver.policy.authentication.jwt.verifying import read_token
from kvstack.apiserver.policy.authentication.results import Found


class Issuers:
    """Selects the authenticator by the token's issuer."""

    def __init__(self) -> None:
        self._by_issuer: Final[dict[str, JwtTokens]] = {}

    @property
    def all(self) -> list[JwtTokens]:
        """The authenticators of all issuers."""
        return list(self._by_issuer.values())

    def replace(self, members: Iterable[JwtTokens]) -> list[JwtTokens]:
        """Replace the authenticators; return the removed ones."""
        old = self.all
        self._by_issuer.clear()
        self._by_issuer.update((each.settings.issuer, each) for each in members)
        return [each for each in old if each not in self.all]

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return the token's user; raises AuthenticationError."""
        if not self._by_issuer:
            return None
        unverified = read_token(token)
        member = None if unverified is None else self._by_issuer.get(unverified.issuer)
        return None if member is None else member.authenticate(token, audiences)
