"""The settings of an API server, as one value.

    options_of(read_command_line(["--etcd-servers=http://127.0.0.1:2379", …]))  → Options

Programs that embed a server make Options directly. All contradictions and missing flags are
reported in one ConfigError, with upstream's texts where it has some.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.objects.text.go_patterns import Pattern, compile_pattern
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.aggregation.backend import ProxyCertificate
from kvstack.apiserver.allocators.cluster_ips import AddressRange, address_range
from kvstack.apiserver.allocators.node_ports import DEFAULT_RANGE
from kvstack.apiserver.policy.admission.assembly import ORDER
from kvstack.apiserver.policy.admission.configuration import AdmissionSettings, read_configuration
from kvstack.apiserver.server.settings.audit_options import AuditOptions, audit_options
from kvstack.apiserver.server.settings.authentication_options import (
    AuthenticationOptions as AuthenticationOptions,
)
from kvstack.apiserver.server.settings.authentication_options import (
    ServiceAccountOptions as ServiceAccountOptions,
)
from kvstack.apiserver.server.settings.authentication_options import authentication_options
from kvstack.apiserver.server.settings.authorization_options import (
    AuthorizationOptions,
    authorization_options,
    modes,
)
from kvstack.apiserver.server.settings.flags import FLAGS
from kvstack.apiserver.streams.kubelet_tls import KubeletTls
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import CommandLine, shown_value
from kvstack.component.flags.flag_reader import FlagReader as _Reader
from kvstack.component.net.port_range import PortRange, parse_range

DEFAULT_SERVICE_RANGE: Final = "10.0.0.0/24"
ADDRESS_TYPES: Final = ("Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP")
RECONCILERS: Final = ("lease", "none")
GATES_FILE: Final = Path(__file__).parents[1] / "data" / "feature_gates.txt"

_HOUR_S: Final = 3600


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Settings of the store."""

    servers: tuple[str, ...] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    prefix: str = "/registry"
    compaction_s: float = 300.0
    """Interval of compaction; 0: never."""
    health_timeout_s: float = 2.0
    ready_timeout_s: float = 2.0
    start_timeout_s: float = 60.0
    history_s: float = 0.0
    """How long history is kept; 0: for one to two compaction intervals."""

    @property
    def root(self) -> str:
        """The prefix of all keys, with a slash at both ends."""
        return f"/{self.prefix.strip('/')}/"


