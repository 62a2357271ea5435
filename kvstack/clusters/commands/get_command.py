"""The command `kvstack get`: `kvstack get forks [-o json]`."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from kvstack.agents.standalone.in_memory.cluster_time import MACHINE, PAUSED, VIRTUAL
from kvstack.apimachinery.objects.times import format_time, human_duration
from kvstack.clusters.commands import flag_rows, terminal
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.clusters.forks.fork_page import fork_state
from kvstack.clusters.forks.registry import ForkRecord, ForkRegistry
from kvstack.component.clock import SystemClock
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable

COMMAND: Final = "kvstack get"
ARGUMENTS: Final = "forks [flags]"
ABOUT: Final = """\
List forks: source, size, memory, and how many calls to others were not made.

  kvstack get forks
  kvstack get forks -o json           names each webhook, server and node that was not called"""
TABLE: Final = FlagTable((flag_rows.OUTPUT, flag_rows.HELP), {"o": "output", "h": "help"})
KINDS: Final = ("forks", "fork")
_HEADS: Final = (
    "NAME", "SOURCE", "REVISION", "OBJECTS", "AGE", "ENDS", "CLOCK", "MEMORY", "NOT CALLED",
    "STATE",
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        kind, *names = line.arguments or [""]
        if kind not in KINDS:
            raise UsageError(
                f"{COMMAND} {kind}: only forks can be listed"
                if kind
                else f"{COMMAND}: forks is required"
            )
        output = line.output("table", "json")
        forks = line.registry.forks()
        for name in names:
            if name not in {each.name for each in forks}:
                raise UsageError(f"fork {name!r} does not exist")
        chosen = [each for each in forks if not names or each.name in names]
        states = asyncio.run(_states(line.registry, chosen))
        if output == "json":
            shown.print(_json(line.registry, chosen, states))
        elif not chosen:
            shown.note("no forks found")
        else:
            shown.print(terminal.table([_HEADS, *map(_row, chosen, states)]))
        return 0

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)


async def _states(
    registry: ForkRegistry, forks: Sequence[ForkRecord]
) -> list[dict[str, Any] | None]:
    asked = (_state(registry, each) for each in forks)
    return await asyncio.gather(*asked)


async def _state(registry: ForkRegistry, fork: ForkRecord) -> dict[str, Any] | None:
    return await fork_state(registry.kubeconfig(fork.name)) if fork.url else None


def _row(fork: ForkRecord, state: dict[str, Any] | None) -> tuple[str, ...]:
    now_s = SystemClock().unix_ms() / 1000
    unasked = sum(each["times"] for each in state["unasked"]) if state else 0
    return (
        fork.name,
        fork.source,
        str(state["revision"]) if state else str(fork.revision),
        str(fork.objects),
        human_duration(now_s - fork.began_s),
        f"in {human_duration(fork.ends_s - now_s)}" if fork.ends_s else "",
        _clock(state),
        f"{memory_bytes(fork.pid) >> 20}Mi",
        str(unasked) if state else "",
        _word(fork, state),
    )


def _clock(state: dict[str, Any] | None) -> str:
    if state is None:
        return ""
    rate = state.get("rate")
    if rate is None:
        return MACHINE
    return f"{VIRTUAL} x{rate:g}" if rate else PAUSED


def _word(fork: ForkRecord, state: dict[str, Any] | None) -> str:
    if not fork.url:
        return "starting"
    if state is None:
        return "no answer"
    return "read-only" if fork.is_read_only else "live"


def _json(
    registry: ForkRegistry, forks: Sequence[ForkRecord], states: Sequence[dict[str, Any] | None]
) -> str:
    items = [
        {
            "name": fork.name,
            "source": fork.source,
            "state": _word(fork, state),
            "began": format_time(fork.began_s),
            "ends": format_time(fork.ends_s) if fork.ends_s else None,
            "url": fork.url,
            "kubeconfig": str(registry.kubeconfig(fork.name)),
            "contextFile": fork.context_file,
            "revision": fork.revision,
            "clock": _clock(state) or None,
            "currentRevision": state["revision"] if state else None,
            "objects": fork.objects,
            "pid": fork.pid,
            "memoryBytes": memory_bytes(fork.pid),
            "notCalled": [_not_called(each) for each in state["unasked"]] if state else None,
        }
        for fork, state in zip(forks, states, strict=True)
    ]
    return orjson.dumps(items, option=orjson.OPT_INDENT_2).decode() + "\n"


def _not_called(unasked: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: unasked[name] for name in ("what", "name", "times", "last")},
        "lastTime": format_time(unasked["last_unix_ms"] / 1000),
    }


def memory_bytes(pid: int) -> int:
    """Return the memory of a process; 0: it is not there."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
