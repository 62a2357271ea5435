"""A command that works until a signal comes: its flags, log, signals and exit code, once.

    def main(arguments: Sequence[str]) -> int:
        return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)

    def _prepare(given: Given) -> Work | None:      ConfigError: flags or files cannot be used
        settings = …
        return Work(lambda log: _serve(settings, log), settings.log_level)

    --help, --version                       stdout, exit code 0
    ConfigError before the work             stderr "Error: …", exit code 1
    ConfigError while it goes on            the log, exit code 1
    the work ends as asked                  exit code 0

A command that has more than a table's flags prepares with `run_work`. What the work waits for
(`stop_event`), and how it ends in order, is its own affair. Pages of health and metrics are served
by `agents.process.pages` and the API server.
"""

import sys
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine, help_text, read_command_line
from kvstack.component.flags.flag_table import FlagTable
from kvstack.component.line_log.line_logger import LineLogger, open_logger
from kvstack.component.process.program import FAILED, keep_log_of_loop, run, version_text

_DEBUG_VERBOSITY: Final = 4


class Command(NamedTuple):
    """What a command is called, and its flags."""

    name: str
    about: str
    table: FlagTable


class Work(NamedTuple):
    """What a command does once its flags are read."""

    body: Callable[[LineLogger], Coroutine[Any, Any, None]]
    """It ends when a signal comes. ConfigError: why it cannot go on."""
    log_level: str = "info"
    without_effect: Sequence[str] = ()
    """Flags and settings that were given and mean nothing here."""


Prepare: TypeAlias = Callable[[], Work | None]
"""Reads what is needed before the work; None: all is done. Raises ConfigError."""


def level_of(verbosity: int) -> str:
    """Return the level of the log for the flag `-v`."""
    return "debug" if verbosity >= _DEBUG_VERBOSITY else "info"


def run_command(
    command: Command, arguments: Sequence[str], prepare: Callable[[CommandLine], Work | None]
) -> int:
    """Read a command line by the command's table, and work; return the exit code."""
    return run_work(lambda: read_flags(command, arguments, prepare))


def read_flags(
    command: Command, arguments: Sequence[str], prepare: Callable[[CommandLine], Work | None]
) -> Work | None:
    """Return the work that a command line asks for; None: --help or --version, or it is done."""
    given = read_command_line(arguments, command.name, command.table)
    if given.values.get("help"):
        sys.stdout.write(help_text(*command))
        return None
    if given.values.get("version"):
        sys.stdout.write(version_text())
        return None
    return prepare(given)


def run_work(prepare: Prepare) -> int:
    """Prepare, and work until a signal comes; return the exit code."""
    try:
        work = prepare()
    except ConfigError as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    if work is None:
        return 0
    log = open_logger(("default",), work.log_level, "json")
    if work.without_effect:
        log.warning("these have no effect here", settings=list(work.without_effect))

    async def body() -> None:
        keep_log_of_loop(log)
        await work.body(log)

    try:
        return run(body, log)
    except ConfigError as error:
        log.fatal("command failed", error=str(error))
        return FAILED
