"""The command `kvstack open`: serves any source read-only.

kvstack open snapshot.db
kvstack open prod.kvs --live
"""

from collections.abc import Sequence
from typing import Final

from kvstack.clusters.commands import flag_rows
from kvstack.clusters.commands.fork_command import start_fork
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack open"
ARGUMENTS: Final = "SOURCE [flags]"
ABOUT: Final = """\
Serve the contents of a file, or of any other source, as a cluster for kubectl, k9s and the
dashboard. It is read-only and nothing runs in it; with --live it is a fork.

  kvstack open snapshot.db            an etcd snapshot
  kvstack open /var/lib/etcd          a data directory of etcd or kvstack that no server uses
  kvstack open prod.kvs               a file that `kvstack pack` wrote
  kvstack open dump/                  YAML and JSON, such as `kubectl cluster-info dump` writes"""
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

    def body(line: CommandLine, shown: Terminal) -> int:
        line.at_most(1)
        if not line.arguments:
            raise UsageError(
                f"{COMMAND}: SOURCE is required: a file, directory, context or etcd:// address"
            )
        source = line.names().find(line.arguments[0])
        return start_fork(line, shown, source, is_read_only=not line.reader.flag("live"))

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)
