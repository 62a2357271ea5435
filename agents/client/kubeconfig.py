"""Kubeconfig files: the server, the credentials and the authorities to trust.

    transport = connect(load("/etc/kubernetes/scheduler.conf"))
    cluster = Kubeconfigs(paths).cluster("prod", runs_plugins=True)

Read are clusters, users and contexts with certificates and tokens, inline or in files (relative to
the kubeconfig). Programs that give credentials (`exec`) are run for people's commands alone; what
would change who asks, or by which way, and is not supported is refused by name.
"""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kvstack.agents.client.over_http import Credentials, OverHttp
from kvstack.component.errors import ConfigError

_EXEC: Final = "exec"
_UNSUPPORTED: Final = ("auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra")
_PROXY: Final = "proxy-url"
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


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a kubeconfig; raises KubeconfigError."""
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise KubeconfigError(f"{path}: not a kubeconfig")
    return content


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
        self._files: Final = [(path, read_file(path)) for path in paths]

    @property
    def contexts(self) -> list[str]:
        """The names of all contexts."""
        names = [
            str(each.get("name"))
            for _, content in self._files
            for each in content.get("contexts") or ()
            if isinstance(each, dict)
        ]
        return list(dict.fromkeys(names))

    @property
    def current(self) -> str:
        """The name of the current context; empty: there is none."""
        return next(
            (
                str(content["current-context"])
                for _, content in self._files
                if content.get("current-context")
            ),
            "",
        )

    def cluster(self, context: str = "", *, runs_plugins: bool = False) -> Cluster:
        """Return a context, the current one if it has no name; raises KubeconfigError.

        runs_plugins: whether a program that gives credentials is run.
        """
        _, chosen = self._entry("contexts", "context", context or self.current)
        cluster_name = chosen.get("cluster", "")
        at, cluster = self._entry("clusters", "cluster", cluster_name)
        server = cluster.get("server")
        if not server:
            raise _error(at, f"cluster {cluster_name!r} names no server")
        if cluster.get(_PROXY):
            raise _error(at, f"cluster {cluster_name!r}: {_PROXY} is not supported")
        ca = _data(at, cluster, "certificate-authority")
        return Cluster(
            server,
            self._credentials(chosen.get("user", ""), cluster, ca, runs_plugins=runs_plugins),
            ca,
            bool(cluster.get("insecure-skip-tls-verify")),
            cluster.get("tls-server-name", ""),
            chosen.get("namespace", "default"),
        )

    def _credentials(
        self, name: str, cluster: dict[str, Any], ca: bytes, *, runs_plugins: bool
    ) -> Credentials:
        if not name:
            return Credentials()
        path, user = self._entry("users", "user", name)
        for unsupported in _UNSUPPORTED:
            if user.get(unsupported):
                raise _error(path, f"user {name!r}: {unsupported} is not supported")
        if user.get(_EXEC):
            if not runs_plugins:
                raise _error(path, f"user {name!r}: {_EXEC} is not supported")
            from kvstack.agents.client.exec_plugin import run_plugin

            cluster_info = {"server": cluster["server"], **_about(cluster, ca)}
            return run_plugin(user[_EXEC], path.parent, cluster_info)
        return Credentials(
            user.get("token", ""),
            _path(path, user.get("tokenFile", "")) if not user.get("token") else "",
            _data(path, user, "client-certificate"),
            _data(path, user, "client-key"),
        )

    def _entry(self, members: str, member: str, name: str) -> tuple[Path, dict[str, Any]]:
        for path, content in self._files:
            for each in content.get(members) or ():
                if isinstance(each, dict) and each.get("name") == name:
                    found = each.get(member)
                    return path, found if isinstance(found, dict) else {}
        shown = Path(":".join(str(path) for path, _ in self._files))
        raise _error(shown, f"{member} {name!r} does not exist")


def _about(cluster: dict[str, Any], ca: bytes) -> dict[str, Any]:
    """Return what plugins get of a cluster besides its server."""
    about: dict[str, Any] = {}
    if ca:
        about["certificate-authority-data"] = base64.b64encode(ca).decode()
    for name in ("tls-server-name", "insecure-skip-tls-verify"):
        if cluster.get(name):
            about[name] = cluster[name]
    return about


def _data(at: Path, holder: dict[str, Any], name: str) -> bytes:
    inline = holder.get(f"{name}-data")
    if inline:
        try:
            return base64.b64decode(inline, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _error(at, f"{name}-data: {error}") from error
    path = holder.get(name)
    if not path:
        return b""
    try:
        return Path(_path(at, path)).read_bytes()
    except OSError as error:
        raise _error(at, f"{name}: {error}") from error


def _path(at: Path, path: str) -> str:
    return str(at.parent / path) if path else ""


def _error(at: Path, text: str) -> KubeconfigError:
    return KubeconfigError(f"{at}: {text}")
