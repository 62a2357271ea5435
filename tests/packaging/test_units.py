"""The systemd units in packaging: they parse, and every command and flag in them exists."""

import configparser
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.cli import COMMANDS, main

PACKAGING = Path(__file__).parents[2] / "packaging"
UNITS = sorted(PACKAGING.glob("kvstack*.service"))
PROGRAM = "/opt/kvstack/bin/kvstack"
HelpOf = Callable[[str], str]


def words(unit: Path) -> list[str]:
    """Return the words of ExecStart."""
    found = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    found.read_string(unit.read_text().replace("\\\n", ""))
    return shlex.split(found["Service"]["ExecStart"])


@pytest.fixture
def help_of(capsys: pytest.CaptureFixture[str]) -> HelpOf:
    def help_text(command: str) -> str:
        try:
            code: object = main([command, "--help"])
        except SystemExit as ended:  # argparse
            code = ended.code
        assert code == 0
        return capsys.readouterr().out

    return help_text


def test_there_is_a_unit_for_each_program_of_a_machine() -> None:
    assert {words(unit)[1] for unit in UNITS} == {"up", "apiserver", "kubelet"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_its_command_and_flags_exist(unit: Path, help_of: HelpOf) -> None:
    program, command, *flags = words(unit)
    assert program == PROGRAM
    assert command in COMMANDS
    known = set(re.findall(r"--[a-z][a-z-]*", help_of(command)))
    variable = f"$KVSTACK_{command.upper()}_FLAGS"
    assert flags.pop() == variable
    assert f"KVSTACK_{command.upper()}_FLAGS" in unit.read_text().split("[Unit]")[0]
    assert flags
    for flag in flags:
        assert flag.split("=")[0] in known, flag


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_program_that_is_awaited_notifies_systemd(unit: Path) -> None:
    """Only the API server does; see test_the_server_tells_when_it_is_ready for the store."""
    is_notifying = words(unit)[1] == "apiserver"
    assert ("Type=notify\n" in unit.read_text()) == is_notifying


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(PROGRAM, str(shutil.which("true"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
