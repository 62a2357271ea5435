"""The hooks of a kind in the order of the verbs, on copies, for tests of single rules.

refusals(NODES, {"metadata": {"name": "n"}, …})  → ["metadata.taints[0].key: Required value", …]
"""

from copy import deepcopy
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.access import FULL_ACCESS
from kvstack.apiserver.kinds.expressions import (
    AdmissionExpression,
    Problem,
    RuleFindings,
    SchemaRule,
)
from kvstack.apiserver.kinds.strategy import Context, Strategy

NOW: Final = "2026-01-02T03:04:05Z"
SECONDS: Final = 1767323045
"""`NOW` in seconds since 1970."""


class UncheckedExpressions:
    """Takes every expression, for tests of other rules."""

    def check(self, expression: AdmissionExpression) -> Problem | None:
        """Return nothing."""
        return None

    def check_rule(self, rule: SchemaRule) -> RuleFindings:
        """Return that nothing is wrong."""
        return RuleFindings()

    def check_default(
        self,
        schema: dict[str, Any],
        value: Any,
        path: str,
        *,
        is_resource: bool,
    ) -> list[FieldError]:
        """Return nothing."""
        return []


UNCHECKED: Final = UncheckedExpressions()


def context_of(**members: Any) -> Context:
    """Return a context at `NOW` in the namespace `ns`."""
    given: dict[str, Any] = {
        "now": NOW,
        "namespace": "ns",
        "new_uid": lambda: "some-uid",
        "access": FULL_ACCESS,
        "expressions": UNCHECKED,
    }
    return Context(**(given | members))


def prepared_object(strategy: Strategy, obj: Object, **members: Any) -> Object:
    """Return a new object with its defaults, prepared."""
    new = deepcopy(obj)
    strategy.default(new)
    strategy.prepare_create(new, context_of(**members))
    return new


def changed(strategy: Strategy, new: Object, old: Object, **members: Any) -> Object:
    """Return what `new` is when it takes the place of `old`, both with their defaults."""
    new, old = deepcopy(new), deepcopy(old)
    strategy.default(new)
    strategy.default(old)
    strategy.prepare_update(new, old, context_of(**members))
    return new


def refusals(strategy: Strategy, obj: Object, **members: Any) -> list[str]:
    """Return the errors of making an object, as the message has them."""
    new = prepared_object(strategy, obj, **members)
    return [str(each) for each in strategy.validate(new, context_of(**members))]


def change_refusals(strategy: Strategy, new: Object, old: Object, **members: Any) -> list[str]:
    """Return the errors of putting `new` in the place of `old`."""
    old = deepcopy(old)
    strategy.default(old)
    new = changed(strategy, new, old, **members)
    return [str(each) for each in strategy.validate_update(new, old, context_of(**members))]


def warnings_of(strategy: Strategy, obj: Object, **members: Any) -> list[str]:
    """Return the warnings of making an object."""
    new = prepared_object(strategy, obj, **members)
    return strategy.warnings(new, context_of(**members))


def warnings_of_change(strategy: Strategy, new: Object, old: Object, **members: Any) -> list[str]:
    """Return the warnings of putting `new` in the place of `old`."""
    new = changed(strategy, new, old, **members)
    return strategy.update_warnings(new, old, context_of(**members))


def cells_of(strategy: Strategy, obj: Object) -> list[Any]:
    """Return the cells of an object that was made `NOW`, seen three minutes later."""
    new = deepcopy(obj)
    new["metadata"].setdefault("creationTimestamp", NOW)
    strategy.default(new)
    assert strategy.cells is not None
    return strategy.cells(new, SECONDS + 180)


def patched(obj: Object, patch: Object) -> Object:
    """Return an object with a merge patch."""
    result = deepcopy(obj)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(result.get(name), dict):
            result[name] = patched(result[name], value)
        else:
            result[name] = deepcopy(value)
    return result
