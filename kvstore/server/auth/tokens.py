"""The authentication flags: the kind of tokens, and the cost of password hashes.

--auth-token=simple                      random letters, kept in memory for --auth-token-ttl seconds
--auth-token=jwt,sign-method=RS256,pub-key=FILE,priv-key=FILE,ttl=5m
--auth-token=                            no tokens: certificates only
"""

import random
from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstore.auth.tokens import (
    LETTERS,
    PREFIX_LETTERS,
    NoTokens,
    SignedTokens,
    SimpleTokens,
    TokenKeys,
    Tokens,
)
from kvstore.config.model import Config

COST_MIN: Final = 4
COST_MAX: Final = 31
COST_DEFAULT: Final = 10

_SECRETS: Final = random.SystemRandom()


def tokens_of(config: Config, logger: Logger, clock: Clock) -> Tokens:
    """Return the tokens that the flags configure; ConfigError for an invalid kind or key."""
    kind, options = split_options(config.auth_token)
    if kind == "simple":
        return SimpleTokens(config.auth_token_ttl_s, new_prefix)
    if kind == "jwt":
        from kvstore.server.auth.jwt import JwtKeys

        return SignedTokens(JwtKeys.of_options(options, logger, clock))
    if kind == "":
        return NoTokens()
    raise ConfigError(f'--auth-token: unknown kind of token "{kind}"; known are simple and jwt')


def keys_of(tokens: Tokens) -> TokenKeys | None:
    """Return the keys that sign tokens; None if tokens are not signed."""
    return tokens.keys if isinstance(tokens, SignedTokens) else None


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """Return the kind of token and its options; ConfigError unless they are name=value pairs."""
    kind, *pairs = text.split(",")
    options: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or "=" in value:
            raise ConfigError(f'--auth-token: option "{pair}" is not name=value')
        if name in options:
            raise ConfigError(f'--auth-token: duplicate option "{name}"')
        options[name] = value
    return kind, options


def bcrypt_cost_of(config: Config) -> int:
    """Return the cost of password hashes; the default if it is out of range, as in etcd."""
    cost = config.bcrypt_cost
    return cost if COST_MIN <= cost <= COST_MAX else COST_DEFAULT


def new_prefix() -> str:
    """Return the random letters of a simple token, which must not be predictable."""
    return "".join(_SECRETS.choices(LETTERS, k=PREFIX_LETTERS))
