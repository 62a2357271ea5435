"""Connections to what runs in the cluster, over HTTP/1.1 with TLS.

session = ServiceSession(services)
session.open()                     an aiohttp session; `name.namespace.svc` are its Services
await session.why(error, url)      what went wrong, as Go says it
"""

from typing import TYPE_CHECKING, Final

from kvstack.apiserver.webhooks.services import Services

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL


class ServiceSession:
    """Kept connections; belongs to one event loop."""

    def __init__(self, services: Services) -> None:
        """Find Services by the given means; nothing is dialled yet."""
        self._services: Final = services
        self._session: aiohttp.ClientSession | None = None

    def open(self) -> "aiohttp.ClientSession":
        """Return the session, which is the same until it is closed."""
        # Loaded by the first question, since most servers never ask one.
        from kvstack.apiserver.webhooks.dialling import make_session

        if self._session is None:
            self._session = make_session(self._services)
        return self._session

    async def close(self) -> None:
        """Give up all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def why(self, error: Exception, url: "URL") -> str:
        """Return what went wrong on the way, as Go says it."""
        from kvstack.apiserver.webhooks.dialling import why

        return await why(self._services, error, url)
