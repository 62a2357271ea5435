"""The command `kvstack metrics`: metrics.k8s.io as a server of its own behind the API server.

With --custom it serves custom.metrics.k8s.io and external.metrics.k8s.io too, from what pods, and
pages that the file names, expose in Prometheus' text format. Users are taken from headers of the
API server (ConfigMap kube-system/extension-apiserver-authentication), client certificates or
tokens; the API server authorizes them.
"""

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.built_in import CONFIG_MAPS, NODES, PODS
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.kubeconfig import Cluster, connect
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.metrics.answers import MetricsApi
from kvstack.agents.metrics.collector import Collector, CollectorOptions
from kvstack.agents.metrics.custom.custom_metrics import CustomMetrics
from kvstack.agents.metrics.custom.rules import Rules, load
from kvstack.agents.metrics.flags import TABLE
from kvstack.agents.metrics.history_api import HISTORY_GROUP, HistoryApi
from kvstack.agents.metrics.kubelets import KubeletOptions, Kubelets
from kvstack.agents.metrics.resource_api import GROUP, GROUPS, ResourceApi
from kvstack.agents.metrics.server import MetricsServer
from kvstack.agents.process.access import Access, review_access
from kvstack.agents.process.front_proxy import (
    AUTHORITY,
    CA_KEY,
    CLIENT_CA_KEY,
    CONFIG_MAP,
    FrontProxy,
)
from kvstack.agents.process.pages import Pages, serving
from kvstack.agents.process.settings import PageSettings, cluster_of, page_settings, raise_wrong
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock, SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples
from kvstack.component.process.command import Command, Work, level_of, run_command
from kvstack.component.process.program import is_done_before, settle, stop_event

COMMAND: Final = "kvstack metrics"
ABOUT: Final = "The metrics APIs of a cluster: metrics.k8s.io, custom and external metrics."

_AGENT: Final = "kvstack-metrics"
_RESOLUTION_MIN_S: Final = 1.0
_REFRESH_S: Final = 60.0


class Settings(NamedTuple):
    """Settings of the command."""

    pages: PageSettings
    collector: CollectorOptions
    kubelets: KubeletOptions
    is_insecure: bool
    rules: Rules | None


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""
    return run_command(Command(COMMAND, ABOUT, TABLE), arguments, _prepare)


def _prepare(given: CommandLine) -> Work:
    wrong: list[str] = []
    reader = FlagReader(given, wrong)
    settings = settings_of(reader)
    raise_wrong(wrong)
    cluster = cluster_of(reader.text("kubeconfig"), reader.text("master"))
    return Work(lambda log: _serve(cluster, settings, log), level_of(reader.int("v")))


def settings_of(reader: FlagReader) -> Settings:
    """Return what flags say; what is wrong goes to the reader's list."""
    resolution_s = reader.seconds("metric-resolution")
    if resolution_s < _RESOLUTION_MIN_S:
        reader.wrong.append(f"--metric-resolution {resolution_s} s: at least {_RESOLUTION_MIN_S} s")
    cert, key = reader.text("kubelet-client-certificate"), reader.text("kubelet-client-key")
    if bool(cert) != bool(key):
        text = "--kubelet-client-certificate and --kubelet-client-key must be given together"
        reader.wrong.append(text)
    port = reader.int("kubelet-port")
    if not 0 <= port <= 65535:
        reader.wrong.append(f"--kubelet-port {port}: a number from 0 to 65535")
    custom = reader.text("custom")
    return Settings(
        page_settings(reader),
        CollectorOptions(resolution_s, timeout_s=reader.seconds("kubelet-request-timeout")),
        KubeletOptions(
            cert,
            key,
            reader.text("kubelet-certificate-authority"),
            address_types=reader.texts("kubelet-preferred-address-types"),
            port=port,
        ),
        reader.flag("kubelet-insecure-tls"),
        load(custom) if custom else None,
    )


async def _serve(cluster: Cluster, settings: Settings, log: Logger) -> None:
    end = asyncio.ensure_future(stop_event().wait())
    clock, random = SystemClock(), SystemRandom().random
    async with AsyncExitStack() as stack:
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="kvstack-metrics-"))
        )
        api = Api(connect(cluster), Options(user_agent=_AGENT))
        stack.push_async_callback(api.close)
        informers = await stack.enter_async_context(Informers(api, clock, random, log))
        options = await asyncio.to_thread(_kubelet_options, cluster, settings, directory)
        kubelets = Kubelets(options, clock)
        collector = Collector(informers, clock, log, settings.collector, kubelets.read)
        stack.push_async_callback(collector.stop)
        access = review_access(stack, cluster, settings.pages, clock, _AGENT)
        client_authorities = _ClientAuthorities(api, access, settings.pages, directory, log)
        custom = _custom(informers, settings, clock, log)
        apis = _apis(informers, collector, custom, clock)
        settle()  # it may wait for an API server for days
        if not await is_done_before(end, client_authorities.wait()):
            return
        stack.push_async_callback(client_authorities.stop)
        server = MetricsServer(access, _pages(access, collector), apis, (*GROUPS, HISTORY_GROUP))
        await stack.enter_async_context(
            serving(server, client_authorities.settings, client_authorities.authorities)
        )
        if custom is not None:
            stack.push_async_callback(custom.stop)
        if await is_done_before(end, _start(collector, custom)):
            settle()
            log.info("metrics of nodes and pods are served")
            await end


