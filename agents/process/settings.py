"""The settings that processes of agents share, read from their flags.

    settings = read_settings(FlagReader(given, wrong))

What is wrong with the flags is added to the reader's list; files are not read here, but
`cluster_of` reads a kubeconfig.
"""

import os
from dataclasses import dataclass, field, replace
from typing import Final

from kvstack.agents.client.kubeconfig import Cluster, in_cluster, load
from kvstack.agents.client.leader_election import LeaseName, Terms
from kvstack.agents.client.over_http import Credentials
from kvstack.component.errors import ConfigError
from kvstack.component.flags.flag_reader import FlagReader
from kvstack.component.process.command import level_of

_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class PageSettings:
    """The address of the pages, and who may read them."""

    bind_address: str = "0.0.0.0"
    port: int = 0
    """0: no pages are served."""
    cert_file: str = ""
    """Empty: a new certificate."""
    key_file: str = ""
    min_version: str = "TLS1.2"
    cipher_suites: tuple[str, ...] = ()
    http2: bool = True
    client_ca_file: str = ""
    for_everybody: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    token_ttl_s: float = 10.0
    allowed_ttl_s: float = 10.0
    denied_ttl_s: float = 10.0
    authentication_kubeconfig: str = ""
    authorization_kubeconfig: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that processes of agents share."""

    pages: PageSettings
    elects: bool
    lease: LeaseName
    terms: Terms
    kubeconfig: str = ""
    master: str = ""
    verbosity: int = 0
    without_effect: tuple[str, ...] = field(default=())

    @property
    def log_level(self) -> str:
        """The level of the log."""
        return level_of(self.verbosity)


def read_settings(reader: FlagReader) -> Settings:
    """Return the settings; what is wrong goes to the reader's list."""
    if reader.text("leader-elect-resource-lock") != "leases":
        reader.wrong.append("--leader-elect-resource-lock: leases is the only one")
    return Settings(
        page_settings(reader),
        reader.flag("leader-elect"),
        LeaseName(
            reader.text("leader-elect-resource-namespace"),
            reader.text("leader-elect-resource-name"),
        ),
        _terms(reader),
        reader.text("kubeconfig"),
        reader.text("master"),
        reader.int("v"),
        reader.without_effect,
    )


def raise_wrong(wrong: list[str]) -> None:
    """Raise a ConfigError with all that is wrong."""
    if wrong:
        raise ConfigError(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")


def cluster_of(kubeconfig: str, master: str = "") -> Cluster:
    """Return how the API server is reached; raises KubeconfigError or ConfigError.

    With neither: as the service account of the pod that this process runs in.
    """
    if kubeconfig:
        found = load(kubeconfig)
        return replace(found, server=master) if master else found
    if master:
        return Cluster(master, Credentials())
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    if host and port:
        return in_cluster(host, port)
    raise ConfigError("--kubeconfig or --master must be given, or this process run in a pod")


def page_settings(reader: FlagReader) -> PageSettings:
    """Return where the pages are; what is wrong goes to the reader's list."""
    port = reader.int("secure-port")
    if not 0 <= port <= _PORT_MAX:
        reader.wrong.append(
            f"--secure-port {port} must be between 0 and 65535, inclusive. 0 for turning off secure"
            " port"
        )
    cert_file, key_file = reader.text("tls-cert-file"), reader.text("tls-private-key-file")
    if bool(cert_file) != bool(key_file):
        reader.wrong.append("--tls-cert-file and --tls-private-key-file must be given together")
    return PageSettings(
        reader.text("bind-address") or "0.0.0.0",
        port,
        cert_file,
        key_file,
        reader.tls_version(),
        reader.texts("tls-cipher-suites"),
        not reader.flag("disable-http2-serving"),
        reader.text("client-ca-file"),
        reader.texts("authorization-always-allow-paths"),
        reader.seconds("authentication-token-webhook-cache-ttl"),
        reader.seconds("authorization-webhook-cache-authorized-ttl"),
        reader.seconds("authorization-webhook-cache-unauthorized-ttl"),
        reader.text("authentication-kubeconfig"),
        reader.text("authorization-kubeconfig"),
    )


def _terms(reader: FlagReader) -> Terms:
    try:
        return Terms(
            int(reader.seconds("leader-elect-lease-duration")),
            reader.seconds("leader-elect-renew-deadline"),
            reader.seconds("leader-elect-retry-period"),
        )
    except ValueError as error:
        reader.wrong.append(str(error))
        return Terms()
