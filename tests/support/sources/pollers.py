"""Loops of tests that wait for a condition by themselves, found in their sources.

A loop is one if it sleeps, and besides does nothing but look whether it is time, or compares with a
clock, or tries again and again until something is so. What works now and then until it is stopped,
as the load of a test does, is none.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CLOCKS: Final = ("monotonic", "monotonic_ns", "perf_counter", "time")


def pollers(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and function of each loop of a file."""
    tree = ast.parse(path.read_bytes())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in _own(function):
                if _is_poller(node):
                    yield node.lineno, function.name


def _own(function: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if isinstance(child, ast.stmt):
            yield child
        yield from _own(child)


def _is_poller(node: ast.stmt) -> bool:
    if isinstance(node, ast.While):
        is_tried = ast.unparse(node.test) == "True" and _ends(node)
        return _sleeps(node) and (is_tried or all(map(_is_idle, node.body)) or _reads_clock(node))
    is_counted = isinstance(node, ast.For) and ast.unparse(node.iter).startswith("range(")
    return is_counted and _ends(node) and _sleeps(node)


def _ends(node: ast.stmt) -> bool:
    return any(isinstance(each, ast.Break | ast.Return) for each in ast.walk(node))


def _is_idle(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assert | ast.Pass) or (isinstance(node, ast.Expr) and _sleeps(node))


def _sleeps(node: ast.AST) -> bool:
    """Whether it sleeps; a sleep of 0 gives way."""
    return any(
        _called(each) == "sleep" and not (each.args and ast.unparse(each.args[0]) in ("0", "0.0"))
        for each in ast.walk(node)
        if isinstance(each, ast.Call)
    )


def _reads_clock(node: ast.AST) -> bool:
    """Whether a time is compared with a clock."""
    return any(
        _called(each) in _CLOCKS
        for compared in ast.walk(node)
        if isinstance(compared, ast.Compare)
        for each in ast.walk(compared)
        if isinstance(each, ast.Call)
    )


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
