"""How checkers report a broken promise."""

import traceback


class Violation(AssertionError):  # noqa: N818 - the usual name
    """The server broke a promise."""


def demand(holds: object, *what: object) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(" ".join(str(each) for each in what))


def reporter(violation: Violation) -> str:
    """Return the qualified name of the function that called demand."""
    frames = [frame for frame, _ in traceback.walk_tb(violation.__traceback__)]
    code = frames[-2].f_code if frames[-1].f_code is demand.__code__ else frames[-1].f_code
    return code.co_qualname
