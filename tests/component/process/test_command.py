"""What every command of the control plane does the same: flags, help, errors, log, signals."""

import json
import os
import signal

import pytest

from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.component_flags import GLOBAL, SHORT
from kvstack.component.flags.flag_table import Effect, Flag, FlagTable, Kind
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.process.command import Command, Work, level_of, run_command, run_work
from kvstack.component.process.program import stop_event

TABLE = FlagTable(
    (Flag("colour", "Paint", Kind.TEXT, "red", Effect.LIVE, "what it is painted with"), *GLOBAL),
    SHORT,
)
COMMAND = Command("kvstack paint", "Paints.", TABLE)


def never(_given: CommandLine) -> Work:
    raise AssertionError("nothing is to be prepared")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--help"], "Paints.\n\nUsage:\n  kvstack paint [flags]\n"),
        (["-h", "--colour=blue"], "  --colour\n      what it is painted with (default red)\n"),
        (["--version"], "Kubernetes v1.37."),
    ],
)
def test_help_and_version_are_shown_before_anything_is_prepared(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(COMMAND, arguments, never) == 0
    shown = capsys.readouterr()
    assert text in shown.out
    assert shown.err == ""


def test_flags_and_settings_that_cannot_be_used_are_reported_on_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(COMMAND, ["--color"], never) == 1
    assert capsys.readouterr().err == "Error: unknown flag: --color\n"

    def refuse(given: CommandLine) -> Work:
        raise ConfigError(f"--colour {given['colour']}: there is none left")

    assert run_command(COMMAND, ["--colour=blue"], refuse) == 1
    assert capsys.readouterr().err == "Error: --colour blue: there is none left\n"


def test_a_command_that_is_done_once_it_is_prepared_opens_no_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert run_work(lambda: None) == 0
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_work_ends_with_a_signal_and_in_order(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []

    async def work(log: LineLogger) -> None:
        stop = stop_event()
        os.kill(os.getpid(), number)
        try:
            await stop.wait()
            log.debug("painted")
        finally:
            done.append("cleaned up")

    assert run_command(COMMAND, [], lambda _: Work(work, "debug", ("--tone",))) == 0
    assert done == ["cleaned up"]
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [(line["level"], line["msg"]) for line in lines] == [
        ("warn", "these settings have no effect"),
        ("debug", "painted"),
    ]
    assert lines[0]["settings"] == ["--tone"]


@pytest.mark.parametrize(
    ("error", "text"),
    [(ConfigError, "command failed"), (ComponentError, "the server cannot continue")],
)
def test_what_ends_the_work_is_in_the_log(
    error: type[ComponentError], text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    async def work(_log: LineLogger) -> None:
        raise error("the brush broke")

    assert run_command(COMMAND, [], lambda _: Work(work)) == 1
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert (line["level"], line["msg"], line["error"]) == ("fatal", text, "the brush broke")


def test_a_fault_that_nobody_foresaw_is_not_hidden() -> None:
    async def work(_log: LineLogger) -> None:
        raise KeyError("brush")

    with pytest.raises(KeyError):
        run_command(COMMAND, [], lambda _: Work(work))


def test_verbosity_4_and_more_shows_debug_lines() -> None:
    assert [level_of(each) for each in (-1, 0, 3, 4, 10)] == ["info"] * 3 + ["debug"] * 2
