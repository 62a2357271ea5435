"""One node that runs containers: its runtime, its kubelet, its HTTPS API, put together.

    node = RealNode(api, clock, random, logger, RealNodeOptions("me", "ca.crt"))
    await node.start(); …; await node.stop()

Containers end with the node's process, or live on and are found again (`ends_with_node`).
"""

import asyncio
import datetime as dt
import ipaddress
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvstack.agents.client.api import Api
from kvstack.agents.client.informers import Informers
from kvstack.agents.kubelet.eviction.pressures import EvictionOptions
from kvstack.agents.kubelet.identity import certificates
from kvstack.agents.kubelet.identity.rotation import SERVING_KIND, Rotation
from kvstack.agents.kubelet.isolation import Isolation
from kvstack.agents.kubelet.kubelet import Kubelet
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.node.node_status import StatusOptions
from kvstack.agents.kubelet.options import KeepingOptions, KubeletOptions
from kvstack.agents.kubelet.pods.sandboxes import NodeNames, quantity
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.pod_groups import CGROUPFS
from kvstack.agents.kubelet.runtime.process import node_lock
from kvstack.agents.kubelet.runtime.process.images import Images
from kvstack.agents.kubelet.runtime.process.network.pod_network import STATE
from kvstack.agents.kubelet.runtime.process.options import SHARED, ProcessOptions
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.runtime import Limits, Runtime
from kvstack.agents.kubelet.server import metrics
from kvstack.agents.kubelet.server.access import Access
from kvstack.agents.kubelet.server.server import KubeletServer
from kvstack.agents.kubelet.server.stats import Sampler
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import KeyPair, Listener
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.logger import Logger
from kvstack.component.net import resolv_conf
from kvstack.component.net.netlink import Network

_LIFETIME: Final = dt.timedelta(days=365)
_RENEWED_BEFORE: Final = dt.timedelta(days=30)


@dataclass(frozen=True, slots=True)
class RealNodeOptions:
    """Settings of a node."""

    name: str
    client_ca: str
    """File of the authority that vouches for the API server's client certificate."""
    ip: str = "127.0.0.1"
    address: str = "127.0.0.1"
    """The address of the HTTPS API."""
    port: int = 10250
    """0: any free one."""
    root: Path = Path("/var/lib/kvstack-node")
    labels: dict[str, str] = field(default_factory=dict)
    has_host_image: bool = False
    """Whether `host:latest`, the node's own files, is an image."""
    host_root_namespaces: Sequence[str] = ()
    """Namespaces whose pods of `host:latest` may be root of the machine, if they request it."""
    hidden: Sequence[Path] = ()
    """Paths hidden from pods of `host:latest`, besides `root` and the secrets of the machine."""
    images: Path | None = None
    """The folder of images; None: in the root."""
    ends_with_node: bool = True
    """Whether containers end when this process does, however it ends."""
    kubelet: KubeletOptions | None = None
    """Settings of the kubelet; None: what the others say."""
    ignores_limits: bool = False
    runtime_endpoint: str = ""
    """Socket of a container engine; empty: containers are processes of this machine."""
    image_endpoint: str = ""
    cgroup_driver: str = CGROUPFS
    """The cgroup driver of a container engine that does not report its own."""
    configuration: dict[str, Any] = field(default_factory=dict)
    """The configuration in /configz, with the settings of authentication."""
    pki: Path | None = None
    """The directory of certificates; None: in the root."""
    network: str = SHARED
    """The network mode of pods that are processes (`options` of their runtime)."""
    cluster_ranges: Sequence[Network] = ()
    """The ranges of the pods of all nodes: traffic to them keeps the pod's address."""
    more_ips: tuple[str, ...] = ()
    """Addresses of the other family."""
    evictions: EvictionOptions = field(default_factory=EvictionOptions)
    reserved: dict[str, str] = field(default_factory=dict)
    """Resources reserved for the system, used like `evictions` if `kubelet` is None."""
    cluster_dns: Sequence[str] = ()
    """The cluster's DNS without `kubelet`; empty: pods resolve names as their node does."""
    cluster_domain: str = "cluster.local"
    port_may_differ: bool = False
    """Whether any port will do if the requested one is in use."""
    enforces_policies: bool = True
    """Whether NetworkPolicies are enforced, if the machine supports it."""


