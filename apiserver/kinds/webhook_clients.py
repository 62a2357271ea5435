"""Webhook clients: a URL, or a Service in the cluster."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import child, invalid, required
from kvstack.apimachinery.objects.names import check_dns_subdomain, check_port_number
from kvstack.apimachinery.objects.text import go_urls
from kvstack.apiserver.kinds.rules import Errors, add_invalid

DEFAULT_PORT: Final = 443

_FORM: Final = "; desired format: https://host[/path]"


def default_client(client: dict[str, Any] | None) -> None:
    """Set the default port of a Service."""
    service = (client or {}).get("service")
    if service is not None and service.get("port") is None:
        service["port"] = DEFAULT_PORT


def check_client(client: dict[str, Any], path: str, errors: Errors) -> None:
    """Check that there is exactly one of both, and its form."""
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        errors.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        check_url(url, child(path, "url"), errors)
    elif service is not None:
        check_service(service, child(path, "service"), errors)


def check_url(text: str, path: str, errors: Errors) -> None:
    """Check the URL of a webhook: https, with a host, and nothing after the path."""
    try:
        url = go_urls.parse(text)
    except go_urls.UrlError as error:
        errors.append(required(path, f"url must be a valid URL: {error}{_FORM}"))
        return
    if url.scheme != "https":
        detail = f"'https' is the only allowed URL scheme{_FORM}"
        errors.append(invalid(path, url.scheme, detail))
    if not url.host:
        errors.append(invalid(path, url.host, f"host must be specified{_FORM}"))
    if url.user is not None:
        errors.append(invalid(path, url.user, "user information is not permitted in the URL"))
    if url.fragment:
        errors.append(invalid(path, url.fragment, "fragments are not permitted in the URL"))
    if url.query:
        errors.append(invalid(path, url.query, "query parameters are not permitted in the URL"))


def check_service(service: dict[str, Any], path: str, errors: Errors) -> None:
    """Check the Service of a webhook, and its path."""
    # Upstream has these two the wrong way round.
    for name, other in (("namespace", "name"), ("name", "namespace")):
        if not service.get(name):
            errors.append(required(child(path, other)))
    port = service.get("port") or 0
    wrong = check_port_number(port)
    if wrong:
        detail = f"port is not valid: {', '.join(wrong)}"
        errors.append(invalid(child(path, "port"), port, detail))
    _check_path(service.get("path") or "/", child(path, "path"), errors)


def _check_path(text: str, path: str, errors: Errors) -> None:
    if text == "/":
        return
    if text == "//":
        errors.append(invalid(path, text, "segment[0] may not be empty"))
        return
    if not text.startswith("/"):
        errors.append(invalid(path, text, "must start with a '/'"))
    data = text.encode()[1:].removesuffix(b"/")
    for position, step in enumerate(data.decode("utf-8", "replace").split("/")):
        wrong = check_dns_subdomain(step) if step else ["may not be empty"]
        separator = ": " if step else " "
        messages = (f"segment[{position}]{separator}{each}" for each in wrong)
        add_invalid(errors, path, text, messages)
