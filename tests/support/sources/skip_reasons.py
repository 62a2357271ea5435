"""The reasons for skipping that stand in the sources of tests, found without running them."""

import ast
from collections.abc import Iterator
from pathlib import Path

GAP = "\x00"
"""Stands in a reason for what is only known when the test runs."""


def reasons(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and reason of each skip in a file."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr == "skip" and node.args and _is_pytest(node.func.value):
            yield node.lineno, _text(node.args[0])
        elif node.func.attr in ("skip", "skipif"):
            for keyword in node.keywords:
                if keyword.arg == "reason":
                    yield node.lineno, _text(keyword.value)


def _is_pytest(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "pytest"


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) for each in node.values)
    return GAP
