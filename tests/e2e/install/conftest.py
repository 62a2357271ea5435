"""What the tests of distributions share: a copy of the tree, and what is built of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = (
    "LICENSE", "MANIFEST.in", "NOTICE", "README.md", "pyproject.toml", "setup.py",
    "agents", "apiserver", "kvstack", "kvstore", "packaging",
)  # fmt: skip
BUILD_S = 300
_BUILD = "import sys, setuptools.build_meta as backend; getattr(backend, sys.argv[1])(sys.argv[2])"


class Distributions(NamedTuple):
    """The files of one build."""

    wheel: Path
    sdist: Path


def copy_sources(target: Path) -> Path:
    """Copy what distributions are built from, without anything that was built in the tree."""
    ignored = shutil.ignore_patterns(
        "__pycache__", "*.so", "target", "THIRD-PARTY-LICENSES.txt", "*.egg-info"
    )
    target.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, target / name)
    return target


def build(source: Path, kind: str, target: Path) -> Path:
    """Build a `wheel` or `sdist` without the native transport, with the setuptools of the tests."""
    target.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, f"build_{kind}", str(target)],
        cwd=source,
        env={**os.environ, "KVSTORE_NATIVE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    (built,) = target.iterdir()
    return built


@pytest.fixture(scope="session")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    directory = tmp_path_factory.mktemp("distributions")
    source = copy_sources(directory / "source")
    return Distributions(
        build(source, "wheel", directory / "wheel"), build(source, "sdist", directory / "sdist")
    )
