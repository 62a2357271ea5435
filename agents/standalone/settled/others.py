"""Clients over the network, which may act by themselves: operators, other machines' agents, users.

    others = Others(server)             takes note of requests from now on
    state = others.look()
    state.clients                       who may still act
    state.moving                        what they were not sent yet, and writes that are under way
    state.silent_s                      for how long, in real time, none of them has asked

What they will do, nobody here knows; they are judged by what they were sent and by their silence.
Those count that watch something, and those that have asked for objects over a connection that is
still open. Who only reads pages (health, metrics, discovery, `/settled`) does not.
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
"""Of a user's and a program's name."""
CLIENTS_MAX: Final = 100
"""That are named."""
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
    """How long ago, in real time, it has asked for objects; infinite: it only watches."""


class OthersState(NamedTuple):
    """How those clients are."""

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
    """Those of one API server; a `RequestObserver`."""

    def __init__(self, server: "ApiServer") -> None:
        """Take note of nobody before this."""
        self._server: Final = server
        self._local: Final = server.local.transport
        self._asked: WeakKeyDictionary[Connection, _Asked] = WeakKeyDictionary()
        self._last_s = -math.inf
        server.site.observers.append(self)

    def ended(self, context: "RequestContext", took_ns: int) -> None:
        """Take note of a request for objects."""
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
        asked: dict[_Key, float] = {}
        for last in list(self._asked.values()):
            key = last.key
            asked[key] = min(asked.get(key, math.inf), now_s - last.at_s)
        clients = tuple(
            Client(
                *key,
                tuple(sorted(watched.get(key, ())))[:_RESOURCES_MAX],
                asked.get(key, math.inf),
            )
            for key in sorted({*watched, *asked})[:CLIENTS_MAX]
        )
        return OthersState(clients, tuple(moving), now_s - self._last_s)

    def _writes(self) -> list[Moving]:
        """Return what they write now."""
        found = []
        for reply in self._server.site.api.in_flight.writes():
            if reply.answer.transport is not self._local and reply.user is not None:
                request = reply.request
                path = request.target.partition("?")[0][:CHARACTERS_MAX]
                who = reply.user.name[:CHARACTERS_MAX]
                found.append(Moving(who, f"{request.method} {path}", "is being answered"))
        return found
