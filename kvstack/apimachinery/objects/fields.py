"""Field selectors: `metadata.name=web,status.phase!=Running`.

    parse("status.phase!=Running").matches({"status.phase": "Pending"})   → True

`matches` takes the selectable fields of an object as texts; one that is absent counts as empty.
Which fields a kind knows, `supported` checks. Commas, equal signs and backslashes in a value are
escaped by a backslash.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from typing_extensions import override

Fields = Mapping[str, str]
Matcher = Callable[[Fields], bool]


_OPERATORS: Final = ("!=", "==", "=")
_SPECIALS: Final = frozenset("\\,=")
_CACHED_TEXT_MAX: Final = 1024


class FieldSelectorError(ValueError):
    """The text is not a field selector, or not of this kind; the message is upstream's."""


class Requirement(NamedTuple):
    """One condition on a field of an object."""

    field: str
    is_equal: bool
    """True: the field must have the value; False: it must not."""
    value: str

    @override
    def __str__(self) -> str:
        """Return the requirement in the syntax of a query."""
        return f"{self.field}{'=' if self.is_equal else '!='}{escape(self.value)}"


class FieldSelector:
    """Requirements that must all hold, and the compiled match function."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement]) -> None:
        """Compile the requirements."""
        self.requirements: Final = tuple(requirements)
        self.matches: Final[Matcher] = _compile(self.requirements)

    @property
    def is_everything(self) -> bool:
        """Whether it matches all fields."""
        return not self.requirements

    @override
    def __str__(self) -> str:
        """Return the text of the query."""
        return ",".join(map(str, self.requirements))

    @override
    def __repr__(self) -> str:
        """Return the text in the name of the class."""
        return f"FieldSelector({str(self)!r})"

    @override
    def __eq__(self, other: object) -> bool:
        """Return whether the requirements are equal, one by one."""
        return isinstance(other, FieldSelector) and self.requirements == other.requirements

    @override
    def __hash__(self) -> int:
        """Return the same for equal requirements."""
        return hash(self.requirements)

    def exact_value(self, field: str) -> str | None:
        """Return the value that a field must have; None if any would do."""
        for requirement in self.requirements:
            if requirement.field == field and requirement.is_equal:
                return requirement.value
        return None


def parse(text: str) -> FieldSelector:
    """Return the selector of a query, sorted; raises FieldSelectorError."""
    return _cached(text) if len(text) <= _CACHED_TEXT_MAX else _parse(text)


def escape(value: str) -> str:
    """Return a value in the syntax of a query."""
    return value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")


@lru_cache(maxsize=1024)
def _cached(text: str) -> FieldSelector:
    return _parse(text)


def _parse(text: str) -> FieldSelector:
    requirements: list[Requirement] = []
    for term in sorted(_terms(text)):
        if not term:
            continue
        position = min((each for each in map(term.find, _OPERATORS) if each >= 0), default=-1)
        if position < 0:
            raise FieldSelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        operator = next(each for each in _OPERATORS if term.startswith(each, position))
        value = _unescape(term[position + len(operator) :])
        if term[:position] or value:
            requirements.append(Requirement(term[:position], operator != "!=", value))
    return FieldSelector(requirements)


def _terms(text: str) -> Iterable[str]:
    """Return the parts between commas that are not escaped."""
    terms: list[str] = []
    start = position = 0
    while position < len(text):
        if text[position] == "\\":
            position += 1
        elif text[position] == ",":
            terms.append(text[start:position])
            start = position + 1
        position += 1
    terms.append(text[start:])
    return terms


def _unescape(value: str) -> str:
    if not _SPECIALS.intersection(value):
        return value
    characters: list[str] = []
    rest = iter(value)
    for character in rest:
        if character == "\\":
            escaped = next(rest, "")
            if escaped not in _SPECIALS:
                raise FieldSelectorError(
                    f"invalid field selector: invalid escape sequence: \\{escaped}"
                )
            characters.append(escaped)
        elif character in _SPECIALS:
            raise FieldSelectorError(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        else:
            characters.append(character)
    return "".join(characters)


def _compile(requirements: tuple[Requirement, ...]) -> Matcher:
    if not requirements:
        return lambda _fields: True
    if len(requirements) == 1:
        name, is_equal, value = requirements[0]
        if is_equal:
            return lambda fields: fields.get(name, "") == value
        return lambda fields: fields.get(name, "") != value

    def matches(fields: Fields) -> bool:
        for name, is_equal, value in requirements:
            if (fields.get(name, "") == value) is not is_equal:
                return False
        return True

    return matches
