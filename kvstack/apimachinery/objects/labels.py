"""Label selectors: as texts of queries, as LabelSelector objects, and compiled to a function.

    parse("app=web,tier in (a,b),!old").matches({"app": "web", "tier": "a"})   → True
    from_object({"matchLabels": {"app": "web"}})                               → app=web
    from_object(None)                                                          → NOTHING

A selector is a sorted tuple of requirements that must all hold; it never changes, so those of texts
are remembered. `matches` takes the labels of an object as a dict. `!=` and `notin` hold for objects
that lack the label too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from typing_extensions import override

from kvstack.apimachinery.objects.field_errors import (
    NO_PATH,
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
    summary,
)
from kvstack.apimachinery.objects.names import check_label_key, check_label_value
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int
from kvstack.apimachinery.objects.text.go_text import go_plain, quote

Labels = Mapping[str, str]
Matcher = Callable[[Labels], bool]

IN: Final = "in"
NOT_IN: Final = "notin"
EQUALS: Final = "="
DOUBLE_EQUALS: Final = "=="
NOT_EQUALS: Final = "!="
EXISTS: Final = "exists"
DOES_NOT_EXIST: Final = "!"
GREATER_THAN: Final = "gt"
LESS_THAN: Final = "lt"

_BINARY: Final = (IN, NOT_IN, EQUALS, DOUBLE_EQUALS, NOT_EQUALS, GREATER_THAN, LESS_THAN)
_OPERATORS: Final = (*_BINARY, EXISTS, DOES_NOT_EXIST)
_SETS: Final = frozenset((IN, NOT_IN))
_EXACT: Final = frozenset((EQUALS, DOUBLE_EQUALS, NOT_EQUALS))
_POSITIVE: Final = frozenset((IN, EQUALS, DOUBLE_EQUALS))
_ORDERED: Final = frozenset((GREATER_THAN, LESS_THAN))
_OF_OBJECTS: Final = {
    "In": IN,
    "NotIn": NOT_IN,
    "Exists": EXISTS,
    "DoesNotExist": DOES_NOT_EXIST,
}
_SYMBOLS: Final = {
    EQUALS: "=",
    DOUBLE_EQUALS: "==",
    NOT_EQUALS: "!=",
    GREATER_THAN: ">",
    LESS_THAN: "<",
}
_CACHED_TEXT_MAX: Final = 1024


class SelectorError(ValueError):
    """The text or object is not a selector; the message is upstream's."""


class Requirement(NamedTuple):
    """One condition on the labels of an object."""

    key: str
    operator: str
    values: tuple[str, ...]

    @override
    def __str__(self) -> str:
        """Return the requirement in the syntax of a query."""
        if self.operator == EXISTS:
            return self.key
        if self.operator == DOES_NOT_EXIST:
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in _SETS:
            return f"{self.key} {self.operator} ({values})"
        return f"{self.key}{_SYMBOLS[self.operator]}{values}"


class Selector:
    """Requirements that must all hold, and the compiled match function."""

    __slots__ = ("matches", "requirements")

    def __init__(self, requirements: Iterable[Requirement], matches: Matcher | None = None) -> None:
        """Sort the requirements by key and compile them, unless `matches` is given."""
        self.requirements: Final = tuple(sorted(requirements, key=_by_key))
        self.matches: Final[Matcher] = matches or _compile(self.requirements)

    @property
    def is_everything(self) -> bool:
        """Whether it matches all labels."""
        return not self.requirements and self is not NOTHING

    @override
    def __str__(self) -> str:
        """Return the canonical text; empty for everything and for nothing."""
        return ",".join(map(str, self.requirements))

    @override
    def __repr__(self) -> str:
        """Return the canonical text in the name of the class."""
        return "NOTHING" if self is NOTHING else f"Selector({str(self)!r})"

    @override
    def __eq__(self, other: object) -> bool:
        """Return whether the requirements are equal, one by one."""
        if self is NOTHING or other is NOTHING:
            return self is other
        return isinstance(other, Selector) and self.requirements == other.requirements

    @override
    def __hash__(self) -> int:
        """Return the same for equal requirements."""
        return hash(self.requirements)

    def exact_value(self, label: str) -> str | None:
        """Return the only value that an object's label may have; None if there is no single one."""
        for requirement in self.requirements:
            if requirement.key == label:
                is_exact = requirement.operator in _POSITIVE and len(requirement.values) == 1
                return requirement.values[0] if is_exact else None
        return None


