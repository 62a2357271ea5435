"""The command `kvstack open`: look into a cluster that is a file, or at any other.

kvstack open snapshot.db
kvstack open prod.kvs --live
"""

from collections.abc import Sequence
from typing import Final

from kvstack.clusters.commands import flag_rows, terminal
from kvstack.clusters.commands.fork_command import start_fork
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import UsageError, help_text
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack open"
ARGUMENTS: Final = "SOURCE [flags]"
ABOUT: Final = """\
Look into a cluster with kubectl, k9s or the dashboard: what a file holds, or any other source. It
can only be read, and nothing runs in it, unless --live makes a fork of it.

  kvstack open snapshot.db            a snapshot of etcd
  kvstack open /var/lib/etcd          the data directory of an etcd or ours that is stopped
  kvstack open prod.kvs               what `kvstack pack` wrote
  kvstack open dump/                  YAML and JSON, as of `kubectl cluster-info dump`"""
TABLE: Final = FlagTable(
    (
        *flag_rows.OPEN,
        *flag_rows.SOURCE,
        *flag_rows.ETCD,
        *flag_rows.FORK,
        flag_rows.HELP,
    ),
    {"n": "namespace", "h": "help"},
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(shown: Terminal) -> int:
        line = CommandLine(arguments, COMMAND, TABLE)
        if line.asks_for_help:
            shown.print(help_text(COMMAND, ABOUT, TABLE, ARGUMENTS))
            return 0
        line.at_most(1)
        if not line.arguments:
            raise UsageError(f"{COMMAND}: what? A file, directory, context or etcd:// address")
        source = line.names().find(line.arguments[0])
        return start_fork(line, shown, source, is_read_only=not line.reader.flag("live"))

    return terminal.run(body)
