"""Clients over the network, which may act at any time: operators, other machines' agents, users.

    others = Others(server)             records requests from now on
    state = others.look()
    state.clients                       who may still act
    state.moving                        what they were not sent yet, and writes that are under way
    state.silent_s                      the real time since the last request of any of them

What they will do is unknown here; they are judged by what they were sent and by their silence.
A client counts if it watches something, or has requested objects over a connection that is still
open. Clients that only read pages (health, metrics, discovery, `/settled`) do not count.
"""

import math
import time
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from kvstack.agents.client.activity import Moving

if TYPE_CHECKING:
    from kvstack.apiserver.http.request_context import RequestContext
    from kvstack.apiserver.server.assembly import ApiServer
    from kvstack.component.http.serving.transport import Connection

CHARACTERS_MAX: Final = 100
"""The maximum length of the name of a user and of a program."""
CLIENTS_MAX: Final = 100
"""The maximum number of clients that are listed."""
_RESOURCES_MAX: Final = 20

_Key: TypeAlias = tuple[str, str]


class Client(NamedTuple):
    """A user's program."""

    user: str
    agent: str
    """The program as it names itself."""
    watches: tuple[str, ...]
    """Resources."""
    asked_s: float
    """The real time since its last request for objects; infinite: it only watches."""


class OthersState(NamedTuple):
    """The state of those clients."""

    clients: tuple[Client, ...]
    moving: tuple[Moving, ...]
    silent_s: float


class _Asked:
    """The last request of a connection."""

    __slots__ = ("agent", "at_s", "user")

    def __init__(self) -> None:
        self.user = self.agent = ""
        self.at_s = -math.inf

    @property
    def key(self) -> _Key:
        return self.user[:CHARACTERS_MAX], self.agent[:CHARACTERS_MAX]


class Others:
    """The clients of one API server; a `RequestObserver`."""

    def __init__(self, server: "ApiServer") -> None:
        self._server: Final = server
        self._local: Final = server.local.transport
        self._asked: WeakKeyDictionary[Connection, _Asked] = WeakKeyDictionary()
        self._last_s = -math.inf
        server.site.observers.append(self)

    def ended(self, context: "RequestContext", took_ns: int) -> None:
        """Record a request for objects."""
        del took_ns
        reply, request = context.reply, context.request
        if not context.route.info.is_resource or reply.answer.transport is self._local:
            return
        # After each request: it takes as little as can be.
        last = self._asked.get(request.connection)
        if last is None:
            self._asked[request.connection] = last = _Asked()
        last.user, last.agent = context.user.name, request.header("user-agent")
        last.at_s = self._last_s = time.monotonic()

    def look(self) -> OthersState:
        """Return how they are now."""
        now_s = time.monotonic()
        watched: dict[_Key, set[str]] = {}
        moving: list[Moving] = []
        for each in self._server.site.watches.watchers():
            key = each.user, each.agent
            if each.transport is not self._local:
                watched.setdefault(key, set()).add(each.resource)
            if each.is_behind:
                who = each.agent or each.user
                moving.append(Moving(who, each.resource, "was not sent everything yet"))
        moving += self._writes()
        last_asked_s: dict[_Key, float] = {}
        for last in list(self._asked.values()):
            key = last.key
            last_asked_s[key] = min(last_asked_s.get(key, math.inf), now_s - last.at_s)
        clients = tuple(
            Client(
                *key,
                tuple(sorted(watched.get(key, ())))[:_RESOURCES_MAX],
                last_asked_s.get(key, math.inf),
            )
            for key in sorted({*watched, *last_asked_s})[:CLIENTS_MAX]
        )
        return OthersState(clients, tuple(moving), now_s - self._last_s)

    def _writes(self) -> list[Moving]:
        """Return what they write now."""
        writes = []
        for reply in self._server.site.api.in_flight.writes():
            if reply.answer.transport is not self._local and reply.user is not None:
                request = reply.request
                path = request.target.partition("?")[0][:CHARACTERS_MAX]
                who = reply.user.name[:CHARACTERS_MAX]
                writes.append(Moving(who, f"{request.method} {path}", "is being answered"))
        return writes
