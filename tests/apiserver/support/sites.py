"""The API over HTTP without sockets: requests are handed to its handler, answers are kept.

async with site() as api:
    answer = await api.ask("POST", "/api/v1/namespaces/a/configmaps", {"metadata": …})
    answer.status, answer.json
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apiserver.http.auditing import Auditing
from kvstack.apiserver.http.limits.in_flight import InFlight
from kvstack.apiserver.http.site import Site
from kvstack.apiserver.policy.flow_control.control import FlowControl
from kvstack.apiserver.verbs.endpoint import Endpoints
from kvstack.apiserver.verbs.environment import Environment, Settings
from kvstack.apiserver.verbs.writing.identifiers import Identifiers
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import ListenerLimits
from kvstack.component.http.serving.local_transport import LocalHead
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.transport import Connection
from tests.apiserver.support.registries import World, world
from tests.apiserver.support.stub_policy import AdministratorsOnly, NoAdmission, Tokens

ADMIN = "admin-token"


class Headers(LocalHead):
    """The headers of a request."""

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        """Take them as they were sent."""
        super().__init__([(name.lower(), value) for name, value in items])


@dataclass
class Running:
    """Who runs a handler: a task of its own."""

    task: asyncio.Task[None]


@dataclass(eq=False)
class KeptAnswer:
    """An answer as it went out; it is the transport of itself."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    is_over: bool = False
    unsent_bytes: int = 0
    """What the transport says of how much waits."""
    is_unread: bool = False
    """Whether what is sent stays unsent until `read`."""
    is_cut: bool = False
    shares_bytes: bool = True
    writable_below: int = -1
    answer: Answer = field(init=False)

    def __post_init__(self) -> None:
        """Be the transport of an answer."""
        self.answer = Answer(self, 1, None, is_head=False)  # type: ignore[arg-type]

    def respond(
        self,
        call: int,
        status: int,
        headers: Sequence[tuple[str, str]],
        body: bytes | None,
        *rest: bytes,
    ) -> None:
        """Take the head, and the body of a whole answer."""
        self.status, self.headers = status, list(headers)
        if body is not None:
            self.body, self.is_over = b"".join((body, *rest)), True
            self.unsent_bytes += len(self.body) if self.is_unread else 0

    def write(self, call: int, data: bytes) -> int:
        """Take a part of the body."""
        self.body += data
        self.unsent_bytes += len(data) if self.is_unread else 0
        return self.unsent_bytes

    def end(self, call: int, *, is_whole: bool) -> None:
        """Take the end."""
        self.is_over = True

    def notify_writable(self, call: int, unsent_bytes_max: int) -> bool:
        """Say whether there is room; if not, `read` makes it."""
        if not self.is_unread or self.unsent_bytes <= unsent_bytes_max:
            return True
        self.writable_below = unsent_bytes_max
        return False

    def read(self) -> int:
        """Take what is unsent, as a client that reads again; return how much that was."""
        count, self.unsent_bytes = self.unsent_bytes, 0
        if self.writable_below >= 0:
            self.writable_below = -1
            self.answer.on_writable()
        return count

    def unsent(self, calls: list[int]) -> list[int]:
        """Say how much is unsent."""
        return [self.unsent_bytes for _ in calls]

    def cut(self, call: int) -> None:
        """End at once."""
        self.is_cut = True
        self.unsent_bytes = 0
        asyncio.get_running_loop().call_soon(self.answer.on_disconnect)

    def take(self, call: int, size: int) -> None:
        """Know that a body is read."""

    @property
    def json(self) -> Any:  # whatever it holds
        """The body."""
        return orjson.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        """The events of a watch."""
        return [orjson.loads(each) for each in self.body.splitlines()]

    def header(self, name: str) -> str:
        """Return a header, empty if there is none."""
        return next((value for each, value in self.headers if each.lower() == name), "")

    def all(self, name: str) -> list[str]:
        """Return all headers of a name."""
        return [value for each, value in self.headers if each.lower() == name]


@dataclass
class Api:
    """A site that can be asked."""

    world: World
    site: Site
    env: Environment

    async def ask(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        token: str = ADMIN,
        **headers: str,
    ) -> KeptAnswer:
        """Return the answer to a request; headers: `content_type` is `Content-Type`."""
        kept = KeptAnswer()
        await self.site.api(self.request(method, target, body, token, headers), kept.answer)
        return kept

    def begin(
        self,
        method: str,
        target: str,
        body: object = None,
        *,
        token: str = ADMIN,
        is_unread: bool = False,
        **headers: str,
    ) -> tuple[KeptAnswer, asyncio.Task[None]]:
        """Begin with a request; return its answer, and what handles it."""
        kept = KeptAnswer(is_unread=is_unread)
        request = self.request(method, target, body, token, headers)
        task = asyncio.ensure_future(self.site.api(request, kept.answer))
        kept.answer.waiting = Running(task)
        return kept, task

    @staticmethod
    def request(
        method: str, target: str, body: object, token: str, headers: dict[str, str]
    ) -> Request:
        """Return a request."""
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        named = {"user-agent": "tests/1", "content-length": str(len(data))}
        if token:
            named["authorization"] = f"Bearer {token}"
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = Connection("", "127.0.0.1:1", ListenerLimits())
        return Request(
            connection, method, target, "HTTP/1.1", Headers(named.items()), data, None,
            may_upgrade=False,
        )  # fmt: skip


@asynccontextmanager
async def site(
    *,
    settings: Settings | None = None,
    reads_max: int = 400,
    writes_max: int = 200,
    seats: int = 0,
    auditing: Auditing | None = None,
) -> AsyncIterator[Api]:
    """Give an API over a store in memory; administrators may do everything.

    seats: of priority and fairness; 0: there is none.
    """
    async with world() as found:
        table = load()
        rows = [
            each
            for each in table
            if "alpha" not in each.version
            and "beta" not in each.version
            and (each.storage is None or _is_known(found, each))
        ]
        random = Random(1)
        env = Environment(
            found.registry,
            Endpoints(rows, found.registry),
            AdministratorsOnly(),
            found.clock,
            random,
            Identifiers(random),
            settings or Settings(),
        )
        env.admission = NoAdmission()
        in_flight = InFlight(found.clock, reads_max=reads_max, writes_max=writes_max)
        made = Site(
            env,
            table,
            Tokens(),
            found.log,
            in_flight=in_flight,
            flow_control=FlowControl(seats, found.clock) if seats else None,
            auditing=auditing,
        )
        yield Api(found, made, env)


def _is_known(found: World, row: Resource) -> bool:
    return found.registry.find(GroupResource(row.group, row.name)) is not None
