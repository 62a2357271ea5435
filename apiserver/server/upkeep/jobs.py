"""All jobs of a server, with upstream's intervals and start hook names."""

import socket
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kvstack.apimachinery.schema.table import Table
from kvstack.apiserver.apiextensions.serving.definitions import DEFINITIONS
from kvstack.apiserver.http.site import Site
from kvstack.apiserver.policy.flow_control.control import REBALANCE_S
from kvstack.apiserver.policy.flow_control.control import FlowControl as SeatControl
from kvstack.apiserver.registry.compaction import Compaction
from kvstack.apiserver.registry.encryption.kms import UNHEALTHY_S
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.server.aggregator import Aggregator
from kvstack.apiserver.server.authorizers import RBAC
from kvstack.apiserver.server.encryption import Encryption
from kvstack.apiserver.server.loopback import Loopback
from kvstack.apiserver.server.security import Security
from kvstack.apiserver.server.settings.options import Options
from kvstack.apiserver.server.upkeep import (
    api_services,
    config_maps,
    fixed_objects,
    flow_control,
    identity_lease,
    kubernetes_service,
    repairs,
    service_cidr,
    unused,
)
from kvstack.apiserver.server.upkeep.api_services import ApiServices
from kvstack.apiserver.server.upkeep.config_maps import AuthenticationInfo, TokenTracking
from kvstack.apiserver.server.upkeep.definitions import DefinitionKeeper
from kvstack.apiserver.server.upkeep.fixed_objects import FixedObjects
from kvstack.apiserver.server.upkeep.flow_control import FlowControl
from kvstack.apiserver.server.upkeep.identity_lease import IdentityLease
from kvstack.apiserver.server.upkeep.kubernetes_service import KubernetesService
from kvstack.apiserver.server.upkeep.loop import Job
from kvstack.apiserver.server.upkeep.repairs import ClusterIpRepair, NodePortRepair
from kvstack.apiserver.server.upkeep.roles import Roles
from kvstack.apiserver.server.upkeep.service_cidr import DefaultServiceCidr
from kvstack.apiserver.server.upkeep.unused import Unused
from kvstack.apiserver.server.upkeep.warning_events import WarningEvents
from kvstack.apiserver.verbs.environment import Environment
from kvstack.component.logger import Logger
from kvstack.component.net.hosts import join_host_port

NAMESPACES_S: Final = 60.0
CERTIFICATES_S: Final = 3600.0
TOKEN_USES_S: Final = 10.0
AUTHORITIES_S: Final = 60.0
POLICY_FILES_S: Final = 5.0
"""Interval of reloading configuration files of authorizers and authenticators."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What jobs need."""

    options: Options
    table: Table
    registry: Registry
    env: Environment
    loopback: Loopback
    security: Security
    site: Site
    advertised: str
    """The IP address that is advertised to the cluster."""
    port: int
    renew: Callable[[], None]
    """Renews certificates; raises ConfigError."""
    aggregator: Aggregator
    logger: Logger
    encryption: Encryption | None = None
    """Encryption at rest."""


def make_jobs(cluster: Cluster) -> list[Job]:
    """Return the jobs of a server."""
    jobs = [*_unwritten(cluster)] if cluster.options.is_read_only else _all_jobs(cluster)
    if cluster.options.is_alone and cluster.options.rests:
        for each in jobs:
            _let_rest(each, cluster.registry)
    return jobs


def _all_jobs(cluster: Cluster) -> list[Job]:
    loopback = cluster.loopback
    namespaces = Job(
        "system namespaces",
        FixedObjects(loopback, fixed_objects.NAMESPACES, fixed_objects.namespaces()).keep,
        every_s=NAMESPACES_S,
        follows=(fixed_objects.NAMESPACES,),
        hooks=("poststarthook/start-system-namespaces-controller",),
    )
    return [
        namespaces,
        *_policy(cluster, namespaces),
        *_network(cluster, namespaces),
        *_own(cluster, namespaces),
    ]


def _let_rest(job: Job, registry: Registry) -> None:
    """Have no rounds of a job while nothing that it follows changes."""
    if job.follows is None and not job.is_about_machine:
        return
    job.rest()
    for each in job.follows or ():
        registry.view.subscribe(each, lambda _: job.note_change())


