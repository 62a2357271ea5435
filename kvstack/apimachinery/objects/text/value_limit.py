"""The limit on the number of values in one body.

    check_json(b'{"a":[1,2]}')      three values: fine
    check_json(b"[[],[],…")         TooManyValuesError, before anything is parsed

Three MiB of short values (`[],[],[],…`) take a hundred times the time and memory of three MiB of
text, at each of the steps of a request. An object of that many values could not be stored anyway:
the store takes 1.5 MiB of one object, which are 15 bytes a value at this limit.

A value is a member of an object or an item of an array, at any depth.
"""

from typing import Final

VALUES_MAX: Final = 100_000


class TooManyValuesError(ValueError):
    """A body of more values than one object may have."""

    def __init__(self, count: int) -> None:
        """Name the number of values (at least that many), and the limit."""
        super().__init__(f"a body may hold at most {VALUES_MAX} values, this one holds {count}")


def check_json(data: bytes) -> None:
    """Check the number of values of a JSON text, valid or not; raises TooManyValuesError."""
    if _marks(data) <= VALUES_MAX:  # the contents of strings are counted as well: rarely too many
        return
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    strings = plain.count(b'"') // 2
    if strings > 2 * VALUES_MAX:  # a value is one string at most, and has one as its name
        raise TooManyValuesError(strings // 2)
    count = _marks(b"".join(plain.split(b'"')[::2]))
    if count > VALUES_MAX:
        raise TooManyValuesError(count)


def check_count(count: int) -> None:
    """Check a number of values; raises TooManyValuesError."""
    if count > VALUES_MAX:
        raise TooManyValuesError(count)


def _marks(data: bytes) -> int:
    """Return the number of values by the punctuation of a text, or slightly more."""
    return data.count(b",") + data.count(b"[") + data.count(b"{")