class RealNode:
    """A node; all of it belongs to one loop."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        options: RealNodeOptions,
        informers: Informers | None = None,
    ) -> None:
        """Put the parts together; the API is asked as a user that may what kubelets may.

        informers: of all objects, which this process has anyway; None: policies take their own.
        """
        self._options = options
        self._clock = clock
        self._api = api
        self._logger = logger
        self.runtime: Final[Runtime] = self._make_runtime()
        name = options.kubelet.name if options.kubelet else options.name
        self._isolation = Isolation(api, clock, random, logger, name, informers)
        self.kubelet: Final = Kubelet(
            api,
            self.runtime,
            node.look(_existing(options.root)),
            clock,
            random,
            logger,
            options.kubelet
            or KubeletOptions(
                options.name,
                options.ip,
                options.root,
                options.port,
                names=_names(options),
                status=StatusOptions(labels=options.labels),
                ignores_limits=options.ignores_limits,
                reserved=options.reserved,
                keeping=KeepingOptions(evictions=options.evictions),
                device_plugins=options.root / "device-plugins",
                more_ips=options.more_ips,
            ),
            self._isolation.isolate,
        )
        authentication = options.configuration.get("authentication") or {}
        mode = (options.configuration.get("authorization") or {}).get("mode", "Webhook")
        self._access = Access(
            api,
            options.name,
            clock,
            anonymous=(authentication.get("anonymous") or {}).get("enabled", False),
            reviews_tokens=(authentication.get("webhook") or {}).get("enabled", True),
            allows_all=mode == "AlwaysAllow",
        )
        self._sampler = Sampler(self.kubelet, clock)
        self._random = random
        self._server: KubeletServer | None = None
        self._signed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._health: HttpServer | None = None

    def _make_runtime(self) -> Runtime:
        options = self._options
        cgroup = options.kubelet.cgroup_root if options.kubelet else "kubepods"
        if options.runtime_endpoint:
            from kvstack.agents.kubelet.runtime.cri.cri_runtime import CriOptions, CriRuntime

            logs = (options.kubelet.logs if options.kubelet else None) or options.root / "logs"
            engine = CriOptions(
                options.runtime_endpoint,
                options.root,
                logs,
                options.image_endpoint,
                cgroup,
                self._enforced(),
                options.cgroup_driver,
            )
            return CriRuntime(engine, self._clock, self._logger, self._ended)
        images = Images(options.images or options.root / "images", has_host=options.has_host_image)
        settings = ProcessOptions(
            options.root,
            ends_with_node=options.ends_with_node,
            node_ips=(options.ip, *options.more_ips),
            network=options.network,
            cluster_ranges=options.cluster_ranges,
            cgroup=cgroup,
            limits=self._enforced(),
            host_root_namespaces=options.host_root_namespaces,
            hidden=(*options.hidden, *self._own_secrets()),
        )
        return ProcessRuntime(settings, images, self._clock, self._ended)

    def _own_secrets(self) -> list[Path]:
        """Return where this node has keys and other pods' logs outside of its root."""
        options = self._options
        logs = options.kubelet.logs if options.kubelet else None
        return [each for each in (options.pki, logs) if each is not None]

    def _enforced(self) -> Limits | None:
        """Return what all pods together may use, if the node keeps some of it for the system."""
        options = self._options.kubelet
        if options is None or not options.reserved:
            return None
        machine = node.look(_existing(self._options.root))
        found = node.allocatable(machine, options.pods_max, options.reserved, {})
        shares = quantity(found["cpu"], -3) * 1024 // 1000
        return Limits(shares, memory_bytes=quantity(found["memory"]))

    async def start(self) -> None:
        """Listen, register and run pods; ConfigError for what cannot be used."""
        if os.geteuid() != 0:
            raise ConfigError("a node needs root")
        options = self._options
        options.root.mkdir(mode=0o750, parents=True, exist_ok=True)
        host = f"[{options.address}]" if ":" in options.address else options.address
        url = f"https://{host}:{options.port}"
        for problem in await asyncio.to_thread(node_lock.clean, STATE, Cgroups()):
            self._logger.warning("failed to clean up after another node", problem=problem)
        await self.runtime.open()
        self._tell_enforced()
        await self._isolation.start(self.runtime, is_asked_for=options.enforces_policies)
        configuration = options.configuration
        if configuration.get("serverTLSBootstrap") and not configuration.get("tlsCertFile"):
            await self._serve_signed(url)
        else:
            pair = await self._pair()
            try:
                await self._serve(url, pair)
            except ConfigError:
                if not options.port_may_differ:
                    raise
                await self._serve(f"https://{host}:0", pair)
        if configuration.get("healthzPort"):
            address = f"http://{configuration['healthzBindAddress']}:{configuration['healthzPort']}"
            self._health = HttpServer([Listener(address, "healthz")], _healthy)
            await self._health.start()
        port = urlsplit(self._server.urls[0]).port if self._server else None
        await self.kubelet.start(port or options.port)

    def _tell_enforced(self) -> None:
        """Log what this node enforces."""
        if not isinstance(self.runtime, ProcessRuntime):
            return
        summary, lacking = self.runtime.enforced()
        self._logger.info("enforced on pods", features=summary)
        for each in lacking:
            self._logger.warning("not enforced on pods", consequence=each)

    async def _serve_signed(self, url: str) -> None:
        """Serve with a certificate that the cluster signs; nothing is served until it does.

        It does not wait: the request must be approved, and no controller does so by default.
        """
        options = self._options
        pki, names = (
            options.pki or options.root / "pki",
            (options.ip, *options.more_ips, options.name),
        )

        async def use(_file: Path) -> None:
            self._signed.set()  # a server that runs reads the file at the next handshake

        rotation = Rotation(
            self._api,
            SERVING_KIND,
            pki,
            options.name,
            names,
            use,
            self._clock,
            self._random,
            self._logger,
        )
        pair = KeyPair(str(rotation.file), str(rotation.file))
        if await asyncio.to_thread(certificates.is_good, rotation.file, self._clock.now_s()):
            await self._serve(url, pair)
        else:
            self._begin(self._serve_later(url, pair), "HTTPS API of the node")
        self._begin(rotation.run(), "rotation of the serving certificate")

    async def _serve_later(self, url: str, pair: KeyPair) -> None:
        await self._signed.wait()
        try:
            await self._serve(url, pair)
        except ConfigError as error:
            self._logger.error("failed to serve the kubelet API", reason=str(error))

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def _pair(self) -> KeyPair:
        """Return what clients are shown: given files, or a certificate of its own."""
        options, given = self._options, self._options.configuration
        if given.get("tlsCertFile"):
            return KeyPair(given["tlsCertFile"], given["tlsPrivateKeyFile"])
        return await asyncio.to_thread(_certificate, options, self._clock.now_s())

    async def _serve(self, url: str, pair: KeyPair) -> None:
        ca = self._options.client_ca
        server = KubeletServer(
            self.kubelet,
            self._access,
            self._clock,
            url,
            pair,
            ca,
            self._options.configuration,
        )
        await server.start()
        self._server = server

    @property
    def name(self) -> str:
        """The node's."""
        return self.kubelet.options.name

    async def resource_page(self) -> str:
        """Return what /metrics/resource shows."""
        return metrics.resource_metrics(await self._sampler.take())

    async def stop(self) -> None:
        """End everything; containers, too, if they end with the node."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        ends_pods = self._options.ends_with_node
        async with AsyncExitStack() as ends:  # the later ones even if an earlier one fails
            if ends_pods:  # they are isolated to their end
                ends.push_async_callback(self._isolation.close, leaves_rules=False)
                ends.push_async_callback(self.kubelet.csi.end)
            ends.push_async_callback(self.runtime.close)
            if not ends_pods:
                ends.push_async_callback(self._isolation.close, leaves_rules=True)
            ends.push_async_callback(self.kubelet.stop, leaves_volumes=ends_pods)
            for server in (self._server, self._health):
                if server is not None:
                    ends.push_async_callback(server.stop)

    def _ended(self, uid: str) -> None:
        self.kubelet.container_ended(uid)


def _names(options: RealNodeOptions) -> NodeNames:
    """Return how pods resolve names: by the cluster's DNS, if it has one, or as their node does."""
    resolver_settings = resolv_conf.for_pods()
    domain = options.cluster_domain if options.cluster_dns else ""
    return NodeNames(
        options.cluster_dns,
        domain,
        servers=resolver_settings.servers,
        searches=resolver_settings.searches,
        options=resolver_settings.options,
    )


