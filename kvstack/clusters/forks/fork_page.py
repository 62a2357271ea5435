"""The page of a fork, which tells what it has not asked: `/kvstack/fork`.

add_fork_page(server, time)
await fork_state(kubeconfig)  → {"revision": 48300, "rate": 1.0, "unasked": [{"what": …}]}, or None

The rate is that of its own clock; null: it goes by the machine's.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.kubeconfig import KubeconfigError, Kubeconfigs, connect
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.status import ApiError

if TYPE_CHECKING:
    from kvstack.agents.standalone.in_memory.cluster_time import ClusterTime
    from kvstack.apiserver.http.request_context import RequestContext
    from kvstack.apiserver.server.assembly import ApiServer

PATH: Final = "/kvstack/fork"
TIMEOUT_S: Final = 3.0


def add_fork_page(server: "ApiServer", own_time: "ClusterTime | None") -> None:
    """Serve the page to whom RBAC lets."""

    async def page(context: "RequestContext") -> None:
        state = {
            "revision": server.registry.watch_cache.revision,
            "rate": None if own_time is None else own_time.rate,
            "unasked": [each._asdict() for each in server.outbound.unasked],
        }
        context.reply.send(200, "application/json", orjson.dumps(state))

    server.site.pages.add(PATH, page)


async def fork_state(kubeconfig: Path) -> dict[str, Any] | None:
    """Return what the page of a fork tells; None: the fork does not answer."""
    try:
        cluster = Kubeconfigs([kubeconfig]).cluster()
        api = Api(connect(cluster), Options(user_agent="kvstack", timeout_s=TIMEOUT_S))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await api.call("GET", PATH)
        finally:
            await api.close()
    except (ApiError, KubeconfigError, UnreachableError, TimeoutError):
        return None
