"""The page at `/ui/`, at the API server's own port.

    add_dashboard(server.site.pages)        /ui/ and the files below it

The server side serves files and has no credentials: the page sends requests as its user,
with a pasted token or with what kubectl proxy adds. The files hold nothing of the cluster, so
everybody may read them (`access`), unauthenticated users included.
"""

from ipaddress import ip_address

from kvstack.agents.dashboard.access import ROOT
from kvstack.agents.dashboard.contents import HEADERS, TRANSPORT_SECURITY, TYPES, contents
from kvstack.apiserver.http.answers import Header
from kvstack.apiserver.http.pages.page_set import PageSet, check_reading, not_found
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.component.http.serving.request import Request


def add_dashboard(pages: PageSet) -> None:
    """Serve the page."""
    pages.add(ROOT, _redirect)
    pages.add_below(f"{ROOT}/", _file)


async def _redirect(context: RequestContext) -> None:
    check_reading(context.request)
    # Relative, so that it works behind a proxy that adds a prefix.
    context.reply.send(307, TYPES[".html"], b"", ("Location", "ui/"), *_headers(context))


async def _file(context: RequestContext) -> None:
    reply = context.reply
    check_reading(context.request)
    found = contents().get(context.route.info.path.removeprefix(f"{ROOT}/"))
    if found is None:
        not_found(reply)
        return
    media_type, body = found
    reply.send(200, media_type, body, *_headers(context))


def _headers(context: RequestContext) -> tuple[Header, ...]:
    is_set = any(name == TRANSPORT_SECURITY[0] for name, _ in context.reply.extra)  # by a flag
    if is_set or not context.request.connection.is_tls or not _has_name(context.request):
        return HEADERS
    return (*HEADERS, TRANSPORT_SECURITY)


def _has_name(request: Request) -> bool:
    """Return whether the Host of a request is a name of this server: localhost always is."""
    host = request.header("host").rpartition(":")[0] or request.header("host")
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return host not in ("", "localhost") and not host.endswith(".localhost")
    return False