def _existing(path: Path) -> Path:
    """Return a path, or the nearest directory above it that is there."""
    return next(each for each in (path, *path.absolute().parents) if each.is_dir())


async def _healthy(request: Request, answer: Answer) -> None:
    """Answer health checks from this machine."""
    is_known = request.target.partition("?")[0] in ("/healthz", "/healthz/ping")
    code, text = (200, b"ok") if is_known else (404, b"404 page not found\n")
    answer.send(code, [("Content-Type", "text/plain; charset=utf-8")], text)


def _certificate(options: RealNodeOptions, now_s: float) -> KeyPair:
    """Return the serving certificate, self-signed; created if missing."""
    directory = options.pki or options.root / "pki"
    cert_file, key_file = directory / "kubelet.crt", directory / "kubelet.key"
    now = dt.datetime.fromtimestamp(now_s, dt.UTC)
    if cert_file.exists() and key_file.exists():
        known = x509.load_pem_x509_certificate(cert_file.read_bytes())
        if known.not_valid_after_utc - now > _RENEWED_BEFORE:
            return KeyPair(str(cert_file), str(key_file))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{options.name}@{int(now_s)}")])
    names: list[x509.GeneralName] = [x509.DNSName(options.name)]
    ips = map(ipaddress.ip_address, (options.ip, *options.more_ips))
    names += [x509.IPAddress(each) for each in ips]
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    descriptor = os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(pem)
    cert_file.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    return KeyPair(str(cert_file), str(key_file))
