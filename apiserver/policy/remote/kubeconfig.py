"""Kubeconfig files of webhooks: server and credentials.

    target = read_kubeconfig(data, base=Path("/etc/kubernetes"))
    target.url, target.tls.ca, target.token, …

The current context counts. Files it names are read again for each connection, since they are
renewed; their paths are relative to the kubeconfig's directory. Credential plugins (`exec`,
`auth-provider`) are refused.
"""

import base64
import binascii
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from kvstack.apimachinery.objects.text import config_document
from kvstack.apimachinery.objects.text.config_document import Document, DocumentError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.component.http.proxies import proxy_of
from kvstack.component.http.request_head import UrlError

_NO_CREDENTIALS: Final = ("exec", "auth-provider", "as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True)
class Pem:
    """A PEM text, inline or in a file."""

    data: bytes = b""
    file: str = ""

    def __bool__(self) -> bool:
        """Return whether there is one."""
        return bool(self.data or self.file)


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
    document = config_document.plain(data)
    context = _find_entry(document, "contexts", "context", document.text("current-context"))
    cluster = _find_entry(document, "clusters", "cluster", context.text("cluster"))
    user_name = context.text("user")
    user = _find_entry(document, "users", "user", user_name) if user_name else Document({})
    for name in _NO_CREDENTIALS:
        if name in user:
            raise DocumentError(f"users: {quote(name)} is not supported")
    url = cluster.text("server")
    if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
        raise DocumentError(f"clusters: invalid server URL {quote(url)}")
    try:
        proxy_of(cluster.text("proxy-url"))
    except UrlError as error:
        raise DocumentError(f"clusters: {error}") from None
    tls = TargetTls(
        _pem(cluster, "certificate-authority", base),
        _pem(user, "client-certificate", base),
        _pem(user, "client-key", base),
        cluster.text("tls-server-name"),
        cluster.flag("insecure-skip-tls-verify"),
    )
    if bool(tls.cert) != bool(tls.key):
        raise DocumentError("users: client-certificate and client-key must be given together")
    return Target(
        url,
        tls,
        token=user.text("token"),
        token_file=_path(user.text("tokenFile"), base),
        user=user.text("username"),
        password=user.text("password"),
        proxy_url=cluster.text("proxy-url"),
    )


def _find_entry(document: Document, entries: str, member: str, name: str) -> Document:
    for each in document.items(entries):
        if each.text("name") == name:
            found = each.item(member)
            return Document({}) if found is None else found
    raise DocumentError(f"{member} {quote(name)} does not exist")


def _pem(document: Document, name: str, base: Path) -> Pem:
    if text := document.text(f"{name}-data"):
        try:
            return Pem(base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise DocumentError(f"{document.at(name)}-data: {error}") from None
    return Pem(file=_path(document.text(name), base))


def _path(path: str, base: Path) -> str:
    return str(base / path) if path else ""
