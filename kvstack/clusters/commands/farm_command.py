"""The command `kvstack farm`: clusters for test suites, at once and in any number.

kvstack farm --listen unix:///tmp/farm.sock
kvstack farm --prepare ./bootstrap.sh --listen 127.0.0.1:7400
"""

import asyncio
import os
import secrets
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvstack.clusters.commands import flag_rows
from kvstack.clusters.commands.options import CommandLine
from kvstack.clusters.commands.running import CommandHelp, run_command
from kvstack.clusters.commands.terminal import Terminal
from kvstack.component.flags.command_line import UsageError
from kvstack.component.flags.flag_table import FlagTable
from kvstack.component.line_log.line_logger import open_logger

if TYPE_CHECKING:
    from kvstack.clusters.farm.farm import FarmSettings

COMMAND: Final = "kvstack farm"
ARGUMENTS: Final = "[flags]"
ABOUT: Final = """\
Serve clusters to test suites in any language: each is a process of its own, forked from one that
is warm already. It ends when it is deleted, after its time, or with the process that requested it.

  kvstack farm --listen unix:///tmp/farm.sock
  kvstack farm --prepare ./bootstrap.sh          clusters begin with what the script made

  curl --unix-socket /tmp/farm.sock -d '{"nodes": 3}' http://farm/clusters

Over TCP requests carry the token that the command prints: `Authorization: Bearer …`."""
TABLE: Final = FlagTable((*flag_rows.FARM, flag_rows.HELP), {"h": "help"})
_UNIX: Final = "unix://"
_LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_SOCKET_MODE: Final = 0o600
_NAME: Final = "farm"
_TOKEN_BYTES: Final = 32


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def body(line: CommandLine, shown: Terminal) -> int:
        line.at_most(0)
        return _farm(line, shown)

    return run_command(CommandHelp(COMMAND, ARGUMENTS, ABOUT, TABLE), arguments, body)


def _farm(line: CommandLine, terminal: Terminal) -> int:
    from kvstack.clusters.farm.farm import CLUSTERS_MAX, NODES_MAX, FarmSettings
    from kvstack.clusters.farm.preparing import prepare

    reader = line.reader
    url = _listen_url(reader.text("listen"))
    clusters_max, nodes = reader.int("max-clusters"), reader.int("nodes")
    if not 0 < clusters_max <= 10 * CLUSTERS_MAX:
        raise UsageError(f"--max-clusters {clusters_max}: 1 to {10 * CLUSTERS_MAX}")
    if not 0 <= nodes <= NODES_MAX:
        raise UsageError(f"--nodes {nodes}: 0 to {NODES_MAX}")
    packed, script = reader.text("contents"), reader.text("prepare")
    if packed and script:
        raise UsageError("--contents and --prepare cannot be used together")
    if packed and not Path(packed).is_file():
        raise UsageError(f"--contents {packed}: file does not exist")
    line.registry.forks()  # what a farm left that was killed is removed
    reserved = line.registry.reserve("", _NAME)
    try:
        if script:
            terminal.say(f"running {script}")
            packed = str(prepare(shlex.split(script), reserved.directory, nodes))
        settings = FarmSettings(str(Path(packed).absolute()) if packed else "", clusters_max)
        asyncio.run(_serve(url, settings, nodes, reserved.directory, terminal))
    except KeyboardInterrupt:
        pass  # that is how it ends
    finally:
        reserved.give_up()
    return 0


async def _serve(
    url: str, settings: "FarmSettings", nodes: int, directory: Path, terminal: Terminal
) -> None:
    from kvstack.clusters.farm.farm import Asked, Farm
    from kvstack.clusters.farm.routes import Routes
    from kvstack.component.http.serving.listeners import Listener
    from kvstack.component.http.serving.server import HttpServer
    from kvstack.component.process.program import stop_event

    stop = stop_event()
    token = "" if url.startswith(_UNIX) else secrets.token_urlsafe(_TOKEN_BYTES)
    log = open_logger(("stderr",), "warn", "console")
    async with Farm(directory, settings, log) as farm:
        terminal.say("warming a cluster")
        await farm.warm(Asked(nodes=nodes))
        before = os.umask(0o777 & ~_SOCKET_MODE)  # no other user may ever connect
        try:
            http = HttpServer([Listener(url)], Routes(farm, token).handle)
            await http.start()
        finally:
            os.umask(before)
        try:
            terminal.print(f"farm at {http.urls[0]}")
            if token:
                terminal.print(f"token {token}")
            await stop.wait()
        finally:
            await http.stop(0.0)


def _listen_url(text: str) -> str:
    """Return where to listen; raises UsageError."""
    if text.startswith(_UNIX):
        return text
    host, _, port = text.rpartition(":")
    if host not in _LOOPBACK or not port.isdecimal():
        raise UsageError(
            f"--listen {text}: unix:///path, or a port of the loopback, as 127.0.0.1:7400"
        )
    return f"http://{text}"
