"""How the commands run: flags are read, `--help` is answered, and errors end in an exit code."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvstack.clusters.commands import terminal
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import help_text
from kvstack.component.flags.flag_table import FlagTable
from kvstack.component.process.program import FAILED


class CommandHelp(NamedTuple):
    """The name, flags and help of a command."""

    command: str
    arguments: str
    about: str
    table: FlagTable


def run_command(
    about: CommandHelp,
    arguments: Sequence[str],
    body: Callable[[CommandLine, Terminal], int],
    *,
    failed: int = FAILED,
) -> int:
    """Run the body, or print the help; return the exit code; failed: that of an error."""

    def run(shown: Terminal) -> int:
        line = CommandLine(arguments, about.command, about.table)
        if line.asks_for_help:
            shown.print(help_text(about.command, about.about, about.table, about.arguments))
            return 0
        return body(line, shown)

    return terminal.run(run, failed=failed)
