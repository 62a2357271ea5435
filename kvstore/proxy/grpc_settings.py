"""The settings of `kvstore grpc-proxy start`: its flags, typed, and checked by etcd's rules."""

import socket
from dataclasses import dataclass
from typing import Final

from kvstack.component.errors import ConfigError
from kvstore.client import ClientOptions, ClientTls
from kvstore.client.tls_files import common_name_of
from kvstore.config.checks import TLS_VERSIONS, check_key_pair, check_tls_range
from kvstore.config.flag_reader import FlagReader
from kvstore.proxy.endpoints import SrvSettings
from kvstore.proxy.flags.go_flags import Values


@dataclass(frozen=True, slots=True)
class PortTls:
    """The settings of the client port."""

    cert_file: str
    key_file: str
    trusted_ca_file: str
    crl_file: str
    auto_tls: bool  # generate a certificate
    validity_years: int  # of a generated certificate
    cipher_suites: tuple[str, ...]
    min_version: str
    max_version: str

    @property
    def is_on(self) -> bool:
        """Whether clients are served with TLS."""
        return any((self.cert_file, self.key_file, self.trusted_ca_file, self.auto_tls))


@dataclass(frozen=True, slots=True)
class GrpcProxySettings:
    """All settings of one proxy."""

    listen_addr: str
    metrics_addr: str
    data_dir: str
    transport: str  # "auto", "native" or "grpcio"
    port_tls: PortTls
    max_concurrent_streams: int
    keepalive_min_time_s: float
    keepalive_interval_s: float
    keepalive_timeout_s: float
    endpoints: tuple[str, ...]
    srv: SrvSettings
    auto_sync_interval_s: float  # 0: never
    client_options: ClientOptions  # for connections to the cluster
    advertise_client_url: str
    resolver_prefix: str
    resolver_ttl_s: int
    namespace: str
    leasing_prefix: str
    is_ordered: bool  # serializable responses are ordered by revision
    enable_pprof: bool
    logs_payloads: bool
    is_debugging: bool


def read_settings(values: Values) -> GrpcProxySettings:
    """Return the settings of the flags' values; ConfigError with etcd's text."""
    read = FlagReader(values)
    settings = GrpcProxySettings(
        listen_addr=read.text("listen-addr"),
        metrics_addr=read.text("metrics-addr"),
        data_dir=read.text("data-dir"),
        transport=read.text("transport"),
        port_tls=_port_tls(read),
        max_concurrent_streams=read.number("max-concurrent-streams"),
        keepalive_min_time_s=read.seconds("grpc-keepalive-min-time"),
        keepalive_interval_s=read.seconds("grpc-keepalive-interval"),
        keepalive_timeout_s=read.seconds("grpc-keepalive-timeout"),
        endpoints=read.texts("endpoints"),
        srv=SrvSettings(
            read.text("discovery-srv"),
            read.text("discovery-srv-name"),
            read.text("discovery-dns-server"),
            read.text("cacert"),
            read.switch("insecure-discovery"),
        ),
        auto_sync_interval_s=read.seconds("endpoints-auto-sync-interval"),
        client_options=_client_options(read),
        advertise_client_url=read.text("advertise-client-url"),
        resolver_prefix=read.text("resolver-prefix"),
        resolver_ttl_s=read.number("resolver-ttl"),
        namespace=read.text("namespace"),
        leasing_prefix=read.text("experimental-leasing-prefix"),
        is_ordered=read.switch("experimental-serializable-ordering"),
        enable_pprof=read.switch("enable-pprof"),
        logs_payloads=read.switch("experimental-enable-grpc-logging"),
        is_debugging=read.switch("debug"),
    )
    _check(settings)
    return settings


def _port_tls(read: FlagReader) -> PortTls:
    return PortTls(
        cert_file=read.text("cert-file"),
        key_file=read.text("key-file"),
        trusted_ca_file=read.text("trusted-ca-file"),
        crl_file=read.text("client-crl-file"),
        auto_tls=read.switch("auto-tls"),
        validity_years=read.number("self-signed-cert-validity"),
        cipher_suites=read.texts("listen-cipher-suites"),
        min_version=read.text("tls-min-version"),
        max_version=read.text("tls-max-version"),
    )


def _client_options(read: FlagReader) -> ClientOptions:
    default = ClientOptions()
    return ClientOptions(
        tls=ClientTls(
            cert_file=read.text("cert"),
            key_file=read.text("key"),
            trusted_ca_file=read.text("cacert"),
            is_unverified=read.switch("insecure-skip-tls-verify"),
        ),
        request_bytes_max=_limit(read.number("max-send-bytes"), default.request_bytes_max),
        response_bytes_max=_limit(read.number("max-recv-bytes"), default.response_bytes_max),
        keepalive_interval_s=max(read.seconds("dial-keepalive-time"), 0.0),
        keepalive_timeout_s=read.seconds("dial-keepalive-timeout"),
        keeps_idle_alive=read.switch("permit-without-stream"),
    )


def _limit(value: int, default: int) -> int:
    return value if value > 0 else default


_PORT_FLAGS: Final = ("tls-min-version", "tls-max-version")


def _check(settings: GrpcProxySettings) -> None:
    prefix, ttl_s = settings.resolver_prefix, settings.resolver_ttl_s
    if prefix and ttl_s < 1:
        raise ConfigError(f"invalid resolver-ttl {ttl_s}")
    if not prefix and ttl_s > 0:
        raise ConfigError('invalid resolver-prefix ""')
    if prefix and not settings.advertise_client_url:
        raise ConfigError('invalid advertise-client-url ""')
    tls = settings.port_tls
    if tls.auto_tls and not tls.validity_years:
        raise ConfigError("selfSignedCertValidity is invalid,it should be greater than 0")
    for name, version in zip(_PORT_FLAGS, (tls.min_version, tls.max_version), strict=True):
        if version not in TLS_VERSIONS:
            raise ConfigError(f'{name} is invalid: unexpected TLS version "{version}"')
    check_tls_range(tls.min_version, tls.max_version, tls.cipher_suites)
    if not settings.endpoints:
        raise ConfigError("at least one Endpoint is required in client config")
    _check_files(settings)


def _check_files(settings: GrpcProxySettings) -> None:
    dial, port = settings.client_options.tls, settings.port_tls
    for pair in (dial, port):
        check_key_pair(pair.cert_file, pair.key_file)
    if port.trusted_ca_file and not port.cert_file:
        raise ConfigError("KeyFile and CertFile must both be present[key: , cert: ]")
    # The certificate is presented on behalf of all clients, so it must not name a user.
    if dial.cert_file and (name := common_name_of(dial.cert_file)):
        raise ConfigError(f"cert has non empty Common Name ({name}): {dial.cert_file}")


def listen_url(address: str, *, is_tls: bool) -> str:
    """Return the URL to listen on; ConfigError if address is not host:port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(f"listen tcp: address {address}: missing port in address")
    if host and host != "localhost" and not host.startswith("["):
        try:
            host = str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
        except OSError as error:
            raise ConfigError(f"listen tcp: lookup {host}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host or "0.0.0.0"
    return f"{'https' if is_tls else 'http'}://{shown}:{port}"
