"""CEL rules of custom resources.

    rules = RuleChecks(schema)
    rules.errors(obj, None, warnings)     a new object
    rules.errors(new, old, warnings)      an update: transition rules (`oldSelf`) apply, too

Rules are compiled for the first object, and evaluated in schema order, outer ones first. Unchanged
values may break rules without `oldSelf`; the client is then warned. All rules of an object share
one cost budget.
"""

from collections.abc import Iterator
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, NoReturn

from kvstack.apimachinery.objects.field_errors import (
    DUPLICATE,
    FORBIDDEN,
    NO_PATH,
    NOT_SUPPORTED,
    OMITTED,
    REQUIRED,
    TOO_LONG,
    TOO_MANY,
    TYPE_INVALID,
    FieldError,
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    required,
)
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.apiextensions.customresourcedefinitions.schemas import PathError, find_field
from kvstack.apiserver.apiextensions.customresources.rule_times import COMPILED, EVALUATED, timed
from kvstack.cel.errors import CostError, EvaluationError
from kvstack.cel.programs import Outcome
from kvstack.cel.schemas.declared import Declared, Schema, declare
from kvstack.cel.schemas.names import escaped
from kvstack.cel.schemas.rules import (
    OLD_SELF,
    SELF,
    CompiledText,
    compile_message,
    compile_rule,
)
from kvstack.cel.values import NONE, Optional
from kvstack.component.metrics.histograms import NANOSECOND_S

OBJECT_MAX: Final = 10_000_000
"""Cost limit of all rules for one object."""
_MESSAGE_MAX: Final = 5 * 1024
_RULES: Final = "x-kubernetes-validations"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_BLOCKING: Final = frozenset((NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID))
_NOT_CHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing"
    " errors to complete validation"
)
_NO_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


def has_rules(schema: Schema | None) -> bool:
    """Return whether a schema has rules."""
    if not schema:
        return False
    if schema.get(_RULES):
        return True
    inner = [schema.get("items"), schema.get("additionalProperties")]
    inner += (schema.get("properties") or {}).values()
    return any(has_rules(each) for each in inner if isinstance(each, dict))


class _Rule(NamedTuple):
    compiled: CompiledText
    message: CompiledText
    text: str
    """The rule as in errors."""
    given: dict[str, Any]
    field: str
    """Field of the error, below the value; empty: the value itself."""


class _Node:
    """The rules of one schema and its subschemas."""

    __slots__ = ("all_of", "declared", "extra", "items", "properties", "rules", "schema", "type")

    def __init__(self, schema: Schema, declared: Declared | None) -> None:
        self.schema = schema
        self.declared = declared
        self.type: str = schema.get("type", "")
        self.rules: list[_Rule] = []
        self.items: _Node | None = None
        self.extra: _Node | None = None
        self.properties: dict[str, _Node] = {}
        self.all_of: list[_Node] = []

    @property
    def is_empty(self) -> bool:
        return not (self.rules or self.items or self.extra or self.properties or self.all_of)


class RuleChecks:
    """The rules of a schema."""

    def __init__(self, schema: Schema, *, is_resource: bool = True) -> None:
        """schema: of objects, with rules."""
        self._schema: Final = schema
        self._is_resource: Final = is_resource
        self._root: _Node | None = None

    def errors(
        self,
        obj: Any,  # noqa: ANN401
        old: Any,  # noqa: ANN401
        warnings: list[str],
        *,
        errors_before: list[FieldError] | None = None,
        path: str = "",
        is_ratcheting: bool = True,
    ) -> list[FieldError]:
        """Return the violations; old: None for a new object.

        warnings: receives existing violations, if is_ratcheting. errors_before: the other
        errors.
        """
        if any(each.reason in _BLOCKING for each in errors_before or ()):
            return [invalid(NO_PATH, None, _NOT_CHECKED)]
        root = self._root
        if root is None:
            with timed(COMPILED):
                declared = declare(self._schema, is_resource=self._is_resource)
                root = _build(self._schema, self._schema, declared) or _Node(self._schema, None)
            self._root = root
        if root.is_empty:
            return []
        check = _Check(warnings)
        is_new = old is None or not is_ratcheting
        correlation = None if is_new else _Correlation(obj, old, self._schema)
        began = perf_counter_ns()
        check.visit(root, path, obj, old, correlation, None)
        EVALUATED.add((perf_counter_ns() - began) * NANOSECOND_S)
        return check.errors


