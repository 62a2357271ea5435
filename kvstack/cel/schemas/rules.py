"""Rules of schemas, compiled.

compiled = compile_rule(declared, {"rule": "self.a > 1"}, is_stored=False)
compiled.program, compiled.cost     or compiled.problem   "compilation failed: …"
"""

from functools import lru_cache
from typing import Any, Final, NamedTuple

from kvstack.cel.checker.estimates import estimate
from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import BOOL, STRING, Type, optional_of
from kvstack.cel.errors import CompileError
from kvstack.cel.evaluation.plan import PlanError
from kvstack.cel.library.table import COMPATIBLE, WITHOUT_PATCHES
from kvstack.cel.programs import Program, check_expression, program_of
from kvstack.cel.schemas.declared import Declared
from kvstack.cel.syntax.nodes import Ident, Node, walk

SELF: Final = "self"
OLD_SELF: Final = "oldSelf"


class CompiledText(NamedTuple):
    """One expression of a rule."""

    program: Program | None = None
    problem: str = ""
    cost: int = 0
    """The most that it may cost for one value."""
    uses_old_self: bool = False


def compile_rule(declared: Declared, rule: dict[str, Any], *, is_stored: bool) -> CompiledText:
    """Return the compiled rule; with neither program nor problem: it is empty."""
    text = rule.get("rule", "")
    if not text.strip():
        return CompiledText()
    scope = _scope(declared, is_stored=is_stored, is_optional=bool(rule.get("optionalOldSelf")))
    return _compiled(declared, scope, text, BOOL, "", "cel expression must evaluate to a bool")


def compile_message(declared: Declared, rule: dict[str, Any], *, is_stored: bool) -> CompiledText:
    """Return the compiled expression that makes the message of a rule."""
    text = rule.get("messageExpression", "")
    if not text:
        return CompiledText()
    scope = _scope(declared, is_stored=is_stored, is_optional=bool(rule.get("optionalOldSelf")))
    told = "messageExpression must evaluate to a string"
    return _compiled(declared, scope, text, STRING, "messageExpression ", told)


def _compiled(
    declared: Declared, scope: Scope, text: str, expected: Type, prefix: str, wrong: str
) -> CompiledText:
    try:
        checked = check_expression(text, scope)
    except CompileError as error:
        return CompiledText(problem=f"{prefix}compilation failed: {error}")
    if checked.type is not expected:
        return CompiledText(problem=wrong)
    try:
        program = program_of(checked, scope)
    except PlanError as error:
        told = f"{prefix}instantiation" if prefix else "program instantiation"
        return CompiledText(problem=f"{told} failed: {error}")
    cost = estimate(checked.root, declared.sizes).max
    return CompiledText(program, "", cost, _uses(checked.root, OLD_SELF))


def _uses(root: Node, name: str) -> bool:
    return any(isinstance(each, Ident) and each.name == name for each in walk(root))


@lru_cache(maxsize=256)
def _scope(declared: Declared, *, is_stored: bool, is_optional: bool) -> Scope:
    old = optional_of(declared.type) if is_optional else declared.type
    return Scope(
        functions=WITHOUT_PATCHES if is_stored else COMPATIBLE,
        variables={SELF: declared.type, OLD_SELF: old},
        structs=declared.structs(),
    )
