"""URLs: `url("https://example.com:80/path").getHost()`."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from typing_extensions import override

from kvstack.apimachinery.objects.text import go_urls
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.cel.checker.functions import Functions, declared
from kvstack.cel.errors import CelError

FUNCTIONS: Final[Functions] = declared("""
    url: (string) -> kubernetes.URL @ string_to_url
    getScheme: kubernetes.URL.() -> string @ url_get_scheme
    getHost: kubernetes.URL.() -> string @ url_get_host
    getHostname: kubernetes.URL.() -> string @ url_get_hostname
    getPort: kubernetes.URL.() -> string @ url_get_port
    getEscapedPath: kubernetes.URL.() -> string @ url_get_escaped_path
    getQuery: kubernetes.URL.() -> map(string, list(string)) @ url_get_query
    isURL: (string) -> bool @ is_url_string
""")

_PATH_SAFE: Final = "/$&+,:;=@!'()*[]"
"""Characters that may be unescaped in a path."""


class UrlValue:
    """A URL."""

    __slots__ = ("parts", "text")

    type_name: Final = "kubernetes.URL"

    def __init__(self, text: str, parts: go_urls.Url) -> None:
        """Make one."""
        self.text = text
        self.parts = parts

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlValue) and other.parts == self.parts

    @override
    def __hash__(self) -> int:
        return hash(self.parts)


def request_problem(text: str) -> str:
    """Return what is wrong with the URL of a request: absolute, or a path; empty: nothing."""
    if not text:
        return 'parse "": empty url'
    try:
        go_urls.parse(text.replace("#", "%23"))
    except go_urls.UrlError as error:
        problem = str(error)
        if "first path segment" not in problem:
            return problem.replace("%23", "#")
        return f"parse {quote(text)}: invalid URI for request"
    parts = go_urls.parse(text.replace("#", "%23"))
    if not parts.scheme and not text.startswith("/") and text != "*":
        return f"parse {quote(text)}: invalid URI for request"
    return ""


def _url(text: str) -> UrlValue:
    prefix = "URL parse error during conversion from string: "
    if problem := request_problem(text):
        raise CelError(f"{prefix}{problem}")
    try:
        return UrlValue(text, go_urls.parse(text))
    except go_urls.UrlError as error:
        raise CelError(f"{prefix}{error}") from None


def _hostname(url: UrlValue) -> str:
    host = url.parts.host
    if host.startswith("["):
        return host[1 : host.index("]")]
    return host.rpartition(":")[0] if ":" in host else host


def _port(url: UrlValue) -> str:
    host = url.parts.host
    after = host.partition("]")[2] if host.startswith("[") else host
    return after.rpartition(":")[2] if ":" in after else ""


def _escaped_path(url: UrlValue) -> str:
    path = url.parts.path
    before = url.text.partition("#")[0].partition("?")[0]
    if url.parts.host or url.parts.scheme:
        before = before.partition("://")[2] if "://" in before else before.partition(":")[2]
        before = before[before.index("/") :] if "/" in before else ""
    # A path that is escaped in a way of its own stays as it was written.
    is_fine = all(
        each.isascii() and (each.isalnum() or each in f"-_.~%{_PATH_SAFE}") for each in before
    )
    if is_fine and unquote_to_bytes(before) == path.encode():
        return before
    return "*" if path == "*" else quote_from_bytes(path.encode(), safe="/$&+,:;=@~")


def _query(url: UrlValue) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for pair in url.parts.query.split("&"):
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        try:
            values.setdefault(_unescaped(name), []).append(_unescaped(value))
        except ValueError:
            continue  # parts that are not pairs are ignored
    return values


def _unescaped(text: str) -> str:
    for position, character in enumerate(text):
        if character == "%":
            int(text[position + 1 : position + 3].ljust(2, "x"), 16)
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


IMPLEMENTATIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "string_to_url": _url,
    "url_get_scheme": lambda url: url.parts.scheme,
    "url_get_host": lambda url: url.parts.host,
    "url_get_hostname": _hostname,
    "url_get_port": _port,
    "url_get_escaped_path": _escaped_path,
    "url_get_query": _query,
    "is_url_string": lambda text: not request_problem(text),
}
