"""The command `kvstack hollow-nodes`: nodes without processes, until a signal comes."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from random import SystemRandom
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.kubelet.hollow.flags import TABLE
from kvstack.agents.kubelet.hollow.hollow_nodes import HollowNodes, HollowOptions
from kvstack.agents.kubelet.hollow.nodes import names_of
from kvstack.agents.process.access import review_access
from kvstack.agents.process.pages import Pages, serving
from kvstack.agents.process.settings import PageSettings, cluster_of, page_settings, raise_wrong
from kvstack.component.clock import SystemClock
from kvstack.component.flags.command_line import CommandLine, UsageError
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.logger import Logger
from kvstack.component.process.command import Command, Work, level_of, run_command
from kvstack.component.process.program import is_done_before, settle, stop_event

COMMAND: Final = "kvstack hollow-nodes"
ABOUT: Final = "Hollow nodes, which run pods without processes."

_AGENT: Final = "kvstack-hollow-nodes"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)


def _prepare(given: CommandLine) -> Work:
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
    return Work(lambda log: _serve(cluster, options, pages, log), level_of(reader.int("v")))


async def _serve(
    cluster: Cluster, options: HollowOptions, settings: PageSettings, log: Logger
) -> None:
    end = asyncio.ensure_future(stop_event().wait())
    clock, random = SystemClock(), SystemRandom().random
    is_ready = False
    async with AsyncExitStack() as stack:
        api = Api(connect(cluster), Options(user_agent=_AGENT))
        stack.push_async_callback(api.close)
        checks = {"nodes": lambda: is_ready}
        health = {"/healthz": checks, "/livez": {}, "/readyz": checks}
        access = review_access(stack, cluster, settings, clock, _AGENT)
        await stack.enter_async_context(serving(Pages(access, health, tuple), settings))
        informers = await stack.enter_async_context(Informers(api, clock, random, log))
        nodes = HollowNodes(api, informers, clock, random, log, options)
        stack.push_async_callback(nodes.stop)
        settle()  # it may wait for an API server for days
        if await is_done_before(end, nodes.start()):
            is_ready = True
            settle()
            log.info("hollow nodes are ready", names=list(options.names))
            await end
