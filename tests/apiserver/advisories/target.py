"""An API server that is attacked: one for all tests of a module, in this process.

    target.ask("GET", "/api/v1/secrets", token="bob-token")   → Reply(code, headers, body)

The loop runs while something is asked, so that a test is a plain function.
"""

import asyncio
import dataclasses
import json
import ssl
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from kvstack.apiserver.policy.authentication.front_proxy import FrontProxySettings
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile, issue
from kvstack.component.clock import SystemClock
from kvstore import embed
from tests.apiserver.server.in_process import World, options
from tests.support.http.hanging_up import hang_up

T = TypeVar("T")
Headers = Iterable[tuple[str, str]]
ADMIN, BOB = "admin-token", "bob-token"


class Reply(NamedTuple):
    """An answer."""

    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Target:
    """A server and its clients."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._member = embed.start()
        self.world, self.server = self.run(self._start())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        """Let the server work until something is done."""
        return self.runner.run(what)

    async def _start(self) -> tuple[World, ApiServer]:
        member = self._stack.enter_context(self._member)
        store = await self._stack.enter_async_context(member.store())
        world = World(self.directory, store, self._stack)
        given = options(self.directory)
        CertFiles(self.directory).authority("proxies", "proxies", SystemClock().unix_s())
        authentication = dataclasses.replace(
            given.authentication,
            proxy_ca_file=str(self.directory / "proxies.crt"),
            proxies=FrontProxySettings(allowed_names=("front",)),
        )
        given = dataclasses.replace(
            given, authentication=authentication, enabled_plugins=("NodeRestriction",)
        )
        return world, await world.start(given)

    def close(self) -> None:
        """Stop the server."""
        self.run(self._stack.aclose())
        self.runner.close()

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str = ADMIN,
        headers: Headers = (),
        content_type: str = "application/json",
        client: tuple[str, str] | None = None,
    ) -> Reply:
        """Ask over HTTP/1.1; client: authority and name of a certificate that is shown."""
        return self.run(self.sent(method, path, body, token, headers, content_type, client))

    def create(self, path: str, obj: Any, *, token: str = ADMIN, **more: Any) -> Any:
        """Create an object that has to be taken."""
        reply = self.ask("POST", path, obj, token=token, **more)
        assert reply.code == 201, reply.body
        return reply.json

    async def sent(
        self,
        method: str,
        path: str,
        body: object = None,
        token: str = ADMIN,
        headers: Headers = (),
        content_type: str = "application/json",
        client: tuple[str, str] | None = None,
    ) -> Reply:
        """Ask, and return the answer."""
        data = body if isinstance(body, bytes) else b"" if body is None else _encoded(body)
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        if token:
            head.append(f"Authorization: Bearer {token}")
        head += [f"{name}: {value}" for name, value in headers]
        if data:
            head += [f"Content-Type: {content_type}", f"Content-Length: {len(data)}"]
        reader, writer = await self.connected(client)
        writer.write("\r\n".join([*head, "", ""]).encode("latin-1") + data)
        answer = await reader.read()
        await hang_up(writer)
        return parsed(answer)

    async def connected(
        self, client: tuple[str, str] | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        context = self._context(client)
        return await asyncio.open_connection("127.0.0.1", self.server.port, ssl=context)

    def _context(self, client: tuple[str, str] | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "apiserver-ca.crt"))
        if client is not None:
            name_of_authority, name = client
            files = CertFiles(self.directory)
            authority = files.read(name_of_authority)
            if authority is None:
                files.authority(name_of_authority, name_of_authority, SystemClock().unix_s())
                authority = files.read(name_of_authority)
            assert authority is not None
            pair = issue(authority, Profile(name), SystemClock().unix_s())
            cert, key = self.directory / "client.crt", self.directory / "client.key"
            cert.write_bytes(pair.cert)
            key.write_bytes(pair.key)
            context.load_cert_chain(cert, key)
        return context


def parsed(answer: bytes) -> Reply:
    """Return an answer of HTTP/1.1 that was read whole."""
    top, _, rest = answer.partition(b"\r\n\r\n")
    lines = top.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): value.strip()
        for name, _, value in (each.partition(":") for each in lines[1:])
    }
    if headers.get("transfer-encoding") == "chunked":
        rest = _joined(rest)
    return Reply(int(lines[0].split(" ")[1]), headers, rest)


def _joined(chunks: bytes) -> bytes:
    found = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        found += rest[: int(size, 16)]
        chunks = rest[int(size, 16) + 2 :]
    return found


def _encoded(body: object) -> bytes:
    return json.dumps(body).encode()
