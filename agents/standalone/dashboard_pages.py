"""The page at `/ui/`, at the API server's own port.

    add_dashboard(server.site.pages)        /ui/ and the files below it

The server side gives out files and has no credentials: the page asks the API as whoever sits before
it, with a pasted token or with what kubectl proxy adds. The files hold nothing of the cluster, so
everybody may read them (`access`), also who has not signed in yet.
"""

from kvstack.agents.dashboard.access import ROOT
from kvstack.agents.dashboard.contents import HEADERS, TYPES, contents
from kvstack.apiserver.http.pages.page_set import PageSet, check_reading, not_found
from kvstack.apiserver.http.request_context import RequestContext


def add_dashboard(pages: PageSet) -> None:
    """Serve the page."""
    pages.add(ROOT, _redirect)
    pages.add_below(f"{ROOT}/", _file)


async def _redirect(context: RequestContext) -> None:
    check_reading(context.request)
    # Relative, so that it holds behind a proxy that adds a prefix.
    context.reply.send(307, TYPES[".html"], b"", ("Location", "ui/"), *HEADERS)


async def _file(context: RequestContext) -> None:
    reply = context.reply
    check_reading(context.request)
    found = contents().get(context.route.info.path.removeprefix(f"{ROOT}/"))
    if found is None:
        not_found(reply)
        return
    media_type, body = found
    reply.send(200, media_type, body, *HEADERS)
