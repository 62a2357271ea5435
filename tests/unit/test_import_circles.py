"""No modules import each other in a circle; imports for type checking and late ones count too."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
_PACKAGES: Final = {
    **{
        name: ROOT / name for name in ("bench", "kvstack", "kvstore", "packaging", "proto", "tests")
    },
    # rglob follows no links, which these are below kvstack.
    "kvstack.agents": ROOT / "agents",
    "kvstack.apiserver": ROOT / "apiserver",
}


def test_no_modules_import_each_other_in_a_circle() -> None:
    circles = _circles(_imports(_sources()))
    assert not circles, "\n\n".join("\n".join(sorted(each)) for each in circles)


def test_every_folder_of_modules_is_looked_at() -> None:
    folders = {path.parent for path in ROOT.glob("[!.]*/*.py")}
    assert ROOT / "kvstack" in folders
    assert not folders - set(_PACKAGES.values())


@pytest.mark.parametrize(
    "text",
    [
        "import p.b",
        "from p import b",
        "from p.b import name",
        "if TYPE_CHECKING:\n    from p.b import name",
        "def function():\n    from p import b",
    ],
)
def test_circle_is_found_however_it_is_imported(text: str) -> None:
    trees = {"p": "", "p.a": text, "p.b": "from p.a import name", "p.c": "import p.a"}
    assert _circles(_imports(trees)) == [frozenset(("p.a", "p.b"))]


def _sources() -> dict[str, str]:
    found = {}
    for package, folder in _PACKAGES.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            found[name] = path.read_text()
    assert len(found) > len(_PACKAGES)
    return found


def _imports(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return what each module imports of the others."""
    return {
        name: {each for each in _imported(ast.parse(text), sources) if each != name}
        for name, text in sources.items()
    }


def _imported(tree: ast.Module, known: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known:
                    yield inner
                elif node.module in known:
                    yield node.module


def _circles(imports: dict[str, set[str]]) -> list[frozenset[str]]:
    """Return the sets of modules that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[frozenset[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for target in imports[name]:
            if target not in order:
                visit(target)
                lowest[name] = min(lowest[name], lowest[target])
            elif target in stack:
                lowest[name] = min(lowest[name], order[target])
        if lowest[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(frozenset(stack[at:]))
            del stack[at:]

    for name in imports:
        if name not in order:
            visit(name)
    return found
