"""Distributed claims: claims that a token refers to instead of having them.

    {"_claim_names": {"groups": "a"}, "_claim_sources": {"a": {"endpoint": "https://…"}}}

    token, verified ──► endpoint ──GET──► another token ──► keys of its issuer ──► claim `groups`

The other token may be of any issuer, which the first one trusts by naming the endpoint; it must be
for the same audiences. On any failure the token is refused: a user who lacks groups might pass
where one of them is denied.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authentication.jwt.keys import FETCH_S, Asker, IssuerKeys
from kvstack.apiserver.policy.authentication.jwt.settings import JwtSettings
from kvstack.apiserver.policy.authentication.jwt.verifying import (
    Claims,
    Unverified,
    check_claims,
    read_token,
    signed_claims,
)
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.remote.connection import RemoteError
from kvstack.component.clock import Clock

ISSUERS_MAX: Final = 16
"""Limit of issuers whose keys are cached."""
_NAMES: Final = "_claim_names"
_SOURCES: Final = "_claim_sources"
_PROBLEM: Final = "oidc: could not expand distributed claims: "

ConnectAs = Callable[[str, str], Asker]
"""Returns a connection to a URL, with a bearer token or (empty) without."""


class Endpoint(NamedTuple):
    """The endpoint of a claim."""

    url: str
    token: str


class ClaimResolver:
    """Resolves one claim of the tokens of one issuer."""

    def __init__(self, settings: JwtSettings, connect: ConnectAs, clock: Clock) -> None:
        """Resolve the groups claim."""
        self.claim: Final = settings.groups.claim
        self._settings: Final = settings
        self._connect: Final = connect
        self._clock: Final = clock
        self._keys: Final[dict[str, IssuerKeys]] = {}

    def endpoint(self, claims: Claims) -> Endpoint | None:
        """Return the endpoint of the claim; None: none is needed. Raises AuthenticationError."""
        if self.claim in claims or _NAMES not in claims:
            return None
        names, sources = claims[_NAMES], claims.get(_SOURCES)
        if not isinstance(names, dict):
            raise _failed("_claim_names is not an object")
        if sources is None:
            raise _failed("oidc: no claim sources")
        if not isinstance(sources, dict):
            raise _failed("_claim_sources is not an object")
        name = names.get(self.claim)
        if name is None:
            return None
        source = sources.get(name) if isinstance(name, str) else None
        if not isinstance(source, dict):
            raise _failed(f"id token {_NAMES} contained a source {name} missing in _claims_sources")
        url, token = source.get("endpoint") or "", source.get("access_token") or ""
        if not isinstance(url, str) or not isinstance(token, str):
            raise _failed(f"the source {quote(name)} has no URL or token of type string")
        if not url:
            return None  # another form: the claim is in an aggregated token
        if urlsplit(url).scheme != "https" or not urlsplit(url).hostname:
            raise _failed(f"the endpoint {quote(url)} is not an https URL")
        return Endpoint(url, token)

    async def resolved(self, claims: Claims, endpoint: Endpoint) -> Claims:
        """Return the claims with the resolved one; raises AuthenticationError."""
        unverified = await self._fetched(endpoint)
        verified_claims = await self._verified(unverified)
        if self.claim not in verified_claims:
            raise _failed(
                f"jwt returned by distributed claim endpoint {quote(endpoint.url)} did not contain"
                f" claim: {self.claim}"
            )
        return {**claims, self.claim: verified_claims[self.claim]}

    async def close(self) -> None:
        """Close connections."""
        for each in self._keys.values():
            await each.close()

    async def _fetched(self, endpoint: Endpoint) -> Unverified:
        connection = self._connect(endpoint.url, endpoint.token)
        try:
            answer = await connection.ask("GET", timeout_s=FETCH_S)
        except RemoteError as error:
            raise _failed(
                f"while getting distributed claim {quote(self.claim)}: {error}"
            ) from error
        finally:
            await connection.close()
        if not 200 <= answer.code <= 226:
            raise _failed(
                f"while getting distributed claim {quote(self.claim)}: error while getting"
                f" distributed claim JWT: {answer.code}"
            )
        unverified = read_token(answer.body.decode("ascii", "replace").strip())
        if unverified is None:
            raise _failed(
                f"getting untrusted issuer from endpoint {endpoint.url} failed for claim"
                f" {quote(self.claim)}: it is not a token"
            )
        return unverified

    async def _verified(self, unverified: Unverified) -> Mapping[str, Any]:
        settings = self._settings
        if unverified.algorithm not in settings.algorithms:
            raise _failed(
                "verify distributed claim token: oidc: id token signed with unsupported algorithm,"
                f" got {quote(unverified.algorithm)}"
            )
        if urlsplit(unverified.issuer).scheme != "https":
            raise _failed(f"the issuer {quote(unverified.issuer)} is not an https URL")
        keys = await self._keys_of(unverified.issuer)

        def verified() -> Claims | None:
            return signed_claims(unverified, keys.find(unverified.key_id, unverified.algorithm))

        now_s = self._clock.unix_ms() / 1000
        try:
            claims = verified()
            if claims is None and await keys.refresh():
                claims = verified()
            if claims is not None:
                check_claims(claims, unverified.issuer, settings.audiences, now_s)
                return claims
        except AuthenticationError as error:
            raise _failed(f"verify distributed claim token: {error}") from error
        raise _failed("verify distributed claim token: failed to verify signature")

    async def _keys_of(self, issuer: str) -> IssuerKeys:
        """Return the keys of an issuer; the oldest cached issuer is evicted for a new one."""
        issuer_keys = self._keys.get(issuer)
        if issuer_keys is None:
            issuer_keys = IssuerKeys(issuer, "", lambda url: self._connect(url, ""), self._clock)
            self._keys[issuer] = issuer_keys
            if len(self._keys) > ISSUERS_MAX:
                await self._keys.pop(next(iter(self._keys))).close()
        return issuer_keys


def _failed(text: str) -> AuthenticationError:
    return AuthenticationError(f"{_PROBLEM}{text}")
