"""The client port: the transport that serves it, and its limits.

    --transport auto ──► native, if the crate was built ──► else grpcio

Only the transport that is used is loaded.
"""

from collections.abc import Collection
from typing import NamedTuple

from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.addresses import is_secure
from kvstore.config.model import Config
from kvstore.server.gateway.json_gateway import body_bytes_max
from kvstore.server.notices import Notices
from kvstore.transport import native
from kvstore.transport.base import Transport
from kvstore.transport.tls import TlsOptions


class ClientPort(NamedTuple):
    """A transport that listens."""

    transport: Transport
    kind: str  # "native" or "grpcio"
    urls: list[str]  # with the ports that were bound
    http_urls: list[str]  # those for HTTP alone, if the transport serves them
    serves_http: bool  # whether it also accepts HTTP requests that are not gRPC


def check_port(config: Config) -> None:
    """Refuse settings that the transport does not support; ConfigError names flag or address.

    Called before anything is written; open_port is called after a cluster was founded.
    """
    if _is_native(config):
        if not native.is_available():
            raise ConfigError(f"--transport=native: the crate was not built: {native.MISSING}")
    else:
        from kvstore.transport.grpcio import server as grpc_server

        urls = config.listen_client_urls
        grpc_server.check(urls, tls_options(config, urls))


def open_port(config: Config, methods: Collection[int], logger: Logger) -> ClientPort:
    """Listen on the client addresses; ConfigError if an address or the transport cannot be used."""
    if _is_native(config):
        return _open_native(config, methods, logger)
    if not config.listen_client_http_urls:
        logger.warning(
            "this transport serves gRPC alone: for JSON, health and metrics set "
            "--listen-client-http-urls"
        )
    return _open_grpc(config, methods, logger)


def _is_native(config: Config) -> bool:
    return config.transport == "native" or (config.transport == "auto" and native.is_available())


def _open_native(config: Config, methods: Collection[int], logger: Logger) -> ClientPort:
    transport = native.NativeTransport(
        config.listen_client_urls,
        methods,
        native_options(config),
        Notices(logger, SystemClock()).add,
        config.listen_client_http_urls,
    )
    return ClientPort(
        transport, "native", transport.bound_urls, transport.bound_http_urls, serves_http=True
    )


def native_options(config: Config) -> native.NativeOptions:
    """Return the flags' settings for the native transport."""
    return native.NativeOptions(
        request_bytes_max=config.message_bytes_max,
        http_body_bytes_max=body_bytes_max(config.message_bytes_max),
        concurrent_streams_max=config.max_concurrent_streams,
        keepalive_min_s=config.grpc_keepalive_min_time_s,
        keepalive_interval_s=config.grpc_keepalive_interval_s,
        keepalive_timeout_s=config.grpc_keepalive_timeout_s,
        tls=tls_options(config, config.all_client_urls),
        serves_http=not config.listen_client_http_urls,  # with those, the others serve gRPC alone
        reuse_port=config.socket_reuse_port,
    )


def tls_options(config: Config, urls: Collection[str]) -> TlsOptions | None:
    """Return the flags' TLS settings; None if none of the addresses uses TLS."""
    if not any(map(is_secure, urls)):
        return None
    tls = config.client_tls
    return TlsOptions(
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        trusted_ca_file=tls.trusted_ca_file,
        crl_file=tls.crl_file,
        allowed_hosts=tls.allowed_hostnames,
        min_version=config.tls_min_version,
        max_version=config.tls_max_version,
        cipher_suites=config.cipher_suites,
    )


def _open_grpc(config: Config, methods: Collection[int], logger: Logger) -> ClientPort:
    from kvstore.transport.grpcio.server import GrpcOptions, GrpcTransport

    transport = GrpcTransport(
        config.listen_client_urls,
        methods,
        GrpcOptions(
            request_bytes_max=config.message_bytes_max,
            concurrent_streams_max=config.max_concurrent_streams,
            keepalive_min_s=config.grpc_keepalive_min_time_s,
            keepalive_interval_s=config.grpc_keepalive_interval_s,
            keepalive_timeout_s=config.grpc_keepalive_timeout_s,
            tls=tls_options(config, config.listen_client_urls),
            reuse_port=config.socket_reuse_port,
        ),
        Notices(logger, SystemClock()).add,
    )
    return ClientPort(transport, "grpcio", transport.bound_urls, [], serves_http=False)
