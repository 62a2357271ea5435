"""What shells offer: every command, every flag that has an effect, and what stands after them."""

import os
import re
import shutil
import subprocess
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest

from kvstack.cli import COMMANDS
from kvstack.completion.completion_command import FAILED, main
from kvstack.completion.words import SHELLS, all_words, command_words

_FLAG = re.compile(r"^ +(?:-\w, )?--([a-z0-9-]+)(.*(?:\n {6}.*)?)", re.MULTILINE)
_WITHOUT_EFFECT = ("has no effect here", "not supported:")
_HARNESS = """\
source "$1"
kubectl() { printf '%s\\n' prod arn:aws:eks:eu:1:cluster/x; }
COMP_LINE=$2 COMP_POINT=${#2} COMP_WORDS=(kvstack) COMP_CWORD=1 COMP_WORDBREAKS=$3
_kvstack
printf '%s\\n' "${COMPREPLY[@]}"
"""
_BREAKS = " \t\n\"'><=;|&(:"


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The script of each shell."""
    directory = tmp_path_factory.mktemp("completion")
    found = {}
    for shell in SHELLS:
        module = import_module(f"kvstack.completion.{shell}")
        found[shell] = directory / f"kvstack.{shell}"
        found[shell].write_text(module.script(all_words()))
    return found


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime directory with two forks."""
    directory = tmp_path_factory.mktemp("runtime")
    for name in ("before", "later"):
        fork = directory / "kvstack" / "forks" / name
        fork.mkdir(parents=True)
        (fork / "fork.json").touch()
    return directory


def test_every_command_is_completed() -> None:
    assert [each.name for each in all_words()] == list(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_of_the_help_is_offered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("CNI_COMMAND", raising=False)
        with suppress(SystemExit):  # argparse
            assert import_module(COMMANDS[name].module).main(["--help"]) == 0
    helped = {
        flag
        for flag, told in _FLAG.findall(capsys.readouterr().out)
        if not any(each in told for each in _WITHOUT_EFFECT)
    }
    words = command_words(name)
    offered = [flag.name for flag in words.flags]
    assert sorted(offered) == sorted(set(offered)), "none twice"
    assert helped <= set(offered)
    assert "help" in offered


def test_flags_without_effect_are_not_offered() -> None:
    offered = {flag.name for flag in command_words("apiserver").flags}
    assert "goaway-chance" not in offered
    assert "secure-port" in offered


def test_flags_say_what_they_take() -> None:
    flags = {flag.name: flag for flag in command_words("up").flags}
    assert flags["without"].is_list
    assert "scheduler" in flags["without"].values
    assert flags["enable-pprof"].takes_value is False  # of the store
    assert all(flag.about for flag in flags.values())


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("kvstack ", [*COMMANDS, "--help", "--version"]),
        ("kvstack for", ["fork"]),
        ("kvstack fork --wit", ["--without"]),
        ("kvstack fork --without met", ["metrics"]),
        ("kvstack fork --without=met", ["metrics"]),
        ("kvstack fork --without scheduler,met", ["scheduler,metrics"]),
        ("kvstack get ", ["forks"]),
        ("kvstack get forks -o ", ["table", "json"]),
        ("kvstack get forks x", []),
        ("kvstack delete ", ["fork"]),
        ("kvstack delete fork ", ["before", "later"]),
        ("kvstack delete fork before l", ["later"]),
        ("kvstack diff before ", ["before", "later", "prod", "arn:aws:eks:eu:1:cluster/x"]),
        # What stands before the last colon is a word of its own for bash.
        ("kvstack fork arn:aws:", ["eks:eu:1:cluster/x"]),
        ("kvstack token ", ["create", "list", "delete"]),
        ("kvstack completion f", ["fish"]),
        ("kvstack up --log-level=de", ["debug"]),
        ("sudo kvstack up --log-level de", ["debug"]),
        ("kvstack up --data-dir ", []),  # files, which bash offers by itself
        ("kvstack nothing --", []),
    ],
)
def test_what_bash_offers(
    scripts: dict[str, Path], runtime: Path, line: str, offered: list[str]
) -> None:
    assert _bash(scripts["bash"], runtime, line, _BREAKS) == offered


def test_what_bash_offers_where_nothing_breaks_words(
    scripts: dict[str, Path], runtime: Path
) -> None:
    found = _bash(scripts["bash"], runtime, "kvstack fork --without=met", " \t\n")
    assert found == ["--without=metrics"]
    found = _bash(scripts["bash"], runtime, "kvstack fork arn:aws:", " \t\n")
    assert found == ["arn:aws:eks:eu:1:cluster/x"]


def _bash(script: Path, runtime: Path, line: str, breaks: str) -> list[str]:
    if shutil.which("bash") is None:
        pytest.skip("needs the shell bash")
    done = subprocess.run(
        ["bash", "-c", _HARNESS, "bash", str(script), line, breaks],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_takes_its_script(scripts: dict[str, Path], shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs the shell {shell}")
    done = subprocess.run(
        [shell, "-n", scripts[shell]], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_fish_offers(scripts: dict[str, Path], runtime: Path, tmp_path: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("needs the shell fish")
    lines = {
        "kvstack for": ["fork"],
        "kvstack fork --wit": ["--without"],
        "kvstack get ": ["forks"],
        "kvstack delete fork b": ["before"],
        "kvstack up --log-level de": ["debug"],
    }
    for line, offered in lines.items():
        done = subprocess.run(
            ["fish", "-c", f"source {scripts['fish']}; complete -C '{line}'"],
            env={**os.environ, "XDG_RUNTIME_DIR": str(runtime), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert [each.partition("\t")[0] for each in done.stdout.splitlines()] == offered


@pytest.mark.parametrize("arguments", [[], ["tcsh"], ["bash", "zsh"]])
def test_other_shells_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == FAILED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.endswith("one of bash, zsh, fish\n")
