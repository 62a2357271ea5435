"""Parts of claims, classes and slices: selectors, tolerations, taints, driver configuration."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key, check_label_value, length
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apiserver.kinds.devices.declared import OPERATORS, TAINT_EFFECTS
from kvstack.apiserver.kinds.devices.names import check_driver_name
from kvstack.apiserver.kinds.expressions import AdmissionExpression, Use
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context

SELECTORS_MAX: Final = 32
RAW_MAX: Final = 10 * 1024

_EXPRESSION_MAX: Final = 10 * 1024
_BINDINGS_MAX: Final = 4
_NO_VALUE: Final = "<value omitted>"


def check_items(
    items: Sequence[Any],
    maximum: int,
    path: str,
    errors: Errors,
    check: Callable[[Any, str], None],
    *,
    covered: bool = True,
) -> bool:
    """Check every item of a list; return whether it is within the maximum.

    covered: whether the type declares the maximum, too.
    """
    if len(items) > maximum:
        errors.append(too_many(path, len(items), maximum)._replace(covered=covered))
        return False
    for position, item in enumerate(items):
        check(item, index(path, position))
    return True


def check_selectors(
    selectors: Sequence[Object], path: str, errors: Errors, context: Context, *, is_stored: bool
) -> None:
    """Check CEL selectors; stored ones need not compile."""

    def check(selector: Object, where: str) -> None:
        cel = selector.get("cel")
        if cel is None:
            errors.append(required(child(where, "cel")))
        elif not is_stored:
            _check_expression(
                cel.get("expression", ""), child(where, "cel", "expression"), errors, context
            )

    check_items(selectors, SELECTORS_MAX, path, errors, check)


def _check_expression(text: str, path: str, errors: Errors, context: Context) -> None:
    if length(text) > _EXPRESSION_MAX:
        errors.append(too_long(path, _EXPRESSION_MAX))
        return
    expression = AdmissionExpression(text=text, use=Use.DEVICE_SELECTOR, has_authorizer=False)
    problem = context.expressions.check(expression)
    if problem is not None:
        errors.append(problem.error(path, text))


def check_configuration(config: Object, path: str, errors: Errors, *, is_stored: bool) -> None:
    """Check the configuration of a driver."""
    opaque, where = config.get("opaque"), child(path, "opaque")
    if opaque is None:
        errors.append(required(where))
        return
    check_driver_name(opaque.get("driver", ""), child(where, "driver"), errors, covered=True)
    check_raw(opaque.get("parameters"), child(where, "parameters"), errors, is_stored=is_stored)


def check_raw(value: Any, path: str, errors: Errors, *, is_stored: bool = False) -> None:  # noqa: ANN401
    """Check an object of any type; a stored one may be too large."""
    if value is None:
        errors.append(required(path))
    elif not is_stored and len(orjson.dumps(value)) > RAW_MAX:
        errors.append(too_long(path, RAW_MAX))
    elif not isinstance(value, dict):
        errors.append(invalid(path, _NO_VALUE, "must be a valid JSON object"))


def check_toleration(toleration: Object, path: str, errors: Errors) -> None:
    """Check a toleration of device taints."""
    key, value = toleration.get("key", ""), toleration.get("value", "")
    operator, effect = toleration.get("operator", ""), toleration.get("effect", "")
    where = child(path, "key")
    if key:
        errors.extend(
            invalid(where, key, each)._replace(covered=True) for each in check_label_key(key)
        )
    where = child(path, "value")
    if operator == "Exists" and value:
        errors.append(invalid(where, value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        add_invalid(errors, where, value, check_label_value(value))
    elif operator not in OPERATORS:
        where = child(path, "operator")
        wrong = not_supported(where, JsonText(operator), OPERATORS) if operator else required(where)
        errors.append(wrong._replace(covered=True))
    _check_effect(effect, child(path, "effect"), errors, is_required=False)


def check_taint(taint: Object, path: str, errors: Errors, *, checks_effect: bool = True) -> None:
    """Check a device taint."""
    key, value = taint.get("key", ""), taint.get("value", "")
    add_invalid(errors, child(path, "key"), key, check_label_key(key))
    if value:
        add_invalid(errors, child(path, "value"), value, check_label_value(value))
    if checks_effect:
        _check_effect(taint.get("effect", ""), child(path, "effect"), errors, is_required=True)


def _check_effect(effect: str, path: str, errors: Errors, *, is_required: bool) -> None:
    if not effect:
        if is_required:
            errors.append(required(path)._replace(covered=True))
    elif effect not in TAINT_EFFECTS:
        wrong = not_supported(path, JsonText(effect), TAINT_EFFECTS)
        errors.append(wrong._replace(covered=True))


def check_bindings(obj: Object, path: str, errors: Errors) -> None:
    """Check the binding conditions and failure conditions of a device, which must not repeat."""
    names = ("bindingConditions", "bindingFailureConditions")
    good, bad = (obj.get(name) or [] for name in names)
    good_path, bad_path = (child(path, name) for name in names)

    def check(condition: str, where: str) -> None:
        add_invalid(errors, where, condition, check_label_key(condition))

    for conditions, where in ((good, good_path), (bad, bad_path)):
        check_items(conditions, _BINDINGS_MAX, where, errors, check)
    for position, condition in enumerate(good):
        if condition in good[:position]:
            errors.append(duplicate(index(good_path, position), condition))
    for position, condition in enumerate(bad):
        where = index(bad_path, position)
        if condition in bad[:position]:
            errors.append(duplicate(where, condition))
        if condition in good:
            detail = "bindingFailureConditions must not overlap with bindingConditions"
            errors.append(invalid(where, condition, detail))
    for here, there, where, other_name in (
        (good, bad, good_path, names),
        (bad, good, bad_path, names[::-1]),
    ):
        if there and not here:
            errors.append(
                invalid(where, None, f"{other_name[0]} are required to use {other_name[1]}")
            )
