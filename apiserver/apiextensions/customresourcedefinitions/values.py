"""Validation of values by the schema of a custom resource, with the texts of go-openapi.

    check = ValueSchema({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}})
    check.errors({"n": 0}, "spec")
    → spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1   (at "spec")

Errors name a value by its path within the given value. A schema is compiled once; the object then
validates any number of values. CEL rules, list types and metadata are checked elsewhere.
"""

import math
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import (
    NO_PATH,
    FieldError,
    child,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from kvstack.apimachinery.objects.text.go_floats import format_float
from kvstack.apimachinery.objects.text.go_patterns import PatternError, compile_pattern, is_match
from kvstack.apimachinery.objects.text.go_text import go_json, quote
from kvstack.apimachinery.objects.text.string_formats import has_format, is_known, is_text_format
from kvstack.apiserver.apiextensions.customresourcedefinitions.fitting import Fits, fits_of
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import Schema

Value = Any
"""A JSON value."""

_BODY: Final = "in body"
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_INTEGERS: Final = {"int32": (-(2**31), 2**31 - 1)}
_FLOAT32_MAX: Final = 3.4028235677973366e38
_JSON_INTEGER_MAX: Final = float(2**53 - 1)
_WHOLE_ENOUGH: Final = 1e-9
_NUMBER_FORMATS: Final = {
    "integer": frozenset(("int32", "int64")),
    "number": frozenset(("double", "float")),
}


NEW: Final = object()
"""Means that there is no old value."""
_NOTHING: Final[dict[str, Any]] = {}


class Fault(NamedTuple):
    """One error; errors with the same text are reported once."""

    text: str
    name: str
    """The path of the value within the whole; empty: the whole."""
    error: FieldError
    """The error without its path."""


class Outcome:
    """The result of a validation: errors, and the number of values validated."""

    __slots__ = ("count", "faults")

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.count = 0

    def add(self, fault: Fault) -> None:
        if all(each.text != fault.text for each in self.faults):
            self.faults.append(fault)

    def merge(self, other: "Outcome") -> None:
        for each in other.faults:
            self.add(each)
        self.count += other.count


class ValueSchema:
    """A schema for validating values."""

    __slots__ = (
        "_all_of",
        "_any_of",
        "_enum",
        "_extra",
        "_extra_forbidden",
        "_fits",
        "_format",
        "_is_served",
        "_items",
        "_not",
        "_nullable",
        "_number_format",
        "_one_of",
        "_properties",
        "_schema",
        "_types",
    )

    def __init__(self, schema: Schema, *, is_served: bool = False) -> None:
        """schema: as in a definition.

        is_served: for validating objects: unknown formats are not checked, and int-or-string values
        must be one of both. False for defaults.
        """
        self._schema = schema
        self._is_served = is_served
        self._fits: Fits | None = None
        type_name = schema.get("type", "")
        self._types: tuple[str, ...] = (type_name,) if type_name else ()
        if is_served and schema.get("x-kubernetes-int-or-string"):
            self._types = ("integer", "string")
        self._nullable = bool(schema.get("nullable"))
        self._format: str = schema.get("format", "")
        if is_served and not is_known(self._format, type_name):
            self._format = ""
        known = _NUMBER_FORMATS.get(type_name, frozenset())
        self._number_format = self._format if self._format in known else ""
        self._enum: list[Value] = schema.get("enum") or []
        self._all_of, self._any_of, self._one_of = (
            [ValueSchema(each, is_served=is_served) for each in schema.get(name) or ()]
            for name in ("allOf", "anyOf", "oneOf")
        )
        negated = schema.get("not")
        self._not = None if negated is None else ValueSchema(negated, is_served=is_served)
        items = schema.get("items")
        self._items = ValueSchema(items, is_served=is_served) if isinstance(items, dict) else None
        self._properties = {
            name: ValueSchema(each, is_served=is_served)
            for name, each in (schema.get("properties") or {}).items()
        }
        extra = schema.get("additionalProperties")
        self._extra = ValueSchema(extra, is_served=is_served) if isinstance(extra, dict) else None
        self._extra_forbidden = extra is False

    def errors(self, value: Value, path: str, old: Value = NEW) -> list[FieldError]:
        """Return the errors of a value at a path.

        old: the old value, or NEW. Unchanged values have no errors.
        """
        if self._fits is None:
            self._fits = fits_of(self._schema, self._slow)
        if self._fits(value):
            return []
        found: list[FieldError] = []
        for _, name, error in self.check(value, "", old).faults:
            inner = "" if name == "." else name.removeprefix(".")
            where = child(path, inner) if inner else path
            found.append(error._replace(field=where or NO_PATH))
        return found

    def _slow(self, schema: Schema) -> Fits:
        found = ValueSchema(schema, is_served=self._is_served)
        return lambda value: not found.check(value, "").faults

    def check(self, value: Value, name: str, old: Value = NEW) -> Outcome:
        """Return the result for a value with a name; empty: the whole."""
        outcome = Outcome()
        if old is not NEW and same_json(value, old):
            return outcome
        if self._types or self._format:
            self._check_type(value, name, outcome)
        if value is None:
            self._check_enum(value, name, outcome)
            return outcome
        if self._types or self._format:
            outcome.count += 1
        self._check_alternatives(value, name, outcome, old)
        if isinstance(value, str):
            self._check_text(value, name, outcome)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            self._check_number(value, name, outcome)
            outcome.count += 1
        elif isinstance(value, list):
            self._check_list(value, name, outcome, old)
            outcome.count += 1
        self._check_enum(value, name, outcome)
        if isinstance(value, dict):
            self._check_object(value, name, outcome, old)
            outcome.count += 1
        outcome.count += 3
        return outcome

    def _check_type(self, value: Value, name: str, outcome: Outcome) -> None:
        types, expected = self._types, ",".join(self._types)
        if value is None:
            if types and "null" not in types and not self._nullable:
                outcome.add(_wrong_type(name, expected, "null"))
            else:
                outcome.count += 1
            return
        actual, actual_format = _type_of(value)
        is_number = actual in {"integer", "number"}
        fits = actual in types or (
            is_number
            and (
                (actual == "integer" and "number" in types)
                or (actual == "number" and "integer" in types and _is_whole(value))
            )
        )
        is_formatted = self._format != ""
        if actual not in {"string", "array"}:
            if is_formatted and not fits and actual_format != self._format:
                outcome.add(_wrong_type(name, self._format, actual_format))
                return
        elif is_formatted and "number" not in types and "integer" not in types:
            outcome.count += 1
            return
        if not fits:
            outcome.add(_wrong_type(name, expected, actual))
            return
        outcome.count += 1

    def _check_alternatives(self, value: Value, name: str, outcome: Outcome, old: Value) -> None:
        if self._any_of:
            self._check_any(value, name, outcome, old)
        if self._one_of:
            self._check_one(value, name, outcome, old)
        if self._all_of:
            self._check_all(value, name, outcome, old)
        if self._not is not None and not self._not.check(value, name).faults:
            outcome.add(_general(f"{quote(name)} must not validate the schema (not)"))
        outcome.count += 1

    def _check_any(self, value: Value, name: str, outcome: Outcome, old: Value) -> None:
        best: Outcome | None = None
        for each in self._any_of:
            result = each.check(value, name, old)
            if not result.faults:
                outcome.merge(result)
                return
            if best is None or result.count > best.count:
                best = result
        outcome.add(_general(f"{quote(name)} must validate at least one schema (anyOf)"))
        assert best is not None
        outcome.merge(best)

    def _check_one(self, value: Value, name: str, outcome: Outcome, old: Value) -> None:
        results = [each.check(value, name, old) for each in self._one_of]
        good = [each for each in results if not each.faults]
        if len(good) == 1:
            outcome.merge(good[0])
            return
        found = f"{len(good)} valid alternatives" if good else "none valid"
        text = f"{quote(name)} must validate one and only one schema (oneOf). Found {found}"
        outcome.add(_general(text))
        if not good:
            outcome.merge(max(results, key=lambda each: each.count))

    def _check_all(self, value: Value, name: str, outcome: Outcome, old: Value) -> None:
        results = [each.check(value, name, old) for each in self._all_of]
        for each in results:
            outcome.merge(each)
        bad = sum(bool(each.faults) for each in results)
        if bad:
            more = ". None validated" if bad == len(results) else ""
            outcome.add(_general(f"{quote(name)} must validate all the schemas (allOf){more}"))

    def _check_text(self, value: str, name: str, outcome: Outcome) -> None:
        outcome.count += 1
        fault = self._text_fault(value, name)
        if fault is not None:
            outcome.add(fault)
        if self._format and is_text_format(self._format):
            outcome.count += 1
            if not has_format(self._format, value):
                outcome.add(_wrong_type(name, self._format, value))

    def _text_fault(self, value: str, name: str) -> Fault | None:
        maximum, minimum = self._schema.get("maxLength"), self._schema.get("minLength")
        pattern = self._schema.get("pattern", "")
        if maximum is not None and len(value) > maximum:
            text = f"{name} {_BODY} should be at most {maximum} chars long"
            return Fault(text, name, too_long("", maximum))
        if minimum is not None and len(value) < minimum:
            return _fault(name, value, f"should be at least {minimum} chars long")
        if pattern:
            try:
                is_good = is_match(compile_pattern(pattern), value)
            except PatternError as error:
                text = f"should match '{pattern}, but pattern is invalid: {error}'"
                return _fault(name, value, text)
            if not is_good:
                return _fault(name, value, f"should match '{pattern}'")
        return None

    def _check_number(self, value: float, name: str, outcome: Outcome) -> None:
        schema = self._schema
        if isinstance(value, int) and not _INT64_MIN <= value <= _INT64_MAX:
            value = float(value)
        self._check_range(value, "Checked", name, outcome)
        factor, maximum, minimum = (
            schema.get(each) for each in ("multipleOf", "maximum", "minimum")
        )
        if factor is not None:
            bound = self._bound(value, float(factor), "MultipleOf", name, outcome)
            _check_multiple(value, bound, name, outcome)
        # Errors of minima come first.
        if minimum is not None:
            bound = self._bound(value, float(minimum), "Minimum boundary", name, outcome)
            exclusive = bool(schema.get("exclusiveMinimum"))
            if value <= bound if exclusive else value < bound:
                words = "greater than" if exclusive else "greater than or equal to"
                outcome.add(_fault(name, value, f"should be {words} {_text_of(bound)}"))
        if maximum is not None:
            bound = self._bound(value, float(maximum), "Maximum boundary", name, outcome)
            exclusive = bool(schema.get("exclusiveMaximum"))
            if value >= bound if exclusive else value > bound:
                words = "less than" if exclusive else "less than or equal to"
                outcome.add(_fault(name, value, f"should be {words} {_text_of(bound)}"))
        outcome.count += 1

    def _bound(self, value: float, bound: float, what: str, name: str, outcome: Outcome) -> float:
        """Return a limit in the type of the value; adds an error if it does not fit."""
        fits = self._check_range(bound, what, name, outcome)
        return int(bound) if fits and isinstance(value, int) else bound

    def _check_range(self, number: float, what: str, name: str, outcome: Outcome) -> bool:
        """Return whether a number fits the type and format; adds an error if not."""
        type_name = self._types[0] if len(self._types) == 1 else ""
        if type_name == "integer":
            low, high = _INTEGERS.get(self._number_format, (_INT64_MIN, _INT64_MAX))
            fits = number == math.trunc(number) and low <= number <= high
        else:
            fits = self._number_format != "float" or abs(number) < _FLOAT32_MAX
        if not fits:
            form = f"with format {self._format}" if self._number_format else "(default format)"
            outcome.add(_general(f"{what} value must be of type {type_name} {form} in {name}"))
        return fits

    def _check_list(self, value: list[Value], name: str, outcome: Outcome, old: Value) -> None:
        schema, size = self._schema, len(value)
        if self._items is not None:
            before = self._old_items(old)
            for position, item in enumerate(value):
                was = NEW if before is None else before.get(self._identity(item), NEW)
                outcome.merge(self._items.check(item, f"{name}[{position}]", was))
        minimum, maximum = schema.get("minItems"), schema.get("maxItems")
        if minimum is not None and size < minimum:
            outcome.add(_fault(name, size, f"should have at least {minimum} items"))
        if maximum is not None and size > maximum:
            text = f"{name} {_BODY} should have at most {maximum} items"
            outcome.add(Fault(text, name, too_many("", size, maximum)))
        if schema.get("uniqueItems") and any(
            same_json(value[one], value[other]) for other in range(size) for one in range(other)
        ):
            outcome.add(_fault(name, "", "shouldn't contain duplicates"))
        outcome.count += 1

    def _old_items(self, old: Value) -> dict[str, Value] | None:
        """Return the old items by identity; None: they have none."""
        if not isinstance(old, list) or self._schema.get("x-kubernetes-list-type") != "map":
            return None
        return {self._identity(item): item for item in old}

    def _identity(self, item: Value) -> str:
        keys = self._schema.get("x-kubernetes-list-map-keys") or ()
        return go_json([item.get(each) for each in keys] if isinstance(item, dict) else [item])

    def _check_enum(self, value: Value, name: str, outcome: Outcome) -> None:
        if self._enum and not any(_is_choice(value, each) for each in self._enum):
            supported = [each if isinstance(each, str) else go_json(each) for each in self._enum]
            error = not_supported("", value, supported)
            outcome.add(Fault(f"{name} {_BODY} should be one of {supported}", name, error))

    def _check_object(
        self, value: dict[str, Value], name: str, outcome: Outcome, old: Value
    ) -> None:
        schema, size = self._schema, len(value)
        minimum, maximum = schema.get("minProperties"), schema.get("maxProperties")
        if minimum is not None and size < minimum:
            outcome.add(_fault(name, size, f"should have at least {minimum} properties"))
        if maximum is not None and size > maximum:
            text = f"{name} {_BODY} should have at most {maximum} properties"
            outcome.add(Fault(text, name, too_many("", size, maximum)))
        before = old if isinstance(old, dict) else _NOTHING
        for key, each in value.items():
            if key in self._properties:
                continue
            if self._extra_forbidden:
                text = f"{name}.{key} {_BODY} is a forbidden property"
                outcome.add(Fault(text, name, invalid("", key, text)))
            elif self._extra is not None:
                outcome.merge(self._extra.check(each, f"{name}.{key}", before.get(key, NEW)))
        for key, property_ in self._properties.items():
            if key in value:
                inner = f"{name}.{key}" if name else key
                outcome.merge(property_.check(value[key], inner, before.get(key, NEW)))
        for key in schema.get("required") or ():
            if key not in value:
                inner = f"{name}.{key}"
                outcome.add(Fault(f"{inner} {_BODY} is required", inner, required("")))


def same_json(one: Value, other: Value) -> bool:
    """Return whether two values are deeply equal in type and content."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same_json(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def _is_choice(value: Value, choice: Value) -> bool:
    if choice is None or value is None:
        return False
    if isinstance(choice, int) and isinstance(value, float) and not isinstance(choice, bool):
        # Go truncates decimals before it compares.
        return math.isfinite(value) and int(value) == choice
    if isinstance(choice, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value) == choice
    return same_json(value, choice)


def _type_of(value: Value) -> tuple[str, str]:
    """Return the type and the format of a non-null value."""
    if isinstance(value, str):
        return "string", ""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, int):
        is_small = _INT64_MIN <= value <= _INT64_MAX
        return ("integer", "int64") if is_small else ("number", "float64")
    if isinstance(value, float):
        return "number", "float64"
    return ("array", "") if isinstance(value, list) else ("object", "")


def _is_whole(number: float) -> bool:
    if not math.isfinite(number) or abs(number) > _JSON_INTEGER_MAX:
        return False
    whole = float(math.trunc(number))
    if number == whole:
        return True
    return whole != 0 and abs(number - whole) / (abs(number) + abs(whole)) < _WHOLE_ENOUGH


def _check_multiple(value: float, factor: float, name: str, outcome: Outcome) -> None:
    if factor <= 0:
        text = f"factor MultipleOf declared for {name} must be positive: {_text_of(factor)}"
        outcome.add(Fault(text, name, invalid("", factor, text)))
        return
    if isinstance(value, int) and isinstance(factor, int):
        is_multiple = value % factor == 0
    else:
        is_multiple = _is_whole(1 / factor * value if factor < 1 else value / factor)
    if not is_multiple:
        outcome.add(_fault(name, value, f"should be a multiple of {_text_of(factor)}"))


def _text_of(number: float) -> str:
    return str(number) if isinstance(number, int) else format_float(number)


def _fault(name: str, value: Value, words: str) -> Fault:
    text = f"{name} {_BODY} {words}"
    return Fault(text, name, invalid("", value, text))


def _wrong_type(name: str, expected: str, found: str) -> Fault:
    text = f"{name} {_BODY} must be of type {expected}: {quote(found)}"
    return Fault(text, name, type_invalid("", found, text))


def _general(text: str) -> Fault:
    """Return an error of the whole value."""
    return Fault(text, "", invalid("", "", text))
