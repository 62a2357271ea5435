"""docs/surface.md: nothing of etcd's is left out, and evidence names tests that exist."""

import ast
from pathlib import Path

import pytest

from kvstore.config.flags import BY_NAME, GATES_WITHOUT_EFFECT, Effect
from tests.surface.evidence import ABSENT, DIFFERS, EVIDENCE
from tests.surface.items import all_items
from tests.surface.table import DOCS, outcome_of, table, unproven

TESTS = Path(__file__).parents[1]
ITEMS = [item for items in all_items().values() for item in items]


def test_every_item_is_proven_or_explained() -> None:
    assert len(ITEMS) == len(set(ITEMS))
    assert [item for item in ITEMS if item not in EVIDENCE and item not in ABSENT] == []


def test_nothing_is_said_of_what_there_is_not() -> None:
    assert (EVIDENCE.keys() | ABSENT.keys() | DIFFERS.keys()) <= set(ITEMS)
    assert not ABSENT.keys() & EVIDENCE.keys()
    assert DIFFERS.keys() <= EVIDENCE.keys()


def test_what_has_no_effect_is_what_the_log_calls_so() -> None:
    flags = {f"flag:{name}" for name, flag in BY_NAME.items() if flag.effect is Effect.IGNORED}
    gates = {f"gate:{name}" for name in GATES_WITHOUT_EFFECT}
    assert flags | gates == {item for item in ABSENT if item.startswith(("flag:", "gate:"))}


@pytest.mark.parametrize("test", sorted({test for tests in EVIDENCE.values() for test in tests}))
def test_the_evidence_exists(test: str) -> None:
    file, _, function = test.partition("::")
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    functions = {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
    assert not function or function in functions


def test_the_document_is_up_to_date() -> None:
    assert DOCS.read_text(encoding="utf-8") == table(), "run `make surface`"


def test_a_test_that_failed_or_did_not_run_proves_nothing() -> None:
    (test,) = EVIDENCE["flag:max-wals"]
    name = f"tests/{test}"
    assert outcome_of(test, {}) == "did not run"
    assert outcome_of(test, {name: "failed"}) == "failed"
    assert outcome_of(test, {name: "passed"}) == "passed"
    assert outcome_of("a.py", {"tests/a.py::x": "passed", "tests/a.py::y": "failed"}) == "failed"
    assert outcome_of("a.py", {"tests/a.py::x": "skipped", "tests/a.py::y": "passed"}) == "passed"
    assert f"flag:max-wals: {test}: skipped" in unproven({name: "skipped"})
