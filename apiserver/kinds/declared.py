"""Declarative validation: rules that the types of a version declare.

    RULES = {
        "io.k8s.api.rbac.v1.PolicyRule": {"verbs": Declared(is_required=True)},
        "io.k8s.api.resource.v1.CounterSet": {"name": Declared(is_required=True)},
    }
    declared = DeclaredRules(RULES)
    declared.merge(errors, new, old, "io.k8s.api.rbac.v1.Role")

A table has the fields with rules; the schema gives the paths to them, through structs, lists and
maps. On an update unchanged values are not checked again. Errors of declared rules come after all
others. Where a kind has the same check with another text, its error is marked `covered` and
dropped, unless the declared rule was not evaluated.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    required,
    too_many,
)
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.schema.decode import normalize
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.schema.types import Field, Shape, Type
from kvstack.apiserver.kinds.equality import same_of

Value = Any
"""A JSON value of a type; None: absent."""
Check = Callable[[Value, str], list[FieldError]]
"""(value, its path): returns the errors of the value."""

MODIFIED = "field cannot be modified once set"


@dataclass(slots=True, frozen=True, kw_only=True)
class Declared:
    """The rules of one field, in order of evaluation."""

    is_immutable: bool = False
    is_required: bool = False
    max_items: int | None = None
    is_set_once: bool = False
    """Whether it may be set and removed but not changed."""
    then: Sequence[Check] = ()
    identity: tuple[str, ...] | None = None
    """Identity of list items without duplicates: their key fields; empty: the whole item."""
    is_unique: bool = True
    """Whether duplicates are errors; otherwise the identity only matches old items."""
    items: Sequence[Check] = ()
    """Checks of each item of a list of texts, or of each value of a map."""
    keys: Sequence[Check] = ()
    """Checks of each key of a map; reported at the path of the map."""


@dataclass(slots=True, frozen=True, kw_only=True)
class OneOf:
    """Requires exactly one of some fields of a struct."""

    fields: tuple[str, ...]


@dataclass(slots=True, frozen=True, kw_only=True)
class Member:
    """Allows a field only if another has a certain value."""

    field: str
    when: str
    """The other field."""
    value: str
    is_required: bool = False
    """Whether it is required then."""


Rules = Mapping[str, Mapping[str, Declared]]
"""Rules by type name and JSON field name."""
_NO_RULES = Declared()


class _Old(NamedTuple):
    """The old value; not `is_known`: there is none to compare with."""

    is_known: bool
    value: Value


_NEW = _Old(is_known=False, value=None)


@dataclass(slots=True)
class _Member:
    """A field with rules, or with rules below it."""

    field: Field
    rules: Declared
    plan: "_Plan | None"
    """The plan of the struct in the field, or of the structs in its list or map."""


@dataclass(slots=True)
class _Plan:
    """The fields of a struct to be checked."""

    choices: Sequence[OneOf | Member] = ()
    members: list[_Member] = field(default_factory=list)


class DeclaredRules:
    """The declared rules of some types."""

    def __init__(
        self, rules: Rules, choices: Mapping[str, Sequence[OneOf | Member]] | None = None
    ) -> None:
        """choices: rules of structs, by type name."""
        self._rules = rules
        self._choices = choices or {}
        self._plans: dict[str, _Plan | None] = {}

    def merge(
        self, errors: list[FieldError], new: Value, old: Value | None, type_name: str
    ) -> list[FieldError]:
        """Return the errors of a kind, followed by those of the declared rules.

        old: the old object, None for a create.
        """
        declared = self.errors(new, old, type_name)
        if not declared:
            return errors
        declared_keys = {(each.reason, each.field) for each in declared}
        kept = [
            each
            for each in errors
            if not (each.covered and (each.reason, each.field) in declared_keys)
        ]
        return kept + declared

    def errors(self, new: Value, old: Value | None, type_name: str) -> list[FieldError]:
        """Return the errors of the declared rules alone."""
        plan = self._plan(built_in_types()[type_name])
        errors: list[FieldError] = []
        if plan is not None:
            was = _NEW if old is None else _Old(is_known=True, value=old)
            _check_struct(plan, new, was, "", errors, is_update=old is not None)
        return errors

    def _plan(self, type_: Type) -> _Plan | None:
        """Return the plan of a struct; None: there are no rules."""
        if type_.name in self._plans:
            return self._plans[type_.name]
        # A recursive type has no rules below itself.
        self._plans[type_.name] = None
        plan = _Plan(self._choices.get(type_.name, ()))
        rules = self._rules.get(type_.name, {})
        for each in type_.fields.values():
            inner = _struct_of(each.type)
            below = None if inner is None else self._plan(inner)
            if each.name in rules or below is not None:
                plan.members.append(_Member(each, rules.get(each.name, _NO_RULES), below))
        found = plan if plan.members or plan.choices else None
        self._plans[type_.name] = found
        return found


def _struct_of(type_: Type) -> Type | None:
    """Return the struct of a type, or of its list or map."""
    if type_.shape in {Shape.LIST, Shape.MAP} and type_.element is not None:
        type_ = type_.element
    return type_ if type_.shape is Shape.STRUCT else None


def _check_struct(
    plan: _Plan, new: Value, old: _Old, path: str, errors: list[FieldError], *, is_update: bool
) -> None:
    for choice in plan.choices:
        if isinstance(choice, OneOf):
            errors.extend(_one_of_errors(choice, new, old, path))
        else:
            errors.extend(_member_errors(choice, new, old, path))
    for member in plan.members:
        name = member.field.name
        value = new.get(name)
        was = _Old(is_known=True, value=(old.value or {}).get(name)) if old.is_known else _NEW
        if is_update and was.is_known and same_of(value, was.value, member.field.type):
            continue
        _check_member(member, value, was, child(path, name), errors, is_update=is_update)


def _check_member(
    member: _Member,
    value: Value,
    old: _Old,
    path: str,
    errors: list[FieldError],
    *,
    is_update: bool,
) -> None:
    rules, field_ = member.rules, member.field
    if rules.is_immutable and is_update:
        errors.append(invalid(path, None, IMMUTABLE))
        return
    is_struct = field_.type.shape is Shape.STRUCT
    if value is None if field_.is_pointer else not value and not is_struct:
        if rules.is_required:
            errors.append(required(path))
        return
    if rules.is_set_once and old.value is not None:
        errors.append(invalid(path, None, MODIFIED))
        return
    if rules.max_items is not None and len(value) > rules.max_items:
        errors.append(too_many(path, len(value), rules.max_items))
        return
    for check in rules.then:
        errors.extend(check(value, path))
    if field_.type.shape is Shape.LIST:
        _check_list(member, value, old, path, errors, is_update=is_update)
    elif field_.type.shape is Shape.MAP:
        _check_map(member, value, old, path, errors, is_update=is_update)
    elif member.plan is not None:
        _check_struct(member.plan, value or {}, old, path, errors, is_update=is_update)


def _check_list(
    member: _Member,
    items: list[Value],
    old: _Old,
    path: str,
    errors: list[FieldError],
    *,
    is_update: bool,
) -> None:
    rules, element = member.rules, member.field.type.element
    assert element is not None
    if rules.identity is not None and rules.is_unique:
        errors.extend(_repeated(items, rules.identity, path, element))
    if member.plan is None and not rules.items:
        return
    before: dict[Value, Value] = {}
    if rules.identity is not None and is_update:
        for each in reversed(old.value or ()):
            before[_identity(each, rules.identity)] = each
    for position, item in enumerate(items):
        was = _NEW
        if before:
            name = _identity(item, rules.identity or ())
            if name in before:
                if same_of(item, before[name], element):
                    continue
                was = _Old(is_known=True, value=before[name])
        _check_item(member, item, was, index(path, position), errors, is_update=is_update)


def _check_map(
    member: _Member,
    values: dict[str, Value],
    old: _Old,
    path: str,
    errors: list[FieldError],
    *,
    is_update: bool,
) -> None:
    rules, element = member.rules, member.field.type.element
    assert element is not None
    before: dict[str, Value] = (old.value or {}) if is_update else {}
    for check in rules.keys:
        for name in values:
            if name not in before:
                errors.extend(check(name, path))
    if member.plan is None and not rules.items:
        return
    for name, value in values.items():
        was = _NEW
        if name in before:
            if same_of(value, before[name], element):
                continue
            was = _Old(is_known=True, value=before[name])
        _check_item(member, value, was, key(path, name), errors, is_update=is_update)


def _check_item(
    member: _Member, item: Value, old: _Old, path: str, errors: list[FieldError], *, is_update: bool
) -> None:
    for check in member.rules.items:
        errors.extend(check(item, path))
    if member.plan is not None:
        _check_struct(member.plan, item, old, path, errors, is_update=is_update)


def _identity(item: Value, names: tuple[str, ...]) -> Value:
    return tuple(item.get(each) or "" for each in names) if names else item


def _repeated(
    items: list[Value], names: tuple[str, ...], path: str, element: Type
) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[Value] = set()
    for position, item in enumerate(items):
        identity = _identity(item, names)
        if identity in seen:
            shown = normalize(item, element) if element.shape is Shape.STRUCT else item
            errors.append(duplicate(index(path, position), shown))
        seen.add(identity)
    return errors


def _one_of_errors(rule: OneOf, new: Value, old: _Old, path: str) -> list[FieldError]:
    before = old.value or {}
    set_fields = [each for each in rule.fields if _is_set(new, each)]
    if old.is_known and set_fields == [each for each in rule.fields if _is_set(before, each)]:
        return []
    names = ", ".join(f"`{each}`" for each in rule.fields)
    if len(set_fields) > 1:
        found = "{" + ", ".join(set_fields) + "}"
        return [invalid(path, found, f"must specify exactly one of: {names}")]
    return [] if set_fields else [invalid(path, "", f"must specify one of: {names}")]


def _member_errors(rule: Member, new: Value, old: _Old, path: str) -> list[FieldError]:
    names = (rule.when, rule.field)
    value, is_given = new.get(rule.when), new.get(rule.field) is not None
    before = old.value or {}
    if old.is_known and all(new.get(each) == before.get(each) for each in names):
        return []
    where = child(path, rule.field)
    if value != rule.value:
        return [forbidden(where, "")] if is_given else []
    return [required(where)] if rule.is_required and not is_given else []


def _is_set(obj: Value, name: str) -> bool:
    value = obj.get(name)
    return value is not None and value != []