@dataclass(frozen=True, slots=True)
class EncryptionOptions:
    """Settings of encryption at rest."""

    config_file: str = ""
    """The EncryptionConfiguration; empty: objects are not encrypted."""
    reloads: bool = False


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A certificate, its key, and the host names it serves; none: those in the certificate."""

    cert_file: str
    key_file: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ServingOptions:
    """Settings of the HTTP server."""

    bind_address: str = "0.0.0.0"
    port: int = 6443
    also_bind_addresses: tuple[str, ...] = ()
    """Further addresses to listen on with the same port; not a flag."""
    advertise_address: str = ""
    """Empty: detected; see `addresses`."""
    service_family: int = 4
    """IP family of the first Service range, which the Service `kubernetes` uses."""
    external_host: str = ""
    cert_file: str = ""
    """Empty: `apiserver.crt` of the certificate directory, which is made if it is missing."""
    key_file: str = ""
    cert_dir: str = "/var/run/kubernetes"
    others: tuple[NamedPair, ...] = ()
    min_version: str = "TLS1.2"
    cipher_suites: tuple[str, ...] = ()
    http2: bool = True
    streams_max: int = 250
    reads_max: int = 400
    writes_max: int = 200
    is_fair: bool = True
    """Whether priority and fairness shares the sum of both limits as seats."""
    request_timeout_s: float = 60.0
    """Timeout of all requests but watches and streams."""
    shutdown_delay_s: float = 0.0
    watch_grace_s: float = 0.0
    cors_origins: tuple[Pattern, ...] = ()
    """Patterns of the origins that browsers may let read answers."""
    transport_security: tuple[str, ...] = ()
    """Directives of the Strict-Transport-Security header; empty: not sent."""
    listens: bool = True
    """Whether to listen at all; not a flag."""
    is_plain: bool = False
    """Whether to serve HTTP without TLS, for tests; not a flag."""


@dataclass(frozen=True, slots=True)
class Options:
    """All settings."""

    store: StoreOptions = field(default_factory=StoreOptions)
    serving: ServingOptions = field(default_factory=ServingOptions)
    authentication: AuthenticationOptions = field(default_factory=AuthenticationOptions)
    authorization_modes: tuple[str, ...] = ("AlwaysAllow",)
    """The modes in order; ignored if there is an authorization configuration file."""
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    enabled_plugins: tuple[str, ...] = ()
    disabled_plugins: tuple[str, ...] = ()
    admission: AdmissionSettings = field(default_factory=AdmissionSettings)
    audit: AuditOptions = field(default_factory=AuditOptions)
    encryption: EncryptionOptions = field(default_factory=EncryptionOptions)
    runtime_config: Mapping[str, str] = field(default_factory=dict)
    service_ranges: tuple[AddressRange, ...] = (address_range(DEFAULT_SERVICE_RANGE),)
    node_ports: PortRange = DEFAULT_RANGE
    kubernetes_node_port: int = 0
    keeps_endpoints: bool = True
    """Whether the endpoints of the Service `kubernetes` are maintained."""
    is_alone: bool = False
    """Whether no other API server ever uses the store, as when it is in memory."""
    rests: bool = False
    """Whether a server that is alone runs its jobs only after changes."""
    kubelets: KubeletTls = field(default_factory=KubeletTls)
    proxy_certificate: ProxyCertificate = field(default_factory=ProxyCertificate)
    """Client certificate for aggregated API servers."""
    kubelet_addresses: tuple[str, ...] = ADDRESS_TYPES
    """Types of node addresses to reach kubelets at, in order of preference."""
    proxies_to_loopback: bool = False
    """Whether `proxy` may lead to loopback addresses of nodes and pods; not a flag."""
    asks_others: bool = True
    """Whether webhooks, aggregated servers, nodes and pods are called; not a flag."""
    is_read_only: bool = False
    """Whether nothing is written, neither by clients nor by the server itself; not a flag."""
    rbac_objects: tuple[Mapping[str, Any], ...] = ()
    """Cluster roles and bindings that are created at start if missing; not a flag."""
    allow_privileged: bool = False
    event_ttl_s: int = _HOUR_S
    min_watch_s: int = 1800
    verbosity: int = 0
    without_effect: tuple[str, ...] = ()
    """Names of given flags that have no effect."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Effective values of all flags by name, for /flagz."""


def options_of(command_line: CommandLine) -> Options:
    """Return the settings of a command line; raises ConfigError with all errors."""
    wrong: list[str] = []
    reader = _Reader(command_line, wrong)
    options = Options(
        store=_store(reader),
        serving=_serving(reader),
        authentication=authentication_options(reader),
        authorization_modes=modes(reader),
        authorization=authorization_options(reader),
        enabled_plugins=_plugins(reader, "enable-admission-plugins"),
        disabled_plugins=_plugins(reader, "disable-admission-plugins"),
        admission=_admission(reader),
        audit=audit_options(reader),
        encryption=EncryptionOptions(
            reader.text("encryption-provider-config"),
            reader.flag("encryption-provider-config-automatic-reload"),
        ),
        runtime_config=reader.map("runtime-config"),
        service_ranges=_service_ranges(reader),
        node_ports=parse_range(reader.text("service-node-port-range")),
        kubernetes_node_port=reader.int("kubernetes-service-node-port"),
        keeps_endpoints=_reconciler(reader) == "lease",
        kubelets=KubeletTls(
            reader.text("kubelet-client-certificate"),
            reader.text("kubelet-client-key"),
            reader.text("kubelet-certificate-authority"),
        ),
        proxy_certificate=ProxyCertificate(
            reader.text("proxy-client-cert-file"), reader.text("proxy-client-key-file")
        ),
        kubelet_addresses=reader.texts("kubelet-preferred-address-types"),
        allow_privileged=reader.flag("allow-privileged"),
        event_ttl_s=_at_least(reader, "event-ttl", 1),
        min_watch_s=reader.int("min-request-timeout"),
        verbosity=reader.int("v"),
        without_effect=reader.without_effect,
        flags={each.name: shown_value(each, command_line[each.name]) for each in FLAGS},
    )
    options = _with_service_family(options, wrong)
    _check_gates(reader)
    reader.check_refused()
    _check_both_plugins(options, wrong)
    if "EventRateLimit" in options.enabled_plugins and not options.admission.event_limits:
        wrong.append("EventRateLimit: limits: Invalid value: null: must not be empty")
    if "ImagePolicyWebhook" in options.enabled_plugins and options.admission.image_policy is None:
        wrong.append("ImagePolicyWebhook: no config specified")
    if wrong:
        raise ConfigError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    return options