def _policy(cluster: Cluster, namespaces: Job) -> Iterator[Job]:
    """Yield the jobs that maintain objects of policy."""
    loopback, security = cluster.loopback, cluster.security
    if RBAC in security.authorizers.types:
        yield Job(
            "roles",
            Roles(loopback, cluster.options.rbac_objects).keep,
            hooks=("poststarthook/rbac/bootstrap-roles",),
            after=namespaces,
        )
    if loopback.serves(fixed_objects.PRIORITY_CLASSES):
        classes = fixed_objects.priority_classes()
        keep = FixedObjects(loopback, fixed_objects.PRIORITY_CLASSES, classes).keep
        hooks = ("poststarthook/scheduling/bootstrap-system-priority-classes",)
        yield Job("priority classes", keep, hooks=hooks)
    if loopback.serves(flow_control.SCHEMAS):
        yield from _flow_control(cluster)
    yield from _credentials(cluster, namespaces)


def _flow_control(cluster: Cluster) -> Iterator[Job]:
    """Yield the jobs that maintain priority levels and flow schemas."""
    flow = FlowControl(cluster.loopback, cluster.registry.view, cluster.env.clock)
    producer = Job(
        "flow control",
        flow.keep,
        every_s=flow_control.PERIOD_S,
        follows=(flow_control.SCHEMAS, flow_control.LEVELS),
        hooks=("poststarthook/priority-and-fairness-config-producer",),
    )
    yield producer
    control = cluster.site.queues
    if control is not None:
        yield _lending(control.control)
    conditions = Job(
        "flow control's conditions",
        flow.update_conditions,
        every_s=flow_control.PERIOD_S,
        follows=(flow_control.SCHEMAS, flow_control.LEVELS),
        after=producer,
    )
    for each in (flow_control.SCHEMAS, flow_control.LEVELS):
        cluster.registry.view.subscribe(each, lambda _: conditions.wake())
    yield conditions


def _lending(control: SeatControl) -> Job:
    """Return the job that has priority levels lend each other seats."""

    async def lend() -> None:
        if control.rebalance():
            job.note_change()

    job = Job(
        "seats of priority levels",
        lend,
        every_s=REBALANCE_S,
        follows=(flow_control.SCHEMAS, flow_control.LEVELS),
    )
    control.on_demand = job.note_change
    return job


def _credentials(cluster: Cluster, namespaces: Job) -> Iterator[Job]:
    """Yield the jobs that maintain what clients and the server know each other by."""
    loopback, security, clock = cluster.loopback, cluster.security, cluster.env.clock
    given = cluster.options.authentication
    clients = security.authenticators.client_authorities
    proxies = security.authenticators.proxy_authorities
    publishing = Job(
        "authentication info",
        AuthenticationInfo(loopback, clients, proxies, given.proxy_lists).keep,
        every_s=config_maps.PERIOD_S,
        follows=(config_maps.RESOURCE,),
        hooks=("poststarthook/start-cluster-authentication-info-controller",),
        after=namespaces,
    )
    for each in (clients, proxies):
        if each is not None:
            each.on_change = publishing.note_change
    yield publishing
    yield Job(
        "token tracking",
        TokenTracking(loopback, clock).keep,
        every_s=config_maps.PERIOD_S,
        follows=(config_maps.RESOURCE,),
        hooks=("poststarthook/start-legacy-token-tracking-controller",),
        after=namespaces,
    )
    if security.reloads:
        yield Job("policy files", security.reload, every_s=POLICY_FILES_S, is_about_machine=True)
    legacy_tokens = security.authenticators.legacy_tokens
    if legacy_tokens is not None:
        uses = Job(
            "uses of legacy tokens", legacy_tokens.write_last_uses, every_s=TOKEN_USES_S, follows=()
        )
        legacy_tokens.on_use = uses.note_change
        yield uses


def _network(cluster: Cluster, namespaces: Job) -> Iterator[Job]:
    """Yield the jobs of the Service `kubernetes` and of Service allocations."""
    options, loopback, registry = cluster.options, cluster.loopback, cluster.registry
    clock = cluster.env.clock
    if loopback.serves(service_cidr.RESOURCE):
        keeper = DefaultServiceCidr(loopback, options.service_ranges, clock, cluster.logger)
        ranges = Job(
            "the default ServiceCIDR",
            keeper.keep,
            every_s=service_cidr.PERIOD_S,
            follows=(service_cidr.RESOURCE,),
            hooks=("poststarthook/start-kubernetes-service-cidr-controller",),
            after=namespaces,
        )
        yield ranges
        addresses = ClusterIpRepair(
            loopback,
            registry,
            options.service_ranges,
            _events(cluster, "ipallocator-repair-controller"),
            clock,
        )
        repair = Job(
            "repair of cluster IPs",
            addresses.look,
            every_s=repairs.ADDRESSES_FULL_S,
            after=ranges,
            at_end=addresses.end,
        )
        addresses.wake = repair.wake
        yield repair
    ports = NodePortRepair(
        registry,
        options.node_ports,
        _events(cluster, "portallocator-repair-controller"),
        cluster.logger,
    )
    yield _port_repair(ports)
    service = KubernetesService(
        loopback,
        registry,
        options.service_ranges[0],
        cluster.advertised,
        cluster.port,
        node_port=options.kubernetes_node_port,
        keeps_endpoints=options.keeps_endpoints,
        is_alone=options.is_alone,
    )
    yield Job(
        "the Service kubernetes",
        service.keep,
        every_s=kubernetes_service.PERIOD_S,
        follows=kubernetes_service.RESOURCES,
        hooks=("poststarthook/bootstrap-controller",),
        after=namespaces,
        at_end=service.leave,
    )


