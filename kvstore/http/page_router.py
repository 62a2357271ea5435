"""Pages by path, with the rules of Go's ServeMux.

    exact paths, then the longest prefix that ends in a slash, then 404
    //v3/../v3/kv/range → 307 to /v3/kv/range           /v3 → 307 to /v3/

A page is a handler. Nothing is known of its meaning here.
"""

from collections.abc import Mapping
from html import escape
from urllib.parse import unquote

from kvstore.http.exchange import PageHandler, PageRequest, Responder, not_found

_ESCAPED_SLASH = "\0"  # an escaped slash does not separate segments


class PageRouter:
    """A set of pages."""

    def __init__(self, pages: Mapping[str, PageHandler]) -> None:
        """Serve each path of pages; a path that ends in a slash serves all paths below it."""
        self._pages = dict(pages)
        self._prefixes = sorted(
            [path for path in pages if path.endswith("/")], key=len, reverse=True
        )

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request."""
        path = request.raw_path
        cleaned = clean_path(path)
        segments = [unquote(each).replace("/", _ESCAPED_SLASH) for each in cleaned.split("/")]
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

    def _below(self, path: str) -> PageHandler | None:
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return self._pages[prefix]
        return None


def clean_path(path: str) -> str:
    """Return path without empty, . and .. segments; a final slash is kept."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            del segments[-1:]
        elif segment not in {"", "."}:
            segments.append(segment)
    cleaned = "/" + "/".join(segments)
    return cleaned + "/" if segments and path.endswith("/") else cleaned


async def _redirect(request: PageRequest, respond: Responder, path: str) -> None:
    location = f"{path}?{request.raw_query}" if request.raw_query else path
    headers = [("Location", location)]
    body = ""
    if request.method in {"GET", "HEAD"}:
        headers.append(("Content-Type", "text/html; charset=utf-8"))
        shown = escape(location).replace("&#x27;", "&#39;").replace("&quot;", "&#34;")
        body = f'<a href="{shown}">Temporary Redirect</a>.\n\n'
    await respond.whole(307, headers, body.encode())
