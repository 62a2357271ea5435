"""The command `kvstack hollow-nodes`: nodes without processes, until a signal comes."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import SystemRandom
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import Cluster, KubeconfigError, connect
from kvstack.agents.client.timing import SystemClock
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.kubelet.hollow.nodes import names_of
from kvstack.agents.process.access import review_access
from kvstack.agents.process.flag_rows import (
    AUTHENTICATION,
    AUTHORIZATION,
    CLIENT,
    page_flags,
)
from kvstack.agents.process.pages import Pages, serving
from kvstack.agents.process.settings import PageSettings, cluster_of, page_settings, raise_wrong
from kvstack.apiserver.server.program import (
    FAILED,
    is_done_before,
    keep_log_of_loop,
    run,
    settle,
    stop_event,
)
from kvstack.apiserver.server.settings.command_line import UsageError, help_text, read_command_line
from kvstack.apiserver.server.settings.component_flags import SHORT
from kvstack.apiserver.server.settings.flag_reader import FlagReader
from kvstack.apiserver.server.settings.flag_table import Effect, Flag, FlagTable, Kind
from kvstore.errors import ConfigError
from kvstore.logger import Logger
from kvstore.runtime.log.line_logger import open_logger

COMMAND: Final = "kvstack hollow-nodes"
ABOUT: Final = "Nodes that run pods without any process."

_AGENT: Final = "kvstack-hollow-nodes"
TABLE: Final = FlagTable(
    (
        Flag(
            "nodes",
            "Nodes",
            Kind.TEXT,
            "1",
            Effect.LIVE,
            "how many, or their names, comma-separated",
        ),
        Flag(
            "adopt",
            "Nodes",
            Kind.BOOL,
            "false",
            Effect.LIVE,
            "run nodes too that others make with the label hollow=true; of one process alone",
        ),
        *CLIENT,
        *page_flags(10248),
        *AUTHENTICATION,
        *AUTHORIZATION,
        Flag("help", "Global", Kind.BOOL, "false", Effect.LIVE, "show this text"),
        Flag("v", "Global", Kind.INT, "0", Effect.LIVE, "4 and more: debug"),
    ),
    SHORT,
)


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    try:
        given = read_command_line(arguments, COMMAND, TABLE)
        if given.values.get("help"):
            sys.stdout.write(help_text(COMMAND, ABOUT, TABLE))
            return 0
        wrong: list[str] = []
        reader = FlagReader(given, wrong)
        pages = page_settings(reader)
        raise_wrong(wrong)
        try:
            names = names_of(reader.text("nodes"))
        except ValueError as error:
            raise UsageError(f"--nodes {error}") from error
        options = HollowOptions(names, adopts=reader.flag("adopt"))
        cluster = cluster_of(reader.text("kubeconfig"), reader.text("master"))
        log = open_logger(("default",), "debug" if reader.int("v") >= 4 else "info", "json")
    except (UsageError, ConfigError, KubeconfigError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return FAILED
    try:
        return run(lambda: _serve(cluster, options, pages, log), log)
    except (ConfigError, KubeconfigError) as error:
        log.fatal("command failed", error=str(error))
        return FAILED


async def _serve(
    cluster: Cluster, options: HollowOptions, settings: PageSettings, log: Logger
) -> None:
    end = asyncio.ensure_future(stop_event().wait())
    keep_log_of_loop(log)
    clock, chance = SystemClock(), SystemRandom().random
    is_ready = False
    async with AsyncExitStack() as stack:
        api = Api(connect(cluster), Options(user_agent=_AGENT))
        stack.push_async_callback(api.close)
        checks = {"nodes": lambda: is_ready}
        health = {"/healthz": checks, "/livez": {}, "/readyz": checks}
        access = review_access(stack, cluster, settings, clock, _AGENT)
        await stack.enter_async_context(serving(Pages(access, health, lambda: b""), settings))
        informers = await stack.enter_async_context(Informers(api, clock, chance, log))
        nodes = HollowNodes(api, informers, clock, chance, log, options)
        stack.push_async_callback(nodes.stop)
        settle()  # it may wait for an API server for days
        if await is_done_before(end, nodes.start()):
            is_ready = True
            settle()
            log.info("hollow nodes are ready", names=list(options.names))
            await end
