"""Tokens: what a client shows instead of its password, and for how long it is believed.

    simple   "qVxSfSvUGxsRlLqa.13": 16 letters and the log index it was assigned after. All members
             assign the same one when the Authenticate entry is applied; it lives in memory, for a
             while after its last use. A member that has not applied that entry must wait before it
             calls the token unknown: `waits_for` tells until where (etcd stops one short of it).
    signed   a JSON Web Token: nothing is kept, whoever has the key can tell who is meant. What has
             been verified is remembered, so that a client's later calls cost a dict lookup.
    none     nobody can get one

Who a token speaks for is a `Who`: a user name and the auth revision of the credential. A simple
token is as new as the store; a signed one carries the revision it was made at, and is refused
once the store has moved on. Times are given by the caller. Keys are somebody else's: see TokenKeys.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

from kvstore.errors import AUTH_FAILED, VERIFY_ONLY, Refusal

Who: TypeAlias = tuple[str, int]
"""(user name, auth revision of the credential)"""

NOBODY: Final[Who] = ("", 0)  # no credential was given
PREFIX_LETTERS: Final = 16
LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
TTL_DEFAULT_S: Final = 300
REMEMBERED_MAX: Final = 10_000  # verified signed tokens
TOKENS_MAX: Final = 1_000_000  # simple tokens; above it the longest unused one goes

_INDEX_MAX: Final = (1 << 64) - 1
_INDEX_DIGITS_MAX: Final = 20
_SECOND_NS: Final = 1_000_000_000


class Claims(NamedTuple):
    """What a signed token says; times in Unix seconds, None: not limited."""

    username: str
    revision: int
    expires_s: float | None
    not_before_s: float | None


class TokenKeys(Protocol):
    """Signs tokens and tells whether a signature is good."""

    @property
    def can_sign(self) -> bool:
        """Whether there is a private key."""
        ...

    def sign(self, username: str, revision: int) -> str:
        """Return a token; may be slow."""
        ...

    def verify(self, token: str) -> Claims | None:
        """Return what a token with a good signature says; None for any other text."""
        ...


class Tokens(Protocol):
    """One way of giving out tokens."""

    @property
    def signs(self) -> bool:
        """Whether a token is made by signing, after the Authenticate entry was applied."""
        ...

    def new_prefix(self) -> str:
        """Return the part of a new token that is chance; it travels in the log."""
        ...

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Give a user a token ("" if it is to be signed yet); on every member alike."""
        ...

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Who | None:
        """Tell who shows a token; revision is the store's. None: it is not valid."""
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
    """Tokens kept in memory; the order of the dict is that of last use, within a second."""

    signs: Final = False

    def __init__(self, ttl_s: int, new_prefix: Callable[[], str]) -> None:
        """Take how long a token lives unused (0: the default) and the chance for new ones."""
        self._ttl_ns = (ttl_s or TTL_DEFAULT_S) * _SECOND_NS
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

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Who | None:
        """Tell who shows a token, and let it live its full time again."""
        found = self._tokens.get(token)
        if found is None:
            return None
        username, expires_ns = found
        left_ns = expires_ns - now_ns
        if left_ns <= 0:
            del self._tokens[token]
            return None
        if left_ns < self._ttl_ns - _SECOND_NS:
            del self._tokens[token]  # to the end of the line
            self._tokens[token] = (username, now_ns + self._ttl_ns)
        return username, revision

    def waits_for(self, token: str) -> int:
        """Return the entry an unknown token is of, the one after its index; 0 if it is no token."""
        if token in self._tokens:
            return 0
        _, dot, digits = token.partition(".")
        if not dot or not digits.isascii() or not digits.isdecimal():
            return 0
        if len(digits) > _INDEX_DIGITS_MAX:
            return 0
        index = int(digits)
        return index + 1 if index <= _INDEX_MAX else 0

    def forget_user(self, username: str) -> None:
        """Drop the tokens of a user; O(n)."""
        gone = [token for token, (name, _) in self._tokens.items() if name == username]
        for token in gone:
            del self._tokens[token]

    def clear(self) -> None:
        """Drop all tokens."""
        self._tokens.clear()

    def _expire(self, now_ns: int) -> None:
        """Drop the tokens at the front of the line that are over, and what is too many."""
        tokens = self._tokens
        while tokens:
            oldest = next(iter(tokens))
            if tokens[oldest][1] > now_ns and len(tokens) < TOKENS_MAX:
                return
            del tokens[oldest]


class SignedTokens:
    """Tokens that carry all there is to know, under a signature."""

    signs: Final = True

    def __init__(self, keys: TokenKeys) -> None:
        """Take the keys."""
        self.keys = keys
        self._verified: dict[str, Claims] = {}

    def new_prefix(self) -> str:
        """Return nothing: the log holds no part of a signed token."""
        return ""

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Return "": who asked for the token signs it."""
        return "" if self.keys.can_sign else VERIFY_ONLY

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Who | None:
        """Tell who a token names, if it is signed well and its time is now."""
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
        """Do nothing: a signed token lives until it expires; its revision is old by now."""

    def clear(self) -> None:
        """Do nothing, for the same reason."""


class NoTokens:
    """No tokens at all: users can only be known by their certificates."""

    signs: Final = False

    def new_prefix(self) -> str:
        """Return nothing."""
        return ""

    def assign(self, username: str, prefix: str, index: int, now_ns: int) -> str | Refusal:
        """Refuse."""
        return AUTH_FAILED

    def identify(self, token: str, revision: int, now_ns: int, wall_ms: int) -> Who | None:
        """Believe no token."""
        return None

    def waits_for(self, token: str) -> int:
        """Return 0."""
        return 0

    def forget_user(self, username: str) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""