def _port_repair(ports: NodePortRepair) -> Job:
    """Return the job that corrects the bitmap of node ports."""

    async def repair() -> None:
        if await ports.round():
            job.note_change()

    job = Job(
        "repair of node ports",
        repair,
        every_s=repairs.PORTS_S,
        follows=(repairs.SERVICES,),
        hooks=("poststarthook/start-service-ip-repair-controllers",),
    )
    return job


def _own(cluster: Cluster, namespaces: Job) -> Iterator[Job]:
    """Yield the jobs of this server and its store."""
    options, loopback, registry, env = (
        cluster.options,
        cluster.loopback,
        cluster.registry,
        cluster.env,
    )
    lease = IdentityLease(
        loopback,
        registry.view,
        env.clock,
        socket.gethostname().lower(),
        join_host_port(cluster.advertised, cluster.port),
        env.identifiers.new_uid(),
    )
    yield Job(
        "identity lease",
        lease.renew,
        every_s=identity_lease.ALONE_S if options.is_alone else identity_lease.PERIOD_S,
        hooks=("poststarthook/start-kube-apiserver-identity-lease-controller",),
        after=namespaces,
    )
    yield Job(
        "leases of dead servers",
        lease.collect,
        every_s=identity_lease.COLLECT_S,
        hooks=("poststarthook/start-kube-apiserver-identity-lease-garbage-collector",),
    )
    if loopback.serves(DEFINITIONS):
        definitions = DefinitionKeeper(registry, cluster.logger)
        yield Job("definitions", definitions.begin, at_end=definitions.end)
    if loopback.serves(api_services.RESOURCE):
        keeper = ApiServices(loopback, cluster.table, cluster.site, registry, cluster.logger)
        aggregator = cluster.aggregator
        yield Job("aggregated servers", aggregator.begin, at_end=aggregator.end)
        yield Job(
            "API services",
            keeper.keep,
            every_s=api_services.PERIOD_S,
            follows=(api_services.RESOURCE,),
            hooks=("poststarthook/kube-apiserver-autoregistration", "autoregister-completion"),
            at_end=keeper.end,
        )
    if options.store.compaction_s:
        compaction = Compaction(
            registry.store,
            registry.times,
            env.clock,
            history_s=options.store.history_s,
            on_compacted=registry.watch_cache.note_compaction,
        )
        yield Job(
            "compaction", compaction.round, every_s=options.store.compaction_s, begins_later=True
        )
    if cluster.encryption is not None:
        at_rest = cluster.encryption
        yield Job(
            "encryption", lambda: at_rest.keep(registry), every_s=UNHEALTHY_S, begins_later=True
        )
    yield from _unwritten(cluster)


def _unwritten(cluster: Cluster) -> Iterator[Job]:
    """Yield the jobs that write nothing to the store."""
    look = Unused(cluster.registry, cluster.site.router).look
    yield Job(
        "unused memory", look, every_s=unused.PERIOD_S, begins_later=True, is_about_machine=True
    )
    yield Job(
        "certificates",
        _plain(cluster.renew),
        every_s=CERTIFICATES_S,
        begins_later=True,
        is_about_machine=True,
    )
    yield Job(
        "authorities",
        _plain(cluster.security.authenticators.reload_authorities),
        every_s=AUTHORITIES_S,
        begins_later=True,
        is_about_machine=True,
    )


def _events(cluster: Cluster, controller: str) -> WarningEvents:
    env = cluster.env
    host = socket.gethostname()
    return WarningEvents(cluster.loopback, controller, host, env.clock, env.random.getrandbits)


def _plain(do: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def once() -> None:
        do()

    return once
