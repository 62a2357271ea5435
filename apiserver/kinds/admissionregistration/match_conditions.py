"""Match conditions in CEL of webhooks and policies."""

from collections.abc import Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import child, duplicate, index, required, too_many
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_label_key
from kvstack.apiserver.kinds.expressions import AdmissionExpression, Use
from kvstack.apiserver.kinds.rules import Errors, add_invalid
from kvstack.apiserver.kinds.strategy import Context

CONDITIONS_MAX: Final = 64


def check_match_conditions(
    conditions: list[dict[str, Any]],
    path: str,
    errors: Errors,
    context: Context,
    *,
    stored: Iterable[Object] = (),
    has_params: bool = False,
) -> None:
    """Check names and expressions.

    stored: the conditions before the update, in any order.
    """
    if len(conditions) > CONDITIONS_MAX:
        errors.append(too_many(path, len(conditions), CONDITIONS_MAX))
    stored_texts = {each.get("expression", "") for each in stored}
    names: set[str] = set()
    for position, condition in enumerate(conditions):
        where = index(path, position)
        text = condition.get("expression", "").strip()
        if text:
            expression = AdmissionExpression(
                text=text,
                use=Use.MATCH_CONDITION,
                has_params=has_params,
                is_stored=text in stored_texts,
            )
            problem = context.expressions.check(expression)
            if problem is not None:
                errors.append(problem.error(child(where, "expression"), text))
        else:
            errors.append(required(child(where, "expression")))
        name = condition.get("name", "")
        _check_name(name, child(where, "name"), names, errors)


def _check_name(name: str, path: str, seen: set[str], errors: Errors) -> None:
    if not name:
        errors.append(required(path))
        return
    add_invalid(errors, path, name, check_label_key(name))
    if name in seen:
        errors.append(duplicate(path, name))
    seen.add(name)
