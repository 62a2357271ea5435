"""A proxy of its own process: its node, its backends, its pages.

serving = Serving(api, recorder, "node-1", configuration, clock, log)
await serving.start()       waits for the node, then serves
await serving.ended()       raises ConfigError when all is to begin anew
await serving.stop()
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from random import SystemRandom
from typing import Any, Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import ENDPOINT_SLICES, NODES, SERVICE_CIDRS, SERVICES
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.client.series_recorder import SeriesRecorder
from kvstack.agents.proxy import modes
from kvstack.agents.proxy.backend import Backend
from kvstack.agents.proxy.configuration import DEFAULTS, seconds, section_of
from kvstack.agents.proxy.machine_lock import machine_lock
from kvstack.agents.proxy.node_addresses import has_loopback, node_port_ips
from kvstack.agents.proxy.pages import HEALTHZ, METRICS, serve_pages
from kvstack.agents.proxy.proxier import Proxier, ProxierOptions, Sources
from kvstack.agents.proxy.rule_settings import LocalTraffic, RuleSettings
from kvstack.agents.proxy.services import FAMILIES, PROXY_NAME, Family, PortName
from kvstack.agents.proxy.userspace.backend import MODE as USERSPACE
from kvstack.agents.proxy.userspace.backend import UserspaceBackend
from kvstack.agents.proxy.userspace.local_ranges import LocalRanges, remove_local_ranges
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import HEADLESS_LABEL
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

NODE_S: Final = 30.0
"""So long the node is waited for, before loopback is taken for its address."""
RANGE_S: Final = 300.0
"""So long the node's range of pods is waited for, where it is asked for."""
_PAGE_REASONS: Final = {
    HEALTHZ: "FailedToStartProxierHealthcheck",
    METRICS: "FailedToStartMetricServer",
}
"""The reasons of events by the field of the address that cannot be bound."""
_FAMILIES: Final[tuple[Family, ...]] = (4, 6)
_LOOPBACK: Final[dict[Family, str]] = {4: "127.0.0.1", 6: "::1"}


def clean_up() -> None:
    """Take the rules away that a proxy has left, of all modes; raises ConfigError."""
    try:
        remove_local_ranges()
    except OSError as error:
        raise ConfigError(f"local ranges of cluster IPs: {error}") from error
    installed = [
        (mode, family)
        for mode in modes.WITH_RULES
        for family in _FAMILIES
        if modes.is_installed(mode, family)
    ]
    if not installed:
        raise ConfigError("neither the program nft nor iptables is installed")
    for mode, family in installed:
        try:
            modes.remove_rules(mode, family)
        except modes.RULES_ERRORS as error:
            raise ConfigError(str(error)) from error


