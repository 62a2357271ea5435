"""ComponentStatuses: the current health of controller manager, scheduler and store.

    controller-manager   https://127.0.0.1:10257/healthz
    scheduler            https://127.0.0.1:10259/healthz
    etcd-0               a read from the store

The API is deprecated since 1.19 and, as upstream's, looks at this machine only. A component that
runs in this process (`kvstack up`) serves no page; it is called directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.faults import fault_text
from kvstack.component.http.request_head import head_lines
from kvstack.component.http.streamed_answer import StreamedAnswer
from kvstack.component.http.tls import client_context
from kvstore.client.errors import StoreError
from kvstore.client.store import Store

TIMEOUT_S: Final = 20.0
ANSWER_BYTES_MAX: Final = 10 << 10
CONTROLLER_MANAGER: Final = "controller-manager"
SCHEDULER: Final = "scheduler"
PORTS: Final = {CONTROLLER_MANAGER: 10257, SCHEDULER: 10259}
_STORE: Final = "etcd-0"
_HOST: Final = "127.0.0.1"
_FAILED: Final = "HTTP probe failed with statuscode: %s"
_HEAD: Final = head_lines(
    (("User-Agent", "kube-probe/1.37"), ("Accept", "*/*"), ("Connection", "close"))
)


class Health(NamedTuple):
    """The outcome of one check."""

    status: str
    """True, False or Unknown."""
    message: str = ""
    error: str = ""


Ask: TypeAlias = Callable[[], Awaitable[Health]]


class ComponentStatuses:
    """Builds ComponentStatuses."""

    def __init__(self, asks: Mapping[str, Ask]) -> None:
        """Take the checks by component name."""
        self._asks: Final = dict(sorted(asks.items()))
        self._local: dict[str, Callable[[], bool]] = {}

    @classmethod
    def of(cls, store: Store, root: str) -> "ComponentStatuses":
        """Check the usual components, and a store with keys below a root."""
        asks: dict[str, Ask] = {name: partial(ask_page, port) for name, port in PORTS.items()}
        asks[_STORE] = partial(ask_store, store, f"{root}health".encode())
        return cls(asks)

    @property
    def names(self) -> tuple[str, ...]:
        """The component names."""
        return tuple(self._asks)

    def attach(self, name: str, is_working: Callable[[], bool]) -> None:
        """Check a component of this process by a call, instead of its page."""
        self._local[name] = is_working

    def detach(self, name: str) -> None:
        """Check a component by its page again: it does not run in this process."""
        self._local.pop(name, None)

    async def make(self, name: str) -> Object:
        """Return the status of a component."""
        is_working = self._local.get(name)
        if is_working is None:
            found = await self._asks[name]()
        else:
            found = Health("True", "ok") if is_working() else Health("False", _FAILED % 500)
        condition = {"type": "Healthy", **found._asdict()}
        return {"metadata": {"name": name}, "conditions": [condition]}


async def ask_store(store: Store, key: bytes, timeout_s: float = TIMEOUT_S) -> Health:
    """Check a store by a read."""
    try:
        async with asyncio.timeout(timeout_s):
            await store.get(key)
    except TimeoutError:
        return Health("False", error="context deadline exceeded")
    except StoreError as error:
        return Health("False", error=str(error))
    return Health("True", "ok")


async def ask_page(port: int, timeout_s: float = TIMEOUT_S) -> Health:
    """Check the health page of a component on this machine; its certificate is not verified."""
    url = f"https://{_HOST}:{port}/healthz"
    client = HttpClient()
    try:
        async with asyncio.timeout(timeout_s):
            context = client_context(insecure=True)
            async with await client.open("GET", url, _HEAD, context=context) as answer:
                body = await _beginning(answer)
    except TimeoutError:
        return Health("False", f'Get "{url}": context deadline exceeded')
    except (AnswerError, OSError) as error:
        return Health("False", f'Get "{url}": {fault_text(error, _HOST, port)}')
    finally:
        client.close()
    if not 200 <= answer.code < 400:
        return Health("False", _FAILED % answer.code)
    return Health("True", body.decode(errors="replace"))


async def _beginning(answer: StreamedAnswer) -> bytes:
    """Return the beginning of a page, as far as it is shown."""
    found = b""
    while len(found) < ANSWER_BYTES_MAX and (piece := await answer.read()):
        found += piece
    return found[:ANSWER_BYTES_MAX]
