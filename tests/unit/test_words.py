"""Names are the field's words: those that CONTRIBUTING.md replaces do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "kvstore",
    "kvstack/component",
    "kvstack/apimachinery",
    "kvstack/cel",
    "kvstack/clusters",
    "kvstack/completion",
    "apiserver",
    "agents",
    "bench",
    "packaging",
    "proto",
    "tests",
)
MODULE, CLASS, FUNCTION = "module ", "class ", "function "
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def words() -> list[str]:
    """Return the first column of the table in CONTRIBUTING.md."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("\n### Words\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [word.strip() for row in rows[2:] for word in row.split(",")]


class Name(NamedTuple):
    """A name that sources define."""

    path: str
    text: str
    what: str
    """`module`, `class`, `function`, `parameter` or `attribute`."""


def names() -> Iterator[Name]:
    """Yield the names of modules, classes, functions, parameters and attributes."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "gen" in path.parts:
                continue
            short = str(path.relative_to(ROOT))
            yield Name(short, path.parent.name if path.stem == "__init__" else path.stem, "module")
            for text, what in defined(ast.parse(path.read_bytes())):
                yield Name(short, text, what)


def defined(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield each name that a module's code defines, and what it names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, "class"
            for part in node.body:
                if isinstance(part, ast.AnnAssign | ast.Assign):
                    yield from _attributes(part, ast.Name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, "function"
        elif isinstance(node, ast.arg):
            yield node.arg, "parameter"
        elif isinstance(node, ast.AnnAssign | ast.Assign):
            yield from _attributes(node, ast.Attribute)


def _attributes(
    assignment: ast.AnnAssign | ast.Assign, kind: type[ast.Name | ast.Attribute]
) -> Iterator[tuple[str, str]]:
    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if isinstance(part, kind):
                yield (part.id if isinstance(part, ast.Name) else part.attr), "attribute"


def replaced(text: str, what: str, listed: list[str]) -> bool:
    """Return whether a name has a word of the list."""
    parts = f" {' '.join(_PARTS.findall(text)).lower()} "
    for word in listed:
        if word.startswith(MODULE):
            if what == "module" and text == word.removeprefix(MODULE):
                return True
        elif word.startswith(CLASS):
            if what == "class" and text.strip("_") == word.removeprefix(CLASS).title():
                return True
        elif word.startswith(FUNCTION):
            if what == "function" and text.strip("_") == word.removeprefix(FUNCTION):
                return True
        elif f" {word} " in parts:
            return True
    return False


def test_a_name_with_a_word_of_the_list_is_reported() -> None:
    listed = words()
    assert len(listed) > 20
    assert replaced("PodPlace", "class", listed)
    assert replaced("last_words", "module", listed)
    assert replaced("pod_place", "parameter", listed)
    assert replaced("utils", "module", listed)
    assert not replaced("utils", "function", listed)
    assert not replaced("replace_pod", "function", listed)
    assert replaced("_Found", "class", listed)
    assert not replaced("found", "parameter", listed)
    assert not replaced("FoundPods", "class", listed)
    assert replaced("_told", "function", listed)
    assert replaced("_made", "function", listed)
    assert not replaced("made_by", "function", listed)


def test_the_names_that_a_module_defines() -> None:
    source = """
class Pod:
    name: str
    def bind(self, node, *, at=0):
        self.node, self.at = node, at
        local = lambda it: it
        self.since: int = 1
"""
    assert set(defined(ast.parse(source))) == {
        ("Pod", "class"),
        ("bind", "function"),
        *((text, "parameter") for text in ("self", "node", "at", "it")),
        *((text, "attribute") for text in ("name", "node", "at", "since")),
    }


def test_names_have_no_word_of_the_list() -> None:
    listed = words()
    bad = [f"{it.path} {it.text}" for it in names() if replaced(it.text, it.what, listed)]
    assert not bad, "these names have words that CONTRIBUTING.md replaces"
