"""Where a webhook is: what a `clientConfig` says, as it is dialled.

place_of({"service": {"namespace": "a", "name": "hook", "path": "/v"}, "caBundle": "…"})
→ Place("https://hook.a.svc:443/v", ca=b"-----BEGIN…")
"""

from base64 import b64decode
from typing import Any, Final, NamedTuple

from kvstack.apiserver.kinds.webhook_clients import DEFAULT_PORT

_SERVICE_END: Final = ".svc"


class Place(NamedTuple):
    """Where a webhook is, and whom to believe there."""

    url: str
    ca: bytes = b""
    """PEM of authorities; empty: those of the system."""


def place_of(client: dict[str, Any]) -> Place:
    """Return the place of a `clientConfig`; ValueError: it names none."""
    ca = b64decode(client.get("caBundle") or "")
    url = client.get("url")
    if url:
        return Place(url, ca)
    service = client.get("service")
    if not service:
        raise ValueError("webhook configuration must have either service or URL")
    path = service.get("path") or "/"
    if not path.startswith("/"):
        path = f"/{path}"
    host = f"{service.get('name', '')}.{service.get('namespace', '')}{_SERVICE_END}"
    return Place(f"https://{host}:{service.get('port') or DEFAULT_PORT}{path}", ca)


def service_of(host: str) -> tuple[str, str] | None:
    """Return namespace and name of the Service that a host name is; None: it is none."""
    name, _, rest = host.removesuffix(_SERVICE_END).partition(".")
    if not host.endswith(_SERVICE_END) or not rest or "." in rest:
        return None
    return rest, name
