"""Commands of the documentation, as tests run them.

    kubectl(*words("kubectl expose deployment web --port=80"))
    start(*words("kvstack up --data-dir /var/lib/kvstack", {"/var/lib/kvstack": str(tmp_path)}))

A test that a page's command is proven by holds the command letter for letter, so that
tests/docs/test_documented_commands.py sees when the page has another one.
"""

import ast
import shlex
from collections.abc import Mapping
from pathlib import Path


def words(command: str, replaced: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what a shell would pass to a command's program.

    replaced: documented values, each with the one that the test has; ValueError: it is not there.
    """
    _, *found = shlex.split(command)
    for documented, own in (replaced or {}).items():
        if not any(documented in word for word in found):
            raise ValueError(f"{documented} is not in: {command}")
        found = [word.replace(documented, own) for word in found]
    return tuple(found)


def texts(path: Path) -> frozenset[str]:
    """Return the texts that stand in a module's source, those of parts joined."""
    return frozenset(
        node.value
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
