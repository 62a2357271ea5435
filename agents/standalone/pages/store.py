"""Pages of the store at the API server's port: `/etcd/…`, for authorized users.

    /etcd/health /etcd/livez /etcd/readyz /etcd/metrics      the group system:monitoring (`rbac`)
    /etcd/ui /etcd/ui/data                                   administrators: the status page

    kubectl get --raw /etcd/metrics
    kubectl proxy, then http://127.0.0.1:8001/etcd/ui        in a browser

They are read only, and are asked of the member without a socket. The API server has authorized a
request before it comes here.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from kvstack.apimachinery.objects import status
from kvstack.apiserver.http.pages.page_set import PageSet, check_reading
from kvstack.apiserver.http.request_context import RequestContext

if TYPE_CHECKING:
    from concurrent.futures import Future

    from kvstore.embed import PageAnswer

ROOT: Final = "/etcd"
PATHS: Final = ("/etcd/health", "/etcd/livez", "/etcd/metrics", "/etcd/readyz", "/etcd/ui")
MONITORED_PATHS: Final = (
    "/etcd/health",
    "/etcd/livez",
    "/etcd/livez/*",
    "/etcd/metrics",
    "/etcd/readyz",
    "/etcd/readyz/*",
)
TIMEOUT_S: Final = 10.0

_TEXT: Final = "text/plain; charset=utf-8"

Ask: TypeAlias = Callable[[str, str], "Future[PageAnswer]"]
"""Asks a member: method, and path with its query, to an answer."""


def add_store_pages(pages: PageSet, ask: Ask) -> None:
    """Serve the pages."""

    async def page(context: RequestContext) -> None:
        request = context.request
        check_reading(request)
        path, mark, query = context.route.info.path, *request.target.partition("?")[1:]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await asyncio.wrap_future(ask(request.method, _own(path) + mark + query))
        except TimeoutError:
            raise status.service_unavailable("the store did not answer in time") from None
        content_type, headers = _TEXT, []
        for name, value in answer.headers:
            if name.lower() == "content-type":
                content_type = value
            elif name.lower() != "cache-control":  # the reply has its own
                headers.append((name, value))
        context.reply.send(answer.status, content_type, answer.body, *headers)

    for path in PATHS:
        pages.add(path, page)
    pages.add_below(f"{ROOT}/", page)


def _own(path: str) -> str:
    """Return the store's path; the last slash of a page, which it does not know, is left out."""
    own = path.removeprefix(ROOT)
    return own.rstrip("/") or "/"
