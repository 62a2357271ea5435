"""A command that runs until a signal: its flags, log, signals and exit code.

    def main(arguments: Sequence[str]) -> int:
        return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)

    def _prepare(given: Given) -> Work | None:      ConfigError: flags or files cannot be used
        settings = …
        return Work(lambda log: _serve(settings, log), settings.log_level)

    --help, --version                       stdout, exit code 0
    ConfigError before the work             stderr "Error: …", exit code 1
    ConfigError during the work             the log, exit code 1
    the work ends on a signal               exit code 0

A command that has more than a table's flags prepares with `run_work`. The work itself waits for
`stop_event` and shuts down in order. Pages of health and metrics are served
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
    """The name and the flags of a command."""

    name: str
    about: str
    table: FlagTable


class Work(NamedTuple):
    """The work of a command after its flags were read."""

    body: Callable[[LineLogger], Coroutine[Any, Any, None]]
    """The coroutine function that runs until a signal; raises ConfigError if it cannot continue."""
    log_level: str = "info"
    without_effect: Sequence[str] = ()
    """Flags and settings that were set and have no effect."""


Prepare: TypeAlias = Callable[[], Work | None]
"""Prepares the work; None: there is nothing to run. Raises ConfigError."""


def level_of(verbosity: int) -> str:
    """Return the level of the log for the flag `-v`."""
    return "debug" if verbosity >= _DEBUG_VERBOSITY else "info"


def run_command(
    command: Command, arguments: Sequence[str], prepare: Callable[[CommandLine], Work | None]
) -> int:
    """Read a command line by the command's table, and run it; return the exit code."""
    return run_work(lambda: read_flags(command, arguments, prepare))


def read_flags(
    command: Command, arguments: Sequence[str], prepare: Callable[[CommandLine], Work | None]
) -> Work | None:
    """Return the work of a command line; None: --help, --version, or nothing to run."""
    given = read_command_line(arguments, command.name, command.table)
    if given.values.get("help"):
        sys.stdout.write(help_text(*command))
        return None
    if given.values.get("version"):
        sys.stdout.write(version_text())
        return None
    return prepare(given)


def run_work(prepare: Prepare) -> int:
    """Prepare, and run until a signal; return the exit code."""
    try:
        work = prepare()
    except ConfigError as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    if work is None:
        return 0
    log = open_logger(("default",), work.log_level, "json")
    if work.without_effect:
        log.warning("these settings have no effect", settings=list(work.without_effect))

    async def body() -> None:
        keep_log_of_loop(log)
        await work.body(log)

    try:
        return run(body, log)
    except ConfigError as error:
        log.fatal("command failed", error=str(error))
        return FAILED
