"""The rule that what is stored, kept or compared is not changed, checked while tests run.

    @keeps(1)                                 the argument at 1 is the same after each call
    def from_hub(self, obj): …

    check = watched(live, "the stored object")
    …
    check()                                   raises ChangedError if it was changed

Objects are plain dicts and lists, and copies of an object share their inner parts: whoever changes
such a part changes what is stored, kept in a cache or compared with later. The check writes a value
as text before and compares after. It runs only where the environment variable
KVSTACK_CHECK_UNCHANGED is set when the process starts, as all tests do; elsewhere `keeps` returns
the function itself. It does not protect anything: it finds who breaks the rule.
"""

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import orjson

P = ParamSpec("P")
R = TypeVar("R")

VARIABLE: Final = "KVSTACK_CHECK_UNCHANGED"
IS_CHECKED: Final = bool(os.environ.get(VARIABLE))

found: Final[list[str]] = []
"""The changes detected in this process; tests fail if it is not empty."""


class ChangedError(AssertionError):
    """A shared value was changed; the text names it and the path."""


def keeps(*positions: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator for functions that may not change the arguments at these positions."""
    return lambda function: checking(function, *positions) if IS_CHECKED else function


def checking(function: Callable[P, R], *positions: int) -> Callable[P, R]:
    """Return a function that raises ChangedError if it changes one of these arguments."""

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        name = f"{function.__module__}.{function.__qualname__}"
        checks = [
            watched(args[each], f"argument {each} of {name}", is_checked=True)
            for each in positions
            if each < len(args)
        ]
        try:
            return function(*args, **kwargs)
        finally:
            for check in checks:
                check()

    return checked


def watched(
    value: object, description: str, *, is_checked: bool = IS_CHECKED
) -> Callable[[], None]:
    """Return a function that raises ChangedError if a value is another by then."""
    if not is_checked:
        return _nothing
    before = written(value)

    def check() -> None:
        after = written(value)
        if after != before:
            text = f"{description} was changed: {_difference(before, after)}"
            found.append(text)
            raise ChangedError(text)

    return check


def written(value: Any) -> bytes:  # noqa: ANN401 — whatever is watched
    """Return the text that a value is compared by, the order of members included."""
    try:
        return orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a number beyond 64 bits, or deeper than orjson writes
        return repr(value).encode("utf-8", "replace")


def _nothing() -> None:
    return None


def _difference(before: bytes, after: bytes) -> str:
    at = next(
        (i for i, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    start = max(0, at - 60)
    return f"… {before[start : at + 60]!r} became … {after[start : at + 60]!r}"
