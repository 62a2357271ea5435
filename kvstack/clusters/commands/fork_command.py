"""The command `kvstack fork`: a private copy of a cluster.

kvstack fork                             of the current context, as it is now
kvstack fork prod --at 10m --name before
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kvstack.agents.standalone.in_memory.cluster_time import MACHINE
from kvstack.clusters.commands import flag_rows, terminal
from kvstack.clusters.commands.naming import NamedSource, kubeconfig_to_write
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable
from kvstack.component.process.loading import loading

if TYPE_CHECKING:
    from kvstack.clusters.forks.fork_process import ForkRequest, Ready

COMMAND: Final = "kvstack fork"
ARGUMENTS: Final = "[SOURCE] [flags]"
ABOUT: Final = """\
Fork a cluster: run a copy of it on this machine, with the same objects, uids and resourceVersions.
Changes to the fork stay in the fork. Nothing is written to the source, and the fork calls nobody.

  kvstack fork                        the current context, now
  kvstack fork --context prod -n shop one namespace of a context
  kvstack fork --at 10m --name before the current context ten minutes ago (servers of kvstack)
  kvstack fork etcd://10.0.0.1:2379   the contents of an etcd
  kvstack fork --clock paused         time stands until `kvstack clock advance 24h`
  kvstack get forks, kvstack delete fork NAME"""
TABLE: Final = FlagTable(
    (*flag_rows.SOURCE, *flag_rows.ETCD, *flag_rows.FORK, flag_rows.HELP),
    {"n": "namespace", "h": "help"},
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        line.at_most(1)
        names, context = line.names(), line.reader.text("context")
        if line.arguments and context:
            raise UsageError(
                f"--context {context} and the source {line.arguments[0]}: give one of them"
            )
        source = names.find(line.arguments[0]) if line.arguments else names.context(context)
        return start_fork(line, shown, source, is_read_only=False)

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)


def start_fork(
    line: CommandLine, terminal: Terminal, source: NamedSource, *, is_read_only: bool
) -> int:
    """Start a fork as the flags say; return the exit code."""
    with loading():
        from kvstack.clusters.forks.fork_process import ForkRequest, start  # all of a cluster

    reader = line.reader
    ttl_s = reader.seconds("ttl")
    if ttl_s < 0:
        raise UsageError("--ttl is negative: 0 means until the fork is deleted")
    adds_context = reader.flag("add-context")
    file = kubeconfig_to_write(line.kubeconfigs) if adds_context else None
    request = ForkRequest(
        source.open,
        source.shown,
        source.name,
        reader.text("name"),
        line.read_options(),
        line.fork_settings(is_read_only=is_read_only)._replace(
            clock=line.clock(is_read_only=is_read_only)
        ),
        ttl_s,
        reader.flag("detach"),
        file,
        line.names().current if adds_context else "",
    )
    return start(request, line.registry, _Report(terminal, request))


class _Report:
    """Shows how a fork begins."""

    def __init__(self, shown: Terminal, request: "ForkRequest") -> None:
        self._shown: Final = shown
        self._request: Final = request
        self.say: Final = shown.say

    def ready(self, fork: "Ready") -> None:
        settings = self._request.settings
        what = "read-only, " if settings.is_read_only else ""
        if settings.clock != MACHINE:
            what = f"{settings.clock} clock, "
        objects = "1 object" if fork.objects == 1 else f"{fork.objects} objects"
        text = (
            f'fork "{fork.name}" of "{fork.source}" at revision {fork.revision}: {what}'
            f"{objects}, {fork.seconds:.1f} s"
        )
        file = self._request.context_file
        if file is not None:
            path = terminal.shown_path(str(file))
            text = f'{text:<60} context "{fork.name}" added to {path}'
        else:
            text = f"{text}\nexport KUBECONFIG={fork.kubeconfig}"
        self._shown.print(text)
        for each in terminal.left_out_lines(fork.left_out):
            self._shown.note(f"left out: {each}")

    def failed(self, text: str) -> None:
        self._shown.note(f"Error: {text}")
