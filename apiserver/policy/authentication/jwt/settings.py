"""Settings of one token issuer: accepted claims, and their mapping to a user."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

ALGORITHMS: Final = (
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
)  # fmt: skip
"""Allowed signature algorithms."""


class ExpressionError(Exception):
    """An expression has no value for these claims."""


class Expression(Protocol):
    """A compiled CEL expression."""

    def evaluate(self, value: Mapping[str, object]) -> object:
        """Return its value for claims, or for a user; raises ExpressionError."""
        ...


Compile: TypeAlias = Callable[[str, str, bool], Expression]
"""(text, variable, is_condition): returns an expression about `claims` or `user`.

is_condition: whether its value must be a boolean. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a part of the user: a claim with a prefix, or an expression."""

    claim: str = ""
    prefix: str = ""
    expression: Expression | None = None

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return bool(self.claim) or self.expression is not None


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on claims or on a user."""

    expression: Expression
    text: str
    message: str = ""
    """The error if it is false."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """One issuer."""

    issuer: str
    audiences: tuple[str, ...]
    """The token must be for one of these."""
    username: Source
    discovery_url: str = ""
    """URL of the issuer's configuration; empty: below its own URL."""
    ca: str = ""
    """CA certificates of its server in PEM; empty: those of the system."""
    groups: Source = field(default_factory=Source)
    uid: Source = field(default_factory=Source)
    extra: tuple[tuple[str, Expression], ...] = ()
    required_claims: Mapping[str, str] = field(default_factory=dict)
    claim_conditions: tuple[Condition, ...] = ()
    user_conditions: tuple[Condition, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
