"""What is served besides resources: pages by their path.

    pages = PageSet()
    pages.add("/version", version_page)            this path, with or without a slash at its end
    pages.add_below("/healthz/", health_page)      and all that begins with that
    pages.paths                                    what `/` lists

A page answers itself. A path that nobody knows is answered in plain text, as Go does.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apiserver.http.answers import NO_SNIFF, Reply
from kvstack.apiserver.http.negotiation import JSON_ONLY, negotiate
from kvstack.apiserver.http.routing import Route
from kvstack.apiserver.objects import status
from kvstack.apiserver.objects.text import json_text
from kvstack.apiserver.policy.attributes import User
from kvstack.apiserver.verbs.forms.bodies import JSON
from kvstore.http.serving.request import Request

Page: TypeAlias = Callable[[Request, Reply, Route, User], Awaitable[None]]

_ROOTS: Final = frozenset(("/", "", "/index.html"))
_PREFIXES: Final = ("/apis/", "/openapi/v3/")
"""Paths that are listed for what is below them."""
_READING: Final = frozenset(("GET", "HEAD"))


class PageSet:
    """Pages by their paths."""

    def __init__(self) -> None:
        """Know no page but the list of them."""
        self._exact: dict[str, Page] = {}
        self._below: dict[str, Page] = {}
        self._listed: set[str] = set(_PREFIXES)
        self.more_paths: Callable[[], list[str]] = list
        """Returns the paths that come and go."""

    def add(self, path: str, page: Page, *, is_listed: bool = True) -> None:
        """Serve a path."""
        self._exact[path] = page
        if is_listed:
            self._listed.add(path)

    def add_below(self, prefix: str, page: Page) -> None:
        """Serve all paths with a prefix that have no page of their own."""
        self._below[prefix] = page

    def __contains__(self, path: object) -> bool:
        """Tell whether a path has a page of its own."""
        return path in self._exact

    @property
    def paths(self) -> list[str]:
        """What is served, sorted."""
        return sorted({*self._listed, *self.more_paths()})

    async def serve(self, request: Request, reply: Reply, route: Route, user: User) -> None:
        """Answer a request for a path."""
        path = route.info.path
        page = self._exact.get(path) or self._exact.get(path.rstrip("/"))
        if page is None:
            page = next(
                (each for prefix, each in self._below.items() if path.startswith(prefix)), None
            )
        if page is not None:
            await page(request, reply, route, user)
        elif path in _ROOTS:
            body = json_text.write_indented({"paths": self.paths})
            reply.send(200, JSON, body)
        else:
            not_found(reply)


def not_found(reply: Reply) -> None:
    """Answer that there is no such page."""
    reply.send_text(404, "404 page not found\n", NO_SNIFF)


def json_page(value: object) -> Page:
    """Return a page that is always the same JSON, indented."""
    body = json_text.write_indented(value)

    async def page(request: Request, reply: Reply, _route: Route, _user: User) -> None:
        check_reading(request)
        negotiate(request.header("accept"), JSON_ONLY)
        reply.send(200, JSON, body)

    return page


def check_reading(request: Request) -> None:
    """Refuse any method but GET and HEAD; raises ApiError."""
    if request.method not in _READING:
        raise status.generic(405)


def check_get(request: Request) -> None:
    """Refuse any method but GET; raises ApiError."""
    if request.method != "GET":
        raise status.generic(405)
