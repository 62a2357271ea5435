"""Expressions in CEL that objects hold, as kinds have them checked.

Kinds know where expressions are, what each is for and which of them were stored before; whether
one compiles, somebody else knows: an `Expressions` in the context of the request.
`NO_EXPRESSIONS` refuses all.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, NamedTuple, Protocol

from kvstack.apimachinery.objects.field_errors import (
    FORBIDDEN,
    INTERNAL,
    INVALID,
    REQUIRED,
    FieldError,
    forbidden,
    internal,
    invalid,
    required,
)


class Use(Enum):
    """What an expression is for, and so what it returns."""

    MATCH_CONDITION = auto()
    """A truth value."""
    VALIDATION = auto()
    """A truth value."""
    MESSAGE = auto()
    """A text."""
    AUDIT_ANNOTATION = auto()
    """A text or null."""
    VARIABLE = auto()
    """Anything."""
    APPLY_CONFIGURATION = auto()
    """An object to apply."""
    JSON_PATCH = auto()
    """A list of operations."""
    DEVICE_SELECTOR = auto()
    """A truth value, about `device`."""


class Variable(NamedTuple):
    """A named expression that later ones may use."""

    name: str
    text: str


@dataclass(slots=True, frozen=True, kw_only=True)
class AdmissionExpression:
    """An expression of an admission policy or webhook."""

    text: str
    use: Use
    has_params: bool = False
    """Whether `params` is known."""
    has_authorizer: bool = True
    """Whether `authorizer` is known."""
    variables: tuple[Variable, ...] | None = None
    """What `variables` holds, in the order in which they may use one another; None: it is not
    known at all."""
    is_stored: bool = False
    """Whether the object had it before, so that it may use what new ones may not."""


class Problem(NamedTuple):
    """Why an expression does not compile."""

    reason: str
    """`REQUIRED`, `INVALID`, `FORBIDDEN` or `INTERNAL` of `field_errors`."""
    detail: str

    def error(self, path: str, text: str) -> FieldError:
        """Return the error about the field that holds the expression."""
        if self.reason == INVALID:
            return invalid(path, text, self.detail)
        if self.reason == FORBIDDEN:
            return forbidden(path, self.detail)
        return (required if self.reason == REQUIRED else internal)(path, self.detail)


class SchemaRule(NamedTuple):
    """A rule in CEL that a schema of a custom resource has about its values."""

    schema: dict[str, Any]
    """The schema that has the rule, as it stands in the definition."""
    position: int
    """Of the rule among `x-kubernetes-validations`."""
    is_resource: bool = False
    """Whether the values are whole resources."""
    is_stored: bool = False
    """Whether the definition had the rule before, so that it may use what new ones may not."""
    is_message_stored: bool = False
    """The same of the expression that makes its message."""


class RuleFindings(NamedTuple):
    """What is known of a compiled rule."""

    problem: Problem | None = None
    message_problem: Problem | None = None
    cost: int = 0
    """The most that it may cost for one value."""
    cardinality: int = 1
    """How many values there may be at most where the schema sets no limit."""
    message_cost: int = 0
    uses_old_self: bool | None = None
    """None: not known."""


class Expressions(Protocol):
    """Compiles expressions."""

    def check(self, expression: AdmissionExpression) -> Problem | None:
        """Return why an expression does not compile, if it does not."""
        ...

    def check_rule(self, rule: SchemaRule) -> RuleFindings:
        """Return what is known of a rule of a schema."""
        ...

    def check_default(
        self,
        schema: dict[str, Any],
        value: Any,  # noqa: ANN401
        path: str,
        *,
        is_resource: bool,
    ) -> list[FieldError]:
        """Return which rules of a schema a default breaks, told of the path.

        is_resource: whether the schema is of whole resources.
        """
        ...


class NoExpressions:
    """Refuses every expression: whoever does not say who compiles expressions stores none."""

    def check(self, expression: AdmissionExpression) -> Problem | None:
        """Return that the expression cannot be checked."""
        return _CANNOT_CHECK

    def check_rule(self, rule: SchemaRule) -> RuleFindings:
        """Return that the rule cannot be checked."""
        return RuleFindings(problem=_CANNOT_CHECK)

    def check_default(
        self,
        schema: dict[str, Any],
        value: Any,  # noqa: ANN401
        path: str,
        *,
        is_resource: bool,
    ) -> list[FieldError]:
        """Return that the default cannot be checked."""
        return [internal(path, _CANNOT_CHECK.detail)]


_CANNOT_CHECK: Final = Problem(INTERNAL, "expressions cannot be checked here")
NO_EXPRESSIONS: Final = NoExpressions()
