"""The process of the controllers: `kvstack controller-manager`.

    flags ─► API ─► lease ─► informers, controllers ─► until SIGTERM or SIGINT

Exit code 0: ended as asked; 1: flags or files cannot be used, or the lease was lost.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from random import SystemRandom
from typing import Final

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.leader_election import LeaderElection
from kvstack.agents.client.rate_limiter import NO_LIMIT, RateLimiter, TokenBucket
from kvstack.agents.controllers.light_objects import LIGHT
from kvstack.agents.controllers.table import controllers
from kvstack.agents.manager.configuration import configz
from kvstack.agents.manager.flags import TABLE
from kvstack.agents.manager.metrics import manager_metrics
from kvstack.agents.manager.settings import ManagerSettings, manager_settings
from kvstack.agents.process.access import review_access
from kvstack.agents.process.leading import (
    election_checks,
    election_metrics,
    lead_until,
    lease_events,
    new_identity,
)
from kvstack.agents.process.pages import Pages, serving
from kvstack.agents.process.settings import cluster_of
from kvstack.agents.reconcile.manager import Manager, Users
from kvstack.agents.reconcile.runner import Environment
from kvstack.agents.reconcile.service_accounts import OneUser, ServiceAccountUsers
from kvstack.component.clock import Clock, SystemClock
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.process.command import Command, Work, run_command
from kvstack.component.process.program import settle, stop_event

COMMAND: Final = "kvstack controller-manager"
ABOUT: Final = "The controllers of a cluster. Flags are kube-controller-manager's."

_AGENT: Final = "kube-controller-manager"
_FASTER: Final = {"namespace-controller": (20, 100), "generic-garbage-collector": (2, 1)}
"""Multiples of the rate limit for controllers that delete others' objects, by service account."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)


def _prepare(given: CommandLine) -> Work:
    settings = manager_settings(given)
    process = settings.process
    cluster = cluster_of(process.kubeconfig, process.master)
    return Work(
        lambda log: serve(cluster, settings, given, log),
        process.log_level,
        process.without_effect,
    )


@dataclass(slots=True)
class _Running:
    """What the leader runs, for pages."""

    manager: Manager | None = None


async def serve(
    cluster: Cluster, settings: ManagerSettings, command_line: CommandLine, log: Logger
) -> None:
    """Run controllers until a signal comes; LeaseLostError: another leads.

    command_line: the command line that the settings are of.
    """
    stop = stop_event()
    clock, random = SystemClock(), SystemRandom().random
    running = _Running()
    async with AsyncExitStack() as stack:

        def api(role: str, limiter: RateLimiter = NO_LIMIT) -> Api:
            options = Options(user_agent=f"{_AGENT}/{role}", limiter=limiter)
            found = Api(connect(cluster), options)
            stack.push_async_callback(found.close)
            return found

        election = None
        process = settings.process
        if process.elects:
            electing = api("leader-election")
            tell = await stack.enter_async_context(
                lease_events(electing, _AGENT, clock, random, log)
            )
            election = LeaderElection(
                electing, process.lease, new_identity(), clock, random, log, process.terms, tell
            )
        checks = election_checks(election)
        """Health checks of controllers are added as soon as they run."""
        users = _users(cluster, settings, api, clock)
        shared = api("shared-informers", limiter_of(settings, clock))

        async def lead() -> None:
            async with Informers(shared, clock, random, log, lighten=LIGHT) as informers:
                environment = Environment(informers, clock, random, log, settings.workers)
                options = settings.controllers
                if not options.root_ca and cluster.ca:
                    options = replace(options, root_ca=cluster.ca.decode("utf-8", "replace"))
                chosen = controllers(options, settings.chosen)
                running.manager = manager = Manager(chosen, users, environment)
                try:
                    await manager.start()
                    for runner in manager.runners:
                        checks[runner.controller.identity.name] = _is_there
                    settle()
                    log.info("controllers are running", count=len(manager.runners))
                    await asyncio.Event().wait()
                finally:
                    running.manager = None
                    await manager.stop()

        access = review_access(stack, cluster, process.pages, clock, _AGENT)
        health = dict.fromkeys(("/healthz", "/livez", "/readyz"), checks)

        def metrics() -> list[FamilySamples]:
            leading = election_metrics(election, process.lease.name)
            return [leading, *manager_metrics(running.manager)]

        pages = Pages(access, health, metrics, configz(command_line))
        await stack.enter_async_context(serving(pages, process.pages))
        if election is not None:
            settle()  # it may wait for days
        await lead_until(stop, lead, election)


def _is_there() -> bool:
    """The health of a started controller: as upstream, it is healthy while it exists."""
    return True


def _users(
    cluster: Cluster,
    settings: ManagerSettings,
    api: Callable[[str], Api],
    clock: Clock,
) -> Users:
    def limiter(service_account: str) -> RateLimiter:
        return limiter_of(settings, clock, service_account)

    if not settings.own_accounts:
        return OneUser(cluster, _AGENT, limiter)
    return ServiceAccountUsers(api("tokens-controller"), cluster, clock, _AGENT, limiter)


def limiter_of(settings: ManagerSettings, clock: Clock, service_account: str = "") -> RateLimiter:
    """Return what holds the requests of a controller back, as `--kube-api-qps` and -burst say."""
    if not settings.per_second:
        return NO_LIMIT
    rate, burst = _FASTER.get(service_account, (1, 1))
    return TokenBucket(clock, settings.per_second * rate, settings.burst * burst)
