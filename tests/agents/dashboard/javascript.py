"""The page's modules, called from tests by Node where there is one."""

import json
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

import kvstack.agents.dashboard

NODE: Final = shutil.which("node")
STATIC: Final = Path(kvstack.agents.dashboard.__file__).parent / "static"
SCRIPTS: Final = Path(__file__).parent / "scripts"
needs_node: Final = pytest.mark.skipif(NODE is None, reason="there is no node")
TIMEOUT_S: Final = 120


@cache
def flags() -> tuple[str, ...]:
    """Return what lets Node take `.js` files as modules; newer ones find out by themselves."""
    assert NODE is not None
    flag = "--experimental-default-type=module"
    done = subprocess.run(
        [NODE, flag, "-e", ""], capture_output=True, check=False, timeout=TIMEOUT_S
    )
    return ("--no-warnings", flag) if done.returncode == 0 else ("--no-warnings",)


def node(*words: str, data: str = "") -> str:
    """Return what Node prints; AssertionError if it fails."""
    assert NODE is not None
    done = subprocess.run(
        [NODE, *flags(), *words],
        input=data,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def call(module: str, name: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the results of calls of a function."""
    asked = json.dumps({"module": module, "name": name, "calls": calls})
    found: list[Any] = json.loads(node(str(SCRIPTS / "calls.js"), str(STATIC), data=asked))
    return found
