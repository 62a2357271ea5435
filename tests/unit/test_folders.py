"""No folder has more modules, no module and no function more lines, than CONTRIBUTING.md allows."""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MODULES_MAX: Final = 25
LINES_MAX: Final = 600
FUNCTION_LINES_MAX: Final = 70
"""Of any function that is no test. It may only shrink."""
_SKIPPED: Final = frozenset(("gen", "node_modules", "__pycache__", "build", "dist"))
_FOLDERS: Final = (
    "agents",
    "apiserver",
    "bench",
    "kvstack/apimachinery",
    "kvstack/cel",
    "kvstack/clusters",
    "kvstack/completion",
    "kvstack/component",
    "kvstore",
    "packaging",
    "proto",
    "tests",
)


def files() -> Iterator[Path]:
    """Yield the modules of all folders, without generated code."""
    for folder in _FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if _SKIPPED.isdisjoint(path.relative_to(ROOT).parts):
                yield path


def modules() -> Counter[str]:
    """Return how many modules each folder has."""
    return Counter(str(path.parent.relative_to(ROOT)) for path in files())


def test_folders_are_found() -> None:
    found = modules()
    assert found["apiserver/verbs"] > 5
    assert found["tests/unit"] > 2
    assert len(found) > 200


def test_no_folder_has_too_many_modules() -> None:
    full = {folder: count for folder, count in modules().items() if count > MODULES_MAX}
    assert not full, f"more than {MODULES_MAX} modules: group them by what they are about"


def test_no_module_has_too_many_lines() -> None:
    """A file of tests may: it is a list, and one reads the test that failed."""
    long = {
        str(path.relative_to(ROOT)): count
        for path in files()
        if not path.name.startswith("test_")
        and (count := path.read_bytes().count(b"\n")) > LINES_MAX
    }
    assert not long, f"more than {LINES_MAX} lines: split them by what they are about"


def test_no_function_has_too_many_lines() -> None:
    """One of tests may: it is a story, and one reads it from its beginning."""
    long = {
        f"{path.relative_to(ROOT)}:{name}": count
        for path in files()
        if "tests" not in path.relative_to(ROOT).parts
        for name, count in function_lines(path.read_text())
        if count > FUNCTION_LINES_MAX
    }
    assert not long, f"more than {FUNCTION_LINES_MAX} lines: break them along their seams"


def test_lines_of_a_function_are_those_from_its_name_to_its_end() -> None:
    text = (
        "class A:\n  @b\n  async def c(\n    d,\n  ):\n    def e():\n      pass\n\n    return e\n"
    )
    assert dict(function_lines(text)) == {"c": 7, "e": 2}


def function_lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the functions of a module, also those inside others, and how many lines they have."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


_MIRRORED: Final = {
    "tests/unit": "kvstore",
    "tests/component": "kvstack/component",
    "tests/apimachinery": "kvstack/apimachinery",
    "tests/cel": "kvstack/cel",
    "tests/clusters": "kvstack/clusters",
    "tests/completion": "kvstack/completion",
    "tests/apiserver": "apiserver",
    "tests/agents": "agents",
}
_SUITES: Final = frozenset(
    (
        "tests/unit/cluster",  # several members with raft, in this process
        "tests/agents/helm",
        "tests/agents/kubelet/runtime/conformance",
        "tests/agents/recorded",
        "tests/agents/stories",
        "tests/agents/support",
        "tests/agents/topology",
        "tests/apiserver/advisories",
        "tests/apiserver/consistency",
        "tests/apiserver/hostile",
        "tests/apiserver/libraries",
        "tests/apiserver/migration",
        "tests/apiserver/player",
        "tests/apiserver/recorded",
        "tests/apiserver/stories",
        "tests/apiserver/support",
        "tests/clusters/support",
    )
)
"""Of no package: what the README of their folder says of them."""


def test_folders_of_tests_are_named_as_the_packages_that_they_test() -> None:
    astray = []
    for tests, code in _MIRRORED.items():
        for folder in modules():
            inside = folder.removeprefix(tests)
            if not folder.startswith(f"{tests}/") or folder.startswith(tuple(_SUITES)):
                continue
            if not (ROOT / code).joinpath(inside.lstrip("/")).is_dir():
                astray.append(folder)
    assert not astray, "rename them, or say in the list of suites what they are"
