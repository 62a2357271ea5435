"""The command `kvstack wait`: returns once a cluster is settled.

kvstack wait --settled                         the current context, for a minute at most
kvstack wait --settled --fork x --timeout 10m
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects.times import human_duration
from kvstack.clusters.commands import flag_rows
from kvstack.clusters.commands.naming import NamedServer
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.server_page import ask
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack wait"
ARGUMENTS: Final = "--settled [flags]"
ABOUT: Final = """\
Wait until a cluster is settled: queues of controllers, scheduler and nodes are empty, their watches
have been handed the last change, and nothing is due within a second. What clients over the network
will still do is unknown: they are named, and must have been silent for --quiet.

  kvstack wait --settled                         the current context
  kvstack wait --settled --fork before --timeout 10m

Exit codes: 0 settled, 1 not settled in time, 2 an error."""
TABLE: Final = FlagTable(
    (*flag_rows.WAIT, *flag_rows.SERVER, flag_rows.TEXT_OUTPUT, flag_rows.HELP),
    {"o": "output", "h": "help"},
)
PATH: Final = "/settled"
NOT_SETTLED: Final = 1
FAILED: Final = 2
ROUND_S: Final = 60.0
"""The length of one request; the pauses between them let connections be silent."""
QUIET_S_MAX: Final = 60.0
_ANSWER_S: Final = 30.0
"""The timeout of an answer, beyond the waiting."""
_SHOWN_MAX: Final = 10


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        line.at_most(0)
        reader = line.reader
        if not reader.flag("settled"):
            raise UsageError(f"{COMMAND}: --settled is required")
        timeout_s, quiet_s = reader.seconds("timeout"), reader.seconds("quiet")
        if timeout_s < 0:
            raise UsageError("--timeout is negative")
        if not 0 <= quiet_s <= QUIET_S_MAX:
            raise UsageError(f"--quiet {quiet_s:g}s: 0s to {QUIET_S_MAX:g}s")
        output = line.output("text", "json")
        server = line.server()
        shown.say(f"waiting until {server.shown} is settled")
        state = asyncio.run(_wait(server, timeout_s, quiet_s, shown))
        if output == "json":
            shown.print(orjson.dumps(state, option=orjson.OPT_INDENT_2).decode())
        else:
            _show(state, server.shown, shown)
        return 0 if state["settled"] else NOT_SETTLED

    return run_command(
        CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body, failed=FAILED
    )


async def _wait(
    server: NamedServer, timeout_s: float, quiet_s: float, terminal: Terminal
) -> dict[str, Any]:
    """Ask repeatedly, until it is settled or the timeout has passed."""
    began_s = time.monotonic()
    while True:
        left_s = max(0.0, began_s + timeout_s - time.monotonic())
        round_s = min(left_s, ROUND_S)
        query = {"timeout": f"{round_s:.3f}s", "quiet": f"{quiet_s:.3f}s"}
        state = await ask(server, "GET", PATH, query, answer_s=round_s + _ANSWER_S)
        waited_s = state["waitedSeconds"] = round(time.monotonic() - began_s, 3)
        if state["settled"] or waited_s >= timeout_s:
            return state
        terminal.say(f"{waited_s:.0f} s: {_moving(state['moving'], 1)}")


def _show(state: dict[str, Any], name: str, terminal: Terminal) -> None:
    waited_s = state["waitedSeconds"]
    if not state["settled"]:
        moving = _moving(state["moving"], _SHOWN_MAX)
        terminal.note(f"{name} is not settled after {waited_s:.1f} s: {moving}")
    else:
        due = state["due"]
        soon = f"; {_due(due[0])}" if due else ""
        terminal.print(
            f"{name} is settled at revision {state['revision']}, after {waited_s:.1f} s{soon}"
        )
    others = state["others"]
    for each in others[:_SHOWN_MAX]:
        terminal.note(f"may still act: {_other(each)}")
    if len(others) > _SHOWN_MAX:
        terminal.note(f"may still act: {len(others) - _SHOWN_MAX} more clients")


def _moving(moving: Sequence[dict[str, Any]], shown_max: int) -> str:
    lines = [
        " ".join(filter(None, (each["who"], each["what"], each["why"])))
        for each in moving[:shown_max]
    ]
    more = len(moving) - len(lines)
    return ", ".join(lines) + (f", and {more} more" if more > 0 else "")


def _due(due: dict[str, Any]) -> str:
    return f"{due['who']} {due['what']} is due in {human_duration(due['inSeconds'])}"


def _other(other: dict[str, Any]) -> str:
    doing = []
    if other["watches"]:
        doing.append(f"watches {', '.join(other['watches'])}")
    if other["askedSecondsAgo"] is not None:
        doing.append(f"asked {human_duration(other['askedSecondsAgo'])} ago")
    return f"{other['agent'] or 'a client'} of {other['user']}, which {' and '.join(doing)}"
