"""The `clientConfig` of a webhook.

read_client_config({"service": {"namespace": "a", "name": "hook", "path": "/v"}, "caBundle": "…"})
→ ClientConfig("https://hook.a.svc:443/v", ca=b"-----BEGIN…")

Paths are normalized as by Go's client: `//a/./b/` is `/a/b`. Servers redirect other forms, and
redirects are not followed.
"""

from base64 import b64decode
from posixpath import normpath
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from kvstack.apiserver.kinds.webhook_clients import DEFAULT_PORT

_SERVICE_END: Final = ".svc"
_PATH_SAFE: Final = "/$&+,:;=@"


class ClientConfig(NamedTuple):
    """URL and CA of a webhook."""

    url: str
    ca: bytes = b""
    """CA certificates in PEM; empty: those of the system."""


def read_client_config(client: dict[str, Any]) -> ClientConfig:
    """Return the parsed `clientConfig`; ValueError: it has neither URL nor Service."""
    ca = b64decode(client.get("caBundle") or "")
    url = client.get("url")
    if url:
        parts = urlsplit(url)
        return ClientConfig(f"{parts.scheme}://{parts.netloc}{_shortest(unquote(parts.path))}", ca)
    service = client.get("service")
    if not service:
        raise ValueError("webhook configuration must have either service or URL")
    path = _shortest(service.get("path") or "")
    host = f"{service.get('name', '')}.{service.get('namespace', '')}{_SERVICE_END}"
    return ClientConfig(f"https://{host}:{service.get('port') or DEFAULT_PORT}{path}", ca)


def service_of(host: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service of a host name; None: it is no Service."""
    name, _, rest = host.removesuffix(_SERVICE_END).partition(".")
    if not host.endswith(_SERVICE_END) or not rest or "." in rest:
        return None
    return rest, name


def _shortest(path: str) -> str:
    """Return a path without empty parts, `.` and `..`, escaped for a request."""
    return quote("/" + normpath(f"/{path}").lstrip("/"), safe=_PATH_SAFE)