def _build(rules: Schema, schema: Schema, declared: Declared | None) -> "_Node | None":
    """Return the compiled rules of a schema; schema: declares the values, rules: has the rules."""
    node = _Node(schema, declared)
    if declared is not None:
        node.rules = list(_compiled(rules, schema, declared))
    items, inner = rules.get("items"), schema.get("items")
    if isinstance(items, dict) and isinstance(inner, dict):
        node.items = _build(items, inner, None if declared is None else declared.items)
    for name, each in (rules.get("properties") or {}).items():
        field = (schema.get("properties") or {}).get(name)
        below = None if field is None else _declared_field(declared, name, field)
        child_node = None if field is None or below is None else _build(each, field, below)
        if child_node is not None:
            node.properties[name] = child_node
    extra, inner = rules.get("additionalProperties"), schema.get("additionalProperties")
    if isinstance(extra, dict) and isinstance(inner, dict):
        node.extra = _build(extra, inner, None if declared is None else declared.items)
    for each in rules.get("allOf") or ():
        child_node = _build(each, schema, declared)
        if child_node is not None:
            node.all_of.append(child_node)
    return None if node.is_empty else node


def _declared_field(declared: Declared | None, name: str, schema: Schema) -> Declared | None:
    spelled = escaped(name)
    if spelled is None:
        return declare(schema, is_resource=bool(schema.get(_EMBEDDED)))
    return None if declared is None else (declared.fields or {}).get(spelled)


def _compiled(rules: Schema, schema: Schema, declared: Declared) -> Iterator[_Rule]:
    for given in rules.get(_RULES) or ():
        compiled = compile_rule(declared, given, is_stored=True)
        if compiled.program is None and not compiled.problem:
            continue
        message = compile_message(declared, given, is_stored=True)
        text = (given.get("message") or given.get("rule", "")).strip()
        yield _Rule(compiled, message, text, given, _field_of(given, schema))


def _field_of(given: dict[str, Any], schema: Schema) -> str:
    try:
        return find_field(given["fieldPath"], schema).path if given.get("fieldPath") else ""
    except PathError:
        return ""


class _Correlation:
    """A value and the old value that it replaces."""

    __slots__ = ("_is_same", "new", "old", "schema")

    def __init__(self, new: Any, old: Any, schema: Schema) -> None:  # noqa: ANN401
        self.new = new
        self.old = old
        self.schema = schema
        self._is_same: bool | None = None

    @property
    def is_same(self) -> bool:
        """Whether nothing changed; the order of map lists does not count."""
        if self._is_same is None:
            self._is_same = _same(self.new, self.old, self.schema)
        return self._is_same

    def member(self, name: str) -> "_Correlation | None":
        new, old = self.new, self.old
        if not isinstance(new, dict) or not isinstance(old, dict):
            return None
        if name not in new or name not in old:
            return None
        schema = _member_schema(self.schema, name)
        return None if schema is None else _Correlation(new[name], old[name], schema)

    def item(self, item: Any) -> "_Correlation | None":  # noqa: ANN401
        found = _keyed(self.old, self.schema).get(_key(item, self.schema))
        items = self.schema.get("items")
        if found is None or not isinstance(items, dict):
            return None
        return _Correlation(item, found, items)


def _member_schema(schema: Schema, name: str) -> Schema | None:
    found: Schema | None = (schema.get("properties") or {}).get(name)
    if found is None and isinstance(schema.get("additionalProperties"), dict):
        found = schema["additionalProperties"]
    return found


