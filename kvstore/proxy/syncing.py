"""What the proxy asks of the cluster for itself: who the members are, and how far they are.

every --endpoints-auto-sync-interval   MemberList ─► the endpoints from now on
at the start, where order is kept      one linearizable read, until it is answered
"""

import asyncio
from typing import Final

from kvstore.logger import Logger
from kvstore.proxy.kv import KvProxy
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_RETRY_S: Final = 1.0
_KEY: Final = b"_"


async def keep_in_step(upstream: Upstream, interval_s: float, logger: Logger) -> None:
    """Dial the members as the cluster lists them, every interval_s, until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            answer = await upstream.call(rpc.MEMBER_LIST, b"")
        except CallRefusedError as error:
            logger.warning("auto sync endpoints failed.", error=error.text)
            continue
        members = pb.MemberListResponse.FromString(answer).members
        found = [url for each in members if each.name and not each.isLearner
                 for url in each.clientURLs]  # fmt: skip
        if found and sorted(found) != sorted(upstream.addresses):
            await upstream.replace(found)


async def read_in_order(kv: KvProxy, logger: Logger) -> None:
    """Read once, so that no later answer is of an older revision; tries until it is answered."""
    request = pb.RangeRequest(key=_KEY, keys_only=True).SerializeToString()
    while True:
        try:
            await kv.range(request, {})
        except CallRefusedError as error:
            logger.warning("ordering recovery failed, retrying in 1s", error=error.text)
            await asyncio.sleep(_RETRY_S)
        else:
            return