class Serving:
    """Serves the Services of a cluster on one node."""

    def __init__(
        self,
        api: Api,
        recorder: SeriesRecorder,
        node: str,
        configuration: Object,
        clock: Clock,
        logger: Logger,
    ) -> None:
        """Serve nothing yet."""
        self._api = api
        self._recorder = recorder
        self._node = node
        self._configuration = configuration
        self._clock = clock
        self._logger = logger
        self._running = AsyncExitStack()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._known: tuple[list[str], list[str]] = ([], [])  # addresses, ranges of pods
        self._tasks: list[asyncio.Task[None]] = []
        self._node_port_ips: dict[Family, tuple[str, ...] | None] = {}
        self.proxier: Proxier | None = None

    async def start(self) -> None:
        """Return once Services are served; raises ConfigError."""
        nodes = self._follow(NODES, fields=f"metadata.name={self._node}")
        await nodes.synced()
        node = await self._await_node(nodes)
        self._known = (_addresses(node), _ranges(node))
        backends = await asyncio.to_thread(self._backends, node)
        sources = Sources(
            self._follow(SERVICES, labels=f"!{PROXY_NAME}", fields="spec.clusterIP!=None"),
            self._follow(ENDPOINT_SLICES, labels=f"!{HEADLESS_LABEL}"),
            nodes,
            self._follow(SERVICE_CIDRS),
        )
        section = section_of(self._configuration, next(iter(backends.values())).mode)
        options = ProxierOptions(
            self._node,
            seconds(section, "minSyncPeriod"),
            seconds(section, "syncPeriod"),
            health_hosts=self._health_hosts(),
        )
        proxier = Proxier(
            sources,
            options,
            backends,
            self._clock,
            self._logger,
            on_check_failure=self._tell_check,
        )
        self.proxier = proxier
        self._running.push_async_callback(proxier.close)
        await serve_pages(self._running, proxier, self._configuration, self._on_page_failure)
        await proxier.start()
        self._spawn(proxier.run(), "proxier")
        nodes.on_change(self._on_node)
        self._recorder.record(self._reference(node), "Normal", "Starting", "StartKubeProxy", "")
        self._logger.info("Services are served", node=self._node, mode=proxier.mode)

    async def ended(self) -> None:
        """Wait until it must begin anew; raises ConfigError."""
        await asyncio.shield(self._failed)

    async def stop(self) -> None:
        """End; rules stay."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._running.aclose()
        if self._failed.done():
            self._failed.exception()
        else:
            self._failed.cancel()

    def _follow(self, resource: ResourceType, *, labels: str = "", fields: str = "") -> Informer:
        informer = Informer(
            self._api,
            resource,
            self._clock,
            SystemRandom().random,
            self._logger,
            labels=labels,
            fields=fields,
        )
        self._spawn(informer.run(), f"informer of {resource}")
        return informer

    def _spawn(self, work: Any, name: str) -> None:  # noqa: ANN401
        def tell(task: asyncio.Task[None]) -> None:
            if task.cancelled() or self._failed.done():
                return
            self._failed.set_exception(ConfigError(f"{name} ended: {task.exception()!r}"))

        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(tell)
        self._tasks.append(task)

    async def _await_node(self, nodes: Informer) -> Object:
        """Return the node, once it has what is needed of it; {}: there is none."""
        needs_range = self._configuration["detectLocalMode"] == "NodeCIDR"
        found = await self._await_that(nodes, NODE_S, _addresses)
        if needs_range:
            found = await self._await_that(nodes, RANGE_S, _ranges)
            if not _ranges(found):
                text = f'timeout waiting for PodCIDR allocation on node "{self._node}"'
                raise ConfigError(text)
        if not found:
            self._logger.warning("the node is not in the API", node=self._node)
        return found

    async def _await_that(self, nodes: Informer, wait_s: float, is_there: Any) -> Object:  # noqa: ANN401
        changed = asyncio.Event()

        def hear(_old: Object | None, _new: Object | None) -> None:
            changed.set()

        nodes.on_change(hear)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while not is_there(nodes.store.get(self._node) or {}):
                        changed.clear()
                        await changed.wait()
        finally:
            nodes.forget(hear)
        return nodes.store.get(self._node) or {}

    def _backends(self, node: Object) -> dict[Family, Backend]:
        """Return what serves each family that the node has; raises ConfigError."""
        ips = self._node_ips(node)
        asked = self._configuration["mode"]
        mode, problem = modes.available(asked, next(iter(ips)))
        if asked and mode != asked:
            raise ConfigError(f"mode {problem}")
        if mode == USERSPACE:
            self._remove_all_rules()
            self._logger.warning(
                "no rules are written: this process passes connections to Services on",
                reason=problem or "mode userspace was asked for",
            )
            where = {e: tuple(dict.fromkeys((ip, _LOOPBACK[e]))) for e, ip in ips.items()}
            self._node_port_ips.update(where)
            return {
                family: UserspaceBackend(own, LocalRanges(family, self._logger), self._logger)
                for family, own in where.items()
            }
        if problem:
            self._logger.warning("a better mode cannot be had", mode=mode, reason=problem)
        for section in modes.WITH_RULES:
            if section != mode and self._configuration[section] != DEFAULTS[section]:
                self._logger.warning("settings have no effect", section=section, mode=mode)
        try:
            self._running.enter_context(machine_lock(takes_over=True))
        except OSError as error:
            raise ConfigError(f"the rules cannot be locked: {error}") from error
        return {
            family: modes.backend(
                mode, self._rule_settings(mode, family, ip, node), self._logger, leaves_rules=True
            )
            for family, ip in ips.items()
            if self._can_be_served(mode, family, ips)
        }

    def _can_be_served(self, mode: str, family: Family, ips: Mapping[Family, str]) -> bool:
        """Whether the rules of a family can be written; of the node's first one it is known."""
        problem = "" if family == next(iter(ips)) else modes.problem_of(mode, family)
        if problem:
            self._logger.error("a family is not served", family=FAMILIES[family], reason=problem)
        return not problem

    def _remove_all_rules(self) -> None:
        """Take away what another mode has left, which would lead astray, if it can be done."""
        try:
            with machine_lock(takes_over=True):
                clean_up()
        except (ConfigError, OSError) as error:
            self._logger.info("rules of other modes are left as they are", reason=str(error))

    def _rule_settings(self, mode: str, family: Family, node_ip: str, node: Object) -> RuleSettings:
        rules, detect = section_of(self._configuration, mode), self._configuration["detectLocal"]
        how = self._configuration["detectLocalMode"]
        cidrs = (
            _ranges(node) if how == "NodeCIDR" else self._configuration["clusterCIDR"].split(",")
        )
        by_range = how in ("NodeCIDR", "ClusterCIDR")
        local = LocalTraffic(
            tuple(filter(None, cidrs)) if by_range else (),
            detect["bridgeInterface"] if how == "BridgeInterface" else "",
            detect["interfaceNamePrefix"] if how == "InterfaceNamePrefix" else "",
        )
        if mode == modes.IPTABLES and len(local.of(family)) > 1:
            text = (
                f"clusterCIDR: {', '.join(local.of(family))}: mode iptables takes one of a family"
            )
            raise ConfigError(text)
        where = self._configuration["nodePortAddresses"] or (
            ["all"] if mode == modes.IPTABLES else []
        )
        try:
            addresses = node_port_ips(where, node_ip, family)
        except OSError as error:
            raise ConfigError(f"addresses of this machine: {error}") from error
        self._node_port_ips[family] = addresses
        return RuleSettings(
            family,
            rules["masqueradeBit"],
            rules["masqueradeAll"],
            local,
            addresses,
            node_ip=node_ip,
            serves_loopback=mode == modes.IPTABLES
            and rules["localhostNodePorts"]
            and has_loopback(where),
        )

    def _health_hosts(self) -> tuple[str, ...] | None:
        """Return where health checks are served: where node ports are; None: everywhere."""
        where = self._node_port_ips.values()
        if None in where:
            return None
        return tuple(ip for ips in where for ip in ips or ())

    def _node_ips(self, node: Object) -> dict[Family, str]:
        """Return the families that are served, and the node's address in each."""
        bind_address = self._configuration["bindAddress"]
        every = _addresses(node)
        if bind_address not in ("", "0.0.0.0", "::"):
            every = [bind_address, *every]
        found: dict[Family, str] = {}
        for family in _FAMILIES:
            own = [each for each in every if (":" in each) == (family == 6)]
            if own:
                found[family] = own[0]
        return found or {4: _LOOPBACK[4]}

    def _on_page_failure(self, field: str, address: str, error: Exception) -> None:
        if self._configuration["bindAddressHardFail"]:
            raise ConfigError(f"{field}: {address}: {error}") from error
        self._logger.error("a page is not served", address=address, reason=str(error))
        about, reason = self._reference({}), _PAGE_REASONS[field]
        self._recorder.record(about, "Warning", reason, "StartKubeProxy", str(error))

    def _on_node(self, old: Object | None, new: Object | None) -> None:
        """End when the node is another one than what the rules are for."""
        if self._failed.done():
            return
        if new is None:
            self._failed.set_exception(ConfigError(f"node {self._node} was deleted"))
            return
        addresses, ranges = self._known
        if addresses and _addresses(new) != addresses:
            self._failed.set_exception(
                ConfigError(f"addresses of node {self._node} changed: {_addresses(new)}")
            )
        elif self._configuration["detectLocalMode"] == "NodeCIDR" and _ranges(new) != ranges:
            self._failed.set_exception(
                ConfigError(f"ranges of pods of node {self._node} changed: {_ranges(new)}")
            )

    def _tell_check(self, name: PortName, port: int, reason: str) -> None:
        about = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": name.namespace, "name": name.service},
        }
        text = (
            f'node {self._node} failed to start healthcheck "{name.namespace}/{name.service}"'
            f" on port {port}: {reason}"
        )
        self._recorder.record(about, "Warning", "FailedToStartServiceHealthcheck", "Listen", text)

    def _reference(self, node: Object) -> Object:
        meta = {"name": self._node, "uid": (node.get("metadata") or {}).get("uid", self._node)}
        return {"apiVersion": "v1", "kind": "Node", "metadata": meta}


def _addresses(node: Object) -> list[str]:
    """Return the addresses of a node, the internal ones first."""
    every = (node.get("status") or {}).get("addresses") or ()
    return [
        each["address"]
        for kind in ("InternalIP", "ExternalIP")
        for each in every
        if each["type"] == kind
    ]


def _ranges(node: Object) -> list[str]:
    spec = node.get("spec") or {}
    return list(spec.get("podCIDRs") or filter(None, [spec.get("podCIDR")]))
