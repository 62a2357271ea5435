"""The command `kvstack dns`: answers queries until a signal comes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import SystemRandom
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.dns.flags import TABLE
from kvstack.agents.dns.pages import DnsPages
from kvstack.agents.dns.publishing.kube_dns import Endpoint, KubeDns
from kvstack.agents.dns.publishing.peers import Peers
from kvstack.agents.dns.server import DnsServer
from kvstack.agents.dns.settings import Settings, read
from kvstack.agents.process.settings import cluster_of, raise_wrong
from kvstack.component.clock import SystemClock
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.logger import Logger
from kvstack.component.process.command import Command, Work, level_of, run_command
from kvstack.component.process.program import settle, stop_event

COMMAND: Final = "kvstack dns"
ABOUT: Final = "Cluster DNS: the names of Services and their endpoints."
LAMEDUCK_S: Final = 1.0
"""So long queries are answered after the EndpointSlice is deleted: proxies need to learn of it."""
_AGENT: Final = "kvstack-dns"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)


def _prepare(given: CommandLine) -> Work:
    wrong: list[str] = []
    settings = read(FlagReader(given, wrong), SystemClock())
    raise_wrong(wrong)
    cluster = cluster_of(settings.kubeconfig, settings.master)
    return Work(lambda log: _serve(cluster, settings, log), level_of(settings.verbosity))


async def _serve(cluster: Cluster, settings: Settings, log: Logger) -> None:
    stop = stop_event()
    clock, random = SystemClock(), SystemRandom().random
    async with AsyncExitStack() as stack:
        api = Api(connect(cluster), Options(user_agent=_AGENT))
        stack.push_async_callback(api.close)
        informers = await stack.enter_async_context(Informers(api, clock, random, log))
        server = DnsServer(informers, settings.dns, clock, log)
        stack.push_async_callback(server.stop)
        await server.start()
        ports = {}
        for address in settings.addresses:
            ports[address] = port = await server.listen(address, settings.port)
            log.info("DNS is serving", address=address, port=port)
        pages = DnsPages(server, f"dns://:{settings.port}", settings.pages, clock)
        stack.push_async_callback(pages.stop)
        await pages.start()
        if (how := settings.publishing) is not None:
            objects = KubeDns(api, informers, how.name, how.cluster_ip, log)
            peers = Peers(api, informers, how.name, log)
            endpoint = Endpoint(how.address, ports[how.address], is_probed=True)
            await stack.enter_async_context(_published(objects, peers, server, endpoint))
        settle()
        await stop.wait()


@asynccontextmanager
async def _published(
    objects: KubeDns, peers: Peers, server: DnsServer, endpoint: Endpoint
) -> AsyncIterator[None]:
    """Let the Service lead here once all names are known, and elsewhere before the server ends."""

    async def announce() -> None:
        await server.synced()
        objects.answers_at(endpoint)

    objects.start()
    peers.start()
    task = asyncio.create_task(announce(), name="DNS: the endpoint becomes known")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await peers.stop()
        await objects.withdraw()
        await asyncio.sleep(LAMEDUCK_S)
