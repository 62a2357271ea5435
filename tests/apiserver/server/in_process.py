"""API servers in this process, over a store in memory, with a client that speaks HTTP to them.

async def main(world: World) -> None:
    server = await world.start()
    status, body = await world.get(server, "/readyz")

run(tmp_path, main)
"""

import asyncio
import dataclasses
import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.settings.options import (
    AuthenticationOptions,
    Options,
    ServiceAccountOptions,
    ServingOptions,
)
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile, issue
from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger
from kvstore import embed
from kvstore.client import Store
from tests.support.http.hanging_up import hang_up

WAIT_S = 60.0
ISSUER = "https://kubernetes.default.svc.cluster.local"
TOKENS = 'admin-token,admin,admin,"system:masters"\nbob-token,bob,bob\n'


def options(directory: Path, **changes: Any) -> Options:
    """Return settings of a server on loopback, whose files are in a directory."""
    tokens = directory / "tokens.csv"
    if not tokens.exists():
        tokens.write_text(TOKENS)
    files = CertFiles(directory)
    files.authority("clients", "clients", SystemClock().unix_s())
    files.key("sa")
    accounts = ServiceAccountOptions(
        issuers=(ISSUER,),
        key_files=(str(directory / "sa.pub"),),
        signing_key_file=str(directory / "sa.key"),
    )
    made = Options(
        serving=ServingOptions(
            bind_address="127.0.0.1",
            advertise_address="192.0.2.7",
            port=0,
            cert_dir=str(directory),
        ),
        authentication=AuthenticationOptions(
            client_ca_file=str(files.cert("clients")),
            token_file=str(tokens),
            accounts=accounts,
        ),
        authorization_modes=("Node", "RBAC"),
        service_ranges=(address_range("10.0.0.0/16"),),
        allow_privileged=True,
    )
    return dataclasses.replace(made, **changes)


class World:
    """A store, and the API servers on it."""

    def __init__(self, directory: Path, store: Store, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.store = store
        self._stack = stack

    async def start(self, given: Options | None = None) -> ApiServer:
        """Start a server and wait until it is ready; it is stopped at the end."""
        server = ApiServer(self.store, given or options(self.directory), LineLogger([], "fatal"))
        await server.start()
        self._stack.push_async_callback(server.stop)
        async with asyncio.timeout(WAIT_S):
            await server.ready()
        return server

    async def get(
        self, server: ApiServer, path: str, token: str = "admin-token"
    ) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        return await self.ask(server, "GET", path, token=token)

    async def object(self, server: ApiServer, path: str) -> dict[str, Any]:
        """Return an object that is there."""
        status, body = await self.get(server, path)
        assert status == 200, body
        found: dict[str, Any] = json.loads(body)
        return found

    async def ask(
        self,
        server: ApiServer,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        token: str = "",
        client: str = "",
        groups: tuple[str, ...] = (),
        accept: str = "",
        media_type: str = "application/json",
    ) -> tuple[int, bytes]:
        """Ask over TLS; client: the user of a certificate that is shown."""
        context = self.context(client, groups)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        head = [f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close"]
        if token:
            head.append(f"Authorization: Bearer {token}")
        if accept:
            head.append(f"Accept: {accept}")
        if body:
            head += [f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        answer = await reader.read()
        await hang_up(writer)
        top, _, rest = answer.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in top.lower():
            rest = _joined(rest)
        return int(top.split(b" ", 2)[1]), rest

    def context(self, client: str = "", groups: tuple[str, ...] = ()) -> ssl.SSLContext:
        """Return what a client believes, and shows if it has a name."""
        # The server's own authority is believed, so that its certificate is checked, too.
        context = ssl.create_default_context(cafile=str(self.directory / "apiserver-ca.crt"))
        if client:
            authority = CertFiles(self.directory).read("clients")
            assert authority is not None
            pair = issue(authority, Profile(client, groups=groups), SystemClock().unix_s())
            (self.directory / "client.crt").write_bytes(pair.cert)
            (self.directory / "client.key").write_bytes(pair.key)
            context.load_cert_chain(self.directory / "client.crt", self.directory / "client.key")
        return context


def run(directory: Path, main: Callable[[World], Awaitable[None]]) -> None:
    """Run a test on a store in memory."""

    async def body() -> None:
        with embed.start() as member:
            async with member.store() as store, AsyncExitStack() as stack:
                await main(World(directory, store, stack))

    asyncio.run(body())


def _joined(chunks: bytes) -> bytes:
    found = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        length = int(size, 16)
        found += rest[:length]
        chunks = rest[length + 2 :]
    return found
