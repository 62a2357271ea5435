"""The command `kvstack pack`: a cluster in one file."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.clusters.commands import flag_rows, terminal
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.clusters.kinds import Kinds
from kvstack.clusters.pack.packed_file import write_pack
from kvstack.clusters.pack.redaction import Redaction
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack pack"
ARGUMENTS: Final = "[SOURCE] -o FILE [flags]"
ABOUT: Final = """\
Pack the objects of a cluster into one file, to open with `kvstack open`, to compare with
`kvstack diff`, or to give to others. Values of Secrets, and what is named like a secret or looks
like one, are left out and counted unless --keep-secrets. Check the file before you give it away.

  kvstack pack -o shop.kvs -n shop    one namespace of the current context
  kvstack pack -o before.kvs --at 10m --context dev
  kvstack pack snapshot.db -o snapshot.kvs --since 10m"""
TABLE: Final = FlagTable(
    (
        *flag_rows.PACK,
        *flag_rows.SOURCE,
        *flag_rows.ETCD,
        flag_rows.HELP,
    ),
    {"n": "namespace", "o": "output", "h": "help"},
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        line.at_most(1)
        reader = line.reader
        if not reader.text("output"):
            raise UsageError(f"{COMMAND}: -o FILE is required")
        since_s = reader.seconds("since")
        if since_s < 0:
            raise UsageError("--since is negative")
        names, context = line.names(), reader.text("context")
        if line.arguments and context:
            raise UsageError(
                f"--context {context} and the source {line.arguments[0]}: give one of them"
            )
        named = names.find(line.arguments[0]) if line.arguments else names.context(context)
        options = line.read_options(since_s=since_s)
        contents = asyncio.run(named.open().read(options, shown))
        counts = None
        if not reader.flag("keep-secrets"):
            shown.say("leaving out secrets")
            redaction = Redaction(Kinds.of(contents.rows))
            contents = redaction.contents(contents)
            counts = redaction.counts
        shown.say(f"writing {reader.text('output')}")
        path = Path(reader.text("output"))
        write_pack(path, contents, counts)
        past = ""
        if contents.history is not None:
            records, first = len(contents.history.records), contents.history.readable_from
            past = f" and {records} older records since revision {first}"
        shown.print(
            f"{path}: {len(contents.rows)} objects{past} at revision {contents.revision} of "
            f'"{named.shown}", {path.stat().st_size} bytes'
        )
        if counts is None:
            shown.note("the file contains the secrets of the cluster")
        else:
            numbers = [f"{number} {what}" for what, number in sorted(counts.items()) if number]
            shown.note(f"secrets left out: {', '.join(numbers) or 'nothing'}")
        for each in terminal.left_out_lines(contents.left_out):
            shown.note(f"left out: {each}")
        return 0

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)
