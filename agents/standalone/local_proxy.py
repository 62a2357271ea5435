"""The proxy of `kvstack up`, on the informers of the process.

By nftables or iptables where this process may write them and no other proxy of the machine does;
else by listeners of this process. Those serve cluster IPs, too, unless rules of another proxy are
in the way. Its rules go when the cluster stops, unless pods go on.

Its pages are kube-proxy's. An address that another process has is left to it, with a warning.
"""

import asyncio
from contextlib import AsyncExitStack, ExitStack
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kvstack.agents.client.built_in import ENDPOINT_SLICES, NODES, SERVICE_CIDRS, SERVICES
from kvstack.agents.client.informers import Informers
from kvstack.agents.proxy.configuration import DEFAULTS, SECTIONS
from kvstack.agents.proxy.pages import serve_pages
from kvstack.agents.proxy.proxier import Proxier, ProxierOptions, Sources
from kvstack.agents.standalone.page_addresses import HEALTHZ_ADDRESS, METRICS_ADDRESS
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.hosts import LOOPBACK

if TYPE_CHECKING:
    from kvstack.agents.proxy.backend import Backend
    from kvstack.agents.proxy.services import Family
    from kvstack.agents.proxy.userspace.backend import OwnEndpoint

_MIN_GAP_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class LocalProxyOptions:
    """The proxy's settings for its node."""

    node: str
    ips: tuple[str, ...]
    """One of a family; node ports are served there."""
    pod_ranges: tuple[str, ...] = ()
    """The ranges of the cluster's pods; none: pods share the node's address."""
    api: tuple[str, int] | None = None
    """Where the API server listens, if that is loopback and it has no address that pods reach."""
    leaves_rules: bool = False
    """Whether the rules stay when the proxy stops, for pods that outlive their node."""
    metrics_address: str = METRICS_ADDRESS
    """The address of /metrics, /proxyMode and /configz; empty: they are not served."""
    healthz_address: str = HEALTHZ_ADDRESS
    """The address of /healthz and /livez; empty: they are not served."""


class LocalProxy:
    """Serves the Services of the process's cluster on its machine."""

    def __init__(
        self, informers: Informers, options: LocalProxyOptions, clock: Clock, logger: Logger
    ) -> None:
        self._informers = informers
        self._options = options
        self._clock = clock
        self._logger = logger
        self._held = ExitStack()
        self._pages = AsyncExitStack()
        self._proxier: Proxier | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start; existing Services are served soon after."""
        of = self._informers.of
        self._proxier = Proxier(
            Sources(of(SERVICES), of(ENDPOINT_SLICES), of(NODES), of(SERVICE_CIDRS)),
            ProxierOptions(self._options.node, _MIN_GAP_S, health_hosts=self._options.ips),
            await asyncio.to_thread(self._backends),
            self._clock,
            self._logger,
        )
        configuration = shown_configuration(self._options, self._proxier.mode)
        await serve_pages(self._pages, self._proxier, configuration, self._on_page_failure)
        self._task = asyncio.get_running_loop().create_task(self._run(self._proxier), name="proxy")

    async def stop(self) -> None:
        """End; the rules of this process go."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._pages.aclose()
        if self._proxier is not None:
            await self._proxier.close()
        self._held.close()

    def _on_page_failure(self, _field: str, address: str, error: Exception) -> None:
        text = "pages of the proxy are not served"
        self._logger.warning(text, address=address, reason=str(error))

    async def _run(self, proxier: Proxier) -> None:
        try:
            await proxier.start()
            await proxier.run()
        except Exception as error:
            self._logger.error("Services are no longer served", error=repr(error))
            raise

    def _backends(self) -> "dict[Family, Backend]":
        """Return what serves each family that pods or the node have, the first one first."""
        from kvstack.agents.proxy import modes
        from kvstack.agents.proxy.userspace.backend import UserspaceBackend
        from kvstack.agents.proxy.userspace.local_ranges import LocalRanges

        families = self._families()
        mode, problem = modes.available("", next(iter(families)))
        if mode in modes.WITH_RULES:
            try:
                return self._with_rules(mode, families)
            except (ConfigError, OSError) as error:
                problem = str(error)
        self._logger.warning(
            "no rules can be written: this process passes connections to Services on",
            reason=problem,
            cluster_ips="served" if mode == modes.USERSPACE else "not served",
        )
        return {
            family: UserspaceBackend(
                tuple(dict.fromkeys((*ips, LOOPBACK[family]))),
                LocalRanges(family, self._logger) if mode == modes.USERSPACE else None,
                self._logger,
                self._own_api(),
            )
            for family, ips in families.items()
        }

    def _own_api(self) -> "OwnEndpoint | None":
        """Return what the Service `kubernetes` leads to: only pods and this machine reach it."""
        from kvstack.agents.proxy.endpoints import Endpoint
        from kvstack.agents.proxy.services import PortName
        from kvstack.agents.proxy.userspace.backend import OwnEndpoint

        if self._options.api is None:
            return None
        name = PortName("default", "kubernetes", "https", "TCP")
        return OwnEndpoint(name, Endpoint(*self._options.api), self._options.pod_ranges)

    def _families(self) -> "dict[Family, tuple[str, ...]]":
        """Return the families, each with the node's address of it, if it has one."""
        found: dict[Family, tuple[str, ...]] = {}
        for text in (*self._options.ips, *self._options.pod_ranges):
            found.setdefault(6 if ":" in text else 4, ())
        for ip in self._options.ips:
            found[6 if ":" in ip else 4] = (ip,)
        return found

    def _with_rules(
        self, mode: str, families: "dict[Family, tuple[str, ...]]"
    ) -> "dict[Family, Backend]":
        from kvstack.agents.proxy import modes
        from kvstack.agents.proxy.machine_lock import machine_lock
        from kvstack.agents.proxy.rule_settings import LocalTraffic, RuleSettings

        leaves = self._options.leaves_rules
        self._held.enter_context(machine_lock(takes_over=leaves))
        backends: dict[Family, Backend] = {}
        for family, ips in families.items():
            if backends and (problem := modes.problem_of(mode, family)):
                self._logger.warning("an IP family is not served", family=family, reason=problem)
                continue
            settings = RuleSettings(
                family,
                local=LocalTraffic(self._options.pod_ranges),
                node_ips=ips,
                node_ip=next(iter(ips), ""),
            )
            backends[family] = modes.backend(mode, settings, self._logger, leaves_rules=leaves)
        return backends


def shown_configuration(options: LocalProxyOptions, mode: str) -> dict[str, Any]:
    """Return what /configz shows: kube-proxy's defaults, and what is different here."""
    shown: dict[str, Any] = deepcopy(DEFAULTS)
    for section in SECTIONS:
        shown[section]["minSyncPeriod"] = f"{_MIN_GAP_S * 1000:g}ms"
    return shown | {
        "clusterCIDR": ",".join(options.pod_ranges),
        "healthzBindAddress": options.healthz_address,
        "hostnameOverride": options.node,
        "metricsBindAddress": options.metrics_address,
        "mode": mode,
        "nodePortAddresses": ["primary"],
    }