def _never(_labels: Labels) -> bool:
    return False


def _always(_labels: Labels) -> bool:
    return True


def _by_key(requirement: Requirement) -> str:
    return requirement.key


def parse(text: str) -> Selector:
    """Return the selector of a query; the empty text selects everything; raises SelectorError."""
    return _cached(text) if len(text) <= _CACHED_TEXT_MAX else _Parser(text).parse()


def requirement(name: str, operator: str, values: Sequence[str]) -> Requirement:
    """Return a requirement after its checks; raises SelectorError."""
    errors = _key_errors("key", name) + _value_count_errors(operator, values)
    for position, value in enumerate(values):
        if found := check_label_value(value):
            path = key(index("values", position), name)
            errors.append(invalid(path, value, "; ".join(found)))
    if errors:
        raise SelectorError(summary(errors))
    return Requirement(name, operator, tuple(values))


def from_map(labels: Labels) -> Selector:
    """Return the selector of objects that have all these labels; nothing is checked."""
    return Selector(Requirement(name, EQUALS, (value,)) for name, value in labels.items())


def from_object(selector: Mapping[str, Any] | None) -> Selector:
    """Return the selector of a LabelSelector; none selects nothing; raises SelectorError."""
    if selector is None:
        return NOTHING
    match_labels: Labels = selector.get("matchLabels") or {}
    expressions: Sequence[Mapping[str, Any]] = selector.get("matchExpressions") or ()
    if not match_labels and not expressions:
        return EVERYTHING
    requirements = [requirement(name, EQUALS, (value,)) for name, value in match_labels.items()]
    for expression in expressions:
        operator = expression.get("operator") or ""
        if operator not in _OF_OBJECTS:
            raise SelectorError(f"{quote(operator)} is not a valid label selector operator")
        values = tuple(expression.get("values") or ())
        requirements.append(requirement(expression.get("key") or "", _OF_OBJECTS[operator], values))
    return Selector(requirements)


def format_object(selector: Mapping[str, Any] | None) -> str:
    """Return a LabelSelector as tables show it: `<none>` if empty, `<error>` if invalid."""
    try:
        return str(from_object(selector)) or "<none>"
    except SelectorError:
        return "<error>"


def struct_text(selector: Mapping[str, Any]) -> str:
    """Return a LabelSelector as Go prints a pointer to one."""
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{name}: {labels[name]}," for name in sorted(labels))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{each.get('key', '')},Operator:{each.get('operator', '')},"
        f"Values:{go_plain(each.get('values') or [])},}},"
        for each in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def validate_object(
    path: str,
    selector: Mapping[str, Any] | None,
    *,
    allow_invalid_values: bool = False,
    allow_unknown_operators: bool = False,
) -> list[FieldError]:
    """Return what is wrong with a LabelSelector.

    allow_invalid_values: of a stored object that has such already (`has_invalid_value`).
    """
    errors: list[FieldError] = []
    for name, value in ((selector or {}).get("matchLabels") or {}).items():
        where = child(path, "matchLabels")
        errors += [invalid(where, name, each) for each in check_label_key(name)]
        errors += [invalid(where, value, each) for each in check_label_value(value)]
    return errors + validate_expressions(
        child(path, "matchExpressions"),
        (selector or {}).get("matchExpressions") or (),
        allow_invalid_values=allow_invalid_values,
        allow_unknown_operators=allow_unknown_operators,
    )


def validate_expressions(
    path: str,
    expressions: Iterable[Mapping[str, Any]],
    *,
    allow_invalid_values: bool = False,
    allow_unknown_operators: bool = False,
) -> list[FieldError]:
    """Return what is wrong with the expressions of a LabelSelector."""
    errors: list[FieldError] = []
    for position, expression in enumerate(expressions):
        where = index(path, position)
        errors += _expression_errors(where, expression, is_lenient=allow_unknown_operators)
        if not allow_invalid_values:
            errors += _expression_value_errors(where, expression)
    return errors


