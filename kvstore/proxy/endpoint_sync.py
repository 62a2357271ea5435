"""The proxy's own requests: the members' addresses, and the newest revision.

every --endpoints-auto-sync-interval   MemberList ─► the new endpoints
at the start, if responses are ordered one linearizable read, repeated until it succeeds
"""

import asyncio
from typing import Final

from kvstack.component.logger import Logger
from kvstore.proxy.caching_kv import CachingKv
from kvstore.proxy.upstream import NO_METADATA, Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_RETRY_S: Final = 1.0
_KEY: Final = b"_"


async def sync_endpoints(upstream: Upstream, interval_s: float, logger: Logger) -> None:
    """Use the client URLs of the cluster's members, requested every interval_s, until cancelled."""
    while True:
        await asyncio.sleep(interval_s)
        try:
            answer = await upstream.call(rpc.MEMBER_LIST, b"")
        except CallRefusedError as error:
            logger.info("Auto sync endpoints failed.", error=error.text)
            continue
        members = pb.MemberListResponse.FromString(answer).members
        found = [url for each in members if each.name and not each.isLearner
                 for url in each.clientURLs]  # fmt: skip
        if found and sorted(found) != sorted(upstream.addresses):
            await upstream.replace(found)
        logger.debug("set etcd endpoints by autoSync", endpoints=upstream.addresses)


async def recover_ordering(kv: CachingKv, logger: Logger) -> None:
    """Read once, so that no later response is of an older revision; repeat until it succeeds."""
    request = pb.RangeRequest(key=_KEY, keys_only=True).SerializeToString()
    while True:
        try:
            await kv.range(request, NO_METADATA)
        except CallRefusedError as error:
            logger.warning("ordering recovery failed, retrying in 1s", error=error.text)
            await asyncio.sleep(_RETRY_S)
        else:
            return
