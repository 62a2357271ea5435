"""metrics.k8s.io in the process of an API server.

    metrics = LocalMetrics(server, informers, clock, logger, options, own_nodes)
    await metrics.start();  …;  await metrics.stop()

Nodes of this process are read without a socket; others as the API server reaches kubelets, with its
certificate. The APIServices are created if missing: those of others stay as they are, and
who registers a server of their own for the group takes it over at once.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.client.informers import Informers
from kvstack.agents.metrics.answers import MetricsApi, answered
from kvstack.agents.metrics.collector import Collector, CollectorOptions, UnreadableError
from kvstack.agents.metrics.documents import MetricsGroup
from kvstack.agents.metrics.history_api import HISTORY_GROUP, HistoryApi
from kvstack.agents.metrics.readings import Reading
from kvstack.agents.metrics.resource_api import GROUPS, ResourceApi
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.aggregation.in_process import ServedVersion
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.webhooks.outbound import CLOSED, NODE
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

OwnNode: TypeAlias = Callable[[str], Awaitable[Reading] | None]
"""Reads a node of this process by its name; None: it is not one of them."""
NodeAtHand: TypeAlias = Callable[[str], Reading | None]
"""The same, of nodes for which nothing has to be waited."""

_API_SERVICES: Final = GroupResource("apiregistration.k8s.io", "apiservices")
_GROUP_PRIORITY: Final = 100
_VERSION_PRIORITY: Final = 100


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """How nodes are read."""

    collector: CollectorOptions = field(default_factory=CollectorOptions)


class LocalMetrics:
    """Reads nodes and serves what they use."""

    def __init__(
        self,
        server: ApiServer,
        informers: Informers,
        clock: Clock,
        logger: Logger,
        options: MetricsOptions,
        own_nodes: Sequence[OwnNode],
        nodes_at_hand: Sequence[NodeAtHand] = (),
    ) -> None:
        self._server = server
        self._clock = clock
        self._own_nodes = own_nodes
        self._nodes_at_hand = nodes_at_hand
        self._others: Callable[[Object], Awaitable[Reading]] | None = None
        self.collector: Final = Collector(
            informers, clock, logger, options.collector, self._read, self._read_now
        )
        nodes, pods = informers.of(NODES).store, informers.of(PODS).store
        resources = ResourceApi(self.collector.points, nodes, pods, clock)
        history = HistoryApi(self.collector.history, nodes, pods)
        self._served: Final = [
            *(_version(each, resources) for each in GROUPS),
            _version(HISTORY_GROUP, history),
        ]

    async def start(self) -> None:
        """Serve, and start to read."""
        for each in self._served:
            self._server.aggregator.here.add(each)
        for each in self._served:
            if not self._is_foreign(each.group):
                await self._register(each)
        await self.collector.start()

    async def stop(self) -> None:
        """Stop reading and serving."""
        await self.collector.stop()
        for each in self._served:
            self._server.aggregator.here.remove(each)

    def _is_foreign(self, group: str) -> bool:
        """Whether another server serves a group."""
        return any(
            each["spec"].get("group") == group and each["spec"].get("service") is not None
            for each in self._server.registry.view.list(_API_SERVICES)
        )

    async def _register(self, served: ServedVersion) -> None:
        name = f"{served.version}.{served.group}"
        loopback = self._server.loopback
        if loopback.get(_API_SERVICES, "", name) is not None:
            return
        spec = {
            "group": served.group,
            "version": served.version,
            "groupPriorityMinimum": _GROUP_PRIORITY,
            "versionPriority": _VERSION_PRIORITY,
        }
        try:
            await loopback.create(_API_SERVICES, {"metadata": {"name": name}, "spec": spec})
        except ApiError as error:
            if not error.is_conflict:  # another server of the cluster was quicker
                raise

    def _read_now(self, node: Object) -> Reading | None:
        for read in self._nodes_at_hand:
            reading = read(node["metadata"]["name"])
            if reading is not None:
                return reading
        return None

    async def _read(self, node: Object) -> Reading:
        name = node["metadata"]["name"]
        for own in self._own_nodes:
            found = own(name)
            if found is not None:
                return await found
        if not self._server.outbound.may_ask(NODE, name, "what it and its pods use"):
            raise UnreadableError(CLOSED)
        if self._others is None:
            self._others = self._kubelets()
        return await self._others(node)

    def _kubelets(self) -> Callable[[Object], Awaitable[Reading]]:
        """Return what reads nodes elsewhere."""
        from kvstack.agents.metrics.kubelets import KubeletOptions, Kubelets  # seldom wanted

        settings = self._server.options
        tls = settings.kubelets
        options = KubeletOptions(
            tls.cert_file, tls.key_file, tls.ca_file, address_types=settings.kubelet_addresses
        )
        return Kubelets(options, self._clock).read


def _version(group: MetricsGroup, api: MetricsApi) -> ServedVersion:
    """Return a version as the API server serves it."""

    async def serve(context: RequestContext) -> None:
        request, route = context.request, context.route
        path, accept = route.info.path, request.header("accept")
        found = await answered(api, request.method, path, route.query, accept)
        context.reply.send(found.code, found.content_type, found.body)

    return ServedVersion(
        group.name,
        group.version,
        _GROUP_PRIORITY,
        _VERSION_PRIORITY,
        group.aggregated(),
        group.openapi_v3(),
        group.openapi_v2(),
        serve,
    )
