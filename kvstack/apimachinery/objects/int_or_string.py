"""Values that are a number or a text: ports by number or name, counts or percentages.

    scaled(2, 10, round_up=True)       → 2
    scaled("25%", 10, round_up=True)   → 3
    scaled("25%", 10, round_up=False)  → 2

In an object such a value is an int or a str of JSON and is kept as it came: "80" stays a text.
"""

import math

from kvstack.apimachinery.objects.text.go_numbers import NumberError, atoi
from kvstack.apimachinery.objects.text.go_text import quote

IntOrString = int | str


class IntOrStringError(ValueError):
    """A value that is neither a number nor a percentage; the message is upstream's."""


def int_value(value: IntOrString) -> int:
    """Return the number, or the number a text holds, or 0."""
    if isinstance(value, int):
        return value
    try:
        return atoi(value)
    except NumberError:
        return 0


def scaled(value: IntOrString, total: int, *, round_up: bool) -> int:
    """Return the number, or that share of the total; raises IntOrStringError."""
    if isinstance(value, int):
        return value
    if not value.endswith("%"):
        raise IntOrStringError(
            "invalid value for IntOrString: invalid type: string is not a percentage"
        )
    try:
        percent = atoi(value[:-1])
    except NumberError as error:
        raise IntOrStringError(
            f"invalid value for IntOrString: invalid value {quote(value)}: {error}"
        ) from None
    share = float(percent) * float(total) / 100
    return math.ceil(share) if round_up else math.floor(share)
