"""A session: a lease of the proxy itself, kept alive until it is lost.

    grant() ──► keep_alive() ── renewed after a third of the remaining time ──► lost: it returns
                                                                end() ────────► it returns at once

A grant or renewal is counted from the time its request was *sent*. So the session ends here before
it can end in the cluster.
"""

import asyncio
from typing import Final

from kvstack.component.logger import Logger
from kvstore.proxy.upstream import Upstream
from kvstore.runtime.local_client import CallRefusedError
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_RETRY_S: Final = 1.0
_REVOKE_S: Final = 1.0


class Session:
    """One lease at a time."""

    def __init__(self, upstream: Upstream, ttl_s: int, logger: Logger) -> None:
        self._upstream = upstream
        self._ttl_s: Final = ttl_s
        self._logger = logger
        self._deadline_s = 0.0  # of the loop's clock
        self._ended = asyncio.Event()
        self.lease_id = 0

    @property
    def is_alive(self) -> bool:
        """Whether the lease certainly still exists in the cluster."""
        return bool(self.lease_id) and not self._ended.is_set() and self._left_s() > 0

    async def grant(self) -> None:
        """Get a new lease; CallRefusedError if that fails."""
        request = pb.LeaseGrantRequest(TTL=self._ttl_s)
        sent_s = _now_s()
        answer = await self._upstream.call(rpc.LEASE_GRANT, request.SerializeToString())
        response = pb.LeaseGrantResponse.FromString(answer)
        self._ended.clear()
        self._deadline_s = sent_s + response.TTL
        self.lease_id = response.ID

    def end(self) -> None:
        """Stop renewing the lease."""
        self._ended.set()

    async def keep_alive(self) -> None:
        """Renew the lease until it is lost or ended."""
        while self.is_alive:
            is_renewed = False
            try:
                async with asyncio.timeout(self._left_s()):
                    is_renewed = await self._renew()
            except TimeoutError:
                break
            except CallRefusedError as error:
                self._logger.debug("a keep-alive failed", error=error.text)
            pause_s = self._left_s() / 3 if is_renewed else min(_RETRY_S, self._ttl_s / 3)
            try:
                async with asyncio.timeout(pause_s):
                    await self._ended.wait()
            except TimeoutError:
                continue
        self._ended.set()

    async def _renew(self) -> bool:
        """Return whether the cluster has answered; an expired lease ends the session."""
        stream = await self._upstream.open(rpc.LEASE_KEEP_ALIVE)
        try:
            sent_s = _now_s()
            request = pb.LeaseKeepAliveRequest(ID=self.lease_id)
            await stream.send(request.SerializeToString())
            async for message in stream:
                ttl_s = pb.LeaseKeepAliveResponse.FromString(message).TTL
                if ttl_s <= 0:
                    self.end()
                self._deadline_s = sent_s + ttl_s
                return True
        finally:
            stream.cancel()
        return False

    async def revoke(self) -> bool:
        """End the session and revoke its lease; return whether that succeeded."""
        self.end()
        request = pb.LeaseRevokeRequest(ID=self.lease_id)
        try:
            async with asyncio.timeout(_REVOKE_S):
                await self._upstream.call(rpc.LEASE_REVOKE, request.SerializeToString())
        except (CallRefusedError, TimeoutError) as error:
            self._logger.debug("failed to revoke a lease", error=str(error))
            return False
        return True

    def _left_s(self) -> float:
        return max(self._deadline_s - _now_s(), 0.0)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
