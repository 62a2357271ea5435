"""The findings of decoding: faults and their paths.

Go has two notions of where: the strict path with indices and keys (`spec.containers[0].x`), and the
stack of field names with the struct that holds the last of them, which its type errors print
(`Container.spec.containers.name`). A finding is made without either; each struct, list and map on
the way out puts its own part in front.
"""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.text.go_text import quote

UNKNOWN: Final = "unknown field"
ERROR: Final = "error"
TYPE_ERROR: Final = "type error"
EMPTY: Final = "explicit empty list or map"
"""Not wrong: a list or map that was given, though Go would not write it."""


class Finding:
    """One unknown field or error."""

    __slots__ = ("go_type", "kind", "path", "stack", "struct", "text")

    def __init__(self, kind: str, text: str = "", go_type: str = "", path: str = "") -> None:
        """Make a finding at the value at hand.

        `text` is the whole message of an ERROR, and of a TYPE_ERROR what was found there
        (`string`, `number 1.5`); `path` is the name of an UNKNOWN field.
        """
        self.kind = kind
        self.text = text
        self.go_type = go_type
        self.path = path
        self.stack: list[str] = []
        self.struct = ""

    @property
    def message(self) -> str:
        """The text of Go's decoder."""
        if self.kind == UNKNOWN:
            return f"unknown field {quote(self.path)}"
        if self.kind == ERROR:
            return self.text
        if self.struct:
            where = f"Go struct field {self.struct}.{'.'.join(self.stack)}"
        else:
            where = "Go value"
        return f"json: cannot unmarshal {self.text} into {where} of type {self.go_type}"

    def enter_field(self, struct: str, embedded: Sequence[str], name: str) -> None:
        """Say that it was found in a field of a struct."""
        self._enter(name)
        self.stack[:0] = [*embedded, name]
        self.struct = self.struct or struct

    def enter_index(self, position: int) -> None:
        """Say that it was found in an item of a list."""
        self._enter(f"[{position}]")

    def enter_key(self, key: str) -> None:
        """Say that it was found in an entry of a map."""
        self._enter(key)

    def _enter(self, part: str) -> None:
        joint = "." if self.path and self.path[0] != "[" else ""
        self.path = f"{part}{joint}{self.path}"


class StopDecodingError(Exception):
    """An error after which Go reads no further."""

    def __init__(self, finding: Finding) -> None:
        """Carry the finding out of the object."""
        super().__init__(finding.text)
        self.finding = finding


def kind_of(value: object) -> str:
    """Return what Go calls a value of JSON that is not null, as its type errors do."""
    if isinstance(value, str):
        return "string"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "object" if isinstance(value, dict) else "array"


def literal(value: object) -> str:
    """Return a number as it was written in the text, if that is known."""
    return repr(value) if isinstance(value, float) else str(value)
