"""The command's exit codes and texts, up to the point where a server would start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore import cli
from kvstore.config.flags import FLAGS


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("ETCD_"):
            monkeypatch.delenv(name)


def run(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvstore", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": os.environ["PATH"]},
        cwd=Path(__file__).parents[3],
        **options,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("flag", ["--version", "-version", "--version=true"])
def test_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([flag]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "etcd Version: 3.7.1"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "Kvstack Version",
        "Python Version",
        "OS/Arch",
    ]


def test_version_and_help_load_nothing_of_the_server() -> None:
    script = (
        "import sys; from kvstore.cli import main; main(['--version']); main(['--help']);"
        "heavy = {'grpc', 'lmdb', 'yaml', 'google.protobuf', 'asyncio'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_help_shows_every_flag_in_etcds_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"\n  --{flag.name}" in text for flag in FLAGS)
    groups = "Member|Clustering|Security|Auth|Profiling and Monitoring|Logging"
    groups += "|Distributed tracing|Features|Unsafe feature"
    positions = [text.index(f"\n{group}:\n") for group in groups.split("|")]
    assert positions == sorted(positions)
    assert (
        "--backend-bbolt-freelist-type ''\n"
        "    A setting of etcd's own storage engine; no effect here. [no effect]"
    ) in text
    assert "--pre-vote 'true'\n    Ask before an election whether it could be won.\n" in text


def test_an_unknown_flag_ends_with_code_2_and_the_usage() -> None:
    ended = run("--foo")
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("flag provided but not defined: -foo\nUsage:\n")


@pytest.mark.parametrize(
    "arguments", [["stray"], ["--election-timeout=400"], ["--config-file=/no"]]
)
def test_settings_that_cannot_be_meant_end_with_code_1_and_a_log_line(
    arguments: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 1
    [line] = capfd.readouterr().err.splitlines()
    entry = json.loads(line)
    assert (entry["level"], entry["msg"]) == ("warn", "failed to verify flags")
    assert entry["error"]


def test_a_conflicting_variable_ends_with_code_1(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETCD_NAME", "a")
    assert cli.main(["--name=a"]) == 1
    assert "ETCD_NAME conflicts" in capfd.readouterr().err


def test_a_closed_output_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "kvstore", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    os.close(writer)
    assert (ended.returncode, ended.stderr) == (0, b"")
