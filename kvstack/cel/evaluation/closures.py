"""Constants, variables, members, calls and lists as closures."""

from collections.abc import Callable, Sequence
from typing import Any

from kvstack.cel.checker.functions import Overload
from kvstack.cel.checker.types import Type
from kvstack.cel.errors import CelError, CostError, NoSuchOverloadError
from kvstack.cel.evaluation.costs import LIST, NEEDS_RESULT, cost_of
from kvstack.cel.evaluation.frame import Frame, Run
from kvstack.cel.evaluation.guards import Guard, guards_of
from kvstack.cel.evaluation.operators import BINARY, has, index, select
from kvstack.cel.library.table import IMPLEMENTATIONS
from kvstack.cel.values import Optional


def constant(value: Any, cost: int = 0) -> Run:  # noqa: ANN401
    """Return a value that is known."""
    if not cost:
        return lambda _frame: value

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.cost += cost
        return value

    return run


def constant_list(values: list[Any]) -> Run:
    """Return a list of constants, which must not be changed."""
    return lambda _frame: values


def variable(slot: int) -> Run:
    """Return the value of a variable."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.cost += 1
        return frame.slots[slot]

    return run


def path(slot: int, names: tuple[str, ...]) -> Run:
    """Return a member of a member of a variable."""
    cost = 1 + len(names)

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.cost += cost
        value = frame.slots[slot]
        for name in names:
            value = select(value, name)
        return value

    return run


def members(operand: Run, names: tuple[str, ...]) -> Run:
    """Return a member of a member of a value."""
    cost = len(names)

    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = operand(frame)
        frame.cost += cost
        for name in names:
            value = select(value, name)
        return value

    return run


def has_field(operand: Run, name: str) -> Run:
    """Return whether a value has a member."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        return has(operand(frame), name)

    return run


def indexed(whole: Run, key: Run) -> Run:
    """Return an item of a list or map."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = whole(frame)
        found = index(value, key(frame))
        frame.cost += 1
        return found

    return run


def membership(item: Run, values: list[Any]) -> Run:
    """Return whether a value is one of constants."""
    constants = frozenset((type(each), each) for each in values)
    plain = BINARY["@in"]

    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = item(frame)
        kind = type(value)
        if kind is str:
            return (kind, value) in constants
        return plain(value, values)

    return run


def binary(function: Callable[[Any, Any], Any], cost: Any, left: Run, right: Run) -> Run:  # noqa: ANN401
    """Return what an operator makes of two values; cost: a number, or a function of the values."""
    if isinstance(cost, int):

        def run(frame: Frame) -> Any:  # noqa: ANN401
            one = left(frame)
            other = right(frame)
            frame.cost += cost
            return function(one, other)

        return run

    def charged(frame: Frame) -> Any:  # noqa: ANN401
        one = left(frame)
        other = right(frame)
        frame.cost += cost((one, other), None)
        if frame.cost > frame.limit:
            raise CostError
        return function(one, other)

    return charged


def plain(function: Callable[..., Any], arguments: Sequence[Run]) -> Run:
    """Return what a function makes of values, at the cost of one."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        values = [each(frame) for each in arguments]
        frame.cost += 1
        return function(*values)

    return run


def called(
    name: str,
    candidates: Sequence[Overload],
    argument_types: Sequence[Type],
    arguments: Sequence[Run],
) -> Run:
    """Return a call of one of some overloads, picked by the values where types are not known."""
    ways = [
        (
            IMPLEMENTATIONS[each.identifier],
            guards_of(each, argument_types),
            guards_of(each),
            cost_of(name, each.identifier),
        )
        for each in candidates
    ]
    is_late = name in NEEDS_RESULT

    def chosen(frame: Frame, values: list[Any]) -> Any:  # noqa: ANN401
        has_null = None in values  # which values of every type may be
        for function, guards, all_guards, cost in ways:
            asked = all_guards if has_null else guards
            if asked and not _fits(values, asked):
                continue
            if isinstance(cost, int):
                frame.cost += cost
                return function(*values)
            if not is_late:
                frame.cost += cost(values, None)
                if frame.cost > frame.limit:
                    raise CostError
                return function(*values)
            found = function(*values)
            frame.cost += cost(values, found)
            return found
        raise NoSuchOverloadError

    if len(ways) == 1 and not ways[0][1] and not is_late:
        return _direct(ways[0][0], ways[0][3], arguments, chosen)
    return lambda frame: chosen(frame, [each(frame) for each in arguments])


def _direct(
    function: Callable[..., Any],
    cost: Any,  # noqa: ANN401
    arguments: Sequence[Run],
    chosen: Callable[[Frame, list[Any]], Any],
) -> Run:
    """Return a call of the one overload that the types of the arguments leave."""
    if len(arguments) == 1 and isinstance(cost, int):
        (argument,) = arguments

        def of_one(frame: Frame) -> Any:  # noqa: ANN401
            value = argument(frame)
            if value is None:
                return chosen(frame, [value])
            frame.cost += cost
            return function(value)

        return of_one

    def run(frame: Frame) -> Any:  # noqa: ANN401
        values = [each(frame) for each in arguments]
        if None in values:
            return chosen(frame, values)
        if isinstance(cost, int):
            frame.cost += cost
            return function(*values)
        frame.cost += cost(values, None)
        if frame.cost > frame.limit:
            raise CostError
        return function(*values)

    return run


def _fits(values: Sequence[Any], guards: Sequence[tuple[int, Guard]]) -> bool:
    return all(guard(values[position]) for position, guard in guards)


def single(element: Run) -> Run:
    """Return a list of one element."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        found = [element(frame)]
        frame.cost += LIST
        return found

    return run


def optional_list(runs: Sequence[Run], optionals: frozenset[int]) -> Run:
    """Return a list without the optional elements that are absent; optionals: their positions."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        items: list[Any] = []
        for position, each in enumerate(runs):
            value = each(frame)
            if position not in optionals:
                items.append(value)
            elif is_there(value, "list element"):
                items.append(value.value)
        frame.cost += LIST
        return items

    return run


def is_there(value: Any, type_name: str) -> bool:  # noqa: ANN401
    """Return whether an optional part has a value; raises CelError: it is not optional."""
    if type(value) is not Optional:
        raise CelError(f"cannot initialize optional {type_name} from non-optional value {value}")
    return value.has_value
