"""The command `kvstack diff`: the differences of two clusters."""

import asyncio
from collections.abc import Sequence
from typing import Final

from kvstack.clusters.commands import flag_rows, terminal
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.clusters.comparison.comparison import compare
from kvstack.clusters.comparison.printing import as_json, as_text
from kvstack.clusters.contents import Contents
from kvstack.clusters.sources.source import ReadOptions
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack diff"
ARGUMENTS: Final = "A B [flags]"
ABOUT: Final = """\
Compare two clusters: which objects are added, removed and changed in B. A and B are forks,
contexts, files, directories or etcd:// addresses. The exit code is that of `kubectl diff`:
0 without differences, 1 with differences, above 1 for an error.

  kvstack diff before default         a fork and its source
  kvstack diff prod.kvs prod          a packed file and the cluster now
  kvstack diff k8s-1.4/ k8s-1.5/      two directories of manifests"""
TABLE: Final = FlagTable(
    (
        *flag_rows.DIFF,
        *(each for each in flag_rows.SOURCE if each.name not in ("context", "at", "events")),
        *flag_rows.ETCD,
        flag_rows.OUTPUT,
        flag_rows.HELP,
    ),
    {"n": "namespace", "o": "output", "h": "help"},
)
DIFFERENT: Final = 1
FAILED: Final = 2


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        line.at_most(2)
        if len(line.arguments) != 2:
            raise UsageError(f"{COMMAND}: A and B are required")
        output = line.output("table", "json")
        has_all = line.reader.flag("all")
        options = line.read_options(since_s=0.0, has_events=has_all)
        before, after = asyncio.run(_read(line, options, shown))
        found = compare(before, after, has_all=has_all)
        shown.print(as_json(found) if output == "json" else as_text(found))
        unread = dict.fromkeys((*before.left_out, *after.left_out))
        for each in terminal.left_out_lines(unread):
            shown.note(f"not compared: {each}")
        return DIFFERENT if found.differences else 0

    return run_command(
        CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body, failed=FAILED
    )


async def _read(
    line: CommandLine, options: ReadOptions, shown: Terminal
) -> tuple[Contents, Contents]:
    names = line.names()
    sources = [names.find(each) for each in line.arguments]
    before, after = [await each.open().read(options, shown) for each in sources]
    return before, after