def _same(new: Any, old: Any, schema: Schema) -> bool:  # noqa: ANN401
    if isinstance(new, dict) and isinstance(old, dict):
        if len(new) != len(old):
            return False
        for name, value in new.items():
            inner = _member_schema(schema, name)
            if inner is None or name not in old or not _same(value, old[name], inner):
                return False
        return True
    if isinstance(new, list) and isinstance(old, list):
        if schema.get("x-kubernetes-list-type") != "map":
            return json_text.equal(new, old)
        known, inner = _keyed(old, schema), schema.get("items") or {}
        return len(new) == len(old) and all(
            (found := known.get(_key(each, schema))) is not None and _same(each, found, inner)
            for each in new
        )
    return json_text.equal(new, old)


def _key(item: Any, schema: Schema) -> tuple[Any, ...]:  # noqa: ANN401
    if not isinstance(item, dict):
        return ()
    names = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple((type(item.get(each)), json_text.write(item.get(each))) for each in names)


def _keyed(items: Any, schema: Schema) -> dict[tuple[Any, ...], Any]:  # noqa: ANN401
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(items, list):
        return {}
    return {_key(each, schema): each for each in reversed(items)}


class _OutOfBudgetError(Exception):
    """The budget is exhausted; no further rules are evaluated."""


