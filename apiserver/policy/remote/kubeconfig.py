"""Kubeconfig files of webhooks: server and credentials.

    target = read_kubeconfig(data, base=Path("/etc/kubernetes"))
    target.url, target.tls.ca, target.token, …

The current context counts. Files it names are read again for each connection, since they are
renewed; their paths are relative to the kubeconfig's directory. Credential plugins (`exec`,
`auth-provider`) are refused.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.component.certs.kubeconfig_reader import (
    AUTH_PROVIDER,
    EXEC,
    IMPERSONATION,
    KubeconfigReader,
    Pem,
)
from kvstack.component.http.proxies import proxy_of
from kvstack.component.http.request_head import UrlError

_NO_CREDENTIALS: Final = (EXEC, AUTH_PROVIDER, *IMPERSONATION)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class TargetTls:
    """TLS settings: trusted CAs and the client certificate."""

    ca: Pem = field(default_factory=Pem)
    """None: the system's CAs."""
    cert: Pem = field(default_factory=Pem)
    key: Pem = field(default_factory=Pem)
    server_name: str = ""
    """The expected name in the certificate; empty: the host of the URL."""
    is_insecure: bool = False
    """Whether the certificate is not verified."""


@dataclass(frozen=True, slots=True)
class Target:
    """A server and the credentials for it."""

    url: str
    tls: TargetTls = field(default_factory=TargetTls)
    token: str = ""
    token_file: str = ""
    user: str = ""
    password: str = ""
    proxy_url: str = ""


def read_kubeconfig(data: bytes, base: Path) -> Target:
    """Return the target of the current context; raises DocumentError."""
    file = KubeconfigReader(data, base)
    context = _existing("context", file.current, file.context(file.current))
    cluster = _existing("cluster", context.cluster, file.cluster(context.cluster))
    tls = TargetTls(cluster.ca, server_name=cluster.server_name, is_insecure=cluster.is_insecure)
    url = cluster.server
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise DocumentError(f"clusters: invalid server URL {quote(url)}")
    try:
        proxy_of(cluster.proxy_url)
    except UrlError as error:
        raise DocumentError(f"clusters: {error}") from None
    if not context.user:
        return Target(url, tls, proxy_url=cluster.proxy_url)
    user = _existing("user", context.user, file.user(context.user))
    for name in _NO_CREDENTIALS:
        if name in user.members:
            raise DocumentError(f"users: {quote(name)} is not supported")
    if bool(user.cert) != bool(user.key):
        raise DocumentError("users: client-certificate and client-key must be given together")
    return Target(
        url,
        replace(tls, cert=user.cert, key=user.key),
        token=user.token,
        token_file=user.token_file,
        user=user.username,
        password=user.password,
        proxy_url=cluster.proxy_url,
    )


def _existing(member: str, name: str, entry: _T | None) -> _T:
    if entry is None:
        raise DocumentError(f"{member} {quote(name)} does not exist")
    return entry
