"""docs/commands: a page per command, made of what its --help says; `--rewrite` writes them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.cli import COMMANDS, main

Shown = Callable[[str], str]

DOCS = Path(__file__).parents[2] / "docs" / "commands"
NOTES = {
    "up": "`make run` is this command. See [first ten minutes](../first-ten-minutes.md).",
    "apiserver": "See [moving from etcd and Kubernetes](../moving.md).",
    "envtest": "See [testing](../testing.md).",
    "clock": "See [forks](../fork.md#a-clock-of-its-own).",
    "delete": "See [forks](../fork.md).",
    "diff": "See [forks](../fork.md#diff-what-is-different).",
    "farm": "See [testing](../testing.md#a-farm).",
    "fork": "See [forks](../fork.md).",
    "get": "See [forks](../fork.md).",
    "open": "See [forks](../fork.md#open-looking-into-a-file).",
    "pack": "See [forks](../fork.md#pack-a-cluster-in-a-file).",
    "wait": "See [forks](../fork.md#waiting-until-nothing-moves).",
    "kubelet": "See [running a cluster](../running-a-cluster.md).",
}


@pytest.fixture
def help_of_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Returns what --help of a command shows, whoever's machine this is."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("PATH", "")

    def help_of(name: str) -> str:
        try:
            code: object = main([name, "--help"])
        except SystemExit as ended:  # argparse
            code = ended.code
        assert code == 0
        return capsys.readouterr().out

    return help_of


def page(name: str, help_text: str) -> str:
    note = f"\n{NOTES[name]}\n" if name in NOTES else ""
    return (
        f"# kvstack {name}\n\n{COMMANDS[name].about}\n{note}\n```\n{help_text.rstrip()}\n```\n\n"
        "*Written by `tests/docs/test_command_pages.py` from `--help`.*\n"
    )


def index() -> str:
    rows = "".join(
        f"| [`kvstack {name}`]({name}.md) | {each.about} |\n" for name, each in COMMANDS.items()
    )
    return f"# Commands\n\n| command | what |\n|---|---|\n{rows}"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_a_command(name: str, help_of_command: Shown, rewrite: bool) -> None:  # noqa: FBT001
    path, now = DOCS / f"{name}.md", page(name, help_of_command(name))
    if rewrite:
        path.write_text(now)
    assert path.read_text() == now, f"run: pytest --rewrite {__file__}"


def test_the_list_of_commands(rewrite: bool) -> None:  # noqa: FBT001
    path, now = DOCS / "README.md", index()
    if rewrite:
        path.write_text(now)
    assert path.read_text() == now
    pages = {each.stem for each in DOCS.glob("*.md")} - {"README"}
    assert pages == set(COMMANDS), "a page without a command, or a command without a page"
