"""Configuration files of an API server: one strict object in YAML or JSON, read field by field.

    document = read(data, {("apiserver.config.k8s.io/v1", "EncryptionConfiguration")})
    for entry in document.items("resources"):
        names = entry.texts("resources")
        entry.close()               DocumentError: unknown field "resources[0].providrs"
    document.close()

A field that is absent, null or empty gives the default. What is of another type, and what nobody
has asked for when the object is closed, is an error with its path.
"""

from collections.abc import Collection
from typing import Any, Final, TypeVar

from kvstack.apimachinery.objects.durations import DurationError
from kvstack.apimachinery.objects.durations import parse as parse_duration
from kvstack.apimachinery.objects.text import yaml_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError

_TYPE_MEMBERS: Final = ("apiVersion", "kind")
_T = TypeVar("_T")


class DocumentError(ValueError):
    """A configuration is invalid; the text has the reason."""


class Document:
    """One object of a configuration, and where in the file it is."""

    def __init__(self, value: object, path: str = "") -> None:
        """Take an object; raises DocumentError if it is not one."""
        if not isinstance(value, dict):
            raise DocumentError(f"{path or 'the file'} must be an object")
        self.path: Final = path
        self._members: Final[dict[str, Any]] = value
        self._read: Final[set[str]] = set(_TYPE_MEMBERS)

    def __contains__(self, name: str) -> bool:
        """Return whether a field is given, with whatever value but null."""
        return self._members.get(name) is not None

    def at(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        return self._of(name, str, default)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Return a boolean."""
        return self._of(name, bool, default)

    def whole(self, name: str, default: int = 0) -> int:
        """Return a whole number."""
        value = self._of(name, int, default)
        if isinstance(value, bool):
            raise DocumentError(f"{self.at(name)} must be a whole number")
        return value

    def duration_ns(self, name: str, default: str) -> int:
        """Return nanoseconds of a duration as Go writes it (`3s`)."""
        text = self.text(name) or default
        try:
            return parse_duration(text)
        except DurationError as error:
            raise DocumentError(f"{self.at(name)}: {error}") from None

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self._list(name)
        for position, each in enumerate(values):
            if not isinstance(each, str):
                raise DocumentError(f"{self.at(name)}[{position}] must be a string")
        return tuple(values)

    def item(self, name: str) -> "Document | None":
        """Return an object; None if absent."""
        self._read.add(name)
        value = self._members.get(name)
        return None if value is None else Document(value, self.at(name))

    def items(self, name: str) -> "list[Document]":
        """Return a list of objects."""
        return [
            Document(each, f"{self.at(name)}[{position}]")
            for position, each in enumerate(self._list(name))
        ]

    def names(self) -> list[str]:
        """Return the names of all fields that are given."""
        return [name for name, value in self._members.items() if value is not None]

    def plain(self, name: str) -> object:
        """Return a value of any type as it is; None if absent."""
        self._read.add(name)
        return self._members.get(name)

    def close(self) -> None:
        """Check that every field was read; raises DocumentError."""
        for name in self._members:
            if name not in self._read:
                raise DocumentError(f"unknown field {quote(self.at(name))}")

    def _list(self, name: str) -> list[Any]:
        found: list[Any] = self._of(name, list, [])
        return found

    def _of(self, name: str, type_: type[_T], default: _T) -> _T:
        self._read.add(name)
        value = self._members.get(name)
        if value is None:
            return default
        if not isinstance(value, type_):
            raise DocumentError(f"{self.at(name)} must be of type {_NAMES[type_]}")
        return value


_NAMES: Final[dict[type[object], str]] = {
    str: "string",
    bool: "boolean",
    int: "integer",
    list: "list",
}


def read(data: bytes, kinds: Collection[tuple[str, str]]) -> Document:
    """Return the object of a file; kinds: which apiVersion and kind it may have.

    Raises DocumentError.
    """
    return checked(plain(data), kinds)


def plain(data: bytes) -> Document:
    """Return the object of a file of any kind or none; raises DocumentError."""
    try:
        value, repeated = yaml_text.parse(data)
    except YamlError as error:
        raise DocumentError(str(error)) from None
    if repeated:
        raise DocumentError(repeated)
    return Document(value)


def checked(document: Document, kinds: Collection[tuple[str, str]]) -> Document:
    """Return a document that is of one of some kinds; raises DocumentError."""
    found = document.text("apiVersion"), document.text("kind")
    if found not in kinds:
        raise DocumentError(
            f"no kind {quote(found[1])} is registered for version {quote(found[0])}"
        )
    return document
