"""A cluster in one process: `kvstack up`.

    store ◄── API server ◄── agents (`local_agents`)

    DIR/                            the store, as `kvstore --data-dir DIR` has it
    DIR/run/etcd.sock               where it listens, for this user and root only
    DIR/kubernetes/pki/             ca, apiserver, admin, front-proxy-ca, front-proxy-client, sa
    DIR/kubernetes/admin.conf       the kubeconfig of the administrator, whose rights RBAC gives
    DIR/kubernetes/super-admin.conf  of system:masters, which bypasses RBAC
    DIR/kubernetes/node/            of the node that runs pods as processes: images, volumes, logs
    DIR/kubernetes/node/local-path/ volumes of the class local-path, which outlive their pods

Certificates are made where they are missing and renewed in time, once the data directory is locked.
The store answers the API server without a socket; how others reach it is `store_access`'s affair.
All flags of both may be given.
"""

import asyncio
import contextlib
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kvstack.agents.standalone.agent_settings import agent_options, pod_ranges
from kvstack.agents.standalone.api_for_pods import address_for_pods
from kvstack.agents.standalone.doctor import machine
from kvstack.agents.standalone.in_memory.settling import ClusterParts
from kvstack.agents.standalone.parts import (
    DASHBOARD,
    NODE,
    PROXY,
)
from kvstack.agents.standalone.pod_range import Network
from kvstack.agents.standalone.stack_settings import (
    ABOUT,
    COMMAND,
    StackOptions,
    announced_url,
    pki_dir,
    server_url,
    split_own,
    stack_options,
)
from kvstack.agents.standalone.store_access import (
    StoreAccess,
    exports,
)
from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.process import announce, serve_store
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import Options
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.net.hosts import join_host_port
from kvstack.component.process.command import Command, Work, read_flags, run_work

if TYPE_CHECKING:
    from kvstack.agents.standalone.local_agents import LocalAgents
    from kvstack.agents.standalone.rootless.entry import NamespaceEntry
    from kvstack.agents.standalone.rootless.outside import Outside
    from kvstack.apiserver.server.assembly import ApiServer
    from kvstore.embed import Member

