"""Kubeconfig files: which server, who asks, and whom to believe.

    transport = connect(load("/etc/kubernetes/scheduler.conf"))

Read are clusters, users and contexts with certificates and tokens, inline or in files (relative to
the kubeconfig). Plugins (`exec`, `auth-provider`) are refused by name.
"""

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kvstack.agents.client.over_http import Credentials, OverHttp
from kvstack.component.errors import ConfigError

_PLUGINS: Final = ("exec", "auth-provider", "username")
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
    """Read a file; context: empty for the current one. Raises KubeconfigError."""
    path = Path(path)
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise KubeconfigError(f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise KubeconfigError(f"{path}: it holds no kubeconfig")
    return _Reader(path, content).cluster(context)


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


class _Reader:
    """Reads the members of one kubeconfig."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self._path = path
        self._content = content

    def cluster(self, name: str) -> Cluster:
        name = name or self._content.get("current-context") or ""
        context = self._named("contexts", "context", name)
        cluster = self._named("clusters", "cluster", context.get("cluster", ""))
        user = self._named("users", "user", context["user"]) if context.get("user") else {}
        server = cluster.get("server")
        if not server:
            raise self._error(f"cluster {context.get('cluster')!r} names no server")
        for plugin in _PLUGINS:
            if user.get(plugin):
                raise self._error(f"user {context['user']!r}: {plugin} is not supported")
        credentials = Credentials(
            user.get("token", ""),
            self._path_of(user.get("tokenFile", "")) if not user.get("token") else "",
            self._data(user, "client-certificate"),
            self._data(user, "client-key"),
        )
        return Cluster(
            server,
            credentials,
            self._data(cluster, "certificate-authority"),
            bool(cluster.get("insecure-skip-tls-verify")),
            cluster.get("tls-server-name", ""),
            context.get("namespace", "default"),
        )

    def _named(self, members: str, member: str, name: str) -> dict[str, Any]:
        for each in self._content.get(members) or []:
            if each.get("name") == name:
                found = each.get(member)
                return found if isinstance(found, dict) else {}
        raise self._error(f"there is no {member} {name!r}")

    def _data(self, holder: dict[str, Any], name: str) -> bytes:
        inline = holder.get(f"{name}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, ValueError) as error:
                raise self._error(f"{name}-data: {error}") from error
        path = holder.get(name)
        if not path:
            return b""
        try:
            return Path(self._path_of(path)).read_bytes()
        except OSError as error:
            raise self._error(f"{name}: {error}") from error

    def _path_of(self, path: str) -> str:
        return str(self._path.parent / path) if path else ""

    def _error(self, text: str) -> KubeconfigError:
        return KubeconfigError(f"{self._path}: {text}")
