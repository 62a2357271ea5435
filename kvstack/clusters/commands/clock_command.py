"""The command `kvstack clock`: the clock of a fork that has one of its own.

kvstack clock advance 24h --fork x
kvstack clock rate 100 --fork x
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import durations
from kvstack.clusters.commands import flag_rows
from kvstack.clusters.commands.naming import NamedServer
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.server_page import ask
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack clock"
ARGUMENTS: Final = "[show|pause|resume|advance DURATION|rate NUMBER] [flags]"
ABOUT: Final = """\
Show or change the clock of a fork that was begun with `--clock virtual` or `--clock paused`.
Whatever is due while time is advanced happens, in order: CronJobs run, leases are renewed, TTLs
end. Other clusters go by the machine's clock, and refuse.

  kvstack clock --fork x                  show it
  kvstack clock advance 24h --fork x      let a day go by at once
  kvstack clock pause --fork x            let time stand, except while a request is answered
  kvstack clock rate 100 --fork x         a hundred times as fast as the machine's
  kvstack clock resume --fork x           as fast as the machine's"""
TABLE: Final = FlagTable(
    (*flag_rows.SERVER, flag_rows.TEXT_OUTPUT, flag_rows.HELP), {"o": "output", "h": "help"}
)
ACTIONS: Final = ("show", "pause", "resume", "advance", "rate")
PATH: Final = "/clock"
ADVANCE_S_MAX: Final = 366 * 86_400
STEP_S: Final = 3600
"""The part of an advance that one request does, so that progress is shown."""
RATE_MAX: Final = 1_000_000
_ANSWER_S: Final = 30.0
_STEP_ANSWER_S: Final = 3600.0
"""The timeout of a part: an hour may take long in a large cluster."""
_WITH_VALUE: Final = frozenset(("advance", "rate"))
_RATES: Final = {"pause": 0.0, "resume": 1.0}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        action, *values = line.arguments or ["show"]
        if action not in ACTIONS:
            raise UsageError(f"{COMMAND} {action}: one of {', '.join(ACTIONS)}")
        line.at_most(2 if action in _WITH_VALUE else 1)
        if action in _WITH_VALUE and not values:
            raise UsageError(f"{COMMAND} {action}: {_MISSING[action]}")
        output = line.output("text", "json")
        steps = _steps(action, values[0] if values else "")
        server = line.server()
        state = asyncio.run(_do(server, steps, shown))
        if output == "json":
            shown.print(orjson.dumps(state, option=orjson.OPT_INDENT_2).decode())
        else:
            shown.print(_line(state, server.shown))
        return 0

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)


_MISSING: Final = {"advance": "how long, such as 24h", "rate": "how fast, such as 100"}


def _steps(action: str, value: str) -> list[dict[str, Any]]:
    """Return the bodies of the requests that change it; none: it is only shown. UsageError."""
    if action in _RATES:
        return [{"rate": _RATES[action]}]
    if action == "rate":
        return [{"rate": _rate(value)}]
    if action == "advance":
        whole, rest_ns = divmod(_advance_ns(value), STEP_S * 10**9)
        steps = [{"advance": f"{STEP_S}s"}] * whole
        return [*steps, {"advance": f"{rest_ns}ns"}] if rest_ns or not whole else steps
    return []


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        raise UsageError(f"{COMMAND} rate {text}: it is a number") from None
    if not 0 <= rate <= RATE_MAX:  # NaN is neither
        raise UsageError(f"{COMMAND} rate {text}: 0 to {RATE_MAX}")
    return rate


def _advance_ns(text: str) -> int:
    try:
        found = durations.parse(text)
    except durations.DurationError as error:
        raise UsageError(f"{COMMAND} advance: {error}") from None
    if not 0 <= found <= ADVANCE_S_MAX * 10**9:
        raise UsageError(f"{COMMAND} advance {text}: 0s to {ADVANCE_S_MAX // 3600}h")
    return found


async def _do(
    server: NamedServer, steps: Sequence[dict[str, Any]], terminal: Terminal
) -> dict[str, Any]:
    """Change the clock step by step; return how it is then."""
    if not steps:
        return await ask(server, "GET", PATH, answer_s=_ANSWER_S)
    state: dict[str, Any] = {}
    answer_s = _ANSWER_S if "rate" in steps[0] else _STEP_ANSWER_S
    for number, step in enumerate(steps):
        if number:
            terminal.say(f"{number} of {len(steps)} h have gone by: {state['time']}")
        state = await ask(server, "POST", PATH, None, orjson.dumps(step), answer_s=answer_s)
    return state


def _line(state: dict[str, Any], name: str) -> str:
    rate = state["rate"]
    how = "the machine's clock"
    if state["clock"] == "virtual":
        how = f"a clock of its own, {rate:g} times as fast as the machine's"
        if rate == 1:
            how = "a clock of its own, as fast as the machine's"
        elif not rate:
            how = "a clock of its own, paused"
    return f"{name}: {state['time']}, {how}"
