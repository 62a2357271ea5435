"""Cost limits of CEL rules, for each rule and for a whole schema.

more_values({"type": "array", "maxItems": 10}, 3)   → 30
budget.spend(findings, 30, path, is_limited=True)   → the errors of one rule
budget.errors(path)                                 → those of the schema
"""

from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import FieldError, child, forbidden
from kvstack.apiserver.kinds.expressions import RuleFindings

RULE_MAX: Final = 10_000_000
"""Cost limit of one rule for all values of an object."""
SCHEMA_MAX: Final = 100_000_000
"""Cost limit of all rules of a schema."""

_UINT64_MAX: Final = 2**64 - 1
_REPORTED_COST_MIN: Final = SCHEMA_MAX // 100
_REPORTED_COUNT: Final = 4
_ADVICE: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays,"
    " maps, and strings are declared)"
)


class _Spent(NamedTuple):
    """The cost of one rule."""

    cost: int
    path: str


class Budget:
    """The cost budget of a schema's rules."""

    def __init__(self) -> None:
        self.total = 0
        self._largest: list[_Spent] = []

    def spend(
        self, findings: RuleFindings, cardinality: int | None, path: str, *, is_limited: bool
    ) -> list[FieldError]:
        """Add the cost of a rule; return its errors.

        cardinality: maximum number of values, None: unlimited.
        """
        count = findings.cardinality if cardinality is None else cardinality
        costs = [("rule", "rule", min(findings.cost * count, _UINT64_MAX))]
        if findings.message_problem is None and findings.message_cost:
            costs.append(("messageExpression", "messageExpression", findings.message_cost))
        errors: list[FieldError] = []
        for name, what, cost in costs:
            where = child(path, name)
            if is_limited and cost > RULE_MAX:
                errors.append(forbidden(where, _message(f"estimated {what} cost", cost, RULE_MAX)))
            self._observe(where, cost)
        return errors

    def errors(self, path: str) -> list[FieldError]:
        """Return the cost errors of all rules of the schema at the path."""
        if self.total <= SCHEMA_MAX:
            return []
        message = (
            "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3"
            " schema"
        )
        what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
        return [
            *(forbidden(each.path, message) for each in self._largest),
            forbidden(path, _message(what, self.total, SCHEMA_MAX)),
        ]

    def _observe(self, path: str, cost: int) -> None:
        self.total = min(self.total + cost, _UINT64_MAX)
        if cost >= _REPORTED_COST_MIN:
            self._largest.append(_Spent(cost, path))
            self._largest.sort(key=lambda each: -each.cost)
            del self._largest[_REPORTED_COUNT:]


def more_values(schema: dict[str, Any], cardinality: int | None) -> int | None:
    """Return the maximum number of values below those of a schema; None: unlimited."""
    if cardinality is None:
        return None
    type_name = schema.get("type", "")
    if type_name == "array":
        limit = schema.get("maxItems")
    elif type_name == "object" and schema.get("additionalProperties") is not None:
        limit = schema.get("maxProperties")
    else:
        limit = 1
    return None if limit is None else min(cardinality * max(limit, 0), _UINT64_MAX)


def _message(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > 100:
        text = "more than 100"
    else:
        text = f"{factor:f}" if factor < 1.5 else f"{factor:.1f}"
    return f"{what} exceeds budget by factor of {text}x {_ADVICE}"
