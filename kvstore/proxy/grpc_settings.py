"""The flags of `kvstore grpc-proxy start` read: what they mean, and etcd's checks of them."""

import socket
from dataclasses import dataclass
from typing import Final

from kvstore.errors import ConfigError
from kvstore.proxy.go_flags import Values
from kvstore.transport.grpcio.dial import DialTls, Option, common_name_of

_INT32_MAX: Final = 2**31 - 1
_VERSIONS: Final = ("", "TLS1.2", "TLS1.3")


@dataclass(frozen=True)
class Settings:
    """The flags, typed where they are asked for."""

    values: Values

    def text(self, name: str) -> str:
        """Return a text."""
        return str(self.values[name])

    def number(self, name: str) -> int:
        """Return a number."""
        value = self.values[name]
        assert isinstance(value, int), name
        return value

    def seconds(self, name: str) -> float:
        """Return a duration."""
        return self.number(name) / 1e9

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list."""
        value = self.values[name]
        assert isinstance(value, tuple), name
        return tuple(filter(None, value))

    @property
    def is_tls(self) -> bool:
        """Whether clients are served by TLS."""
        given = ("cert-file", "key-file", "trusted-ca-file", "auto-tls")
        return any(self.values[each] for each in given)

    @property
    def dial_tls(self) -> DialTls:
        """How the cluster is dialled."""
        return DialTls(
            cert_file=self.text("cert"),
            key_file=self.text("key"),
            trusted_ca_file=self.text("cacert"),
            is_unverified=bool(self.values["insecure-skip-tls-verify"]),
        )

    @property
    def dial_options(self) -> list[Option]:
        """grpcio's options for connections to the cluster."""
        options: list[Option] = []
        for name, option in (
            ("max-send-bytes", "grpc.max_send_message_length"),
            ("max-recv-bytes", "grpc.max_receive_message_length"),
        ):
            if self.number(name) > 0:
                options.append((option, min(self.number(name), _INT32_MAX)))
        if self.number("dial-keepalive-time") > 0:
            options.append(("grpc.keepalive_time_ms", self._ms("dial-keepalive-time")))
            options.append(("grpc.keepalive_timeout_ms", self._ms("dial-keepalive-timeout")))
        if self.values["permit-without-stream"]:
            options.append(("grpc.keepalive_permit_without_calls", 1))
        return options

    def _ms(self, name: str) -> int:
        return min(max(self.number(name) // 1_000_000, 1), _INT32_MAX)


def check(settings: Settings) -> None:
    """Hold the flags to etcd's rules; ConfigError with its text."""
    values = settings.values
    prefix, ttl_s = settings.text("resolver-prefix"), settings.number("resolver-ttl")
    if prefix and ttl_s < 1:
        raise ConfigError(f"invalid resolver-ttl {ttl_s}")
    if not prefix and ttl_s > 0:
        raise ConfigError('invalid resolver-prefix ""')
    if prefix and not values["advertise-client-url"]:
        raise ConfigError('invalid advertise-client-url ""')
    if values["auto-tls"] and not values["self-signed-cert-validity"]:
        raise ConfigError("selfSignedCertValidity is invalid,it should be greater than 0")
    least, most = settings.text("tls-min-version"), settings.text("tls-max-version")
    for name, version in (("tls-min-version", least), ("tls-max-version", most)):
        if version not in _VERSIONS:
            raise ConfigError(f'{name} is invalid: unexpected TLS version "{version}"')
    if least == "TLS1.3" and most == "TLS1.2":
        raise ConfigError(f"min version ({least}) is greater than max version ({most})")
    if least == "TLS1.3" and settings.texts("listen-cipher-suites"):
        raise ConfigError("cipher suites cannot be configured when only TLS1.3 is enabled")
    if not settings.texts("endpoints"):
        raise ConfigError("at least one Endpoint is required in client config")
    _check_files(settings)


def _check_files(settings: Settings) -> None:
    for cert, key in (("cert", "key"), ("cert-file", "key-file")):
        cert_file, key_file = settings.text(cert), settings.text(key)
        if bool(cert_file) != bool(key_file):
            raise ConfigError(
                f"KeyFile and CertFile must both be present[key: {key_file}, cert: {cert_file}]"
            )
    if settings.text("trusted-ca-file") and not settings.text("cert-file"):
        raise ConfigError("KeyFile and CertFile must both be present[key: , cert: ]")
    cert_file = settings.text("cert")
    # The certificate speaks for every client behind the proxy, so it must be nobody's.
    if cert_file and (name := common_name_of(cert_file)):
        raise ConfigError(f"cert has non empty Common Name ({name}): {cert_file}")


def listen_url(address: str, *, is_tls: bool) -> str:
    """Return the URL to listen on; ConfigError if address is no host:port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit():
        raise ConfigError(f"listen tcp: address {address}: missing port in address")
    if host and host != "localhost" and not host.startswith("["):
        try:
            host = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0]  # type: ignore[assignment]
        except OSError as error:
            raise ConfigError(f"listen tcp: lookup {host}: {error.strerror}") from None
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host or "0.0.0.0"
    return f"{'https' if is_tls else 'http'}://{shown}:{port}"
