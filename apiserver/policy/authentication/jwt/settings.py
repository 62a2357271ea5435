"""What one issuer of tokens may say, and how its claims become a user."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

ALGORITHMS: Final = (
    "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
)  # fmt: skip
"""With which tokens may be signed at all."""


class ExpressionError(Exception):
    """An expression has no value for these claims."""


class Expression(Protocol):
    """An expression in CEL that was compiled."""

    def evaluate(self, value: Mapping[str, object]) -> object:
        """Return its value for claims, or for a user; raises ExpressionError."""
        ...


Compile: TypeAlias = Callable[[str, str, bool], Expression]
"""(text, variable, is_condition): returns an expression about `claims` or `user`.

is_condition: whether its value has to be a boolean. Raises ValueError."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one part of a user comes from: a claim with a prefix, or an expression."""

    claim: str = ""
    prefix: str = ""
    expression: Expression | None = None

    def __bool__(self) -> bool:
        """Tell whether there is any."""
        return bool(self.claim) or self.expression is not None


@dataclass(frozen=True, slots=True)
class Condition:
    """What has to be true of claims or of a user."""

    expression: Expression
    text: str
    message: str = ""
    """What is said if it is not."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """One issuer."""

    issuer: str
    audiences: tuple[str, ...]
    """The token must be for one of these."""
    username: Source
    discovery_url: str = ""
    """Of the issuer's configuration; empty: below its own URL."""
    ca: str = ""
    """Authorities of its certificate in PEM; empty: those of the system."""
    groups: Source = field(default_factory=Source)
    uid: Source = field(default_factory=Source)
    extra: tuple[tuple[str, Expression], ...] = ()
    required_claims: Mapping[str, str] = field(default_factory=dict)
    claim_conditions: tuple[Condition, ...] = ()
    user_conditions: tuple[Condition, ...] = ()
    algorithms: tuple[str, ...] = ALGORITHMS
