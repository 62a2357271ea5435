"""The interface to CEL: kinds have expressions checked.

Kinds know the fields, the uses and the stored expressions; an `Expressions` in the request's
context compiles them. `NO_EXPRESSIONS` refuses all.
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
    """The use of an expression, which determines its result type."""

    MATCH_CONDITION = auto()
    """Returns a boolean."""
    VALIDATION = auto()
    """Returns a boolean."""
    MESSAGE = auto()
    """Returns a string."""
    AUDIT_ANNOTATION = auto()
    """Returns a string or null."""
    VARIABLE = auto()
    """Returns any value."""
    APPLY_CONFIGURATION = auto()
    """Returns an object to apply."""
    JSON_PATCH = auto()
    """Returns a list of operations."""
    DEVICE_SELECTOR = auto()
    """Returns a boolean, on `device`."""


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
    """Whether `params` is declared."""
    has_authorizer: bool = True
    """Whether `authorizer` is declared."""
    variables: tuple[Variable, ...] | None = None
    """The members of `variables`, in order of their dependencies; None: it is not declared."""
    is_stored: bool = False
    """Whether the stored object has it, so that it may use what new ones may not."""


class Problem(NamedTuple):
    """Why an expression does not compile."""

    reason: str
    """`REQUIRED`, `INVALID`, `FORBIDDEN` or `INTERNAL` of `field_errors`."""
    detail: str

    def error(self, path: str, text: str) -> FieldError:
        """Return the error of the field that holds the expression."""
        if self.reason == INVALID:
            return invalid(path, text, self.detail)
        if self.reason == FORBIDDEN:
            return forbidden(path, self.detail)
        return (required if self.reason == REQUIRED else internal)(path, self.detail)


class SchemaRule(NamedTuple):
    """A CEL rule in the schema of a custom resource."""

    schema: dict[str, Any]
    """The schema with the rule, as in the definition."""
    position: int
    """Index of the rule in `x-kubernetes-validations`."""
    is_resource: bool = False
    """Whether the values are whole resources."""
    is_stored: bool = False
    """Whether the stored definition has the rule, so that it may use what new ones may not."""
    is_message_stored: bool = False
    """The same for its messageExpression."""


class RuleFindings(NamedTuple):
    """Findings about a compiled rule."""

    problem: Problem | None = None
    message_problem: Problem | None = None
    cost: int = 0
    """The maximum cost for one value."""
    cardinality: int = 1
    """The maximum number of values, where the schema sets no limit."""
    message_cost: int = 0
    uses_old_self: bool | None = None
    """None: unknown."""


class Expressions(Protocol):
    """Compiles expressions."""

    def check(self, expression: AdmissionExpression) -> Problem | None:
        """Return why an expression does not compile, if it does not."""
        ...

    def check_rule(self, rule: SchemaRule) -> RuleFindings:
        """Return the findings about a rule of a schema."""
        ...

    def check_default(
        self,
        schema: dict[str, Any],
        value: Any,  # noqa: ANN401
        path: str,
        *,
        is_resource: bool,
    ) -> list[FieldError]:
        """Return the violations of a schema's rules by a default, reported at the path.

        is_resource: whether the schema is of whole resources.
        """
        ...


class NoExpressions:
    """Refuses every expression, for contexts without a compiler."""

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
