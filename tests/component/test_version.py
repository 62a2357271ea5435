"""The version: written in one place, and told by all programs."""

import re
import tomllib
from pathlib import Path

import pytest
from setuptools.config.pyprojecttoml import read_configuration

from kvstack import cli as kvstack_cli
from kvstack.component.version import VERSION
from kvstore import cli as kvstore_cli
from kvstore.types import SERVER_VERSION

ROOT = Path(__file__).parents[2]


def test_the_version_can_be_a_tag_and_is_what_is_built() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    pyproject = ROOT / "pyproject.toml"
    assert "version" not in tomllib.loads(pyproject.read_text())["project"]
    built = read_configuration(pyproject, expand=True)["project"]
    assert built["version"] == VERSION


def test_make_finds_the_version_for_the_label_of_the_image() -> None:
    found = re.search(r"sed -n '(s/.*?/p)' (\S+)\)", (ROOT / "Makefile").read_text())
    assert found is not None
    pattern = found[1].split("/")[1].replace("\\(", "(").replace("\\)", ")").replace("$$", "$")
    lines = (ROOT / found[2]).read_text()
    assert re.findall(pattern, lines, re.MULTILINE) == [VERSION]


def test_both_commands_tell_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert kvstore_cli.main(["--version"]) == 0
    of_store = capsys.readouterr().out.splitlines()
    assert of_store[:2] == [f"etcd Version: {SERVER_VERSION}", f"Kvstack Version: {VERSION}"]
    assert kvstack_cli.main(["--version"]) == 0
    of_stack = capsys.readouterr().out.splitlines()
    assert of_stack[0] == f"kvstack Version: {VERSION}"
    assert of_stack[1].startswith("Kubernetes Version: v1.37.")
    assert of_stack[2] == of_store[0]
    assert of_stack[3:] == of_store[2:]
    assert kvstack_cli.main(["--help"]) == 0
    assert "  kvstack --version\n" in capsys.readouterr().out