async def _start(collector: Collector, custom: CustomMetrics | None) -> None:
    await collector.start()
    if custom is not None:
        await custom.start()


def _custom(
    informers: Informers, settings: Settings, clock: Clock, log: Logger
) -> CustomMetrics | None:
    if settings.rules is None:
        return None
    every_s = settings.collector.resolution_s
    return CustomMetrics(settings.rules, informers, clock, log, every_s)


def _apis(
    informers: Informers, collector: Collector, custom: CustomMetrics | None, clock: Clock
) -> dict[str, MetricsApi]:
    """Return what is served, by the path of its group."""
    nodes, pods = informers.of(NODES).store, informers.of(PODS).store
    apis: dict[str, MetricsApi] = {
        f"/apis/{GROUP}": ResourceApi(collector.points, nodes, pods, clock),
        HISTORY_GROUP.path: HistoryApi(collector.history, nodes, pods),
    }
    return apis | (custom.apis if custom is not None else {})


def _pages(access: Access, collector: Collector) -> Pages:
    checks = {"metric-storage-ready": lambda: collector.is_ready}
    health = {"/healthz": {}, "/livez": {}, "/readyz": checks}

    def read_metrics() -> tuple[FamilySamples, ...]:
        points: FamilySamples = (
            "metrics_server_storage_points",
            FamilyKind.GAUGE,
            "Containers whose readings are kept.",
            {'type="container"': collector.points.count},
        )
        return (points,)

    return Pages(access, health, read_metrics)


def _kubelet_options(cluster: Cluster, settings: Settings, directory: Path) -> KubeletOptions:
    """Return how kubelets are reached; what the flags leave open is the kubeconfig's."""
    options = settings.kubelets
    ca, cert, key = options.ca_file, options.cert_file, options.key_file
    if not ca and not settings.is_insecure:
        if not cluster.ca:
            raise ConfigError("--kubelet-certificate-authority or --kubelet-insecure-tls is needed")
        ca = _write(directory / "kubelet-ca.crt", cluster.ca)
    credentials = cluster.credentials
    if not cert and credentials.certificate:
        cert = _write(directory / "kubelet-client.crt", credentials.certificate)
        key = _write(directory / "kubelet-client.key", credentials.key)

    def token() -> str:
        if credentials.token_file:
            return Path(credentials.token_file).read_text().strip()
        return credentials.token

    has_token = not cert and bool(credentials.token_file or credentials.token)
    return KubeletOptions(
        cert,
        key,
        "" if settings.is_insecure else ca,
        token if has_token else None,
        options.address_types,
        options.port,
    )


def _write(path: Path, data: bytes) -> str:
    """Write a file, readable for this user alone; return its path."""
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(data)
    new.replace(path)
    return str(path)


class _ClientAuthorities:
    """The authorities of client certificates, read from the API server again from time to time."""

    def __init__(
        self, api: Api, access: Access, settings: PageSettings, directory: Path, log: Logger
    ) -> None:
        self._api = api
        self._access = access
        self._directory = directory
        self._log = log
        self._has_own_clients = bool(settings.client_ca_file)
        self.settings = settings
        self.authorities: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Return once it is known; what is refused is asked again."""
        while not await self._ask():  # noqa: ASYNC110 - its existence has to be polled
            await asyncio.sleep(1.0)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="who may vouch")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_S)
            await self._ask()

    async def _ask(self) -> bool:
        namespace, name = CONFIG_MAP
        try:
            data = (await self._api.get(CONFIG_MAPS, namespace, name)).get("data") or {}
            self._access.front_proxy = FrontProxy.of_config_map(data)
        except (ApiError, UnreachableError, ConfigError) as error:
            self._log.warning("failed to read the authorities of clients", error=str(error))
            return False
        for key, at, is_needed in (
            (CA_KEY, AUTHORITY, True),
            (CLIENT_CA_KEY, "", not self._has_own_clients),
        ):
            pem = data.get(key, "")
            if not pem or not is_needed:
                continue
            path = self._directory / key
            if not path.exists() or path.read_text() != pem:
                await asyncio.to_thread(_write, path, pem.encode())
            if at:
                self.authorities[at] = str(path)
            else:
                self.settings = replace(self.settings, client_ca_file=str(path))
        return True
