"""The client port: which transport serves it, and with which limits.

    --transport auto ──► native, if the crate was built ──► else grpcio

Only the transport that serves is loaded.
"""

from collections.abc import Collection
from typing import NamedTuple

from kvstore.config.model import Config
from kvstore.errors import ConfigError
from kvstore.logger import Logger
from kvstore.runtime.clock import SystemClock
from kvstore.server.gateway.gateway import body_bytes_max
from kvstore.server.notices import Notices
from kvstore.transport import native
from kvstore.transport.addresses import is_secure
from kvstore.transport.base import Transport
from kvstore.transport.tls import TlsOptions

_REQUEST_OVERHEAD_BYTES = 512 << 10  # what gRPC may add to the largest request


class ClientPort(NamedTuple):
    """A transport that serves."""

    transport: Transport
    kind: str  # "native" or "grpcio"
    urls: list[str]  # with the ports really bound
    http_urls: list[str]  # those for HTTP alone, if the transport serves them
    serves_http: bool  # whether requests that are no gRPC are handed over


def check_port(config: Config) -> None:
    """Refuse what the transport that is to serve cannot do; ConfigError names flag or address.

    For the start, before anything is written: open_port comes after a cluster was founded.
    """
    if _is_native(config):
        if not native.is_available():
            raise ConfigError(f"--transport=native: the crate was not built: {native.MISSING}")
    else:
        from kvstore.transport.grpcio import server as grpc_server

        urls = config.listen_client_urls
        grpc_server.check(urls, tls_options(config, urls))


def open_port(config: Config, methods: Collection[int], logger: Logger) -> ClientPort:
    """Listen on the client addresses; ConfigError if one, or the transport, cannot be had."""
    if _is_native(config):
        return _open_native(config, methods, logger)
    if not http_addresses(config):
        logger.warning(
            "this transport serves gRPC alone: for JSON, health and metrics set "
            "--listen-client-http-urls"
        )
    return _open_grpc(config, methods, logger)


def _is_native(config: Config) -> bool:
    return config.transport == "native" or (config.transport == "auto" and native.is_available())


def http_addresses(config: Config) -> tuple[str, ...]:
    """Return the addresses for HTTP alone; if there are any, the others are left to gRPC."""
    urls = config.values.get("listen-client-http-urls", ())
    assert isinstance(urls, tuple)
    return urls


def _open_native(config: Config, methods: Collection[int], logger: Logger) -> ClientPort:
    transport = native.NativeTransport(
        config.listen_client_urls,
        methods,
        native_options(config),
        Notices(logger, SystemClock()).add,
        http_addresses(config),
    )
    return ClientPort(
        transport, "native", transport.bound_urls, transport.bound_http_urls, serves_http=True
    )


def native_options(config: Config) -> native.NativeOptions:
    """Return what the flags say to the native transport."""
    http_urls = http_addresses(config)
    return native.NativeOptions(
        request_bytes_max=config.max_request_bytes + _REQUEST_OVERHEAD_BYTES,
        http_body_bytes_max=body_bytes_max(config.max_request_bytes + _REQUEST_OVERHEAD_BYTES),
        concurrent_streams_max=config.max_concurrent_streams,
        keepalive_min_s=config.grpc_keepalive_min_time_s,
        keepalive_interval_s=config.grpc_keepalive_interval_s,
        keepalive_timeout_s=config.grpc_keepalive_timeout_s,
        tls=tls_options(config, (*config.listen_client_urls, *http_urls)),
        serves_http=not http_urls,
        reuse_port=bool(config.values.get("socket-reuse-port")),
    )


def tls_options(config: Config, urls: Collection[str]) -> TlsOptions | None:
    """Return what the flags say about TLS; nothing if none of the addresses asks for it."""
    if not any(map(is_secure, urls)):
        return None

    def text(flag: str) -> str:
        return str(config.values.get(flag, ""))

    def texts(flag: str) -> tuple[str, ...]:
        value = config.values.get(flag, ())
        assert isinstance(value, tuple), flag
        return value

    return TlsOptions(
        cert_file=text("cert-file"),
        key_file=text("key-file"),
        trusted_ca_file=text("trusted-ca-file"),
        crl_file=text("client-crl-file"),
        allowed_hosts=texts("client-cert-allowed-hostname"),
        min_version=text("tls-min-version"),
        max_version=text("tls-max-version"),
        cipher_suites=texts("cipher-suites"),
    )


def _open_grpc(config: Config, methods: Collection[int], logger: Logger) -> ClientPort:
    from kvstore.transport.grpcio.server import GrpcOptions, GrpcTransport

    transport = GrpcTransport(
        config.listen_client_urls,
        methods,
        GrpcOptions(
            request_bytes_max=config.max_request_bytes + _REQUEST_OVERHEAD_BYTES,
            concurrent_streams_max=config.max_concurrent_streams,
            keepalive_min_s=config.grpc_keepalive_min_time_s,
            keepalive_interval_s=config.grpc_keepalive_interval_s,
            keepalive_timeout_s=config.grpc_keepalive_timeout_s,
            tls=tls_options(config, config.listen_client_urls),
            reuse_port=bool(config.values.get("socket-reuse-port")),
        ),
        Notices(logger, SystemClock()).add,
    )
    return ClientPort(transport, "grpcio", transport.bound_urls, [], serves_http=False)
