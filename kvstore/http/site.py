"""Which page answers which path, by the rules of Go's ServeMux.

    exact paths, then the longest prefix that ends in a slash, then 404
    //v3/../v3/kv/range → 307 to /v3/kv/range           /v3 → 307 to /v3/

Pages are handlers; what they mean is not known here.
"""

from collections.abc import Awaitable, Callable, Mapping
from html import escape
from urllib.parse import unquote

from kvstore.http.exchange import Headers, Request, Responder, not_found

Handler = Callable[[Request, Responder], Awaitable[None]]

_SLASH = "\0"  # stands for an escaped one: it separates nothing


class Site:
    """A set of pages."""

    def __init__(self, pages: Mapping[str, Handler]) -> None:
        """Serve each path of pages; one that ends in a slash stands for all below it."""
        self._pages = dict(pages)
        self._prefixes = sorted(
            [path for path in pages if path.endswith("/")], key=len, reverse=True
        )

    async def serve(self, request: Request, respond: Responder) -> None:
        """Answer one request."""
        path = request.raw_path
        cleaned = clean_path(path)
        segments = [unquote(each).replace("/", _SLASH) for each in cleaned.split("/")]
        plain = "/".join(segments)
        handler = self._pages.get(plain) or self._below(plain)
        if handler is None and plain + "/" in self._pages:
            cleaned += "/"
        if cleaned != path and request.method != "CONNECT":
            await _redirect(request, respond, cleaned)
        elif handler is None:
            await not_found(respond)
        else:
            await handler(request, respond)

    def _below(self, path: str) -> Handler | None:
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return self._pages[prefix]
        return None


def clean_path(path: str) -> str:
    """Return path without empty, . and .. segments; a final slash stays."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in {"", "."}:
            kept.append(segment)
    cleaned = "/" + "/".join(kept)
    return cleaned + "/" if kept and path.endswith("/") else cleaned


async def _redirect(request: Request, respond: Responder, path: str) -> None:
    location = f"{path}?{request.raw_query}" if request.raw_query else path
    headers: Headers = [("Location", location)]
    body = ""
    if request.method in {"GET", "HEAD"}:
        headers.append(("Content-Type", "text/html; charset=utf-8"))
        shown = escape(location).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
        body = f'<a href="{shown}">Temporary Redirect</a>.\n\n'
    await respond.whole(307, headers, body.encode())
