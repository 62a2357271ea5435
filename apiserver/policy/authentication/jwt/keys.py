"""The keys of an issuer, fetched when a token needs an unknown one.

    configuration of the issuer ──jwks_uri──► key set ──► keys by `kid`

Concurrent requests share one fetch. An unknown key id causes a refetch, but at most every other
second: clients can name keys that do not exist.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import orjson
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.policy.authentication.results import AuthenticationError
from kvstack.apiserver.policy.remote.connection import RemoteAnswer, RemoteError
from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS

WELL_KNOWN: Final = "/.well-known/openid-configuration"
FETCH_S: Final = 30.0
AGAIN_NS: Final = 2 * SECOND_NS
CONFIGURATION_AGAIN_NS: Final = 10 * SECOND_NS

_CURVES: Final = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}


class IssuerKey(NamedTuple):
    """A public key with its id."""

    id: str
    key: RSAPublicKey | EllipticCurvePublicKey

    def fits(self, algorithm: str) -> bool:
        """Return whether tokens may be signed with it by an algorithm."""
        if isinstance(self.key, RSAPublicKey):
            return algorithm[:2] in {"RS", "PS"}
        return _CURVES.get(algorithm) == self.key.curve.name


class Asker(Protocol):
    """A connection; see `Connection.ask`."""

    async def ask(self, method: str, body: bytes = b"", *, timeout_s: float) -> RemoteAnswer:
        """Return the answer; raises RemoteError."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


Connect = Callable[[str], Asker]
"""Returns a connection to a URL."""


class IssuerKeys:
    """The keys of one issuer."""

    def __init__(self, issuer: str, discovery_url: str, connect: Connect, clock: Clock) -> None:
        """discovery_url: of the issuer's configuration, empty: below the issuer's URL."""
        self._issuer: Final = issuer
        self._url: Final = discovery_url or f"{issuer.rstrip('/')}{WELL_KNOWN}"
        self._connect: Final = connect
        self._clock: Final = clock
        self._set: Asker | None = None
        self._keys: tuple[IssuerKey, ...] = ()
        self._again_ns = 0
        self._error = ""
        self._fetching: asyncio.Task[None] | None = None

    @property
    def problem(self) -> str:
        """Why there are no keys; empty: there are."""
        return "" if self._keys else self._error or "not initialized"

    def find(self, key_id: str, algorithm: str) -> Sequence[IssuerKey]:
        """Return the cached keys that may have signed a token; key_id empty: any."""
        return [
            each
            for each in self._keys
            if (not key_id or each.id == key_id) and each.fits(algorithm)
        ]

    async def refresh(self) -> bool:
        """Fetch the keys if they may have changed; return whether they were fetched.

        Raises AuthenticationError if there are none at all.
        """
        if self._fetching is None and self._clock.monotonic_ns() < self._again_ns:
            if not self._keys:
                raise AuthenticationError(f"oidc: authenticator not initialized: {self._error}")
            return False
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetch(), name="keys of an issuer")
            self._fetching.add_done_callback(self._fetched)
        await asyncio.shield(self._fetching)
        if not self._keys:
            raise AuthenticationError(f"oidc: authenticator not initialized: {self._error}")
        return not self._error

    async def close(self) -> None:
        """Close connections."""
        if self._fetching is not None:
            self._fetching.cancel()
        if self._set is not None:
            await self._set.close()

    def _fetched(self, _task: asyncio.Task[None]) -> None:
        self._fetching = None
        pause = AGAIN_NS if self._set is not None else CONFIGURATION_AGAIN_NS
        self._again_ns = self._clock.monotonic_ns() + pause

    async def _fetch(self) -> None:
        try:
            if self._set is None:
                self._set = self._connect(await self._key_set_url())
            self._keys = _keys(_object(await self._get(self._set)))
            self._error = ""
        except (RemoteError, AuthenticationError) as error:
            self._error = str(error)

    async def _key_set_url(self) -> str:
        connection = self._connect(self._url)
        try:
            configuration = _object(await self._get(connection))
        finally:
            await connection.close()
        if configuration.get("issuer") != self._issuer:
            issuer_text = quote(str(configuration.get("issuer")))
            raise AuthenticationError(
                f"oidc: issuer did not match the issuer returned by provider, expected"
                f" {quote(self._issuer)} got {issuer_text}"
            )
        url = configuration.get("jwks_uri")
        if not isinstance(url, str) or urlsplit(url).scheme != "https":
            raise AuthenticationError("oidc: jwks_uri of the issuer is not an https URL")
        return url

    async def _get(self, connection: Asker) -> bytes:
        answer = await connection.ask("GET", timeout_s=FETCH_S)
        if answer.code != 200:
            raise RemoteError(f"oidc: the issuer answered {answer.code}", answer.code)
        return answer.body


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise AuthenticationError(
            f"oidc: invalid answer of the issuer: not JSON: {error}"
        ) from None
    if not isinstance(document, dict):
        raise AuthenticationError("oidc: invalid answer of the issuer: not a JSON object")
    return document


def _keys(key_set: dict[str, Any]) -> tuple[IssuerKey, ...]:
    """Return the usable keys of a set."""
    from jwt.api_jwk import PyJWK
    from jwt.exceptions import PyJWTError

    entries = key_set.get("keys")
    if not isinstance(entries, list):
        raise AuthenticationError("oidc: invalid answer of the issuer: not a key set")
    keys: list[IssuerKey] = []
    for each in entries:
        if not isinstance(each, dict) or each.get("use") not in {None, "sig"}:
            continue
        if each.get("kty") not in {"RSA", "EC"}:
            continue
        try:
            key = PyJWK(each).key
        except (PyJWTError, ValueError, TypeError):
            continue
        if isinstance(key, RSAPublicKey | EllipticCurvePublicKey):
            keys.append(IssuerKey(str(each.get("kid") or ""), key))
    if not keys:
        raise AuthenticationError("oidc: the issuer has no usable key")
    return tuple(keys)
