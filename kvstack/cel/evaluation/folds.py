"""Macros over lists and maps as closures: loops, what they gather, quantifiers, and bind."""

from collections.abc import Sequence
from typing import Any, Final

from kvstack.cel.errors import CelError, CostError, NoSuchOverloadError
from kvstack.cel.evaluation.costs import LIST
from kvstack.cel.evaluation.frame import Frame, Run
from kvstack.cel.evaluation.operators import type_value
from kvstack.cel.values import ObjectValue


class Loop:
    """The items of a range, one after another in the slots of variables."""

    __slots__ = ("_first", "_second", "_whole", "accumulator")

    def __init__(self, whole: Run, accumulator: int, first: int, second: int) -> None:
        self._whole = whole
        self.accumulator = accumulator
        self._first = first
        self._second = second

    def items(self, frame: Frame) -> Any:  # noqa: ANN401
        """Yield once for each item."""
        whole = self._whole(frame)
        slots, first, second = frame.slots, self._first, self._second
        kind = type(whole)
        if second < 0:
            if not (isinstance(whole, list) or kind is dict or kind is ObjectValue):
                raise _no_range(whole)
            for each in whole:
                slots[first] = each
                yield
        elif isinstance(whole, list):
            for position, each in enumerate(whole):
                slots[first], slots[second] = position, each
                yield
        elif kind is dict or kind is ObjectValue:
            for each in whole:
                slots[first] = each
                slots[second] = whole.get(each)
                yield
        else:
            raise _no_range(whole)


def _no_range(value: Any) -> CelError:  # noqa: ANN401
    return CelError(
        f"got '{_GO_TYPES.get(type_value(value).name, 'types.Val')}', expected iterable type"
    )


_GO_TYPES: Final = {
    "bool": "types.Bool",
    "bytes": "types.Bytes",
    "double": "types.Double",
    "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp",
    "int": "types.Int",
    "null_type": "types.Null",
    "optional_type": "*types.Optional",
    "string": "types.String",
    "type": "*types.Type",
    "uint": "types.Uint",
}


def quantifier(loop: Loop, predicate: Run, *, stops_at: bool) -> Run:
    """Return whether all items are such (stops at one that is not), or any is."""
    before, after = (4, 3) if stops_at else (3, 2)

    def run(frame: Frame) -> Any:  # noqa: ANN401
        error: CelError | None = None
        for _ in loop.items(frame):
            frame.cost += before
            if frame.cost > frame.limit:
                raise CostError
            try:
                value = predicate(frame)
            except CelError as failed:
                error = error or failed
                continue
            if value is stops_at:
                frame.cost += after
                return stops_at
            if value is not True and value is not False:
                error = error or NoSuchOverloadError()
        frame.cost += 1
        if error is not None:
            raise error
        return not stops_at

    return run


def fold(loop: Loop, init: Run, step: Run, result: Run) -> Run:
    """Return what is gathered from all items."""
    accumulator = loop.accumulator

    def run(frame: Frame) -> Any:  # noqa: ANN401
        found = init(frame)
        slots = frame.slots
        # What is gathered is this fold's own, so that it may grow in place.
        slots[accumulator] = found if type(found) is int else type(found)()
        for _ in loop.items(frame):
            step(frame)
            if frame.cost > frame.limit:
                raise CostError
        return result(frame)

    return run


def conditional_step(condition: Run, step: Run) -> Run:
    """Return a step that is taken for some items only."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        value = condition(frame)
        if value is True:
            step(frame)
        elif value is False:
            frame.cost += 1
        else:
            raise NoSuchOverloadError

    return run


def append(item: Run, accumulator: int) -> Run:
    """Return a step that adds a value to a list."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        gathered = frame.slots[accumulator]
        gathered.append(item(frame))
        frame.cost += LIST + 2

    return run


def count(accumulator: int) -> Run:
    """Return a step that counts an item."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.slots[accumulator] += 1
        frame.cost += 2

    return run


def insert(entry: Sequence[Run], accumulator: int) -> Run:
    """Return a step that adds members to a map: key and value, or one map."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        gathered = frame.slots[accumulator]
        values = [each(frame) for each in entry]
        added = values[0] if len(values) == 1 else {values[0]: values[1]}
        for key, value in added.items():
            if key in gathered:
                raise CelError(f"insert failed: key {key} already exists")
            gathered[key] = value
        frame.cost += 2

    return run


def bind(slot: int, value: Run, result: Run) -> Run:
    """Return a result that names a value."""

    def run(frame: Frame) -> Any:  # noqa: ANN401
        frame.slots[slot] = value(frame)
        return result(frame)

    return run
