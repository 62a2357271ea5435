"""Health checks: whether the server is live and ready.

    /livez /readyz /healthz                all checks of that page: 200 ok, or 500 and which failed
    /readyz?verbose&exclude=etcd           all listed, one excluded
    /readyz/etcd                           one check

A check is a function that returns what is wrong, or an empty string; the reason is only logged.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.http.answers import NO_SNIFF, Reply
from kvstack.apiserver.http.pages.page_set import not_found
from kvstack.apiserver.http.request_context import RequestContext
from kvstack.apiserver.http.routing import Route
from kvstack.component.logger import Logger

Check: TypeAlias = Callable[[], str | Awaitable[str]]
"""Returns what is wrong; empty: nothing is."""

PAGES: Final = ("healthz", "livez", "readyz")
READY_ONLY: Final = ("readyz",)


class Health:
    """The checks of a server, in the order they are listed."""

    def __init__(self, logger: Logger) -> None:
        """Start with the check `ping` only."""
        self._logger = logger
        self._checks: dict[str, tuple[Check, tuple[str, ...]]] = {}
        self.observed: Final[dict[tuple[str, str], tuple[int, int, bool]]] = {}
        """Successes, failures and the last outcome, by check and page."""
        self.add("ping", lambda: "")

    def add(self, name: str, check: Check, pages: tuple[str, ...] = PAGES) -> None:
        """Add a check to pages."""
        self._checks[name] = (check, pages)

    def names(self, page: str) -> list[str]:
        """Return the checks of a page."""
        return [name for name, (_, pages) in self._checks.items() if page in pages]

    @property
    def paths(self) -> list[str]:
        """The paths of all pages and checks."""
        found = []
        for page in PAGES:
            found.append(f"/{page}")
            found += [f"/{page}/{name}" for name in self.names(page)]
        return found

    async def __call__(self, context: RequestContext) -> None:
        """Answer for a page, or one check."""
        reply, route = context.reply, context.route
        page, _, name = route.info.path.strip("/").partition("/")
        if name:
            await self._serve_one(reply, page, name)
        else:
            await self._serve_all(reply, page, route)

    async def _serve_one(self, reply: Reply, page: str, name: str) -> None:
        if name not in self.names(page):
            not_found(reply)
            return
        wrong = await self._failure(name, page)
        if wrong:
            reply.send_text(500, f"internal server error: {wrong}\n", NO_SNIFF)
        else:
            reply.send_text(200, "ok")

    async def _serve_all(self, reply: Reply, page: str, route: Route) -> None:
        excluded = set(route.query.get("exclude", ()))
        lines: list[str] = []
        failed: list[str] = []
        for name in self.names(page):
            if name in excluded:
                excluded.discard(name)
                lines.append(f"[+]{name} excluded: ok")
                continue
            wrong = await self._failure(name, page)
            if wrong:
                failed.append(name)
                lines.append(f"[-]{name} failed: reason withheld")
            else:
                lines.append(f"[+]{name} ok")
        if excluded:
            excluded_names = ", ".join(quote(each) for each in sorted(excluded))
            lines.append(
                f"warn: some health checks cannot be excluded: no matches for {excluded_names}"
            )
        if failed:
            self._logger.warning("health checks fail", page=page, checks=",".join(failed))
            text = "\n".join([*lines, f"{page} check failed", ""])
            reply.send_text(500, text, NO_SNIFF)
        elif "verbose" in route.query:
            reply.send_text(200, "\n".join([*lines, f"{page} check passed", ""]), NO_SNIFF)
        else:
            reply.send_text(200, "ok", NO_SNIFF)

    async def _failure(self, name: str, page: str) -> str:
        found = self._checks[name][0]()
        wrong = found if isinstance(found, str) else await found
        fine, failed, _ = self.observed.get((name, page), (0, 0, True))
        self.observed[name, page] = (fine, failed + 1, False) if wrong else (fine + 1, failed, True)
        return wrong