class _Check:
    """The check of one object."""

    def __init__(self, warnings: list[str]) -> None:
        self.errors: list[FieldError] = []
        self._warnings = warnings
        self._left = OBJECT_MAX

    def visit(
        self,
        node: _Node,
        path: str,
        value: Any,  # noqa: ANN401
        old: Any,  # noqa: ANN401
        correlation: _Correlation | None,
        parent: _Correlation | None,
    ) -> None:
        """Check a value and those within it; parent: the nearest value with an old value."""
        with suppress(_OutOfBudgetError):
            self._visit(node, path, value, old, correlation, parent)

    def _visit(
        self,
        node: _Node,
        path: str,
        value: Any,  # noqa: ANN401
        old: Any,  # noqa: ANN401
        correlation: _Correlation | None,
        parent: _Correlation | None,
    ) -> None:
        if value is None:
            return
        if node.rules:
            nearest = correlation or parent
            self._run_all(node, path, value, old, nearest)
        for each in node.all_of:
            self._visit(each, path, value, old, None, parent)
        if isinstance(value, dict):
            self._visit_members(node, path, value, old, correlation, parent)
        elif isinstance(value, list) and node.items is not None:
            known = _keyed(old, node.schema)
            for position, each in enumerate(value):
                inner = parent if correlation is None else correlation
                found = None if correlation is None else correlation.item(each)
                before = known.get(_key(each, node.schema)) if known else None
                self._visit(node.items, index(path, position), each, before, found, inner)

    def _visit_members(
        self,
        node: _Node,
        path: str,
        value: dict[str, Any],
        old: Any,  # noqa: ANN401
        correlation: _Correlation | None,
        parent: _Correlation | None,
    ) -> None:
        old_members = old if isinstance(old, dict) else {}
        inner = parent if correlation is None else correlation
        for name, each in value.items():
            below = node.extra or node.properties.get(name)
            if below is None:
                continue
            where = key(path, name) if node.extra is not None else child(path, name)
            found = None if correlation is None else correlation.member(name)
            self._visit(below, where, each, old_members.get(name), found, inner)

    def _run_all(
        self,
        node: _Node,
        path: str,
        value: Any,  # noqa: ANN401
        old: Any,  # noqa: ANN401
        nearest: _Correlation | None,
    ) -> None:
        assert node.declared is not None
        if self._left <= 0:
            self._stop(path, node, _NO_BUDGET)
        wrapped = node.declared.value
        bindings: dict[str, Any] | None = None
        for rule in node.rules:
            if rule.compiled.problem:
                text = f"rule compile error: {rule.compiled.problem}"
                self.errors.append(invalid(path or NO_PATH, node.type, text))
                continue
            is_optional = bool(rule.given.get("optionalOldSelf"))
            if rule.compiled.uses_old_self and old is None and not is_optional:
                continue
            try:
                if bindings is None:
                    bindings = {SELF: wrapped(value)}
                if rule.compiled.uses_old_self or rule.message.uses_old_self:
                    before = None if old is None else wrapped(old)
                    if is_optional:
                        before = NONE if old is None else Optional(before)
                    bindings[OLD_SELF] = before
                self._run(node, rule, path, value, bindings, nearest)
            except EvaluationError as error:
                self._failed(node, rule, path, error)

    def _run(
        self,
        node: _Node,
        rule: _Rule,
        path: str,
        value: Any,  # noqa: ANN401
        bindings: dict[str, Any],
        nearest: _Correlation | None,
    ) -> None:
        assert rule.compiled.program is not None
        outcome = rule.compiled.program.evaluate(bindings)
        self._spend(outcome, node, path)
        if outcome.value is True:
            return
        where = child(path, rule.field) if rule.field else path
        detail = self._message(rule, bindings, where, node)
        shown = OMITTED if node.type in {"object", "array"} else value
        error = _error(where or NO_PATH, shown, detail, rule.given.get("reason"))
        if not rule.compiled.uses_old_self and nearest is not None and nearest.is_same:
            self._warnings.append(str(error))
        else:
            self.errors.append(error)

    def _failed(self, node: _Node, rule: _Rule, path: str, error: EvaluationError) -> None:
        text, where = str(error), path or NO_PATH
        if isinstance(error, CostError):
            message = (
                "no further validation rules will be run due to call cost exceeds limit for rule"
            )
            self._stop(path, node, f"'{text}': {message}: {rule.text}")
        if text.startswith("no such overload"):
            message = (
                "call arguments did not match a supported operator, function or macro signature"
                " for rule"
            )
            self.errors.append(invalid(where, node.type, f"'{text}': {message}: {rule.text}"))
        else:
            self.errors.append(invalid(where, node.type, f"{text} evaluating rule: {rule.text}"))

    def _message(self, rule: _Rule, bindings: dict[str, Any], path: str, node: _Node) -> str:
        """Return the message of a violation."""
        if rule.message.program is not None:
            text = self._evaluated(rule, bindings, path, node)
            if text and len(text.encode()) <= _MESSAGE_MAX and "\n" not in text:
                return text
        message: str = rule.given.get("message") or ""
        return message.strip() if message else f"failed rule: {rule.text}"

    def _evaluated(self, rule: _Rule, bindings: dict[str, Any], path: str, node: _Node) -> str:
        assert rule.message.program is not None
        expression_text = rule.given.get("messageExpression", "")
        try:
            outcome = rule.message.program.evaluate(bindings)
        except CostError:
            text = (
                "no further validation rules will be run due to call cost exceeds limit for"
                f" messageExpression: {quote(expression_text)}"
            )
            self._stop(path, node, text)
        except EvaluationError:
            return ""  # the rule's message is used instead
        if outcome.cost > self._left:
            text = (
                "messageExpression evaluation failed due to running out of cost budget, no further"
                " validation rules will be run"
            )
            self._stop(path, node, text)
        self._left -= outcome.cost
        return str(outcome.value).strip()

    def _spend(self, outcome: Outcome, node: _Node, path: str) -> None:
        if outcome.cost > self._left:
            self._stop(path, node, _NO_BUDGET)
        self._left -= outcome.cost

    def _stop(self, path: str, node: _Node, text: str) -> NoReturn:
        self.errors.append(invalid(path or NO_PATH, node.type, text))
        raise _OutOfBudgetError


def _error(path: str, value: object, detail: str, reason: str | None) -> FieldError:
    if reason == FORBIDDEN:
        return forbidden(path, detail)
    if reason == REQUIRED:
        return required(path, detail)
    if reason == DUPLICATE:
        return duplicate(path, value)
    return invalid(path, value, detail)
