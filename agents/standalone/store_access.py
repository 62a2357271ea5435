"""How the store of `kvstack up` is reached: addresses, TLS by default, variables for etcdctl.

    no --listen-client-urls           a unix socket that its owner alone may open (`store_socket`)
    --listen-client-urls unix:        the same, for a list: unix:,https://127.0.0.1:2379
    https://HOST:PORT, HOST:PORT      TLS; clients show a certificate of DIR/kubernetes/pki/etcd
    http://HOST:PORT                  plaintext without credentials, with a warning
    --listen-client-urls ''           no address at all

    DIR/kubernetes/pki/etcd/{ca,server,healthcheck-client}.{crt,key}     as kubeadm names them

Anybody who reads and writes the store has full control of the cluster, past the API server. The TLS
flags of etcd that are given count before these defaults.
"""

import shlex
import socket
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kvstack.agents.standalone.store_socket import make_directory, restrict, socket_path
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.addresses import is_secure
from kvstack.component.net.hosts import own_address

OWN_SOCKET: Final = "unix:"
"""The default: the socket in the data directory."""
CLIENT: Final = "healthcheck-client"
PEER_FLAGS: Final = ("initial-cluster", "listen-peer-urls", "initial-advertise-peer-urls")
"""Flags of the store that request a member that other members reach."""

_AUTHORITY: Final = "ca"
_SERVER: Final = "server"
_SERVER_FLAGS: Final = frozenset(("cert-file", "key-file", "auto-tls"))
_PEER_URL: Final = "http://localhost:2380"
"""etcd's default if --listen-peer-urls is not set."""
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")


def with_schemes(urls: Iterable[str]) -> tuple[str, ...]:
    """Return addresses as URLs: HOST:PORT gets TLS."""
    return tuple(
        url if "://" in url or url.startswith(("unix:", "unixs:")) else f"https://{url}"
        for url in urls
    )


class StoreAccess:
    """The addresses of one store, and what is needed to use them."""

    def __init__(
        self,
        data_dir: Path,
        pki_dir: Path,
        urls: Sequence[str],
        flags: Sequence[str],
        environment: Mapping[str, str],
        logger: Logger,
    ) -> None:
        """Raises ConfigError for an invalid address.

        urls: of --listen-client-urls, flags: others of the store, as --name=value.
        """
        self._given = dict(_split(flag) for flag in flags)
        self._socket = socket_path(data_dir, environment) if OWN_SOCKET in urls else None
        self._files = CertFiles((pki_dir / "etcd").absolute())
        self._logger = logger
        self.urls: Final = tuple(
            f"unix://{self._socket}" if url == OWN_SOCKET else url for url in urls
        )
        """The URLs to listen on."""
        others = self._given.get("listen-client-http-urls", "").split(",")
        self._all = (*self.urls, *filter(None, others))
        self._is_secure = any(map(is_secure, self._all))
        self._has_own_server = self._is_secure and _SERVER_FLAGS.isdisjoint(self._given)
        self._asks_clients = self._is_secure and self._given.get("client-cert-auth") != "false"
        self._has_own_clients = self._asks_clients and "trusted-ca-file" not in self._given

    @property
    def flags(self) -> list[str]:
        """The store's flags for TLS that were not given."""
        tls_flags = []
        if self._has_own_server:
            tls_flags.append(f"--cert-file={self._files.cert(_SERVER)}")
            tls_flags.append(f"--key-file={self._files.key_file(_SERVER)}")
        if self._asks_clients and "client-cert-auth" not in self._given:
            tls_flags.append("--client-cert-auth=true")
        if self._has_own_clients:
            tls_flags.append(f"--trusted-ca-file={self._files.cert(_AUTHORITY)}")
        return tls_flags

    def ensure(self) -> None:
        """Make the certificates that are missing or end soon; raises ConfigError."""
        if not (self._has_own_server or self._has_own_clients):
            return
        now_s = SystemClock().unix_ms() / 1000
        self._files.authority(_AUTHORITY, "etcd-ca", now_s)
        server = Profile(socket.gethostname().lower(), hosts=self._hosts(), serves=True, asks=True)
        client = Profile("kube-etcd-healthcheck-client")
        for name, profile in ((_SERVER, server), (CLIENT, client)):
            why = self._files.pair(name, _AUTHORITY, profile, now_s)
            if why:
                self._logger.info("created a certificate", name=f"etcd/{name}", why=why)

    def prepare(self) -> None:
        """Make what has to be there before the store listens; raises ConfigError."""
        if self._socket is not None:
            make_directory(self._socket)
        is_shared = not self._given.keys().isdisjoint(PEER_FLAGS)
        peers = self._given.get("listen-peer-urls", _PEER_URL).split(",") if is_shared else []
        plain = [url for url in (*self._all, *peers) if url.startswith("http:")]
        if plain:
            self._logger.warning(
                "the store is served without TLS and without credentials: anybody who reaches these"
                " addresses may do everything in the cluster",
                urls=plain,
            )

    def restrict(self) -> None:
        """Give the socket its mode, once the store listens."""
        if self._socket is not None:
            try:
                restrict(self._socket)
            except OSError as error:
                raise ConfigError(f"{self._socket}: {error.strerror}") from error

    def variables(self, bound_urls: Iterable[str]) -> dict[str, str]:
        """Return etcdctl's environment; bound_urls: as the store listens."""
        endpoints = ",".join(map(_dialled, bound_urls))
        if not endpoints:
            return {}
        found = {"ETCDCTL_ENDPOINTS": endpoints}
        if self._has_own_server:
            found["ETCDCTL_CACERT"] = str(self._files.cert(_AUTHORITY))
        if self._has_own_clients:
            found["ETCDCTL_CERT"] = str(self._files.cert(CLIENT))
            found["ETCDCTL_KEY"] = str(self._files.key_file(CLIENT))
        return found

    def _hosts(self) -> tuple[str, ...]:
        hosts = [socket.gethostname().lower(), *_LOCAL_HOSTS]
        advertised = self._given.get("advertise-client-urls", "").split(",")
        for url in (*self._all, *advertised):
            host = urlsplit(url).hostname if url.startswith("http") else None
            if host:
                hosts.append(_reached(host))
        return tuple(dict.fromkeys(hosts))


def exports(variables: Mapping[str, str]) -> str:
    """Return the lines with which a shell takes variables."""
    return "".join(f"export {name}={shlex.quote(text)}\n" for name, text in variables.items())


def _split(flag: str) -> tuple[str, str]:
    name, _, text = flag.removeprefix("--").partition("=")
    return name, text


def _reached(host: str) -> str:
    """Return at which address a host is reached that may be the unspecified one."""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    return own_address(address.version) if address.is_unspecified else host


def _dialled(url: str) -> str:
    """Return a URL that a client of this machine can dial."""
    parts = urlsplit(url)
    if not url.startswith("http") or not parts.hostname:
        return url
    try:
        is_anywhere = ip_address(parts.hostname).is_unspecified
    except ValueError:
        is_anywhere = False
    return f"{parts.scheme}://127.0.0.1:{parts.port}" if is_anywhere else url