def _store(reader: _Reader) -> StoreOptions:
    servers = reader.texts("etcd-servers")
    if not servers:
        reader.wrong.append("--etcd-servers must be specified")
    backend = reader.text("storage-backend")
    if backend not in ("", "etcd3"):
        reader.wrong.append(
            "--storage-backend invalid, allowed values: etcd3. If not specified, it will default to"
            " 'etcd3'"
        )
    compaction_s = reader.seconds("etcd-compaction-interval")
    if compaction_s < 0:
        reader.wrong.append("--etcd-compaction-interval can not be negative value")
    history_s = reader.seconds("history")
    if history_s < 0:
        reader.wrong.append("--history can not be negative value")
    return StoreOptions(
        servers,
        reader.text("etcd-cafile"),
        reader.text("etcd-certfile"),
        reader.text("etcd-keyfile"),
        reader.text("etcd-prefix"),
        compaction_s,
        reader.seconds("etcd-healthcheck-timeout"),
        reader.seconds("etcd-readycheck-timeout"),
        reader.seconds("storage-initialization-timeout"),
        history_s,
    )


def _serving(reader: _Reader) -> ServingOptions:
    port = reader.int("secure-port")
    if not 1 <= port <= 65535:
        reader.wrong.append(
            f"--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off"
            " with 0"
        )
    for name in ("max-requests-inflight", "max-mutating-requests-inflight"):
        if reader.int(name) < 0:
            reader.wrong.append(f"--{name} can not be negative value")
    seats = [reader.int(f"max-{each}requests-inflight") for each in ("", "mutating-")]
    if reader.flag("enable-priority-and-fairness") and sum(seats) <= 0:
        reader.wrong.append(
            f"--max-requests-inflight {seats[0]} and --max-mutating-requests-inflight {seats[1]}"
            " must add up to more than 0 with priority and fairness"
        )
    for name in (
        "request-timeout",
        "shutdown-delay-duration",
        "shutdown-watch-termination-grace-period",
    ):
        if reader.int(name) < 0:
            reader.wrong.append(f"--{name} can not be negative value")
    cert_file, key_file = reader.text("tls-cert-file"), reader.text("tls-private-key-file")
    if bool(cert_file) != bool(key_file):
        reader.wrong.append("--tls-cert-file and --tls-private-key-file must be given together")
    advertised = reader.text("advertise-address")
    if advertised and ip_address(advertised).is_unspecified:
        reader.wrong.append(f"advertise-address {advertised} is not reachable for others")
    return ServingOptions(
        bind_address=reader.text("bind-address") or "0.0.0.0",
        port=port,
        advertise_address=advertised,
        external_host=reader.text("external-hostname"),
        cert_file=cert_file,
        key_file=key_file,
        cert_dir=reader.text("cert-dir"),
        others=_named_pairs(reader),
        min_version=reader.tls_version(),
        cipher_suites=reader.texts("tls-cipher-suites"),
        http2=not reader.flag("disable-http2-serving"),
        streams_max=reader.int("http2-max-streams-per-connection") or 250,
        reads_max=reader.int("max-requests-inflight"),
        writes_max=reader.int("max-mutating-requests-inflight"),
        is_fair=reader.flag("enable-priority-and-fairness"),
        request_timeout_s=reader.seconds("request-timeout"),
        shutdown_delay_s=reader.seconds("shutdown-delay-duration"),
        watch_grace_s=reader.seconds("shutdown-watch-termination-grace-period"),
        cors_origins=_cors_origins(reader),
        transport_security=_transport_security(reader),
    )


def _named_pairs(reader: _Reader) -> tuple[NamedPair, ...]:
    pairs = []
    for text in reader.texts("tls-sni-cert-key"):
        files, _, names = text.partition(":")
        cert_file, comma, key_file = files.partition(",")
        if not comma or not cert_file or not key_file:
            reader.wrong.append("expected comma separated certificate and key file paths")
            continue
        pairs.append(NamedPair(cert_file, key_file, tuple(filter(None, names.split(",")))))
    return tuple(pairs)


def _plugins(reader: _Reader, flag: str) -> tuple[str, ...]:
    names = reader.texts(flag)
    for each in names:
        if each not in ORDER:
            reader.wrong.append(f"{flag} plugin {quote(each)} is unknown")
    return names


