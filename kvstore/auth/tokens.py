"""Tokens, which clients send instead of passwords, and their validity.

    simple   "qVxSfSvUGxsRlLqa.13": 16 letters and the log index it was assigned after. All members
             assign the same token when the Authenticate entry is applied; it is kept in memory and
             expires some time after its last use. A member that has not applied that entry must
             wait before it calls the token unknown: `waits_for` returns the index (etcd's is one
             less).
    signed   a JSON Web Token: nothing is stored; every member with the key can read it.
             Verified tokens are cached, so a client's later calls cost a dict lookup.
    none     no tokens are issued

A token represents a `Credential`: a user name and an auth revision. A simple token has the store's
current revision. A signed one carries the revision it was made at, and is refused once the store's
is higher. Times are given by the caller. Signing and verifying is not done here: see TokenKeys.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from kvstack.component.units import SECOND_NS
from kvstore.errors import AUTH_FAILED, VERIFY_ONLY, Refusal
from kvstore.wire.varint import UINT64_MAX

Credential: TypeAlias = tuple[str, int]
"""(user name, auth revision at which the user proved it)"""

NO_CREDENTIAL: Final[Credential] = ("", 0)  # the call named no user
PREFIX_LETTERS: Final = 16
LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
TTL_DEFAULT_S: Final = 300
REMEMBERED_MAX: Final = 10_000  # verified signed tokens
TOKENS_MAX: Final = 1_000_000  # simple tokens; above it the least recently used one is dropped

_INDEX_DIGITS_MAX: Final = 20


class Claims(NamedTuple):
    """The contents of a signed token; times in Unix seconds, None: not limited."""

    username: str
    revision: int
    expires_s: float | None
    not_before_s: float | None


class TokenKeys(Protocol):
    """Signs tokens and verifies signatures."""

    @property
    def can_sign(self) -> bool:
        """Whether there is a private key."""
        ...

    def sign(self, username: str, revision: int) -> str:
        """Return a token; may be slow."""
        ...

    def verify(self, token: str) -> Claims | None:
        """Return the claims of a token with a valid signature; None for any other text."""
        ...


class Tokens(Protocol):
    """One kind of tokens."""

    @property
    def signs(self) -> bool:
        """Whether a token is made by signing, after the Authenticate entry was applied."""
        ...

    def new_prefix(self) -> str:
        """Return the random part of a new token; it is written to the log."""
        ...

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Give a user a token ("" if it is still to be signed); the same on every member."""
        ...

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Credential | None:
        """Return a token's credential; revision is the store's. None: it is not valid."""
        ...

    def waits_for(self, token: str) -> int:
        """Return the log index that must be applied before an unknown token is invalid."""
        ...

    def forget_user(self, username: str) -> None:
        """Drop the tokens of a user."""
        ...

    def clear(self) -> None:
        """Drop all tokens."""
        ...


class SimpleTokens:
    """Tokens in memory; the dict is ordered by last use, to within a second."""

    signs: Final = False

    def __init__(self, ttl_s: int, new_prefix: Callable[[], str]) -> None:
        """Take the time to live of an unused token (0: the default) and a source of prefixes."""
        self._ttl_ns = (ttl_s or TTL_DEFAULT_S) * SECOND_NS
        self._new_prefix = new_prefix
        self._tokens: dict[str, tuple[str, int]] = {}  # token → (user, expires)

    def __len__(self) -> int:
        return len(self._tokens)

    def new_prefix(self) -> str:
        """Return 16 letters."""
        return self._new_prefix()

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Give a user the token made of prefix and index."""
        token = f"{prefix}.{index}"
        self._expire(now_ns)
        self._tokens[token] = (username, now_ns + self._ttl_ns)
        return token

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Credential | None:
        """Return a token's credential, and restart its time to live."""
        found = self._tokens.get(token)
        if found is None:
            return None
        username, expires_ns = found
        left_ns = expires_ns - now_ns
        if left_ns <= 0:
            del self._tokens[token]
            return None
        if left_ns < self._ttl_ns - SECOND_NS:
            del self._tokens[token]  # to the end of the order
            self._tokens[token] = (username, now_ns + self._ttl_ns)
        return username, revision

    def waits_for(self, token: str) -> int:
        """Return the entry that assigns an unknown token, the one after its index; 0: no token."""
        if token in self._tokens:
            return 0
        _, dot, digits = token.partition(".")
        if not dot or not digits.isascii() or not digits.isdecimal():
            return 0
        if len(digits) > _INDEX_DIGITS_MAX:
            return 0
        index = int(digits)
        return index + 1 if index <= UINT64_MAX else 0

    def forget_user(self, username: str) -> None:
        """Drop the tokens of a user; O(n)."""
        gone = [token for token, (name, _) in self._tokens.items() if name == username]
        for token in gone:
            del self._tokens[token]

    def clear(self) -> None:
        """Drop all tokens."""
        self._tokens.clear()

    def _expire(self, now_ns: int) -> None:
        """Drop expired tokens from the front of the order, and those above the limit."""
        tokens = self._tokens
        while tokens:
            oldest = next(iter(tokens))
            if tokens[oldest][1] > now_ns and len(tokens) < TOKENS_MAX:
                return
            del tokens[oldest]


class SignedTokens:
    """Tokens that carry their claims, signed."""

    signs: Final = True

    def __init__(self, keys: TokenKeys) -> None:
        """Take the keys."""
        self.keys = keys
        self._verified: dict[str, Claims] = {}

    def new_prefix(self) -> str:
        """Return "": the log holds no part of a signed token."""
        return ""

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Return "": the member that serves the call signs the token."""
        return "" if self.keys.can_sign else VERIFY_ONLY

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Credential | None:
        """Return a token's credential, if its signature and its times are valid."""
        claims = self._verified.get(token)
        if claims is None:
            claims = self.keys.verify(token)
            if claims is None:
                return None
            while len(self._verified) >= REMEMBERED_MAX:
                del self._verified[next(iter(self._verified))]
            self._verified[token] = claims
        if claims.expires_s is not None and wall_ms >= claims.expires_s * 1000:
            self._verified.pop(token, None)
            return None
        if claims.not_before_s is not None and wall_ms < claims.not_before_s * 1000:
            return None
        return claims.username, claims.revision

    def waits_for(self, token: str) -> int:
        """Return 0: a signed token is never too new."""
        return 0

    def forget_user(self, username: str) -> None:
        """Do nothing: a signed token is valid until it expires, but its revision is old by now."""

    def clear(self) -> None:
        """Do nothing, for the same reason."""


class NoTokens:
    """No tokens: users are identified by their certificates only."""

    signs: Final = False

    def new_prefix(self) -> str:
        """Return ""."""
        return ""

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Refuse."""
        return AUTH_FAILED

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Credential | None:
        """Return None: no token is valid."""
        return None

    def waits_for(self, token: str) -> int:
        """Return 0."""
        return 0

    def forget_user(self, username: str) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""
