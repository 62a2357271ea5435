"""ComponentStatuses: how the controller manager, the scheduler and the store are, as asked now.

    controller-manager   https://127.0.0.1:10257/healthz, whoever answers there
    scheduler            https://127.0.0.1:10259/healthz
    etcd-0               a read from the store

The API is deprecated since 1.19 and looks on this machine alone, as upstream's does.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kvstack.apiserver.registry.record import Obj
from kvstore.client.errors import StoreError
from kvstore.client.store import Store

TIMEOUT_S: Final = 20.0
ANSWER_BYTES_MAX: Final = 10 << 10
PORTS: Final = {"controller-manager": 10257, "scheduler": 10259}
_STORE: Final = "etcd-0"
_HOST: Final = "127.0.0.1"
_REQUEST: Final = (
    "GET /healthz HTTP/1.0\r\nHost: %s\r\nUser-Agent: kube-probe/1.37\r\nAccept: */*\r\n\r\n"
)


class Health(NamedTuple):
    """What asking a component came to."""

    status: str
    """True, False or Unknown."""
    message: str = ""
    error: str = ""


Ask: TypeAlias = Callable[[], Awaitable[Health]]


class ComponentStatuses:
    """Makes ComponentStatuses."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        """Ask components by these."""
        self._asks: Final = dict(sorted(asks.items()))

    @classmethod
    def of(cls, store: Store, root: str) -> "ComponentStatuses":
        """Ask those that a cluster has, and a store with keys below a root."""
        asks: dict[str, Ask] = {name: partial(ask_page, port) for name, port in PORTS.items()}
        asks[_STORE] = partial(ask_store, store, f"{root}health".encode())
        return cls(asks)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the components."""
        return tuple(self._asks)

    async def make(self, name: str) -> Obj:
        """Return the status of a component."""
        found = await self._asks[name]()
        condition = {"type": "Healthy", **found._asdict()}
        return {"metadata": {"name": name}, "conditions": [condition]}


async def ask_store(store: Store, key: bytes, timeout_s: float = TIMEOUT_S) -> Health:
    """Ask a store by a read."""
    try:
        async with asyncio.timeout(timeout_s):
            await store.get(key)
    except TimeoutError:
        return Health("False", error="context deadline exceeded")
    except StoreError as error:
        return Health("False", error=str(error))
    return Health("True", "ok")


async def ask_page(port: int, timeout_s: float = TIMEOUT_S) -> Health:
    """Ask the health page of a component on this machine; its certificate is not looked at."""
    place = f"{_HOST}:{port}"
    failed = f'Get "https://{place}/healthz": '
    try:
        async with asyncio.timeout(timeout_s):
            code, body = await _page(port, place)
    except TimeoutError:
        return Health("False", f"{failed}context deadline exceeded")
    except ssl.SSLError as error:
        return Health("False", f"{failed}tls: {error.reason}")
    except OSError as error:
        text = os.strerror(error.errno).lower() if error.errno else str(error)
        return Health("False", f"{failed}dial tcp {place}: connect: {text}")
    if code is None:
        return Health("False", f"{failed}malformed HTTP response")
    if not 200 <= code < 400:
        return Health("False", f"HTTP probe failed with statuscode: {code}")
    return Health("True", body)


async def _page(port: int, place: str) -> tuple[int | None, str]:
    """Return the status code and the body of the page; None: it is no HTTP."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(_HOST, port, ssl=context)
    try:
        writer.write((_REQUEST % place).encode())
        await writer.drain()
        answer = b""
        while len(answer) < ANSWER_BYTES_MAX and (piece := await reader.read(ANSWER_BYTES_MAX)):
            answer += piece
    finally:
        writer.close()
    head, _, body = answer[:ANSWER_BYTES_MAX].partition(b"\r\n\r\n")
    words = head.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        return None, ""
    return int(words[1]), body.decode(errors="replace")
