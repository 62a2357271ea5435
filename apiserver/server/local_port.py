"""The API for agents of the same process: requests pass the whole pipeline, without a socket.

port.token_for(User("system:kube-scheduler"))     the bearer token of a user
await port.transport.request("GET", "/version", [("authorization", f"Bearer {token}")])
"""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.http.site import Site
from kvstack.apiserver.policy.authentication.local_tokens import LocalTokens
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.local_transport import LocalTransport
from kvstack.component.http.serving.server import HttpServer


class LocalPort:
    """Serves agents of the process."""

    def __init__(self, site: Site, tokens: LocalTokens) -> None:
        """Serve a site beside its network server."""
        self.transport: Final = LocalTransport()
        self._tokens = tokens
        self._site = site
        self._server = HttpServer([], site.api, transport=self.transport)

    async def start(self) -> None:
        """Start taking requests."""
        await self._server.start()

    def attach_alone(self) -> None:
        """Send watch events to agents of the process only; there is no network server."""
        self._site.attach(self._server)

    def attach(self, server: HttpServer) -> None:
        """Send watch events through both servers; each shares bytes among its own clients."""

        def write_all(answers: Iterable[Answer], data: bytes, limit: int) -> list[Answer]:
            if not self._server.open_count:
                return server.write_all(answers, data, limit)
            mine: list[Answer] = []
            others: list[Answer] = []
            for answer in answers:
                (mine if answer.transport is self.transport else others).append(answer)
            lagging = self._server.write_all(mine, data, limit) if mine else []
            if others:  # otherwise the other server's thread would be woken for nothing
                lagging += server.write_all(others, data, limit)
            return lagging

        self._site.watches.write_all = write_all

    def token_for(self, user: User) -> str:
        """Return a token of a user, valid for the life of the process."""
        return self._tokens.issue(user)

    async def stop(self, grace_s: float) -> None:
        """Drain requests for up to grace_s, then stop."""
        await self._server.stop(grace_s)
