"""Kubeconfig files: the server, the credentials and the authorities to trust.

    transport = connect(load("/etc/kubernetes/scheduler.conf"))
    cluster = Kubeconfigs(paths).cluster("prod", runs_plugins=True)

Read are clusters, users and contexts with certificates and tokens, inline or in files (relative to
the kubeconfig). Programs that give credentials (`exec`) are run for people's commands alone; what
would change who asks, or by which way, and is not supported is refused by name.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from kvstack.agents.client.over_http import Credentials, OverHttp
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.component.certs.kubeconfig_reader import (
    AUTH_PROVIDER,
    EXEC,
    IMPERSONATION,
    ClusterEntry,
    ContextEntry,
    KubeconfigReader,
    Pem,
)
from kvstack.component.errors import ConfigError

_UNSUPPORTED: Final = (AUTH_PROVIDER, "username", *IMPERSONATION)
_PROXY: Final = "proxy-url"
_T = TypeVar("_T")
_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(ConfigError):
    """A kubeconfig that cannot be used; the message names the file and the member."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One context of a kubeconfig, with its files read."""

    server: str
    credentials: Credentials
    ca: bytes = b""
    insecure: bool = False
    server_name: str = ""
    namespace: str = "default"


def load(path: str | Path, context: str = "") -> Cluster:
    """Load a file; context: empty for the current one. Raises KubeconfigError."""
    return Kubeconfigs([Path(path)]).cluster(context)


def connect(cluster: Cluster) -> OverHttp:
    """Return a transport to a cluster."""
    return OverHttp(
        cluster.server,
        cluster.credentials,
        ca=cluster.ca,
        insecure=cluster.insecure,
        server_name=cluster.server_name,
    )


def in_cluster(host: str, port: str) -> Cluster:
    """Return the cluster of a pod's service account; host and port from the pod's environment."""
    address = f"[{host}]" if ":" in host else host
    try:
        ca = (_SERVICE_ACCOUNT / "ca.crt").read_bytes()
    except OSError as error:
        raise KubeconfigError(f"not in a cluster: {error}") from error
    credentials = Credentials(token_file=str(_SERVICE_ACCOUNT / "token"))
    return Cluster(f"https://{address}:{port}", credentials, ca)


class Kubeconfigs:
    """The members of one file or of several: the first that has a name counts."""

    def __init__(self, paths: Sequence[Path]) -> None:
        """Load the files; raises KubeconfigError."""
        self._files: Final = [(path, _read(path)) for path in paths]

    @property
    def contexts(self) -> list[str]:
        """The names of all contexts."""
        names = (name for _, file in self._files for name in file.contexts)
        return list(dict.fromkeys(names))

    @property
    def current(self) -> str:
        """The name of the current context; empty: there is none."""
        return next((file.current for _, file in self._files if file.current), "")

    def cluster(self, context: str = "", *, runs_plugins: bool = False) -> Cluster:
        """Return a context, the current one if it has no name; raises KubeconfigError.

        runs_plugins: whether a program that gives credentials is run.
        """
        chosen = self._context(context)
        at, cluster = self._entry("cluster", chosen.cluster, KubeconfigReader.cluster)
        if not cluster.server:
            raise _error(at, f"cluster {chosen.cluster!r} names no server")
        if cluster.proxy_url:
            raise _error(at, f"cluster {chosen.cluster!r}: {_PROXY} is not supported")
        ca = _bytes(at, cluster.ca)
        return Cluster(
            cluster.server,
            self._credentials(chosen.user, cluster, ca, runs_plugins=runs_plugins),
            ca,
            cluster.is_insecure,
            cluster.server_name,
            chosen.namespace or "default",
        )

    def cluster_entry(self, context: str = "") -> ClusterEntry:
        """Return the cluster of a context as it stands in its file; raises KubeconfigError."""
        name = self._context(context).cluster
        return self._entry("cluster", name, KubeconfigReader.cluster)[1]

    def _context(self, name: str) -> ContextEntry:
        return self._entry("context", name or self.current, KubeconfigReader.context)[1]

    def _credentials(
        self, name: str, cluster: ClusterEntry, ca: bytes, *, runs_plugins: bool
    ) -> Credentials:
        if not name:
            return Credentials()
        path, user = self._entry("user", name, KubeconfigReader.user)
        for unsupported in _UNSUPPORTED:
            if unsupported in user.members:
                raise _error(path, f"user {name!r}: {unsupported} is not supported")
        if user.plugin is not None:
            if not runs_plugins:
                raise _error(path, f"user {name!r}: {EXEC} is not supported")
            from kvstack.agents.client.exec_plugin import run_plugin

            return run_plugin(user.plugin, path.parent, _about(cluster, ca))
        return Credentials(
            user.token,
            user.token_file if not user.token else "",
            _bytes(path, user.cert),
            _bytes(path, user.key),
        )

    def _entry(
        self, member: str, name: str, read: Callable[[KubeconfigReader, str], _T | None]
    ) -> tuple[Path, _T]:
        for path, file in self._files:
            try:
                entry = read(file, name)
            except DocumentError as error:
                raise _error(path, str(error)) from error
            if entry is not None:
                return path, entry
        shown = Path(":".join(str(path) for path, _ in self._files))
        raise _error(shown, f"{member} {name!r} does not exist")


def _read(path: Path) -> KubeconfigReader:
    try:
        return KubeconfigReader(path.read_bytes(), path.parent)
    except (OSError, DocumentError) as error:
        raise _error(path, str(error)) from error


def _about(cluster: ClusterEntry, ca: bytes) -> dict[str, Any]:
    """Return what plugins get of a cluster."""
    about: dict[str, Any] = {"server": cluster.server}
    if ca:
        about["certificate-authority-data"] = base64.b64encode(ca).decode()
    if cluster.server_name:
        about["tls-server-name"] = cluster.server_name
    if cluster.is_insecure:
        about["insecure-skip-tls-verify"] = True
    return about


def _bytes(at: Path, pem: Pem) -> bytes:
    try:
        return pem.read()
    except OSError as error:
        raise _error(at, str(error)) from error


def _error(at: Path, text: str) -> KubeconfigError:
    return KubeconfigError(f"{at}: {text}")
