"""The files of the page at `/ui/`, at the API server's own port.

    add_dashboard(server.site.pages)        /ui/ and the files below it

The server side gives out files and has no credentials: the page asks the API as whoever sits before
it, with a pasted token or with what kubectl proxy adds. The files hold nothing of the cluster, so
everybody may read them (`access`), also who has not signed in yet.
"""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

from kvstack.agents.dashboard.access import ROOT
from kvstack.apiserver.http.pages.page_set import PageSet, check_reading, not_found
from kvstack.apiserver.http.request_context import RequestContext

HEADERS: Final = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def add_dashboard(pages: PageSet) -> None:
    """Serve the page."""
    pages.add(ROOT, _redirect)
    pages.add_below(f"{ROOT}/", _file)


@cache
def contents() -> Mapping[str, tuple[str, bytes]]:
    """Return the media type and the bytes of every file, by its name; "" is the page itself."""
    found = {}
    for each in files(__package__).joinpath("static").iterdir():
        suffix = each.name[each.name.rfind(".") :]
        if suffix in _TYPES:
            found[each.name] = _TYPES[suffix], each.read_bytes()
    found[""] = found["index.html"]
    return found


async def _redirect(context: RequestContext) -> None:
    check_reading(context.request)
    # Relative, so that it holds behind a proxy that adds a prefix.
    context.reply.send(307, _TYPES[".html"], b"", ("Location", "ui/"), *HEADERS)


async def _file(context: RequestContext) -> None:
    reply = context.reply
    check_reading(context.request)
    found = contents().get(context.route.info.path.removeprefix(f"{ROOT}/"))
    if found is None:
        not_found(reply)
        return
    media_type, body = found
    reply.send(200, media_type, body, *HEADERS)