def has_invalid_value(selector: Mapping[str, Any] | None) -> bool:
    """Return whether an expression of a LabelSelector has a value no label can have."""
    return any(
        check_label_value(value)
        for expression in (selector or {}).get("matchExpressions") or ()
        for value in expression.get("values") or ()
    )


def _expression_errors(
    path: str, expression: Mapping[str, Any], *, is_lenient: bool
) -> list[FieldError]:
    errors: list[FieldError] = []
    operator = expression.get("operator") or ""
    values = expression.get("values") or ()
    if operator in {"In", "NotIn"}:
        if not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(required(child(path, "values"), detail))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(child(path, "values"), detail))
    elif not is_lenient:
        detail = "not a valid selector operator"
        errors.append(invalid(child(path, "operator"), operator, detail))
    name = expression.get("key") or ""
    errors += [invalid(child(path, "key"), name, each) for each in check_label_key(name)]
    return errors


def _expression_value_errors(path: str, expression: Mapping[str, Any]) -> list[FieldError]:
    return [
        invalid(index(child(path, "values"), position), value, each)
        for position, value in enumerate(expression.get("values") or ())
        for each in check_label_value(value)
    ]


def _key_errors(path: str, name: str) -> list[FieldError]:
    found = check_label_key(name)
    return [invalid(path, name, "; ".join(found))] if found else []


def _value_count_errors(operator: str, values: Sequence[str]) -> list[FieldError]:
    detail = ""
    if operator in _SETS:
        detail = "" if values else "for 'in', 'notin' operators, values set can't be empty"
    elif operator in _EXACT:
        detail = "" if len(values) == 1 else "exact-match compatibility requires one single value"
    elif operator in {EXISTS, DOES_NOT_EXIST}:
        detail = "values set must be empty for exists and does not exist" if values else ""
    elif operator not in _ORDERED:
        return [not_supported("operator", operator, _OPERATORS)]
    elif len(values) != 1:
        detail = "for 'Gt', 'Lt' operators, exactly one value is required"
    errors = [invalid("values", list(values) or None, detail)] if detail else []
    if operator in _ORDERED:
        for position, value in enumerate(values):
            if _integer(value) is None:
                detail = "for 'Gt', 'Lt' operators, the value must be an integer"
                errors.append(invalid(index("values", position), value, detail))
    return errors


def _integer(value: str) -> int | None:
    try:
        return parse_int(value)
    except NumberError:
        return None


@lru_cache(maxsize=1024)
def _cached(text: str) -> Selector:
    return _Parser(text).parse()


def _compile(requirements: Sequence[Requirement]) -> Matcher:
    """Return one function for all requirements."""
    if not requirements:
        return _always
    if len(requirements) == 1:
        return _compile_one(requirements[0])
    tests = tuple(map(_compile_one, requirements))

    def matches(labels: Labels) -> bool:
        for test in tests:  # noqa: SIM110  # a generator costs more than the tests
            if not test(labels):
                return False
        return True

    return matches


def _compile_one(condition: Requirement) -> Matcher:
    name, operator, values = condition
    if operator in {EXISTS, DOES_NOT_EXIST}:
        if operator == EXISTS:
            return lambda labels: name in labels
        return lambda labels: name not in labels
    if operator in _ORDERED:
        return _compile_ordered(name, operator, values)
    if len(values) == 1:
        value = values[0]
        if operator in _POSITIVE:
            return lambda labels: labels.get(name) == value
        return lambda labels: labels.get(name) != value
    several = frozenset(values)
    if operator in _POSITIVE:
        return lambda labels: labels.get(name) in several
    return lambda labels: labels.get(name) not in several


def _compile_ordered(name: str, operator: str, values: Sequence[str]) -> Matcher:
    bound = _integer(values[0]) if len(values) == 1 else None
    if bound is None:
        return _never

    def matches(labels: Labels) -> bool:
        number = _integer(labels.get(name, ""))
        if number is None:
            return False
        return number > bound if operator == GREATER_THAN else number < bound

    return matches


