"""An HTTPS server on loopback that answers JSON: webhooks, issuers of tokens.

    async with web(directory, answer) as served:
        served.url            https://127.0.0.1:PORT
        served.ca_file        who signed its certificate
        served.asked          (path, body) of every request

`answer` is called with the path and the body, and returns a code and what is answered.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web as aiohttp_web

from tests.support.certificates import Authority

Answer = tuple[int, Any]
"""Code, and an object or bytes."""
Answers = Callable[[str, Any], Answer | Awaitable[Answer]]


@dataclass
class Served:
    """A server that is up."""

    url: str
    ca_file: str
    asked: list[tuple[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def kubeconfig(self, path: Path, **user: str) -> Path:
        """Write a kubeconfig that leads here."""
        cluster = {"server": f"{self.url}/hook", "certificate-authority": self.ca_file}
        content = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(content))
        return path


@asynccontextmanager
async def web(directory: Path, answer: Answers) -> AsyncIterator[Served]:
    """Serve until the end of the block."""
    authority = await asyncio.to_thread(Authority, directory, "web-ca")
    cert, key = await asyncio.to_thread(authority.issue, "web")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    served = Served("", authority.file)

    async def handle(request: aiohttp_web.BaseRequest) -> aiohttp_web.Response:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        served.asked.append((request.path, body))
        served.headers.append(dict(request.headers))
        found = answer(request.path, body)
        code, content = found if isinstance(found, tuple) else await found
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return aiohttp_web.Response(status=code, body=data, content_type="application/json")

    server = aiohttp_web.Server(handle)
    runner = aiohttp_web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = aiohttp_web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    served.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield served
    finally:
        await runner.cleanup()