def _admission(reader: _Reader) -> AdmissionSettings:
    settings = AdmissionSettings(
        not_ready_seconds=reader.int("default-not-ready-toleration-seconds"),
        unreachable_seconds=reader.int("default-unreachable-toleration-seconds"),
    )
    path = reader.text("admission-control-config-file")
    if not path:
        return settings
    folder = Path(path).parent
    try:
        return read_configuration(
            file_bytes(path), lambda named: file_bytes(str(folder / named)), settings
        )
    except DocumentError as error:
        reader.wrong.append(f"--admission-control-config-file {path}: {error}")
        return settings


def _cors_origins(reader: _Reader) -> tuple[Pattern, ...]:
    """Return the origin patterns, which must be anchored at both ends of the host."""
    patterns: list[Pattern] = []
    for text in reader.texts("cors-allowed-origins"):
        message = f"--cors-allowed-origins has an invalid regular expression: {quote(text)}"
        try:
            patterns.append(compile_pattern(text))
        except ValueError as error:
            reader.wrong.append(f"{message}: {error}")
            continue
        if not ("^" in text or "//" in text) or not ("$" in text or ":" in text):
            reader.wrong.append(
                f"{message}: regular expression does not pin to start/end of host"
                " in the origin header"
            )
    return tuple(patterns)


def _transport_security(reader: _Reader) -> tuple[str, ...]:
    directives = reader.texts("strict-transport-security-directives")
    for each in directives:
        name, equals, value = each.partition("=")
        if each not in ("includeSubDomains", "preload") and (
            name != "max-age" or not equals or "=" in value
        ):
            reader.wrong.append(
                "--strict-transport-security-directives invalid, allowed values:"
                " max-age=expireTime, includeSubDomains, preload. see"
                " https://tools.ietf.org/html/rfc6797#section-6.1 for more information"
            )
    return directives


def file_bytes(path: str) -> bytes:
    """Return the contents of a file that a flag or a configuration names; raises DocumentError."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror}") from None


def _check_both_plugins(options: Options, wrong: list[str]) -> None:
    both = [each for each in options.enabled_plugins if each in options.disabled_plugins]
    if both:
        wrong.append(
            f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins"
            " overlapped"
        )


def _service_ranges(reader: _Reader) -> tuple[AddressRange, ...]:
    text = reader.text("service-cluster-ip-range") or DEFAULT_SERVICE_RANGE
    parts = [each.strip() for each in text.split(",")]
    ranges: list[AddressRange] = []
    for each in parts[:2]:
        try:
            ip_network(each, strict=False)
            ranges.append(address_range(each))
        except ValueError as error:
            reader.wrong.append(f"--service-cluster-ip-range {quote(each)}: {error}")
    if len(parts) > 2:
        reader.wrong.append("--service-cluster-ip-range must not contain more than two entries")
    if len(ranges) == 2 and ranges[0].family == ranges[1].family:
        reader.wrong.append(
            "--service-cluster-ip-range and --secondary-service-cluster-ip-range must be of"
            " different IP family"
        )
    return tuple(ranges)


def _with_service_family(options: Options, wrong: list[str]) -> Options:
    """Return settings with the IP family of the Service `kubernetes`."""
    if not options.service_ranges:
        return options  # already reported
    family = 6 if options.service_ranges[0].family == "IPv6" else 4
    serving = options.serving
    if serving.advertise_address and ip_address(serving.advertise_address).version != family:
        wrong.append(
            f"--advertise-address {serving.advertise_address}: the first range of "
            f"--service-cluster-ip-range is of IPv{family}, and its Service kubernetes needs an "
            "address of that family"
        )
    return replace(options, serving=replace(serving, service_family=family))


def _reconciler(reader: _Reader) -> str:
    name = reader.text("endpoint-reconciler-type")
    if name not in RECONCILERS:
        reader.wrong.append(
            f"--endpoint-reconciler-type {quote(name)}: lease and none are supported"
        )
    return name


def _at_least(reader: _Reader, name: str, least_s: int) -> int:
    seconds = int(reader.seconds(name))
    if seconds < least_s:
        reader.wrong.append(f"--{name} must be {least_s} s at least")
    return seconds


def _check_gates(reader: _Reader) -> None:
    given = reader.map("feature-gates")
    if not given:
        return
    known = frozenset(GATES_FILE.read_text().split())
    for name, value in given.items():
        gate = name.removeprefix("kube:")
        if gate not in known:
            reader.wrong.append(f"unrecognized feature gate: {gate}")
        elif value.lower() not in ("true", "false"):
            message = f"invalid value of {gate}={value}, err: not true or false"
            reader.wrong.append(message)
