"""Names are the field's words: those that CONTRIBUTING.md replaces do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

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
MODULE, CLASS = "module ", "class "
_PARTS = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


def words() -> list[str]:
    """Return the first column of the table in CONTRIBUTING.md."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("\n### Words\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return [word.strip() for row in rows[2:] for word in row.split(",")]


def names() -> Iterator[tuple[str, bool]]:
    """Yield the names of modules, classes and functions, and whether each is a module's."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if "gen" in path.parts:
                continue
            yield path.parent.name if path.stem == "__init__" else path.stem, True
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    yield node.name, False


def replaced(name: str, is_module: bool, listed: list[str]) -> bool:  # noqa: FBT001
    """Return whether a name has a word of the list."""
    parts = f" {' '.join(_PARTS.findall(name)).lower()} "
    for word in listed:
        if word.startswith(MODULE):
            if is_module and name == word.removeprefix(MODULE):
                return True
        elif word.startswith(CLASS):
            if name.strip("_") == word.removeprefix(CLASS).title():
                return True
        elif f" {word} " in parts:
            return True
    return False


def test_a_name_with_a_word_of_the_list_is_reported() -> None:
    listed = words()
    assert len(listed) > 20
    assert replaced("PodPlace", is_module=False, listed=listed)
    assert replaced("last_words", is_module=True, listed=listed)
    assert replaced("utils", is_module=True, listed=listed)
    assert not replaced("utils", is_module=False, listed=listed)
    assert not replaced("replace_pod", is_module=False, listed=listed)
    assert replaced("_Found", is_module=False, listed=listed)
    assert not replaced("found", is_module=False, listed=listed)
    assert not replaced("FoundPods", is_module=False, listed=listed)


def test_names_have_no_word_of_the_list() -> None:
    listed = words()
    found = {name for name, is_module in names() if replaced(name, is_module, listed)}
    assert not sorted(found), "these names have words that CONTRIBUTING.md replaces"
