"""Request policies of device capacities."""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    required,
    too_many,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import NEGATIVE
from kvstack.apimachinery.objects.quantity import Quantity, parse
from kvstack.apiserver.kinds.rules import Errors

_OPTIONS_MAX: Final = 10
_INT64_MAX: Final = 2**63 - 1
_MILLI: Final = -3


def check_policy(policy: Object, value: str, path: str, errors: Errors) -> None:
    """Check a policy; `value`: the whole capacity."""
    options, bounds = policy.get("validValues") or [], policy.get("validRange")
    default, capacity = policy.get("default"), parse(value)
    if options and bounds is not None:
        detail = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" at'
            " the same time"
        )
        errors.append(forbidden(path, detail))
    elif options or bounds is not None:
        name = "validValues" if options else "validRange"
        if default is None:
            where = child(path, "default")
            errors.append(required(where, f"required when {name} is defined"))
        elif options:
            _check_options(options, parse(default), capacity, child(path, name), errors)
        elif bounds is not None:
            _check_range(bounds, parse(default), capacity, child(path, name), errors)


def _check_options(
    options: list[str], default: Quantity, capacity: Quantity, path: str, errors: Errors
) -> None:
    amounts = [parse(each) for each in options]
    for position in range(1, len(amounts)):
        if amounts[position - 1] > amounts[position]:
            detail = "values must be sorted in ascending order"
            errors.append(invalid(index(path, position), str(amounts[position]), detail))
    if len(amounts) > _OPTIONS_MAX:
        errors.append(too_many(path, len(amounts), _OPTIONS_MAX))
        errors.append(_bad_default(default, path))
        return
    for position, amount in enumerate(amounts):
        if amount > capacity:
            detail = f"option is larger than capacity value: {capacity}"
            errors.append(invalid(index(path, position), str(amount), detail))
    for position, amount in enumerate(amounts):
        if amount in amounts[:position]:
            errors.append(duplicate(index(path, position), str(amount)))
    if default not in amounts:
        errors.append(_bad_default(default, path))


def _bad_default(default: Quantity, path: str) -> FieldError:
    return invalid(path, str(default), "default value is not valid according to the requestPolicy")


def _check_range(
    bounds: Object, default: Quantity, capacity: Quantity, path: str, errors: Errors
) -> None:
    low, high, step = (
        None if bounds.get(name) is None else parse(bounds[name]) for name in ("min", "max", "step")
    )
    if low is None:
        errors.append(required(child(path, "min"), "required when validRange is defined"))
        return
    _check_bounds(low, high, default, capacity, path, errors)
    given = [("default", default), ("min", low), ("max", high), ("step", step)]
    amounts = [(name, amount) for name, amount in given if amount is not None]
    in_milli = not all(amount.is_whole() for _, amount in amounts)
    if in_milli:
        too_fine = [
            invalid(child(path, name), str(amount), "value cannot be represented as a milli value")
            for name, amount in amounts
            if amount.round_up(_MILLI) != amount
        ]
        if too_fine:
            errors += too_fine
            return
    if step is not None:
        _check_step(amounts, capacity, path, errors, in_milli=in_milli)


def _check_bounds(
    low: Quantity,
    high: Quantity | None,
    default: Quantity,
    capacity: Quantity,
    path: str,
    errors: Errors,
) -> None:
    def refuse(name: str, amount: Quantity, detail: str) -> None:
        errors.append(invalid(child(path, name), str(amount), detail))

    if low > capacity:
        refuse("min", low, f"min is larger than capacity value: {capacity}")
    if default < low:
        refuse("default", default, f"default is less than min: {low}")
    if high is None:
        return
    if low > high:
        refuse("max", low, f"min is larger than max: {high}")
    if high > capacity:
        refuse("max", high, f"max is larger than capacity value: {capacity}")
    if default > high:
        refuse("default", default, f"default is more than max: {high}")


def _check_step(
    amounts: list[tuple[str, Quantity]],
    capacity: Quantity,
    path: str,
    errors: Errors,
    *,
    in_milli: bool,
) -> None:
    requested = dict(amounts)
    low, step, where = requested["min"], requested["step"], child(path, "step")
    if step.sign <= 0:
        errors.append(invalid(where, str(step), "must be greater than zero"))
        return
    first = low + step
    if first > capacity:
        detail = f"one step {first} is larger than capacity value: {capacity}"
        errors.append(invalid(where, str(step), detail))
    if not in_milli:
        too_large = [
            invalid(child(path, name), str(amount), _size_problem(amount))
            for name, amount in amounts
            if _size_problem(amount)
        ]
        if too_large:
            errors += too_large
            return
    for name in ("default", "max"):
        amount = requested.get(name)
        if amount is not None and (_number(amount, in_milli) - _number(low, in_milli)) % _number(
            step, in_milli
        ):
            detail = f"value is not a multiple of a given step ({step}) from ({low})"
            errors.append(invalid(where, str(amount), detail))


def _size_problem(amount: Quantity) -> str:
    if amount.sign < 0:
        return NEGATIVE
    if amount > parse(str(_INT64_MAX)):
        return f"must not be larger than {_INT64_MAX}"
    return ""


def _number(amount: Quantity, in_milli: bool) -> int:  # noqa: FBT001
    return amount.milli_value() if in_milli else amount.value()
