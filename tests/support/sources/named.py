"""Paths and modules of this project that texts name: pages, docstrings and comments.

    `apiserver/verbs`                  a folder or a module, by its path
    tests/support/waiting.py           a file
    kvstack.component.net.nft.problem  a module, and what it defines

Patterns (`*`, `{a,b}`) and names with `x` for any (`x_pb2.py`) are passed over.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
TOPS: Final = (
    "agents", "apiserver", "bench", "docs", "kvstack", "kvstore", "packaging", "proto", "tests",
)  # fmt: skip
_PATH: Final = re.compile(rf"(?<![\w./:@*-])(?:{'|'.join(TOPS)})/[\w./*{{}},-]*\w")
_DOTTED: Final = re.compile(r"(?<![\w./-])(?:kvstack|kvstore|tests|bench)(?:\.[A-Za-z_]\w*)+")
_ANY: Final = re.compile(r"[*{]|/x[._]")
_DOMAINS: Final = re.compile(r"kvstack\.io\b.*")
MADE: Final = frozenset(("bench/results/quick",))
"""What commands make."""


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and text of each docstring and comment of a module."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def unknown(text: str, folder: Path = ROOT) -> Iterator[str]:
    """Yield the paths and modules that a text names and that are not there, or in its folder."""
    for match in _PATH.finditer(text):
        name = match[0]
        is_there = _is_path(ROOT / name) or _is_path(folder / name)
        if not (_ANY.search(name) or name in MADE or is_there):
            yield name
    for match in _DOTTED.finditer(text):
        if not (_DOMAINS.fullmatch(match[0]) or _is_dotted(match[0])):
            yield match[0]


@cache
def _is_path(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}.py").exists()


@cache
def _is_dotted(name: str) -> bool:
    path, parts = ROOT, name.split(".")
    while parts and (path / parts[0]).is_dir():
        path /= parts.pop(0)
    if parts and (path / f"{parts[0]}.py").exists():
        path /= f"{parts.pop(0)}.py"
    else:
        path /= "__init__.py"
    defined = set(re.findall(r"\w+", path.read_text())) if path.exists() else set()
    return set(parts) <= defined
