"""Expressions from text to value: what they cost, and that they end."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.cel.checker.scope import Scope
from kvstack.cel.checker.types import DYN
from kvstack.cel.errors import CompileError, CostError, EvaluationError
from kvstack.cel.evaluation.plan import PlanError
from kvstack.cel.library.table import COMPATIBLE
from kvstack.cel.programs import compile_expression

SCOPE = Scope(functions=COMPATIBLE, variables={"a": DYN, "b": DYN})
LIMIT = 100_000


def value(text: str, **bindings: Any) -> Any:
    """Return the value of an expression."""
    return compile_expression(text, SCOPE).evaluate(bindings).value


@pytest.mark.parametrize(
    "text",
    [
        "1 + 2 * 3 == 7 && -7 / 2 == -3 && -7 % 2 == -1",
        "dyn(1) == 1.0 && dyn(1u) == 1 && 1 < 1.5",
        "'a' in {'a': 1} && dyn(2) in [1.0, 2.0]",
        "false && 1 / 0 == 1 ? false : true",
        "(1 / 0 == 1 || true) && !(1 / 0 == 1 && false)",
        "[1, 2, 3].all(x, x > 0) && [1, 2].exists_one(x, x == 2)",
        "[1, 2].map(x, x > 1, x * 2) == [4] && {'a': 1}.filter(k, k == 'a') == ['a']",
        "{'a': 1}.transformMap(k, v, v + 1) == {'a': 2}",
        "has({'a': 1}.a) && !has({'a': 1}.b)",
        "{'a': 1}[?'b'].orValue(2) == 2 && [?optional.of(1)] == [1]",
        "'äöü'.size() == 3 && bytes('äöü').size() == 6",
        "timestamp('2024-01-31T00:00:00Z') + duration('24h') == timestamp('2024-02-01T00:00:00Z')",
        "quantity('1500m').isGreaterThan(quantity('1')) && ip('::1').isLoopback()",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && semver('1.2.3').isLessThan(semver('2.0.0'))",
        "'abc'.matches('^a.c$') && 'a1b2'.findAll('[0-9]') == ['1', '2']",
        "[1, 2, 3].sum() == 6",
        "url('https://h:1/p?q=1').getHost() == 'h:1'",
        "type(1) == int",
    ],
)
def test_truths(text: str) -> None:
    assert value(text) is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("[1][5]", "index out of bounds: 5"),
        ("{'a': 1}['b']", "no such key: b"),
        ("a.b", "no such key: b"),
        ("'x' in a ? 1 : int(b)", "type conversion error"),
        ("string(b ? null : b)", "no such overload"),
        ("duration('1h') > null", "no such overload"),
    ],
)
def test_what_goes_wrong_is_reported(text: str, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        value(f"dyn({text}) == 1", a={}, b="x")


@pytest.mark.parametrize(
    "text",
    [
        "a.all(x, a.all(y, a.all(z, x + y + z >= 0)))",
        "a.map(x, a.map(y, a.map(z, b + b + b))).size() > 0",
        "a.exists(x, b.matches('(a*)*c'))",
    ],
)
def test_an_expression_that_costs_too_much_is_stopped(text: str) -> None:
    program = compile_expression(text, SCOPE)
    with pytest.raises(CostError):
        program.evaluate({"a": list(range(200)), "b": "a" * 20_000}, LIMIT)


def test_values_that_double_again_and_again_are_stopped() -> None:
    text = "'ab'"
    for _ in range(12):
        text = f"{text}.replace('', {text})" if len(text) < 4_000 else text
    with pytest.raises((EvaluationError, CompileError)):
        value(f"{text} == 'x'")


def test_a_program_is_used_many_times() -> None:
    program = compile_expression("a.filter(x, x > b).size()", SCOPE)
    assert program.evaluate({"a": [1, 2, 3], "b": 1}).value == 2
    assert program.evaluate({"a": [1], "b": 1}).value == 0
    assert program.evaluate({"a": [], "b": 1}).cost < program.evaluate({"a": [1, 2], "b": 1}).cost


ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "a.b",
        "b.a",
        "1",
        "-1",
        "2u",
        "1.5",
        "'x'",
        "b'x'",
        "true",
        "false",
        "null",
        "[]",
        "{}",
        "[1,'a']",
        "{'k':[1]}",
        "duration('1h')",
        "timestamp('2024-01-01T00:00:00Z')",
        "type(1)",
        "optional.none()",
        "optional.of(1)",
        "quantity('1Gi')",
        "ip('1.2.3.4')",
        "semver('1.0.0')",
    ]
)
FORMS = st.sampled_from(
    (
        "({0} + {1})",
        "({0} - {1})",
        "({0} * {1})",
        "({0} / {1})",
        "({0} % {1})",
        "({0} == {1})",
        "({0} < {1})",
        "({0} in {1})",
        "({0} && {1})",
        "({0} || {1})",
        "({0} ? {1} : {0})",
        "{0}[{1}]",
        "{0}[?{1}]",
        "[{0}, {1}]",
        "{{{0}: {1}}}",
        "{0}.all(x, x == {1})",
        "{0}.map(x, [x, {1}])",
        "{0}.exists_one(x, {1})",
        "{0}.transformList(i, v, {1})",
        "size({0})",
        "int({0})",
        "uint({0})",
        "double({0})",
        "string({0})",
        "bytes({0})",
        "dyn({0})",
        "{0}.contains({1})",
        "{0}.matches({1})",
        "{0}.split({1})",
        "{0}.join({1})",
        "{0}.replace({1}, {0})",
        "{0}.indexOf({1})",
        "{0}.sum()",
        "{0}.min()",
        "{0}.getFullYear()",
        "{0}.format([{1}])",
        "sets.contains({0}, {1})",
        "math.greatest({0}, {1})",
        "{0}.add({1})",
        "{0}.orValue({1})",
        "has({0}.b)",
    )
)


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> str:
    """Return the text of an expression, of whatever type."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(ATOMS)
    left, right = (draw(expressions(depth - 1)) for _ in range(2))
    return draw(FORMS).format(f"dyn({left})" if draw(st.booleans()) else left, right)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text("ab1", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=1), inner),
    max_leaves=8,
)


@settings(max_examples=250, deadline=None)
@given(expressions(), JSON, JSON)
def test_evaluation_gives_a_value_or_says_what_is_wrong(text: str, a: Any, b: Any) -> None:
    try:
        program = compile_expression(text, SCOPE)
    except (CompileError, PlanError):
        return
    try:
        found = program.evaluate({"a": a, "b": b}, LIMIT)
    except EvaluationError:
        return
    assert 0 <= found.cost <= LIMIT
    again = program.evaluate({"a": a, "b": b}, LIMIT)
    assert again.cost == found.cost


@settings(max_examples=150, deadline=None)
@given(st.text("ab.()[]{}?:!&|<>=+-*/%'\"\\ \n,01ex_`", max_size=20))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    with suppress(CompileError, PlanError):
        compile_expression(text, SCOPE)
