"""The command `kvstack delete`: `kvstack delete fork NAME…`."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from kvstack.clusters.commands import flag_rows
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.clusters.forks.registry import ForkError, ForkRegistry
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack delete"
ARGUMENTS: Final = "fork NAME… [flags]"
ABOUT: Final = """\
Delete forks: their processes, files and contexts.

  kvstack delete fork before
  kvstack delete fork --all"""
TABLE: Final = FlagTable(
    (*flag_rows.DELETE, flag_rows.HELP),
    {"h": "help"},
)
KINDS: Final = ("fork", "forks")
END_S: Final = 30.0
_POLL_S: Final = 0.02


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        kind, *names = line.arguments or [""]
        if kind not in KINDS:
            raise UsageError(
                f"{COMMAND} {kind}: only forks can be deleted"
                if kind
                else f"{COMMAND}: fork is required"
            )
        if bool(names) == line.reader.flag("all"):
            raise UsageError(f"{COMMAND} fork: either names or --all is required")
        forks = {each.name: each for each in line.registry.forks()}
        for name in names:
            if name not in forks:
                raise UsageError(f"fork {name!r} does not exist")
        for name in names or list(forks):
            end_fork(line.registry, name, forks[name].pid)
            shown.print(f'fork "{name}" deleted')
        return 0

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)


def end_fork(registry: ForkRegistry, name: str, pid: int) -> None:
    """End the process of a fork, and return when it and its files are gone; ForkError."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        # The lock is held, so the process with this id still runs.
        if registry.is_alive(name):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline_s = time.monotonic() + END_S
        while registry.is_alive(name) and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if not registry.is_alive(name):
            registry.forks()  # cleans up after one that was killed
            return
    raise ForkError(f"fork {name!r}: process {pid} does not end")