SWITCH_S: Final = 0.0005
"""The switch interval of Python's lock."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_work(lambda: _prepare(arguments))


def _prepare(arguments: Sequence[str]) -> Work | None:
    own, rest = split_own(arguments)

    def prepare(given: CommandLine) -> Work:
        options = stack_options(own, given)
        entered = _enter(own)

        async def work(log: LineLogger) -> None:
            announce(options, log)
            if entered is None:
                await _serve_pods_too(own, options, log)
                return
            if entered.problem:
                log.warning("no node runs pods here", reason=entered.problem)
            for each in entered.limits:
                log.warning("limitations of a node without root", consequence=each)
            async with _passed_on(entered.outside, own, options, log):
                await _serve_pods_too(own, options, log, entered.outside)

        return Work(work, own.log_level, options.without_effect)

    return read_flags(Command(COMMAND, ABOUT, TABLE), rest, prepare)


def _enter(own: StackOptions) -> "NamespaceEntry | None":
    """Enter a user namespace, if this process needs a node and is not root; ConfigError."""
    if os.geteuid() == 0 or NODE in own.without or not own.may_be_rootless:
        return None
    from kvstack.agents.standalone.rootless.entry import enter
    from kvstack.agents.standalone.rootless.outside import OutsideError

    try:
        own.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory = own.data_dir.absolute() / "run"
        directory.mkdir(mode=0o700, exist_ok=True)
        return enter(directory)
    except (OSError, OutsideError) as error:
        raise ConfigError(f"a node without root: {error}; --rootless=false does without") from error


@contextlib.asynccontextmanager
async def _passed_on(
    outside: "Outside | None", own: StackOptions, options: Options, log: LineLogger
) -> AsyncIterator[None]:
    """Pass on what is connected with outside: the API server, and the store if it has a port."""
    if outside is None:
        yield
        return
    from kvstack.agents.standalone.rootless.outside import OutsideError
    from kvstack.agents.standalone.rootless.published import passed_on

    urls = map(urlsplit, own.client_urls)
    addresses = [
        (options.serving.bind_address, options.serving.port),
        *((each.hostname, each.port) for each in urls if each.hostname and each.port),
    ]
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(outside.close)
        for each in addresses:
            try:
                await stack.enter_async_context(passed_on(outside, each, log))
            except OutsideError as error:
                text = f"cannot listen on {join_host_port(*each)}: {error}"
                raise ConfigError(text) from error
        yield


async def _serve_pods_too(
    own: StackOptions, options: Options, log: LineLogger, outside: "Outside | None" = None
) -> None:
    """Serve, at an address for pods unless the flags name one."""
    serving = options.serving
    if _hidden_api(options) is None or not own.without.isdisjoint((NODE, PROXY)):
        await _serve(own, options, log, outside)
        return
    family = service_ranges(options)[0].version
    with address_for_pods(own.data_dir, serving.port, log, family) as address:
        if address:
            serving = dataclasses.replace(
                serving, also_bind_addresses=(address,), advertise_address=address
            )
        await _serve(own, dataclasses.replace(options, serving=serving), log, outside)


def _hidden_api(options: Options) -> tuple[str, int] | None:
    """Return where the API server listens, if no pod reaches that."""
    serving = options.serving
    is_hidden = ip_address(serving.bind_address).is_loopback and not serving.advertise_address
    return (serving.bind_address, serving.port) if is_hidden else None


def service_ranges(options: Options) -> tuple[Network, ...]:
    """Return the ranges of Services, that of the first family first."""
    return tuple(ip_network(each.cidr) for each in options.service_ranges)


async def _serve(
    own: StackOptions, options: Options, log: LineLogger, outside: "Outside | None"
) -> None:
    # A member takes its turns in a thread of its own.
    sys.setswitchinterval(SWITCH_S)
    try:
        own.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot use data directory {own.data_dir}: {error.strerror}") from error
    pki = Pki(pki_dir(own.data_dir), own.kubeconfig, options, server_url(options), log)
    access = StoreAccess(
        own.data_dir, pki_dir(own.data_dir), own.client_urls, own.store_flags, os.environ, log
    )
    opened, loop = asyncio.Event(), asyncio.get_running_loop()

    def on_opened() -> None:
        access.prepare()
        access.ensure()
        loop.call_soon_threadsafe(opened.set)

    def renew() -> None:
        pki.ensure()
        access.ensure()

    starting = asyncio.create_task(asyncio.to_thread(_start_member, own, access, on_opened, log))
    making = asyncio.create_task(_ensure(pki, opened))
    await asyncio.sleep(0)  # so that both begin
    # Meanwhile: load the modules of the API server.
    from kvstack.agents.standalone.local_agents import LocalAgents

    def agents_of(server: "ApiServer") -> "LocalAgents":
        url, hidden = announced_url(options), _hidden_api(options)
        settings = agent_options(own, pods, services, url, outside, hidden)
        agents = LocalAgents(server, settings, log)
        _add_clock_pages(server, agents)
        return agents

    await asyncio.wait([starting, making], return_when=asyncio.FIRST_COMPLETED)
    if not opened.is_set():
        making.cancel()
    await asyncio.wait([starting, making])
    member = starting.result()
    try:
        making.result()
        access.restrict()
        services = service_ranges(options)
        with pod_ranges(own, services, log) as pods:
            async with member.store() as store:
                await serve_store(
                    store,
                    options,
                    log,
                    on_made=lambda server: _add_pages(own, server, member),
                    on_ready=lambda: _on_ready(own, access.variables(member.client_urls), log),
                    ended=asyncio.to_thread(member.wait),
                    renew=renew,
                    beside=agents_of,
                )
    finally:
        await asyncio.to_thread(member.stop)


def _add_pages(own: StackOptions, server: "ApiServer", member: "Member") -> None:
    from kvstack.agents.standalone.pages.store import add_store_pages

    pages = server.site.pages
    add_store_pages(pages, member.page)
    directory = pki_dir(own.data_dir)
    for each in (directory, directory / "etcd"):
        server.certificates.add(each)
    if DASHBOARD not in own.without:
        from kvstack.agents.standalone.pages.dashboard import add_dashboard

        add_dashboard(pages)


def _add_clock_pages(server: "ApiServer", agents: "LocalAgents") -> None:
    """Serve `/settled` and `/clock`: this cluster uses the machine's time."""
    from kvstack.agents.standalone.pages.clock import add_clock_page
    from kvstack.agents.standalone.pages.settled import add_settled_page

    parts = ClusterParts(server, agents)
    add_settled_page(parts)
    add_clock_page(parts)


async def _ensure(pki: Pki, opened: asyncio.Event) -> None:
    """Make the certificates; no file is written before the data directory is this process's."""
    await asyncio.to_thread(pki.prepare)
    await opened.wait()
    await asyncio.to_thread(pki.ensure)


def _start_member(
    own: StackOptions, access: StoreAccess, on_opened: Callable[[], None], log: LineLogger
) -> "Member":
    from kvstore import embed

    return embed.start(
        own.data_dir,
        client_urls=access.urls,
        has_peers=own.has_peers,
        flags=(*access.flags, *own.store_flags),
        logger=log,
        on_opened=on_opened,
    )


def _on_ready(own: StackOptions, variables: Mapping[str, str], log: LineLogger) -> None:
    _print(own, variables)
    machine.log_in_short(pki_dir(own.data_dir), log)


def _print(own: StackOptions, variables: Mapping[str, str]) -> None:
    given = {"KUBECONFIG": str(own.kubeconfig.absolute()), **variables}
    sys.stdout.write(f"{exports(given)}kubectl get namespaces\n")
    sys.stdout.flush()
