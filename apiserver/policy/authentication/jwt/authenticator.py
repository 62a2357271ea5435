"""Tokens of one issuer.

    token ──► its issuer? ──► key known? ──► signature ──► audience, times ──► claims ──► user
                                 └──► keys are fetched

A token of another issuer is left to other authenticators.
"""

from collections.abc import Awaitable, Sequence
from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authentication.jwt.distributed import ClaimResolver, Endpoint
from kvstack.apiserver.policy.authentication.jwt.keys import IssuerKeys
from kvstack.apiserver.policy.authentication.jwt.mapping import user_of
from kvstack.apiserver.policy.authentication.jwt.settings import JwtSettings
from kvstack.apiserver.policy.authentication.jwt.verifying import (
    Claims,
    Unverified,
    check_claims,
    read_token,
    signed_claims,
)
from kvstack.apiserver.policy.authentication.results import (
    AuthenticationError,
    Found,
    Identified,
    shared,
)
from kvstack.component.clock import Clock


class JwtTokens:
    """Authenticates tokens of one issuer."""

    def __init__(
        self,
        settings: JwtSettings,
        keys: IssuerKeys,
        api_audiences: Sequence[str],
        clock: Clock,
        resolver: ClaimResolver | None = None,
    ) -> None:
        """keys: of the issuer. The tokens are only valid for the API's audiences.

        resolver: resolves a distributed groups claim; None: there is no groups claim.
        """
        self._resolver: Final = resolver
        self.settings: Final = settings
        self.keys: Final = keys
        self._api_audiences: Final = tuple(api_audiences)
        self._clock: Final = clock

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return the token's user; raises AuthenticationError."""
        unverified = read_token(token)
        if unverified is None or unverified.issuer != self.settings.issuer:
            return None
        accepted = shared(self._api_audiences, audiences)
        if self._api_audiences and not accepted:
            return None
        if unverified.algorithm not in self.settings.algorithms:
            raise AuthenticationError(
                "oidc: verify token: oidc: id token signed with unsupported algorithm,"
                f" got {quote(unverified.algorithm)}"
            )
        claims = self._claims(unverified)
        if claims is None:
            return self._fetch(unverified, accepted)
        return self._identified(claims, accepted)

    async def close(self) -> None:
        """Close connections."""
        await self.keys.close()
        if self._resolver is not None:
            await self._resolver.close()

    def _claims(self, unverified: Unverified) -> Claims | None:
        return signed_claims(unverified, self.keys.find(unverified.key_id, unverified.algorithm))

    async def _fetch(self, unverified: Unverified, accepted: tuple[str, ...]) -> Identified:
        """Verify with refreshed keys."""
        claims = self._claims(unverified) if await self.keys.refresh() else None
        if claims is None:
            raise AuthenticationError(
                "oidc: verify token: failed to verify signature: failed to verify id token"
                " signature"
            )
        found = self._identified(claims, accepted)
        return found if isinstance(found, Identified) else await found

    def _identified(
        self, claims: Claims, accepted: tuple[str, ...]
    ) -> Identified | Awaitable[Identified]:
        settings = self.settings
        now_s = self._clock.unix_ms() / 1000
        check_claims(claims, settings.issuer, settings.audiences, now_s)
        if self._resolver is not None:
            endpoint = self._resolver.endpoint(claims)
            if endpoint is not None:
                return self._with_distributed(self._resolver, endpoint, claims, accepted)
        return Identified(user_of(settings, claims), accepted)

    async def _with_distributed(
        self,
        resolver: ClaimResolver,
        endpoint: Endpoint,
        claims: Claims,
        accepted: tuple[str, ...],
    ) -> Identified:
        claims = await resolver.resolved(claims, endpoint)
        return Identified(user_of(self.settings, claims), accepted)