_BLANKS: Final = frozenset(" \t\r\n")
_SPECIALS: Final = frozenset("=!(),><")
_END_OF_WORD: Final = _BLANKS | _SPECIALS | {"\0"}
_END: Final = ""
"""The token after the last."""
_OPERATOR_TOKENS: Final = {
    "in": IN, "notin": NOT_IN, "=": EQUALS, "==": DOUBLE_EQUALS, "!=": NOT_EQUALS,
    ">": GREATER_THAN, "<": LESS_THAN,
}  # fmt: skip
_KEYWORDS: Final = frozenset(("==", "!=", *_SPECIALS))


def _tokens(text: str) -> list[str]:
    """Return the words and symbols of a query, and the end."""
    tokens: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character in _BLANKS:
            position += 1
            continue
        if character == "\0":
            break
        start, position = position, position + 1
        if character in _SPECIALS:
            position += text[start : start + 2] in {"==", "!="}
            tokens.append(text[start:position])
        else:
            while position < len(text) and text[position] not in _END_OF_WORD:
                position += 1
            tokens.append(text[start:position])
        # A NUL ends a word or symbol and goes with it.
        position += text[position : position + 1] == "\0"
    tokens.append(_END)
    return tokens


class _Parser:
    """Reads the tokens of a query from left to right."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._position = 0

    def parse(self) -> Selector:
        requirements: list[Requirement] = []
        while self._next != _END:
            if self._next in _KEYWORDS and self._next != "!":
                raise SelectorError(
                    f"found '{self._next}', expected: !, identifier, or 'end of string'"
                )
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            self._comma()
        return Selector(requirements) if requirements else EVERYTHING

    @property
    def _next(self) -> str:
        return self._tokens[self._position]

    def _take(self) -> str:
        token = self._tokens[self._position]
        self._position += 1
        return token

    def _comma(self) -> None:
        """Go past the comma between two requirements; stay at the end."""
        if self._next == _END:
            return
        token = self._take()
        if token != ",":
            raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")
        if self._next == _END or (self._next in _KEYWORDS and self._next != "!"):
            raise SelectorError(f"found '{self._next}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        is_negated = self._next == "!"
        if is_negated:
            self._take()
        name = self._take()
        if name == _END or name in _KEYWORDS:
            raise SelectorError(f"found '{name}', expected: identifier")
        if errors := _key_errors(NO_PATH, name):
            raise SelectorError(summary(errors))
        if is_negated or self._next in {_END, ","}:
            return requirement(name, DOES_NOT_EXIST if is_negated else EXISTS, ())
        token = self._take()
        if token not in _OPERATOR_TOKENS:
            raise SelectorError(f"found '{token}', expected: {', '.join(_BINARY)}")
        operator = _OPERATOR_TOKENS[token]
        values = self._values() if operator in _SETS else {self._exact_value()}
        return requirement(name, operator, sorted(values))

    def _exact_value(self) -> str:
        if self._next in {_END, ","}:
            return ""
        token = self._take()
        if token in _KEYWORDS:
            raise SelectorError(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> set[str]:
        token = self._take()
        if token != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        if self._next == ")":
            self._take()
            return {""}
        if self._next == _END or (self._next in _KEYWORDS and self._next != ","):
            raise SelectorError(f"found '{self._next}', expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            token = self._take()
            if token == ",":
                # An empty place before, between or after commas is the empty value.
                if not values or self._next in {",", ")"}:
                    values.add("")
            elif token == _END or token in _KEYWORDS:
                raise SelectorError(f"found '{token}', expected: ',', or identifier")
            else:
                values.add(token)
                if self._next not in {",", ")"}:
                    raise SelectorError(f"found '{self._next}', expected: ',' or ')'")
            if self._next == ")":
                self._take()
                return values


EVERYTHING: Final = Selector(())
"""Matches all labels."""
NOTHING: Final = Selector((), _never)
"""Matches no labels, not even none."""
