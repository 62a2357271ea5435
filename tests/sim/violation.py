"""How the checkers say that a promise was broken."""


class Violation(AssertionError):  # noqa: N818 - as others call it
    """The server broke a promise."""


def demand(holds: object, *what: object) -> None:
    """Raise Violation unless it holds."""
    if not holds:
        raise Violation(" ".join(str(each) for each in what))
