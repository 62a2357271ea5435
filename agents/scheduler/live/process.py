"""The process of a scheduler: `kvstack scheduler`.

    flags, configuration ─► API ─► informers ─► lease ─► Scheduler ─► until SIGTERM or SIGINT

Exit code 0: ended as asked; 1: flags or files cannot be used, or the lease was lost.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from socket import gethostname
from typing import Final

import yaml

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.leader_election import LeaderElection
from kvstack.agents.process.access import review_access
from kvstack.agents.process.leading import (
    election_checks,
    election_metrics,
    lead_until,
    lease_events,
    new_identity,
)
from kvstack.agents.process.pages import Checks, Pages, serving
from kvstack.agents.process.settings import Settings, cluster_of
from kvstack.agents.scheduler.configuration import Configuration, read_configuration
from kvstack.agents.scheduler.effective import effective
from kvstack.agents.scheduler.live.command_line import (
    ABOUT,
    COMMAND,
    election_of,
    read_flags,
    with_election,
)
from kvstack.agents.scheduler.live.flags import TABLE
from kvstack.agents.scheduler.live.scheduler import Scheduler
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilySamples
from kvstack.component.process.command import Command, Work, run_command
from kvstack.component.process.program import settle, stop_event

_AGENT: Final = "kube-scheduler"


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)


def _prepare(given: CommandLine) -> Work | None:
    flags = read_flags(given)
    config = _read_config(flags.config)
    configuration = replace(
        read_configuration(config, tie_break=flags.tie_break),
        max_unschedulable_s=flags.max_unschedulable_s,
    )
    settings = with_election(flags, config)
    whole = effective(config, settings.kubeconfig, election_of(settings))
    if flags.written_to:
        _write(flags.written_to, whole)
        return None
    cluster = _cluster(settings, config)
    return Work(
        lambda log: serve(cluster, settings, configuration, whole, log),
        settings.log_level,
        settings.without_effect,
    )


async def serve(
    cluster: Cluster,
    settings: Settings,
    configuration: Configuration,
    whole: Object,
    log: Logger,
) -> None:
    """Place pods until a signal comes; LeaseLostError: another leads.

    whole: the configuration as it is shown.
    """
    stop = stop_event()
    clock, rng = SystemClock(), SystemRandom().random
    host = gethostname()
    async with AsyncExitStack() as stack:
        api = Api(connect(cluster), Options(user_agent=f"{_AGENT}/scheduler"))
        stack.push_async_callback(api.close)
        informers = await stack.enter_async_context(Informers(api, clock, rng, log))
        scheduler = Scheduler(api, informers, clock, rng, log, configuration, host=host)
        election = None
        if settings.elects:
            lease_api = Api(connect(cluster), Options(user_agent=f"{_AGENT}/leader-election"))
            stack.push_async_callback(lease_api.close)
            component = next(iter(configuration.profiles))
            tell = await stack.enter_async_context(lease_events(api, component, clock, rng, log))
            election = LeaderElection(
                lease_api, settings.lease, new_identity(), clock, rng, log, settings.terms, tell
            )

        async def lead() -> None:
            await scheduler.start()
            settle()
            try:
                await stop.wait()
            finally:
                await scheduler.stop()

        access = review_access(stack, cluster, settings.pages, clock, _AGENT)
        pages = Pages(
            access,
            _checks(scheduler, election),
            lambda: _metrics(scheduler, election, settings),
            {"componentconfig": whole},
        )
        await stack.enter_async_context(serving(pages, settings.pages))
        if election is not None:
            settle()  # it may wait for days
        await lead_until(stop, lead, election)


def _checks(scheduler: Scheduler, election: LeaderElection | None) -> dict[str, Checks]:
    def is_synced() -> bool:
        return scheduler.is_synced or (election is not None and not election.is_leader)

    checks = election_checks(election)
    ready: Checks = {**checks, "sched-handler-sync": is_synced}
    return {"/healthz": checks, "/livez": checks, "/readyz": ready}


def _metrics(
    scheduler: Scheduler, election: LeaderElection | None, settings: Settings
) -> list[FamilySamples]:
    readings = scheduler.metrics.readings(scheduler.sizes())
    leading = election_metrics(election, settings.lease.name)
    return [*readings, leading]


def _read_config(path: str) -> Object:
    if not path:
        return {}
    try:
        found = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: not a scheduler configuration")
    return found


def _write(path: str, whole: Object) -> None:
    try:
        Path(path).write_text(yaml.safe_dump(whole), "utf-8")
    except OSError as error:
        raise ConfigError(f"--write-config-to: {path}: {error.strerror}") from error


def _cluster(settings: Settings, config: Object) -> Cluster:
    path = (config.get("clientConnection") or {}).get("kubeconfig") or settings.kubeconfig
    return cluster_of(path, settings.master)
