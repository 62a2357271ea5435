"""The `kvstore-util` commands that the README and the pages under docs name: each does its work.

A command is a code span, with `<dir>`, `DIR` and the like for a path and `a|b` for one of several.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstore.backend import Table
from kvstore.util.commands import main
from tests.support.node.harness import Disk, Harness

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SPAN = re.compile(r"`(kvstore-util [^`]+)`")
NEW = ("<new dir>", "NEW")
EXISTING = ("<dir>", "DIR", "<path>", "PATH")


def documented() -> list[str]:
    """Return each command once, alternatives spelled out."""
    found: dict[str, None] = {}
    for page in PAGES:
        for span in SPAN.findall(page.read_text()):
            found.update(dict.fromkeys(_alternatives(" ".join(span.split()))))
    return list(found)


def _alternatives(command: str) -> Iterator[str]:
    """Yield `dump wal` and `dump state` for `dump wal|state`."""
    words = command.split(" ")
    at = next((number for number, word in enumerate(words) if "|" in word), None)
    if at is None:
        yield command
        return
    for word in words[at].split("|"):
        yield from _alternatives(" ".join([*words[:at], word, *words[at + 1 :]]))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    harness = Harness(tmp_path / "data", Disk(in_memory=False))
    assert harness.parts.state.backend.last(Table.META) is not None
    harness.close()
    return tmp_path / "data"


def test_commands_are_found() -> None:
    found = documented()
    assert any(" verify " in f"{each} " for each in found)
    assert any(" migrate " in each for each in found)
    assert "kvstore-util dump state" in " ".join(found)


@pytest.mark.parametrize("command", documented())
def test_a_documented_command_works(
    command: str, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in NEW:
        command = command.replace(f" {name}", f" {tmp_path / 'new'}")
    for name in EXISTING:
        command = command.replace(f" {name}", f" {data_dir}")
    arguments = command.split(" ")[1:]
    if not any(str(tmp_path) in each for each in arguments):
        arguments.append("--help")  # only named; its arguments are not shown there
    assert main(arguments) == 0, (command, capsys.readouterr())
