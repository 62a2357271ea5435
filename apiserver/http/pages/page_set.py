"""Paths that are not resources, and their pages.

    pages = PageSet()
    pages.add("/metrics", metrics_page)            this path
    pages.add("/version", …, takes_slash=True)     with or without a slash at its end
    pages.add_below("/healthz/", health_page)      and all that begins with that
    pages.paths                                    what `/` lists

A page writes its own answer. An unknown path is answered in plain text, as Go does.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.text import json_text
from kvstack.apiserver.http.answers import NO_SNIFF, Reply
from kvstack.apiserver.http.negotiation import JSON_ONLY, negotiate
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.verbs.forms.bodies import JSON
from kvstack.component.http.serving.request import Request

Page: TypeAlias = Callable[[RequestContext], Awaitable[None]]

_ROOTS: Final = frozenset(("/", "", "/index.html"))
_PREFIXES: Final = ("/apis/", "/openapi/v3/")
"""Prefixes that are listed in place of the paths below them."""
_READING: Final = frozenset(("GET", "HEAD"))


class PageSet:
    """Pages by their paths."""

    def __init__(self) -> None:
        """Start with the list of pages only."""
        self._exact: dict[str, Page] = {}
        self._with_slash: dict[str, Page] = {}
        self._below: dict[str, Page] = {}
        self._listed: set[str] = set(_PREFIXES)
        self.more_paths: Callable[[], list[str]] = list
        """Returns the paths that come and go."""

    def add(
        self, path: str, page: Page, *, is_listed: bool = True, takes_slash: bool = False
    ) -> None:
        """Serve a path; takes_slash: also with a trailing slash."""
        self._exact[path] = page
        if takes_slash:
            self._with_slash[f"{path}/"] = page
        if is_listed:
            self._listed.add(path)

    def add_below(self, prefix: str, page: Page) -> None:
        """Serve all paths with a prefix that have no page of their own."""
        self._below[prefix] = page

    def __contains__(self, path: object) -> bool:
        """Return whether a path has a page of its own."""
        return path in self._exact

    @property
    def paths(self) -> list[str]:
        """The served paths, sorted."""
        return sorted({*self._listed, *self.more_paths()})

    async def serve(self, context: RequestContext) -> None:
        """Answer a request for a path."""
        path, reply = context.route.info.path, context.reply
        page = self._exact.get(path) or self._with_slash.get(path)
        if page is None:
            page = next(
                (each for prefix, each in self._below.items() if path.startswith(prefix)), None
            )
        if page is not None:
            await page(context)
        elif path in _ROOTS:
            body = json_text.write_indented({"paths": self.paths})
            reply.send(200, JSON, body)
        else:
            not_found(reply)


def not_found(reply: Reply) -> None:
    """Answer 404."""
    reply.send_text(404, "404 page not found\n", NO_SNIFF)


def json_page(value: object) -> Page:
    """Return a page that is always the same JSON, indented."""
    body = json_text.write_indented(value)

    async def page(context: RequestContext) -> None:
        check_get(context.request)
        negotiate(context.request.header("accept"), JSON_ONLY)
        context.reply.send(200, JSON, body)

    return page


def check_reading(request: Request) -> None:
    """Refuse any method but GET and HEAD; raises ApiError."""
    if request.method not in _READING:
        raise status.generic(405)


def check_get(request: Request) -> None:
    """Refuse any method but GET; raises ApiError."""
    if request.method != "GET":
        raise status.generic(405)
