"""Operators that do not evaluate all of their operands, as closures."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kvstack.cel.errors import CelError, NoSuchOverloadError
from kvstack.cel.evaluation.frame import Frame, Run
from kvstack.cel.values import Optional


def _logical(left: Run, right: Run, *, decides: bool) -> Run:
    """Return `and` (false decides) or `or` (true does); what decides absorbs errors."""

    def rest(frame: Frame, error: CelError | None) -> Any:  # noqa: ANN401
        try:
            other = right(frame)
        except CelError as failed:
            raise error or failed from None
        if other is decides:
            return decides
        if error is not None:
            raise error
        if other is (not decides):
            return other
        raise NoSuchOverloadError

    def run(frame: Frame) -> Any:  # noqa: ANN401
        try:
            one = left(frame)
        except CelError as error:
            return rest(frame, error)
        if one is decides:
            return decides
        return rest(frame, None if one is (not decides) else NoSuchOverloadError())

    return run


def _and(left: Run, right: Run) -> Run:
    return _logical(left, right, decides=False)


def _or(left: Run, right: Run) -> Run:
    return _logical(left, right, decides=True)


def _not(operand: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = operand(frame)
        frame.cost += 1
        if value is True:
            return False
        if value is False:
            return True
        raise NoSuchOverloadError

    return run


def _conditional(condition: Run, if_true: Run, if_false: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = condition(frame)
        if value is True:
            return if_true(frame)
        if value is False:
            return if_false(frame)
        raise NoSuchOverloadError

    return run


def _or_optional(left: Run, right: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = left(frame)
        if type(value) is not Optional:
            raise NoSuchOverloadError
        return value if value.has_value else right(frame)

    return run


def _or_value(left: Run, right: Run) -> Run:
    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = left(frame)
        if type(value) is not Optional:
            raise NoSuchOverloadError
        return value.value if value.has_value else right(frame)

    return run


CONDITIONS: Final[Mapping[str, Callable[..., Run]]] = {
    "_&&_": _and,
    "_||_": _or,
    "!_": _not,
    "_?_:_": _conditional,
    "or": _or_optional,
    "orValue": _or_value,
}
